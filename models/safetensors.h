// Weights on disk, in a format that Python reads and writes too, and that runs no code when it is
// loaded: an 8-byte little-endian length, a JSON header, then the tensors' bytes. Free of LibTorch.
// The format is described in the README of the safetensors project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace millrace::train::safetensors {

/// One tensor, row-major, little-endian. The bytes belong to someone else.
struct Tensor {
  std::string name;
  std::string dtype;  ///< the format's names: "F32", "I64", "U8", ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

using Metadata = std::map<std::string, std::string>;

/// Bytes an element; 0 for a name that the format does not know.
std::size_t dtype_size(const std::string& dtype);

/// A file in memory, checked from end to end.
class File {
 public:
  /// Throws DataError, naming the file and what is wrong with it.
  static File read(const std::filesystem::path& path);
  /// The same for bytes in memory; `name` is what to call them in a message.
  static File parse(std::vector<std::byte> bytes, const std::string& name);

  /// In the order of their names; valid as long as the file.
  const std::vector<Tensor>& tensors() const& { return tensors_; }
  const std::vector<Tensor>& tensors() && = delete;  // they would outlive their bytes
  const Metadata& metadata() const& { return metadata_; }
  const Metadata& metadata() && = delete;

 private:
  std::vector<std::byte> bytes_;
  std::vector<Tensor> tensors_;
  Metadata metadata_;
};

/// Writes beside `path`, fsyncs, then renames: under that name there is the whole file or whatever
/// was there before. Throws RunError with file and reason (a full disk, say).
void write(const std::filesystem::path& path, std::vector<Tensor> tensors,
           const Metadata& metadata = {});

}  // namespace millrace::train::safetensors
