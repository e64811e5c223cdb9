// IDX files (MNIST, Fashion-MNIST): one file of gray images and one of labels, plain or gzip.
// Format: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits".
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/private_api.h"
#include "millrace/reader.h"
#include "pipeline/readers/mapped_file.h"

namespace millrace::pipeline {

/// Paths of the two files of a split; empty if there is none.
struct IdxPaths {
  std::string images;
  std::string labels;
};

/// Looks in `folder`, and in the folders that torchvision makes below it.
MILLRACE_PRIVATE_API IdxPaths find_idx(const std::string& folder, const std::string& split);

/// Contents of a checked header.
struct IdxLayout {
  std::uint64_t count = 0;
  Size size{1, 1};         ///< size of every image
  std::size_t header = 0;  ///< length in bytes
};

/// Checks a whole file of images (or of labels) in memory: its header, and its length against the
/// header. Throws DataError that names `path`.
IdxLayout check_idx(const std::string& path, bool images, std::span<const std::uint8_t> bytes);

/// One checked IDX file of unsigned bytes: its length matches the shape in its header.
class MILLRACE_PRIVATE_API IdxFile {
 public:
  enum class Kind { images, labels };
  /// Throws DataError with the file, the expected and the actual contents.
  IdxFile(const std::string& path, Kind kind);

  const std::string& path() const { return file_.path(); }
  std::uint64_t count() const { return layout_.count; }
  Size size() const { return layout_.size; }  ///< size of every image
  std::span<const std::uint8_t> all() const { return file_.bytes(); }
  /// Returns the items one after the other, without the header.
  std::span<const std::uint8_t> items() const { return all().subspan(layout_.header); }
  /// Returns the offset of the items in the file.
  std::size_t header() const { return layout_.header; }
  /// Returns true if the file holds its items unchanged, that is, if it is not gzip.
  bool plain() const { return !path().ends_with(".gz"); }
  bool damaged() const { return file_.damaged(); }
  void let_go() const { file_.let_go(); }

 private:
  MappedFile file_;
  IdxLayout layout_;
};

/// Returns the number of classes: `classes`, or the largest label + 1 if `classes` is 0. Throws
/// DataError for the first label that is not below `classes`.
int check_idx_labels(const IdxFile& labels, int classes);

std::unique_ptr<Reader> open_idx(const DataOptions& options);

}  // namespace millrace::pipeline
