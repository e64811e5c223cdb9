// slow_decoder: images that say how long decoding takes. A file is "SLOW", width, height, the time
// in units of 0.1 ms, 's' to sleep for it or 'c' to spend it as CPU time, then gray pixels.
#include <cstring>
#include <ctime>

#include "millrace/millrace.hpp"

namespace {

class SlowDecoder {
 public:
  static constexpr const char* kName = "slow_decoder";
  static constexpr const char* kHelp = "gray images that take as long as they say";

  static bool sniff(const std::uint8_t* bytes, std::size_t size) {
    return size >= kHeader && std::memcmp(bytes, "SLOW", 4) == 0;
  }

  static millrace_image_header header(const std::uint8_t* bytes, std::size_t) {
    return {bytes[4], bytes[5], 1};
  }

  static void decode(const std::uint8_t* bytes, std::size_t size, const millrace_decode& request,
                     std::uint8_t* pixels, std::size_t row_bytes) {
    const auto width = static_cast<std::size_t>(request.region.x1);
    const auto height = static_cast<std::size_t>(request.region.y1);
    if (size < kHeader + width * height || request.channels != 1)
      throw millrace::BadData("not as its header says");
    const std::int64_t ns = bytes[6] * std::int64_t{100'000};
    if (bytes[7] == 's') {
      const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
      nanosleep(&time, nullptr);
    } else {
      const std::int64_t until = cpu_ns() + ns;
      while (cpu_ns() < until) {
      }
    }
    for (std::size_t y = 0; y < height; ++y)
      std::memcpy(pixels + y * row_bytes, bytes + kHeader + y * width, width);
  }

 private:
  static constexpr std::size_t kHeader = 8;
  static std::int64_t cpu_ns() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
};

}  // namespace

MILLRACE_PLUGIN("slow_decoder", "0.1", "MIT", SlowDecoder);
