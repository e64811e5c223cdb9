// Weights on disk as safetensors, which Python reads and writes too and which runs no code when
// loaded: an 8-byte little-endian length, a JSON header, then the tensors' bytes. Independent of
// LibTorch. The README of the safetensors project describes the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace millrace::train::safetensors {

/// One tensor, little-endian. Does not own its bytes.
struct Tensor {
  std::string name;
  std::string dtype;  ///< element type by the format's names: "F32", "I64", "U8", ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  /// For write(): distance between neighbours in each dimension, in elements, where the bytes are
  /// not row-major. They fill the memory without gaps. Empty: row-major.
  std::vector<std::int64_t> strides = {};
};

using Metadata = std::map<std::string, std::string>;

/// Returns the bytes per element; 0 for a name that the format does not have.
std::size_t dtype_size(const std::string& dtype);

/// A validated file in memory.
class File {
 public:
  /// Reads a file. Throws DataError with the file and the defect.
  static File read(const std::filesystem::path& path);
  /// Parses bytes in memory; `name` stands for the file in messages.
  static File parse(std::vector<std::byte> bytes, const std::string& name);

  /// Returns the tensors in the order of their names, valid for the file's lifetime.
  const std::vector<Tensor>& tensors() const& { return tensors_; }
  const std::vector<Tensor>& tensors() && = delete;  // they would outlive their bytes
  const Metadata& metadata() const& { return metadata_; }
  const Metadata& metadata() && = delete;

 private:
  std::vector<std::byte> bytes_;
  std::vector<Tensor> tensors_;
  Metadata metadata_;
};

/// Writes tensors row-major into a temporary file, syncs it, then renames it: `path` holds either
/// the whole new file or its previous contents. Throws RunError with the file and the reason, such
/// as a full disk.
void write(const std::filesystem::path& path, std::vector<Tensor> tensors,
           const Metadata& metadata = {});

}  // namespace millrace::train::safetensors
