// Reads columns of Arrow tables where they lie.
#include "python/ext/arrow_column.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "millrace/error.h"

namespace nb = nanobind;

namespace millrace::python {
namespace {

/// ArrowSchema of the interface: the type of an array.
struct CSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags;
  std::int64_t child_count;
  CSchema** children;
  CSchema* dictionary;
  void (*release)(CSchema*);
  void* owner;
};

/// ArrowArray of the interface: an array's memory.
struct CArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t buffer_count;
  std::int64_t child_count;
  const void** buffers;
  CArray** children;
  CArray* dictionary;
  void (*release)(CArray*);
  void* owner;
};

/// Returns whether the row at `place` in the memory has a value.
bool is_valid(const CArray& array, std::int64_t place) {
  const auto* bits = static_cast<const std::uint8_t*>(array.buffers[0]);
  return bits == nullptr || (bits[place / 8] >> place % 8 & 1) != 0;
}

/// Returns the bytes between a row's offset and the next one.
template <class Offset>
std::span<const std::uint8_t> between(const CArray& array, std::int64_t place) {
  const auto* offsets = static_cast<const Offset*>(array.buffers[1]);
  const auto* bytes = static_cast<const std::uint8_t*>(array.buffers[2]);
  return {bytes + offsets[place], static_cast<std::size_t>(offsets[place + 1] - offsets[place])};
}

/// Formats of arrays of bytes, of text and of whole numbers.
constexpr std::string_view kBytes = "zZ", kTexts = "uU", kNumbers = "cCsSiIlL";

bool is_one_of(std::string_view formats, const CSchema& type) {
  return std::strlen(type.format) == 1 && formats.find(*type.format) != formats.npos;
}

/// An array of bytes or text.
struct Strings {
  const CArray* array = nullptr;
  char format = 0;

  /// Returns the bytes of a row; nothing where it is null.
  std::optional<std::span<const std::uint8_t>> at(std::int64_t row) const {
    if (array == nullptr) return std::nullopt;
    const std::int64_t place = array->offset + row;
    if (!is_valid(*array, place)) return std::nullopt;
    return format == 'z' || format == 'u' ? between<std::int32_t>(*array, place)
                                          : between<std::int64_t>(*array, place);
  }
};

template <class Number>
std::int64_t number_at(const CArray& array, std::int64_t place) {
  const Number number = static_cast<const Number*>(array.buffers[1])[place];
  if (std::cmp_greater(number, std::numeric_limits<std::int64_t>::max()))
    throw DataError(fmt::format("{} is too large", number));
  return static_cast<std::int64_t>(number);
}

/// Returns the number at `place` of an array of one of kNumbers.
std::int64_t number_at(const CArray& array, char format, std::int64_t place) {
  switch (format) {
    case 'c':
      return number_at<std::int8_t>(array, place);
    case 'C':
      return number_at<std::uint8_t>(array, place);
    case 's':
      return number_at<std::int16_t>(array, place);
    case 'S':
      return number_at<std::uint16_t>(array, place);
    case 'i':
      return number_at<std::int32_t>(array, place);
    case 'I':
      return number_at<std::uint32_t>(array, place);
    case 'l':
      return number_at<std::int64_t>(array, place);
    default:
      return number_at<std::uint64_t>(array, place);
  }
}

template <class Struct>
Struct& in_capsule(nb::handle capsule, const char* name) {
  auto* found = static_cast<Struct*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (found == nullptr) throw nb::python_error();
  return *found;
}

}  // namespace

struct ArrowColumn::Chunk {
  std::uint64_t first = 0;  ///< number of its first row
  CArray array{};
  char number = 0;      ///< format of numbers
  bool nested = false;  ///< `bytes` and `path` are children of structs
  Strings bytes, path;

  Chunk(CArray& from, std::uint64_t at) : first(at), array(std::exchange(from, {})) {}
  ~Chunk() { array.release(&array); }
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  /// Finds the values. Returns false for a type that does not hold them.
  bool adopt(Of of, const CSchema& type) {
    if (type.dictionary != nullptr) return false;
    if (of == Of::numbers) {
      number = *type.format;
      return is_one_of(kNumbers, type);
    }
    nested = std::string_view(type.format) == "+s";
    if (!nested) return adopt_strings(array, type);
    for (std::int64_t i = 0; i < type.child_count; ++i) {
      const CSchema& child = *type.children[i];
      const std::string_view name = child.name == nullptr ? "" : child.name;
      if (name == (is_one_of(kBytes, child) ? "bytes" : "path"))
        adopt_strings(*array.children[i], child);
    }
    return bytes.array != nullptr;
  }

 private:
  bool adopt_strings(const CArray& values, const CSchema& type) {
    if (is_one_of(kBytes, type))
      bytes = {&values, *type.format};
    else if (is_one_of(kTexts, type))
      path = {&values, *type.format};
    else
      return false;
    return true;
  }
};

ArrowColumn::ArrowColumn(Of of, std::string name, nb::handle chunks) : name_(std::move(name)) {
  for (const nb::handle pair : chunks) {
    const nb::object of_type = pair[0], of_array = pair[1];
    const auto& type = in_capsule<CSchema>(of_type, "arrow_schema");
    chunks_.push_back(std::make_unique<Chunk>(in_capsule<CArray>(of_array, "arrow_array"), rows_));
    rows_ += static_cast<std::uint64_t>(chunks_.back()->array.length);
    if (!chunks_.back()->adopt(of, type))
      throw UsageError(
          fmt::format("column {} has Arrow's type '{}'{}", name_, type.format,
                      type.dictionary != nullptr ? " in a dictionary" : ""),
          of == Of::numbers
              ? "cast it to int64"
              : "cast it to binary, to strings (paths) or to structs of bytes and path");
  }
}

ArrowColumn::~ArrowColumn() = default;

auto ArrowColumn::chunk_of(std::uint64_t row) const -> const Chunk& {
  if (row >= rows_) throw DataError(fmt::format("column {} has no row {}", name_, row));
  const auto behind = std::upper_bound(
      chunks_.begin(), chunks_.end(), row,
      [](std::uint64_t wanted, const auto& chunk) { return wanted < chunk->first; });
  return **std::prev(behind);
}

auto ArrowColumn::stored(std::uint64_t row) const -> Stored {
  const Chunk& chunk = chunk_of(row);
  auto at = static_cast<std::int64_t>(row - chunk.first);
  if (chunk.nested) {
    at += chunk.array.offset;
    if (!is_valid(chunk.array, at)) return {};
  }
  return {chunk.bytes.at(at), chunk.path.at(at)};
}

std::int64_t ArrowColumn::number(std::uint64_t row) const {
  const Chunk& chunk = chunk_of(row);
  const std::int64_t place = chunk.array.offset + static_cast<std::int64_t>(row - chunk.first);
  if (!is_valid(chunk.array, place)) throw DataError(fmt::format("column {} is null", name_));
  return number_at(chunk.array, chunk.number, place);
}

}  // namespace millrace::python
