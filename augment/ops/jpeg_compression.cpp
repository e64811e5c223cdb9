// jpeg_compression: encodes an image as JPEG of a random quality and decodes it again, in memory.
// The bytes are torchvision's (JPEG): baseline, chroma of half width and height, accurate integer
// DCT, fancy upsampling.
//
// libjpeg allocates working memory for each image. Here it takes that memory from the call's
// scratch, and each thread keeps its codecs, so that calls allocate nothing once a thread has
// compressed one image.
#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>

// clang-format off: jpeglib.h uses FILE and size_t without including them, so it comes later.
#include <jerror.h>
#include <jpeglib.h>
// clang-format on

#include "augment/ops/builtin.h"
#include "augment/ops/pixels.h"

namespace millrace::augment {
namespace {

constexpr std::size_t kLine = 64;  ///< alignment and padding of rows that libjpeg needs for SIMD

constexpr std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

/// Returns the most bytes that an encoded image can have: 3 per sample. Coefficients within the
/// range of 8-bit samples take at most 18 bits each on average with the standard Huffman tables;
/// the rest is for bytes 0xFF, each of which is followed by a zero. Pages that are not written take
/// no memory.
std::size_t stream_bytes(Size size, int channels) {
  constexpr std::size_t kHeaders = 2048;
  const std::size_t pixels = round_up(static_cast<std::size_t>(size.width), 16) *
                             round_up(static_cast<std::size_t>(size.height), 16);
  return kHeaders + 3 * (channels == 3 ? pixels + pixels / 2 : pixels);
}

/// Returns the bytes that libjpeg needs to encode or to decode: its tables, and some rows.
std::size_t working_bytes(Size size) {
  return 128 * 1024 + 192 * round_up(static_cast<std::size_t>(size.width), kLine);
}

/// The codecs of one thread. Their errors leave by longjmp.
class Codecs {
 public:
  Codecs() {
    encoder_.err = decoder_.err = jpeg_std_error(&errors_);
    errors_.error_exit = on_error;
    errors_.emit_message = [](j_common_ptr, int) {};
    encoder_.client_data = decoder_.client_data = this;
    if (setjmp(escape_) != 0) throw std::bad_alloc();
    jpeg_create_compress(&encoder_);
    jpeg_create_decompress(&decoder_);
    allocator_ = *encoder_.mem;
    replace_allocator(*encoder_.mem);
    replace_allocator(*decoder_.mem);
    destination_.init_destination = [](j_compress_ptr) {};
    destination_.empty_output_buffer = [](j_compress_ptr codec) -> ::boolean {
      ERREXIT(codec, JERR_BUFFER_SIZE);
      return FALSE;
    };
    destination_.term_destination = [](j_compress_ptr) {};
  }
  ~Codecs() {
    jpeg_destroy_compress(&encoder_);
    jpeg_destroy_decompress(&decoder_);
  }
  Codecs(const Codecs&) = delete;
  Codecs& operator=(const Codecs&) = delete;

  /// Replaces the image by what remains of it at this quality. `scratch` holds an encoded image,
  /// then libjpeg's working memory. Returns whether it worked; if not, message() says why.
  bool pass_through(const Image& image, int quality, std::uint8_t* scratch) {
    const Size size{image.width, image.height};
    const std::size_t capacity = round_up(stream_bytes(size, image.channels), kLine);
    working_ = scratch + capacity;
    end_ = working_ + working_bytes(size);
    if (setjmp(escape_) != 0) {
      jpeg_abort_compress(&encoder_);
      jpeg_abort_decompress(&decoder_);
      return false;
    }
    free_ = working_;
    encode(image, quality, scratch, capacity);
    free_ = working_;
    decode(image, scratch, capacity - destination_.free_in_buffer);
    return true;
  }
  const char* message() const { return message_; }

 private:
  static Codecs& of(j_common_ptr codec) { return *static_cast<Codecs*>(codec->client_data); }

  [[noreturn]] static void on_error(j_common_ptr codec) {
    codec->err->format_message(codec, of(codec).message_);
    std::longjmp(of(codec).escape_, 1);
  }

  /// Returns working memory for one image, or null if it does not suffice.
  void* take(int pool, std::size_t bytes) {
    if (pool != JPOOL_IMAGE || bytes > static_cast<std::size_t>(end_ - free_)) return nullptr;
    void* memory = free_;
    free_ += std::min(round_up(bytes, kLine), static_cast<std::size_t>(end_ - free_));
    return memory;
  }

  /// Allocates rows as libjpeg does, behind their addresses.
  template <class Row>
  Row* take_rows(int pool, std::size_t row_bytes, std::size_t rows) {
    row_bytes = round_up(row_bytes, kLine);
    const std::size_t addresses = round_up(rows * sizeof(Row), kLine);
    auto* memory = static_cast<std::uint8_t*>(take(pool, addresses + rows * row_bytes));
    if (memory == nullptr) return nullptr;
    auto* all = reinterpret_cast<Row*>(memory);
    for (std::size_t i = 0; i < rows; ++i)
      all[i] = reinterpret_cast<Row>(memory + addresses + i * row_bytes);
    return all;
  }

