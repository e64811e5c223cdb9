// Fuzzes the headers of NumPy arrays, and the decoder behind them.
#include "pipeline/decoders/npy_image.h"

#include "millrace/limits.h"
#include "pipeline/decoders/decoder.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {
namespace {

Bytes npy(const std::string& type, const std::string& shape, std::size_t bytes) {
  const std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  std::string file = "\x93NUMPY";
  file += {'\1', '\0', static_cast<char>(header.size()), '\0'};
  file += header + std::string(bytes, '\7');
  return {file.begin(), file.end()};
}

}  // namespace

Corpus corpus() {
  return {{npy("|u1", "(4, 5)", 20), npy("<u2", "(4, 5, 3)", 120), npy("<f4", "(1, 2, 7)", 56)},
          {"'descr': ", "'|u1'", "'<u2'", "'<f4'", "'fortran_order': ", "False",
           "'shape': ", "(1, ", "65535", "4294967296", ")"}};
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  const std::span<const std::uint8_t> bytes(data, size);
  fuzz::accepts(Exit::data, [&] {
    const ImageView image = pipeline::parse_npy(bytes);
    const std::uint8_t* end = image.data + image.height * image.row;
    fuzz::require(end == data + size, "the pixels fill the file");
    pipeline::DecodeScratch decode;
    decode.open(bytes, kMaxPixels);
    const ImageView view =
        decode.decode(image.channels, {0, 0, image.width, image.height}, 0, Depth::f32);
    fuzz::require(view.data == image.data, "no pixel is copied");
    if (image.depth != Depth::u8) return;
    for (const int channels : {1, 3}) decode.decode(channels, {0, 0, image.width, image.height});
  });
  return 0;
}
