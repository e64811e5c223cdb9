// The list of the files that a shard cache has written to its folder. Only these may be removed,
// truncated or replaced: a folder may hold other files whose names look alike.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "base/private_api.h"

namespace millrace::pipeline {

inline constexpr std::string_view kShardEnding = ".tar";       ///< of a complete archive
inline constexpr std::string_view kShardPartEnding = ".part";  ///< of one that is being filled

/// The file whose lock protects a folder and its list.
inline constexpr std::string_view kLockFile = "lock";

/// Returns the 32 hexadecimal digits that a shard cache names a key's files by.
std::string shard_name(std::string_view key);
/// Returns the digits if `file` is one of a shard cache's names, DIGITS.tar or DIGITS.part; empty
/// for any other.
std::string_view digits_of_shard(std::string_view file);

/// A file of the folder with a name per line, which is added before a file of that name is made. A
/// process that is killed at any moment thus leaves no file that is not listed. Changed by whoever
/// holds the folder's lock.
class MILLRACE_PRIVATE_API ShardList {
 public:
  static constexpr const char* kFile = "millrace-shards";

  explicit ShardList(const std::string& folder);

  /// Throws UsageError for a folder that has no list and files that no shard cache wrote. One
  /// without a list whose files all are a shard cache's is that of a version without lists.
  void check() const;
  /// Adds names, and makes the list if there is none: then it names the files that are there, which
  /// check() accepts. Throws as check(), and RunError if the list cannot be written.
  void add(const std::vector<std::string>& names) const;
  /// Returns the names; none if there is no list. Lines of another form are left out.
  std::set<std::string, std::less<>> names() const;
  /// Returns whether the file may be removed or replaced.
  bool has(const std::string& path) const;
  /// Forgets the names of files that are gone, once they are most of the list.
  void compact() const;

 private:
  bool is_there() const;
  base::Descriptor open_list(int flags) const;
  std::string text() const;
  std::vector<std::string> names_in_folder() const;
  [[noreturn]] void fail(const char* doing) const;

  std::string folder_, path_;
};

}  // namespace millrace::pipeline
