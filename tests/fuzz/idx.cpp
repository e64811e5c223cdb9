// Fuzzes IDX headers, as images and as labels.
#include "pipeline/readers/idx.h"

#include "tests/data/support.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {

Corpus corpus() {
  return {{test::idx_images(5), test::idx_images(1, 1, 1), test::idx_labels({0, 1, 2, 3, 4}),
           test::idx_images(0)},
          {std::string("\0\0\x08\x03", 4), std::string("\0\0\x08\x01", 4)}};
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  for (const bool images : {true, false})
    fuzz::accepts(Exit::data, [&] {
      const pipeline::IdxLayout layout = pipeline::check_idx("x", images, {data, size});
      fuzz::require(layout.size.width > 0 && layout.size.height > 0, "an image has pixels");
      fuzz::require(layout.header + layout.count * static_cast<std::uint64_t>(layout.size.width) *
                                        static_cast<std::uint64_t>(layout.size.height) ==
                        size,
                    "header and items are the whole file");
    });
  return 0;
}