  /// Makes libjpeg take memory from the scratch, and from its own allocator only what is kept over
  /// images or does not fit.
  static void replace_allocator(jpeg_memory_mgr& memory) {
    memory.alloc_small = [](j_common_ptr codec, int pool, std::size_t bytes) {
      void* taken = of(codec).take(pool, bytes);
      return taken != nullptr ? taken : of(codec).allocator_.alloc_small(codec, pool, bytes);
    };
    memory.alloc_large = [](j_common_ptr codec, int pool, std::size_t bytes) {
      void* taken = of(codec).take(pool, bytes);
      return taken != nullptr ? taken : of(codec).allocator_.alloc_large(codec, pool, bytes);
    };
    memory.alloc_sarray = [](j_common_ptr codec, int pool, JDIMENSION width, JDIMENSION rows) {
      JSAMPARRAY taken = of(codec).take_rows<JSAMPROW>(pool, width * sizeof(JSAMPLE), rows);
      return taken != nullptr ? taken : of(codec).allocator_.alloc_sarray(codec, pool, width, rows);
    };
    memory.alloc_barray = [](j_common_ptr codec, int pool, JDIMENSION width, JDIMENSION rows) {
      JBLOCKARRAY taken = of(codec).take_rows<JBLOCKROW>(pool, width * sizeof(JBLOCK), rows);
      return taken != nullptr ? taken : of(codec).allocator_.alloc_barray(codec, pool, width, rows);
    };
  }

  void encode(const Image& image, int quality, std::uint8_t* stream, std::size_t capacity) {
    destination_.next_output_byte = stream;
    destination_.free_in_buffer = capacity;
    encoder_.dest = &destination_;
    encoder_.image_width = static_cast<JDIMENSION>(image.width);
    encoder_.image_height = static_cast<JDIMENSION>(image.height);
    encoder_.input_components = image.channels;
    encoder_.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&encoder_);
    jpeg_set_quality(&encoder_, quality, TRUE);
    jpeg_start_compress(&encoder_, TRUE);
    while (encoder_.next_scanline < encoder_.image_height) {
      JSAMPROW row = image.data + encoder_.next_scanline * image.row;
      jpeg_write_scanlines(&encoder_, &row, 1);
    }
    jpeg_finish_compress(&encoder_);
  }

  void decode(const Image& image, const std::uint8_t* stream, std::size_t size) {
    jpeg_mem_src(&decoder_, stream, size);
    jpeg_read_header(&decoder_, TRUE);
    jpeg_start_decompress(&decoder_);
    while (decoder_.output_scanline < decoder_.output_height) {
      JSAMPROW row = image.data + decoder_.output_scanline * image.row;
      jpeg_read_scanlines(&decoder_, &row, 1);
    }
    jpeg_finish_decompress(&decoder_);
  }

  jpeg_compress_struct encoder_{};
  jpeg_decompress_struct decoder_{};
  jpeg_error_mgr errors_{};
  jpeg_destination_mgr destination_{};
  jpeg_memory_mgr allocator_{};  ///< libjpeg's own
  std::jmp_buf escape_;
  char message_[JMSG_LENGTH_MAX] = {};
  std::uint8_t *working_ = nullptr, *free_ = nullptr, *end_ = nullptr;
};

struct JpegCompression {
  static constexpr const char* kName = "jpeg_compression";
  static constexpr const char* kPython = "JPEG(quality, p=1)";
  static constexpr const char* kHelp = "compress as JPEG and decompress, with probability p";
  static constexpr Parameter kParams[] = {
      integers("quality", "[50,100]", lengths(1, 2), 1, 100,
               "JPEG quality: one, or [lowest, highest] of a uniform draw"),
      p_param("0.5")};
  static constexpr Reach kReach{MILLRACE_GLOBAL, 0};  // blocks lie on a grid from the corner

  explicit JpegCompression(const Values& values)
      : least(static_cast<int>(values.numbers("quality").front())),
        most(static_cast<int>(values.numbers("quality").back())),
        p(values.number("p")) {
    if (least > most) throw BadUse("quality: the least one is greater than the greatest");
  }

  std::size_t scratch(Size size, int channels) const {
    return round_up(stream_bytes(size, channels), kLine) + working_bytes(size);
  }

  void apply(Image image, Call& call) const {
    if (!is_applied(call, p)) return;
    const int quality =
        least + static_cast<int>(call.integer(static_cast<std::uint32_t>(most - least + 1)));
    call.report("quality", quality);
    // On the heap, because modules that are loaded late have little room for thread-local storage.
    thread_local const auto codecs = std::make_unique<Codecs>();
    if (!codecs->pass_through(image, quality, call.scratch())) throw BadData(codecs->message());
  }

  int least, most;
  double p;
};

}  // namespace

const Augmentation kJpegCompression = kAugmentation<JpegCompression>;

}  // namespace millrace::augment
