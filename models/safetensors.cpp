// Reads and writes the safetensors format. Every number of a header is checked before it is used.
#include "models/safetensors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/atomic_file.h"
#include "base/open_file.h"
#include "base/record_file.h"
#include "millrace/error.h"

namespace millrace::train::safetensors {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the reference implementation's limit
constexpr std::string_view kMetadataKey = "__metadata__";

constexpr std::array<std::pair<std::string_view, std::size_t>, 15> kDtypes{{
    {"BOOL", 1},
    {"U8", 1},
    {"I8", 1},
    {"F8_E5M2", 1},
    {"F8_E4M3", 1},
    {"I16", 2},
    {"U16", 2},
    {"F16", 2},
    {"BF16", 2},
    {"I32", 4},
    {"U32", 4},
    {"F32", 4},
    {"I64", 8},
    {"U64", 8},
    {"F64", 8},
}};

/// Throws the error for a defect of the file.
class FormatError {
 public:
  explicit FormatError(std::string file) : file_(std::move(file)) {}
  [[noreturn]] void operator()(const std::string& what) const {
    throw DataError(file_ + ": not a safetensors file: " + what,
                    "write or copy the file again; what millrace and Python's safetensors write is "
                    "readable here");
  }

 private:
  std::string file_;
};

std::uint64_t read_length(std::span<const std::byte> bytes) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  return length;
}

std::uint64_t unsigned_number(const Json& value, const std::string& of, const FormatError& refuse) {
  if (!value.is_number_unsigned()) refuse(of + " is not a whole number of 0 or more");
  return value.get<std::uint64_t>();
}

/// Parses a header. Rejects duplicate names, which would hide one of the two tensors.
Json parse_header(std::string_view text, const FormatError& refuse) {
  std::vector<std::set<std::string>> keys;
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  Json header = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) refuse("its header is not a JSON object");
  if (!twice.empty()) refuse("its header holds '" + twice + "' twice");
  return header;
}

/// Parses one entry of the header, whose offsets refer to `data`.
Tensor parse_tensor(const std::string& name, const Json& entry, std::span<const std::byte> data,
                    const FormatError& refuse) {
  const std::string of = "tensor '" + name + "'";
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets"))
    refuse(of + " lacks dtype, shape or data_offsets");
  const Json& dtype = entry["dtype"];
  const Json& shape = entry["shape"];
  const Json& offsets = entry["data_offsets"];

  Tensor tensor{.name = name, .dtype = {}, .shape = {}, .bytes = {}};
  if (dtype.is_string()) tensor.dtype = dtype.get<std::string>();
  std::uint64_t size = dtype_size(tensor.dtype);
  if (size == 0)
    refuse(of + " has an unknown dtype " +
           (dtype.is_string() ? '"' + tensor.dtype + '"' : dtype.type_name()));
  if (!shape.is_array()) refuse(of + " has a shape that is not a list");
  for (const Json& side : shape) {
    const std::uint64_t n = unsigned_number(side, "a side of " + of, refuse);
    if (n > INT64_MAX || __builtin_mul_overflow(size, n, &size))
      refuse(of + " is impossibly large");
    tensor.shape.push_back(static_cast<std::int64_t>(n));
  }
  if (!offsets.is_array() || offsets.size() != 2)
    refuse(of + " has data_offsets that are not two numbers");
  const std::uint64_t begin = unsigned_number(offsets[0], "the begin of " + of, refuse);
  const std::uint64_t end = unsigned_number(offsets[1], "the end of " + of, refuse);
  if (begin > end || end > data.size())
    refuse(of + " lies at [" + std::to_string(begin) + ", " + std::to_string(end) + ") of " +
           std::to_string(data.size()) + " bytes; the file may be cut short");
  if (end - begin != size)
    refuse(of + " has " + std::to_string(end - begin) + " bytes where its shape asks for " +
           std::to_string(size));
  tensor.bytes = data.subspan(begin, end - begin);
  return tensor;
}

/// Throws unless every byte belongs to exactly one tensor, as the format requires.
void check_cover(const std::vector<Tensor>& tensors, std::span<const std::byte> data,
                 const FormatError& refuse) {
  std::vector<std::span<const std::byte>> parts;
  for (const Tensor& tensor : tensors) parts.push_back(tensor.bytes);
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return std::pair(a.data(), a.size()) < std::pair(b.data(), b.size());
  });
  const std::byte* expected = data.data();
  for (const auto& part : parts) {
    if (part.data() < expected) refuse("two tensors overlap");
    if (part.data() > expected) refuse("there is a gap between two tensors");
    expected = part.data() + part.size();
  }
  if (expected != data.data() + data.size())
    refuse("its last " + std::to_string(data.data() + data.size() - expected) +
           " bytes belong to no tensor");
}

