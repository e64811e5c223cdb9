// The list of an image folder's files, kept small: one arena of names and eight bytes a file, so
// that a set of millions fits in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::pipeline {

/// True if the ending is one of an image format that the decoders know, in any case; a plugin's
/// decoder "qoi" knows .qoi.
bool has_image_ending(std::string_view name);

/// Where a split's class folders are: DIR/split (val and valid count as test), or DIR itself for
/// train when DIR has no split folders. Throws DataError.
std::string find_split(const std::string& folder, const std::string& split);

/// Classes and files of one split, sorted bytewise: classes by name, the files of a class by their
/// path below it.
class FolderListing {
 public:
  /// Lists `root`: a class a folder, with all folders below it, or, where it holds images and no
  /// folder, one class named `lone_class`. Hidden files and folders and files without an image
  /// ending are passed over. Throws DataError for what cannot be listed, for an image name that is
  /// not a regular file, and for folders nested more than 16 deep.
  FolderListing(std::string root, std::string lone_class);

  const std::string& root() const { return root_; }
  const std::vector<std::string>& classes() const { return classes_; }
  std::uint64_t count() const { return files_.size(); }
  std::uint64_t count(std::size_t label) const { return starts_[label + 1] - starts_[label]; }
  std::size_t label(std::uint64_t index) const;
  /// The folder that holds a class's files.
  std::string folder(std::size_t label) const;
  std::uint32_t bytes(std::uint64_t index) const { return files_[index].bytes; }
  /// Path below the class's folder.
  const char* file(std::uint64_t index) const { return arena_.data() + files_[index].name; }
  std::string path(std::uint64_t index) const;
  /// Path below root() into `out`, without allocating; false if it does not fit. `label` as
  /// label(index) says.
  bool path_below(std::uint64_t index, std::size_t label, std::span<char> out) const;
  std::uint64_t total_bytes() const;
  /// Of relative names and sizes.
  std::uint64_t fingerprint() const;

 private:
  struct File {
    std::uint32_t name;   ///< offset in the arena
    std::uint32_t bytes;  ///< size when listed
  };
  /// Adds `folder`, which lies at `inner` below its class ("" or ending in '/'), unsorted.
  void add_files(const std::string& folder, const std::string& inner, int depth);
  void add_file(const std::string& name, std::uint64_t size);

  std::string root_;
  bool lone_ = false;  ///< the files lie in the root itself
  std::vector<std::string> classes_;
  std::vector<std::uint64_t> starts_;  ///< first file of each class, and the end
  std::vector<char> arena_;            ///< names, each ended by a zero
  std::vector<File> files_;
};

}  // namespace millrace::pipeline
