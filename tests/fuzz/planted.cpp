// A target with a bug on demand, to check that the driver finds one. MILLRACE_PLANTED_BUG is 0 for
// none, 1 for a read behind the input, 2 for an exception.
#include "tests/fuzz/target.h"

namespace millrace::fuzz {

Corpus corpus() { return {{bytes_of("BUF FULL"), bytes_of("nothing here")}, {}}; }

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = millrace::fuzz::text_of(data, size);
  if (!text.starts_with("BUG")) return 0;
  if (MILLRACE_PLANTED_BUG == 1) {
    const volatile std::uint8_t* bytes = data;
    static_cast<void>(bytes[size]);
  }
  millrace::fuzz::require(MILLRACE_PLANTED_BUG != 2, "there is no bug");
  return 0;
}
