// Fuzzes EXIF's orientation in a TIFF structure.
#include "millrace/exif.hpp"

#include <cstdio>

#include "tests/data/jpeg_forms.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {

Corpus corpus() {
  Corpus corpus;
  for (const bool big_endian : {false, true})
    for (const int before : {0, 4}) {
      const Bytes body = test::exif(7, big_endian, before);
      corpus.seeds.emplace_back(body.begin() + 6, body.end());
    }
  corpus.tokens = {"II", "MM", std::string("\x12\x01", 2), std::string("\x01\x12", 2)};
  return corpus;
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  millrace::fuzz::require(millrace::exif_orientation(data, size) <= 8, "0 to 8");
  return 0;
}
