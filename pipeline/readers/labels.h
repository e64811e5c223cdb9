// Labels as they stand in text, and names for classes that have none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::pipeline {

/// Labels must lie below this whatever a recipe says: names of classes are kept in memory.
inline constexpr std::int64_t kMaxClasses = 1 << 24;

/// Returns the exclusive upper bound for labels of `count` samples where the number of classes is
/// not given, so that one wrong label cannot create millions of classes.
std::int64_t max_classes(std::uint64_t count);

/// A whole number from 0 on, blanks around it allowed.
std::optional<std::int64_t> parse_label(std::string_view text);

/// "0", "1", ...
std::vector<std::string> numbered_classes(std::int64_t count);

/// Whether read_class_names() gives this name back from a line of its own.
bool is_class_name(std::string_view name);

/// The lines of a text file of names, or nothing if it is not there.
std::vector<std::string> read_class_names(const std::string& path);

}  // namespace millrace::pipeline
