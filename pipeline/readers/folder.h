// A compact list of an image folder's files: one arena of names and eight bytes per file, so that a
// set of millions fits in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/private_api.h"
#include "millrace/reader.h"

namespace millrace::pipeline {

/// Returns the folder of a split's class folders: DIR/split (val and valid count as test), or DIR
/// itself for train if DIR has no split folders. Throws DataError.
MILLRACE_PRIVATE_API std::string find_split(const std::string& folder, const std::string& split);

/// Classes and files of one split, sorted bytewise: classes by name, a class's files by their path
/// below it.
class MILLRACE_PRIVATE_API FolderListing {
 public:
  /// Lists `root`: one folder per class, with all folders below it. If `root` holds images and no
  /// folder, they form one class named `lone_class`. Ignores hidden files and folders and files
  /// without an image ending (has_image_ending()). Throws DataError for a folder that cannot be
  /// listed, an image name that is not a regular file, and folders nested more than 16 deep.
  FolderListing(std::string root, std::string lone_class, bool arrays = false);

  const std::string& root() const { return root_; }
  const std::vector<std::string>& classes() const { return classes_; }
  std::uint64_t count() const { return files_.size(); }
  std::uint64_t count(std::size_t label) const { return starts_[label + 1] - starts_[label]; }
  std::size_t label(std::uint64_t index) const;
  /// Returns the folder that holds a class's files.
  std::string folder(std::size_t label) const;
  std::uint32_t bytes(std::uint64_t index) const { return files_[index].bytes; }
  /// Returns the path below the class's folder.
  const char* file(std::uint64_t index) const { return arena_.data() + files_[index].name; }
  std::string path(std::uint64_t index) const;
  /// Writes the path below root() into `out` without allocating. Returns false if it does not fit.
  /// `label` is label(index).
  bool path_below(std::uint64_t index, std::size_t label, std::span<char> out) const;
  /// Says where the file lies, with label(index) as its label. Returns false if its path is too
  /// long to be opened.
  bool locate(std::uint64_t index, Location& location) const;
  /// Returns whether root() holds images beside its folders, which are not listed.
  bool has_loose_images() const { return loose_; }
  std::uint64_t total_bytes() const;
  /// Returns a hash of the relative names and sizes.
  std::uint64_t fingerprint() const;

 private:
  struct File {
    std::uint32_t name;   ///< offset in the arena
    std::uint32_t bytes;  ///< size when listed
  };
  /// Adds the files of `folder`, unsorted. `inner` is its path below the class ("" or ending in
  /// '/').
  void add_files(const std::string& folder, const std::string& inner, int depth);
  void add_file(const std::string& name, std::uint64_t size);

  std::string root_;
  bool arrays_;
  bool lone_ = false;   ///< the files lie in the root itself
  bool loose_ = false;  ///< images in the root are not listed
  std::vector<std::string> classes_;
  std::vector<std::uint64_t> starts_;  ///< first file of each class, and the end
  std::vector<char> arena_;            ///< names, each zero-terminated
  std::vector<File> files_;
};

// Image folders: one folder per class, one file per sample. The bytes stay encoded.

std::unique_ptr<Reader> open_folder(const DataOptions& options);

}  // namespace millrace::pipeline
