// Columns of Arrow tables, in place: Arrow's C data interface, by which libraries hand arrays to
// each other within a process (https://arrow.apache.org/docs/format/CDataInterface.html).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace millrace::python {

/// One column of whole numbers, of bytes, of paths, or of structs of bytes and path, as Hugging
/// Face stores images. Immutable: any thread may read it, without the GIL. Rows count over all
/// chunks.
class ArrowColumn {
 public:
  enum class Of { images, numbers };

  /// A row's bytes, or the path of the file that holds them.
  struct Stored {
    std::optional<std::span<const std::uint8_t>> bytes{};
    std::optional<std::span<const std::uint8_t>> path{};
  };

  /// Takes the arrays out of `chunks`, a list of the pairs that __arrow_c_array__() returns. They
  /// must be valid: the interface does not tell how long their memory is. `name` is for messages.
  /// Throws UsageError for a column of another type. Call it with the GIL.
  ArrowColumn(Of of, std::string name, nanobind::handle chunks);
  /// Releases the arrays. Call it with the GIL, which some owners of memory take.
  ~ArrowColumn();
  ArrowColumn(const ArrowColumn&) = delete;
  ArrowColumn& operator=(const ArrowColumn&) = delete;

  /// Returns a row of a column of images; nothing where it is null. Throws DataError if there is no
  /// such row.
  Stored stored(std::uint64_t row) const;
  /// Returns a row of a column of numbers. Throws DataError if there is no such row, or where it is
  /// null or too large.
  std::int64_t number(std::uint64_t row) const;

 private:
  struct Chunk;
  const Chunk& chunk_of(std::uint64_t row) const;

  std::string name_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::uint64_t rows_ = 0;
};

}  // namespace millrace::python