bool is_row_major(const Tensor& tensor) {
  std::int64_t expected = 1;
  for (std::size_t i = tensor.strides.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

/// Appends the elements below index 0 of all dimensions before `dimension`, row-major.
template <std::size_t kSize>
std::byte* gather(const Tensor& tensor, std::size_t dimension, const std::byte* from,
                  std::byte* to) {
  const std::ptrdiff_t step = tensor.strides[dimension] * static_cast<std::ptrdiff_t>(kSize);
  const bool last = dimension + 1 == tensor.shape.size();
  for (std::int64_t i = 0; i < tensor.shape[dimension]; ++i, from += step) {
    if (last) {
      std::memcpy(to, from, kSize);
      to += kSize;
    } else {
      to = gather<kSize>(tensor, dimension + 1, from, to);
    }
  }
  return to;
}

/// Returns the bytes of a tensor that is not row-major in the format's order.
std::vector<std::byte> in_rows(const Tensor& tensor) {
  std::vector<std::byte> rows(tensor.bytes.size());
  const auto all = [&]<std::size_t kSize>() {
    gather<kSize>(tensor, 0, tensor.bytes.data(), rows.data());
  };
  switch (dtype_size(tensor.dtype)) {
    case 1:
      all.operator()<1>();
      break;
    case 2:
      all.operator()<2>();
      break;
    case 4:
      all.operator()<4>();
      break;
    default:
      all.operator()<8>();
  }
  return rows;
}

}  // namespace

std::size_t dtype_size(const std::string& dtype) {
  const auto* known = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const auto& entry) { return entry.first == dtype; });
  return known == kDtypes.end() ? 0 : known->second;
}

File File::read(const std::filesystem::path& path) {
  const base::OpenFile in = base::find_record(path);
  if (!in.descriptor && errno == ENOENT)
    throw DataError(path.string() + ": no such file", "check the path");
  if (!in.descriptor)
    throw DataError(path.string() + ": cannot be opened", "check its permissions");
  std::vector<std::byte> bytes(in.size);
  if (base::read_at(in.descriptor.get(), reinterpret_cast<std::uint8_t*>(bytes.data()), in.size, 0,
                    path.c_str()) != in.size)
    throw DataError(path.string() + ": cannot be read to its end", "check the disk");
  return parse(std::move(bytes), path.string());
}

File File::parse(std::vector<std::byte> bytes, const std::string& name) {
  const FormatError refuse(name);
  File file;
  file.bytes_ = std::move(bytes);
  const std::span<const std::byte> all(file.bytes_);
  if (all.size() < kLengthBytes)
    refuse("it has " + std::to_string(all.size()) + " bytes, fewer than the header's length takes");
  const std::uint64_t length = read_length(all);
  if (length > kMaxHeader || length > all.size() - kLengthBytes)
    refuse("its header says it has " + std::to_string(length) + " bytes; the file has " +
           std::to_string(all.size() - kLengthBytes) + " after that");
  const std::string_view text(reinterpret_cast<const char*>(all.data()) + kLengthBytes, length);
  const std::span<const std::byte> data = all.subspan(kLengthBytes + length);

  const Json header = parse_header(text, refuse);
  for (const auto& [key, entry] : header.items()) {
    if (key != kMetadataKey) {
      file.tensors_.push_back(parse_tensor(key, entry, data, refuse));
      continue;
    }
    if (!entry.is_object()) refuse("its metadata is not a JSON object");
    for (const auto& [word, value] : entry.items()) {
      if (!value.is_string()) refuse("its metadata '" + word + "' is not text");
      file.metadata_[word] = value.get<std::string>();
    }
  }
  check_cover(file.tensors_, data, refuse);
  return file;
}

void write(const std::filesystem::path& path, std::vector<Tensor> tensors,
           const Metadata& metadata) {
  // Writing wide elements first keeps every tensor aligned to its element size, as the reference
  // writer does.
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::pair(dtype_size(b.dtype), std::string_view(a.name)) <
           std::pair(dtype_size(a.dtype), std::string_view(b.name));
  });
  Json header = Json::object();
  if (!metadata.empty()) header[std::string(kMetadataKey)] = metadata;
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    const std::uint64_t end = offset + tensor.bytes.size();
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  std::array<std::byte, kLengthBytes> length;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length[i] = static_cast<std::byte>(text.size() >> (8 * i));

  base::AtomicFile file(path);
  file.write(length);
  file.write(std::as_bytes(std::span(text)));
  for (const Tensor& tensor : tensors) {
    if (is_row_major(tensor))
      file.write(tensor.bytes);
    else
      file.write(in_rows(tensor));
  }
  file.commit();
}

}  // namespace millrace::train::safetensors
