// Labels in text, and names for classes that have none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::pipeline {

/// Upper bound for labels, whatever a recipe says: class names are kept in memory.
inline constexpr std::int64_t kMaxClasses = 1 << 24;

/// Returns the exclusive upper bound for labels of `count` samples if the number of classes is not
/// given, so that one wrong label cannot create millions of classes.
std::int64_t max_classes(std::uint64_t count);

/// Parses a whole number from 0 on; blanks around it are allowed.
std::optional<std::int64_t> parse_label(std::string_view text);

/// Returns the names "0", "1", ...
std::vector<std::string> numbered_classes(std::int64_t count);

/// Returns whether read_class_names() would return this name from a line of its own.
bool is_class_name(std::string_view name);

/// Returns the lines of a text file of names, or nothing if it does not exist.
std::vector<std::string> read_class_names(const std::string& path);

}  // namespace millrace::pipeline
