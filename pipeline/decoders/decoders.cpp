// Which decoder takes which bytes, and one thread's decoding: header, limits, memory, pixels.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <string_view>

#include "pipeline/decoder.h"
#include "pipeline/decoders/builtin.h"
#include "pipeline/decoders/plugin_table.h"
#include "pipeline/error.h"

namespace millrace {
namespace {

constexpr std::size_t kSniffed = 64;

bool takes(const millrace_decoder& decoder, std::span<const std::uint8_t> bytes) {
  return decoder.sniff(bytes.data(), std::min(bytes.size(), kSniffed)) != 0;
}

/// The shipped plugin lies in plugins/ beside the library that this function is part of.
std::string shipped_plugin() {
  Dl_info self{};
  std::string folder = ".";
  if (dladdr(reinterpret_cast<void*>(&shipped_plugin), &self) != 0 && self.dli_fname != nullptr) {
    const std::string file = self.dli_fname;
    if (const std::size_t slash = file.rfind('/'); slash != std::string::npos)
      folder = file.substr(0, slash);
  }
  return folder + "/plugins/millrace_imgcodecs.so";
}

/// Loaded at the first call that succeeds; later calls cost one atomic load.
std::span<const millrace_decoder* const> shipped_decoders() {
  static const millrace_plugin_table& table = load_plugin(shipped_plugin());
  return {table.decoders, table.decoder_count};
}

/// What bytes that no decoder takes look like, for the message.
std::string describe(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return "an empty file";
  struct Known {
    std::string_view start;
    const char* what;
  };
  static constexpr std::array<Known, 8> kKnown{{{"GIF8", "a GIF image"},
                                                {"\x1f\x8b", "gzip"},
                                                {"PK\x03\x04", "a zip archive"},
                                                {"%PDF", "a PDF document"},
                                                {"<svg", "an SVG drawing"},
                                                {"<!DOCTYPE", "a web page"},
                                                {"<html", "a web page"},
                                                {"version https://git-lfs", "a Git LFS pointer"}}};
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Known& known : kKnown)
    if (text.starts_with(known.start)) return known.what;
  if (text.size() >= 12 && text.substr(4, 4) == "ftyp") return "HEIF, AVIF or a film";
  const auto head = bytes.first(std::min<std::size_t>(bytes.size(), 8));
  return fmt::format("{} bytes that start with {:02x}", bytes.size(), fmt::join(head, " "));
}

constexpr const char* kDamaged = "fetch or convert the image again, or set loader.on_error=skip";

/// Calls into a decoder; what it reports, or throws against the rules, becomes a DataError.
template <class Call>
void checked(const millrace_decoder& decoder, const Call& call) {
  std::array<char, 256> error{};
  millrace_status status = 1;
  try {
    status = call(error.data(), error.size());
  } catch (...) {
    throw DataError(fmt::format("{}: the decoder threw an exception", decoder.name),
                    "report it to the plugin's author: a C interface may not throw");
  }
  error.back() = '\0';
  if (status != 0)
    throw DataError(error.front() != '\0' ? std::string(error.data())
                                          : fmt::format("{}: decoding failed", decoder.name),
                    kDamaged);
}

}  // namespace

const millrace_decoder& Decoders::of(std::span<const std::uint8_t> bytes) {
  if (takes(kJpegDecoder, bytes)) return kJpegDecoder;
  for (const millrace_decoder* decoder : shipped_decoders())
    if (takes(*decoder, bytes)) return *decoder;
  throw DataError(fmt::format("no decoder takes this image: it looks like {}", describe(bytes)),
                  "JPEG, PNG, BMP, WebP and TIFF are known; convert it, or set "
                  "loader.on_error=skip");
}

/// One decoder's working memory.
struct DecodeScratch::Context {
  const millrace_decoder* decoder;
  void* memory;
};

DecodeScratch::DecodeScratch() = default;

DecodeScratch::~DecodeScratch() {
  for (const Context& context : contexts_) context.decoder->destroy(context.memory);
}

ImageView DecodeScratch::decode(std::span<const std::uint8_t> bytes, int channels,
                                std::uint64_t max_pixels) {
  const millrace_decoder& decoder = Decoders::of(bytes);
  auto context = std::find_if(contexts_.begin(), contexts_.end(),
                              [&](const Context& known) { return known.decoder == &decoder; });
  if (context == contexts_.end()) {
    contexts_.reserve(contexts_.size() + 1);  // so that nothing is lost if this throws
    void* memory = decoder.create();
    if (memory == nullptr) throw std::bad_alloc();
    contexts_.push_back({&decoder, memory});
    context = contexts_.end() - 1;
  }

  millrace_image_header header{};
  checked(decoder, [&](char* error, std::size_t error_size) {
    return decoder.header(context->memory, bytes.data(), bytes.size(), &header, error, error_size);
  });
  const std::uint64_t pixels = std::uint64_t{header.width} * header.height;
  constexpr std::uint32_t kMaxSide = std::numeric_limits<std::int32_t>::max() / 4;
  if (pixels == 0 || header.width > kMaxSide || header.height > kMaxSide)
    throw DataError(
        fmt::format("{}: {}x{} pixels is no image", decoder.name, header.width, header.height),
        kDamaged);
  if (pixels > max_pixels)
    throw DataError(fmt::format("{}: {}x{} is {} pixels, more than data.max_pixels={}",
                                decoder.name, header.width, header.height, pixels, max_pixels),
                    "raise data.max_pixels if such images are meant to be there");

  const auto depth = static_cast<std::uint32_t>(channels);
  const std::size_t row_bytes = std::size_t{header.width} * depth;
  std::uint8_t* out = pixels_.reserve(row_bytes * header.height);
  checked(decoder, [&](char* error, std::size_t error_size) {
    return decoder.decode(context->memory, bytes.data(), bytes.size(), depth, out, row_bytes, error,
                          error_size);
  });
  return interleaved(out, {static_cast<int>(header.width), static_cast<int>(header.height)},
                     channels);
}

}  // namespace millrace
