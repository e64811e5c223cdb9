// Parses NumPy arrays, and registers their decoder.
#include "pipeline/decoders/npy_image.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <iterator>
#include <string>
#include <utility>

#include "base/text.h"
#include "millrace/error.h"
#include "millrace/limits.h"
#include "pipeline/decoders/stored_pixels.h"
#include "plugins/host/registry.h"

namespace millrace::pipeline {
namespace {

constexpr std::string_view kNpyMagic{"\x93NUMPY"};

[[noreturn]] void npy_fails(const std::string& reason) {
  throw DataError("numpy: " + reason,
                  "save it with numpy.save: uint8, uint16 or float32, height x width (x channels)");
}

/// Returns what stands behind 'key': in the header, a Python dictionary as numpy.save writes it.
std::string_view value_of(std::string_view header, std::string_view key) {
  const std::string quoted = fmt::format("'{}': ", key);
  const std::size_t at = header.find(quoted);
  if (at == header.npos) npy_fails(fmt::format("damaged: its header has no '{}'", key));
  return header.substr(at + quoted.size());
}

Depth depth_of(std::string_view descr) {
  for (const auto& [type, depth] : {std::pair<std::string_view, Depth>{"'|u1'", Depth::u8},
                                    {"'<u2'", Depth::u16},
                                    {"'<f4'", Depth::f32}})
    if (descr.starts_with(type)) return depth;
  npy_fails(fmt::format("an array of {} is not supported",
                        base::printable(descr.substr(0, descr.find(',')))));
}

/// Reads "(height, width)" or "(height, width, channels)".
std::array<std::uint32_t, 3> shape_of(std::string_view text) {
  std::array<std::uint32_t, 3> shape{0, 0, 1};
  std::size_t count = 0;
  const std::size_t end = text.find(')');
  const std::string tuple(text.substr(0, end == text.npos ? 0 : end + 1));
  const char* at = tuple.data() + 1;
  const char* const stop = tuple.data() + tuple.size();
  const auto refuse = [&] {
    npy_fails(fmt::format("an array of shape {} is not supported",
                          base::printable(text.substr(0, tuple.size()))));
  };
  if (tuple.size() < 2 || tuple[0] != '(') npy_fails("damaged: its header has no shape");
  while (at < stop && *at != ')') {
    std::uint32_t side = 0;
    const auto [behind, error] = std::from_chars(at, stop, side);
    if (error != std::errc() || count == shape.size()) refuse();
    shape[count++] = side;
    for (at = behind; at < stop && (*at == ',' || *at == ' ');) ++at;
  }
  constexpr std::uint32_t kLongest = kMaxImageSide, kMost = kMaxChannels;
  const auto [height, width, channels] = shape;
  if (count < 2 || height < 1 || width < 1 || channels < 1 || height > kLongest ||
      width > kLongest || channels > kMost)
    refuse();
  return shape;
}

}  // namespace

bool is_npy(std::span<const std::uint8_t> bytes) {
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
      .starts_with(kNpyMagic);
}

ImageView parse_npy(std::span<const std::uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!is_npy(bytes)) npy_fails("it does not begin like one");
  // Magic, version in two bytes, length of the header in two bytes or, from version 2 on, four.
  constexpr std::size_t kVersionAt = 6, kLengthAt = 8;
  if (bytes.size() < kLengthAt + 4) npy_fails("cut short in its header");
  const std::uint8_t version = bytes[kVersionAt];
  if (version < 1 || version > 3) npy_fails(fmt::format("version {}, which is unknown", version));
  const std::size_t digits = version == 1 ? 2 : 4;
  std::size_t length = 0;
  for (std::size_t i = 0; i < digits; ++i) length |= std::size_t{bytes[kLengthAt + i]} << (8 * i);
  const std::size_t begin = kLengthAt + digits;
  if (length > bytes.size() - begin) npy_fails("cut short in its header");
  const std::string_view header = text.substr(begin, length);

  const Depth depth = depth_of(value_of(header, "descr"));
  if (!value_of(header, "fortran_order").starts_with("False")) npy_fails("it is in Fortran order");
  const auto [height, width, channels] = shape_of(value_of(header, "shape"));
  const std::uint64_t wanted =
      std::uint64_t{height} * width * channels * static_cast<std::uint64_t>(bytes_of(depth));
  const std::size_t pixels = bytes.size() - begin - length;
  if (pixels != wanted)
    npy_fails(fmt::format("{}: {} bytes of pixels where {}x{}x{} takes {}",
                          pixels < wanted ? "cut short" : "damaged", pixels, width, height,
                          channels, wanted));
  return interleaved(bytes.data() + begin + length,
                     {static_cast<int>(width), static_cast<int>(height)},
                     static_cast<int>(channels), depth);
}

namespace {

constexpr millrace_unit kNpy =
    stored_pixels_unit("numpy", "NumPy arrays of uint8, uint16 or float32; read in place",
                       kStoredPixels<is_npy, parse_npy>);
constexpr const millrace_unit* kNpyUnits[] = {&kNpy};

constexpr millrace_plugin_table kNpyTable{
    MILLRACE_MAGIC, MILLRACE_ABI_MAJOR, MILLRACE_ABI_MINOR, sizeof(millrace_plugin_table), "arrays",
    "1.0",          "Apache-2.0",       kNpyUnits,          std::size(kNpyUnits)};

const plugins::BuiltIn kNpyRegistered{kNpyTable};

}  // namespace

const millrace_unit& npy_decoder() { return kNpy; }

}  // namespace millrace::pipeline
