// Unpacks masks with libpng, in memory that is reused from file to file.
#include "pipeline/decoders/label_png.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <string>

#include "millrace/error.h"
#include "millrace/limits.h"

namespace millrace::pipeline {
namespace {

constexpr const char* kRemedy =
    "a mask is an 8-bit gray or palette PNG whose pixels are class ids, 255 for none";

[[noreturn]] void refuse(const std::string& what) {
  throw DataError("its mask " + what, "write it again, or leave the sample out");
}

const char* colours_of(int type) {
  switch (type) {
    case PNG_COLOR_TYPE_GRAY:
      return "gray";
    case PNG_COLOR_TYPE_RGB:
      return "RGB";
    case PNG_COLOR_TYPE_GRAY_ALPHA:
      return "gray and alpha";
    case PNG_COLOR_TYPE_RGB_ALPHA:
      return "RGB and alpha";
    default:
      return "palette";
  }
}

}  // namespace

void LabelPng::Arena::reset() {
  block_.reserve(used_);
  used_ = 0;
}

void* LabelPng::Arena::allocate(std::size_t size) {
  const std::size_t begin = used_;
  used_ += (size + 15) / 16 * 16;
  return used_ <= block_.capacity() ? block_.data() + begin : std::malloc(size);
}

void LabelPng::Arena::release(void* memory) {
  const auto* const at = static_cast<const std::uint8_t*>(memory);
  const std::uint8_t* const begin = block_.data();
  const bool inside =
      std::greater_equal<>()(at, begin) && std::less<>()(at, begin + block_.capacity());
  if (begin == nullptr || !inside) std::free(memory);
}

/// One pass over a file. libpng leaves its functions by longjmp after an error, so those of this
/// class that call it keep nothing that has a destructor.
class LabelPng::Decoding {
 public:
  /// Reads the header.
  Decoding(std::span<const std::uint8_t> file, Arena& arena) : rest_(file) {
    arena.reset();
    png_ = png_create_read_struct_2(
        PNG_LIBPNG_VER_STRING, this, &on_error, [](png_structp, png_const_charp) {}, &arena,
        [](png_structp png, png_alloc_size_t size) -> png_voidp {
          return static_cast<Arena*>(png_get_mem_ptr(png))->allocate(size);
        },
        [](png_structp png, png_voidp memory) {
          static_cast<Arena*>(png_get_mem_ptr(png))->release(memory);
        });
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
    png_set_read_fn(png_, this, &read_bytes);
    require(read_header());
  }
  ~Decoding() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Decoding(const Decoding&) = delete;
  Decoding& operator=(const Decoding&) = delete;

  std::uint32_t width() const { return png_get_image_width(png_, info_); }
  std::uint32_t height() const { return png_get_image_height(png_, info_); }
  int colour() const { return png_get_color_type(png_, info_); }
  int depth() const { return png_get_bit_depth(png_, info_); }
  bool is_interlaced() const { return png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE; }
  /// Reads the first `rows` rows, a byte per pixel, and if these are all, the end of the file.
  void read(std::uint8_t* pixels, std::uint32_t rows) { require(read_rows(pixels, rows)); }

 private:
  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    auto& self = *static_cast<Decoding*>(png_get_error_ptr(png));
    std::snprintf(self.error_, sizeof self.error_, "%s", text);
    png_longjmp(png, 1);
  }
  static void read_bytes(png_structp png, png_bytep out, png_size_t size) {
    auto& self = *static_cast<Decoding*>(png_get_io_ptr(png));
    self.is_short_ = size > self.rest_.size();
    if (self.is_short_) png_error(png, "the file ends");
    std::memcpy(out, self.rest_.data(), size);
    self.rest_ = self.rest_.subspan(size);
  }

  bool read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_user_limits(png_, std::numeric_limits<std::int32_t>::max(),
                        std::numeric_limits<std::int32_t>::max());           // open() has its own
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // text, profiles
    png_read_info(png_, info_);
    return true;
  }
  bool read_rows(std::uint8_t* pixels, std::uint32_t rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_packing(png_);
    png_read_update_info(png_, info_);
    for (std::uint32_t y = 0; y < rows; ++y)
      png_read_row(png_, pixels + std::size_t{y} * width(), nullptr);
    if (rows == height()) png_read_end(png_, nullptr);
    return true;
  }
  void require(bool done) {
    if (done) return;
    const std::string what = is_short_ ? "is cut short" : "is damaged: " + std::string(error_);
    png_destroy_read_struct(&png_, &info_, nullptr);  // the constructor may be what fails
    refuse(what);
  }

  std::span<const std::uint8_t> rest_;
  bool is_short_ = false;
  char error_[100] = {};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

void LabelPng::open(std::span<const std::uint8_t> bytes, std::uint64_t max_pixels) {
  constexpr std::size_t kSignature = 8;
  if (bytes.size() < kSignature || png_sig_cmp(bytes.data(), 0, kSignature) != 0)
    throw DataError("its mask is no PNG file", kRemedy);
  const Decoding file(bytes, arena_);
  const std::uint32_t width = file.width(), height = file.height();
  if (width > kMaxImageSide || height > kMaxImageSide || std::uint64_t{width} * height > max_pixels)
    throw DataError(fmt::format("its mask claims {}x{} pixels", width, height),
                    fmt::format("data.max_pixels={} is the limit, and {} for a side", max_pixels,
                                kMaxImageSide));
  const bool is_gray = file.colour() == PNG_COLOR_TYPE_GRAY && file.depth() == 8;
  if (!is_gray && file.colour() != PNG_COLOR_TYPE_PALETTE)
    throw DataError(
        fmt::format("its mask is a PNG of {}-bit {}", file.depth(), colours_of(file.colour())),
        kRemedy);
  if (file.is_interlaced())
    throw DataError("its mask is an interlaced PNG", "save it without interlacing");
  file_ = bytes;
  size_ = {static_cast<int>(width), static_cast<int>(height)};
}

void LabelPng::require_size(Size image) const {
  if (size_ == image) return;
  throw DataError(fmt::format("its mask has {}x{} pixels, and the image {}x{}", size_.width,
                              size_.height, image.width, image.height),
                  "draw it for the image as it is, turned as its EXIF orientation says");
}

ImageView LabelPng::pixels(const Rect& region, int /*scale*/) {
  const auto rows = static_cast<std::uint32_t>(region.y1);
  std::uint8_t* const out = pixels_.reserve(static_cast<std::size_t>(size_.width) * rows);
  Decoding(file_, arena_).read(out, rows);
  return interleaved(out, size_, 1);
}

void LabelPng::trim(std::size_t most) {
  for (Buffer* buffer : {&pixels_, &arena_.block()})
    if (buffer->capacity() > most) *buffer = Buffer();
}

}  // namespace millrace::pipeline
