// CIFAR-10 and CIFAR-100 in their binary form: records of label bytes and 32x32 planar RGB pixels.
// Format: A. Krizhevsky, "Learning multiple layers of features from tiny images" (2009).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/private_api.h"
#include "millrace/reader.h"
#include "pipeline/readers/mapped_file.h"

namespace millrace::pipeline {

/// Differences between the two sets.
struct CifarLayout {
  const char* name;         ///< "CIFAR-10"
  int classes;              ///< number of classes as published
  std::size_t label_bytes;  ///< bytes before the pixels; the last one is the label in use
  const char* class_names;  ///< text file with one name per line

  static constexpr std::size_t kPixels = 3 * 32 * 32;
  std::size_t record() const { return label_bytes + kPixels; }
};

/// Paths of one split's files, not yet opened; `layout` is null if there are none.
struct CifarPaths {
  const CifarLayout* layout = nullptr;
  std::string folder;
  std::vector<std::string> files;  ///< full paths, in order; some may be missing
};

/// Looks in `folder` and in the folder that the archive unpacks to.
MILLRACE_PRIVATE_API CifarPaths find_cifar(const std::string& folder, const std::string& split);

/// Throws DataError that names `path` unless `bytes` are whole records, at least one, each with a
/// label below `classes`.
void check_cifar(const std::string& path, std::span<const std::uint8_t> bytes,
                 const CifarLayout& layout, int classes);

/// One mapped file of whole records, each with a label below `classes`.
class MILLRACE_PRIVATE_API CifarFile {
 public:
  /// Throws DataError with the file, the expected and the actual contents.
  CifarFile(const std::string& path, const CifarLayout& layout, int classes);

  const std::string& path() const { return file_.path(); }
  std::span<const std::uint8_t> all() const { return file_.bytes(); }
  std::uint64_t count() const { return file_.bytes().size() / layout_->record(); }
  std::span<const std::uint8_t> pixels(std::uint64_t index) const;
  std::uint8_t label(std::uint64_t index) const { return labels_[index]; }
  bool locate(std::uint64_t index, Location& location) const;
  bool damaged() const { return file_.damaged(); }
  void let_go() const { file_.let_go(); }

 private:
  MappedFile file_;
  const CifarLayout* layout_;
  /// Copied, so that labels are known without touching the file.
  std::vector<std::uint8_t> labels_;
};

std::unique_ptr<Reader> open_cifar(const DataOptions& options);

}  // namespace millrace::pipeline
