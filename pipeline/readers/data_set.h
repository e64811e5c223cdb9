// Names in a data set, and the fingerprint of its contents.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/private_api.h"
#include "millrace/error.h"
#include "millrace/reader.h"

namespace millrace::pipeline {

// Names of a split's files, and the error for a set without that split.

/// Thrown if the set exists, but this split of it does not.
struct MILLRACE_PRIVATE_API MissingSplit : DataError {
  using DataError::DataError;
  ~MissingSplit() override;
};

/// Returns the names of a split; the first that exists is used: "test", "val", "valid".
inline std::vector<std::string> split_names(const std::string& split) {
  if (split == "test") return {"test", "val", "valid"};
  return {split};
}

// Labels in text, and names for classes that have none.

/// Most objects of an image, far above those of any data set that is trained on.
inline constexpr std::size_t kMaxObjects = 65'536;

/// Upper bound for labels, whatever a recipe says: class names are kept in memory.
inline constexpr std::int64_t kMaxClasses = 1 << 24;

/// Returns the exclusive upper bound for labels of `count` samples if the number of classes is not
/// given, so that one wrong label cannot create millions of classes.
std::int64_t max_classes(std::uint64_t count);

/// Warns if model.classes is more than twice the `seen` classes of the training set: most outputs
/// of the model would have no sample to learn from.
void warn_of_unused_classes(const DataOptions& options, int seen);

/// Parses a whole number from 0 on; blanks around it are allowed.
std::optional<std::int64_t> parse_label(std::string_view text);

/// Returns the names "0", "1", ...
MILLRACE_PRIVATE_API std::vector<std::string> numbered_classes(std::int64_t count);

/// Returns whether read_class_names() would return this name from a line of its own.
MILLRACE_PRIVATE_API bool is_class_name(std::string_view name);

/// Returns the lines of a text file of names, or nothing if it does not exist.
MILLRACE_PRIVATE_API std::vector<std::string> read_class_names(const std::string& path);
/// Calls `visit` with each line of a text file, without its end, and the line's number from 1 on.
/// `key`: the recipe key that names the file, for messages; empty: none. Throws DataError if it
/// cannot be read, is no regular file, or has a line of more than 16 MiB.
MILLRACE_PRIVATE_API void read_lines(
    const std::string& key, const std::string& path,
    const std::function<void(const std::string&, std::uint64_t)>& visit);

/// Returns what reader.locate() finds. Throws DataError if the path is too long to be opened.
Location location_of(const Reader& reader, std::uint64_t index);

/// Throws a reader's error again, for a file that is a sample's mask.
[[noreturn]] void rethrow_for_mask(const DataError& error);

/// Reads the file that reader.locate_mask() finds. Throws DataError, as rethrow_for_mask() does.
std::span<const std::uint8_t> read_mask_file(const Reader& reader, std::uint64_t index,
                                             Buffer& scratch);

}  // namespace millrace::pipeline

struct XXH3_state_s;

namespace millrace::pipeline {

/// Identifies a data set's contents: xxh3 over everything added, in order (determinism contract).
class MILLRACE_PRIVATE_API Fingerprint {
 public:
  Fingerprint();
  void add(std::span<const std::uint8_t> bytes);
  /// Adds a name with an end mark, so that "a" + "bc" differs from "ab" + "c".
  void add(std::string_view name);
  void add(std::uint64_t number);
  void add(const Annotations& annotations);
  std::uint64_t value() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace millrace::pipeline
