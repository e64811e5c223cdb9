// The user's list of plugins that may be loaded whenever a recipe names them. It is a text file in
// the form of sha256sum: "HASH  PATH", one line per plugin.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace millrace::tools {

/// Whether the list holds a file, with the same content.
enum class Trust { none, changed, whole };

class TrustList {
 public:
  /// $XDG_CONFIG_HOME/millrace/trusted-plugins, by default below ~/.config. Empty where neither
  /// variable is set.
  static std::filesystem::path place();

  /// Reads the list at place(); one that is not there is empty. Throws DataError for a malformed
  /// line, and for a list that others may write.
  TrustList();

  /// `whole` if the list holds this path and the contents are those that were trusted. Throws
  /// DataError where the file cannot be read.
  Trust of(const std::filesystem::path& file) const;
  /// Adds a file, or replaces what is known of it. Throws DataError, or UsageError for a path that
  /// cannot stand in a line.
  void add(const std::filesystem::path& file);
  /// False if it is not in the list. The file need not be there any more.
  bool remove(const std::filesystem::path& file);
  /// Writes the list. Throws RunError.
  void save() const;

  struct Entry {
    std::string hash;  ///< SHA-256, 64 hexadecimal digits
    std::string path;  ///< absolute, links resolved
  };
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

/// Throws DataError if anyone may replace `path`: where it, or the folder it lies in, is writable
/// by everyone, or a folder further up is so without the sticky bit. Looks at the path as given
/// and at what it leads to.
void require_unshared(const std::filesystem::path& path);

}  // namespace millrace::tools
