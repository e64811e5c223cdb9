// Common parts of the yardsticks, which do the work of any loader with nothing around it. Each
// takes a path and a number of passes over it, and prints one line of JSON.
#pragma once

#include <fmt/core.h>
#include <time.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::yardstick {

using Bytes = std::vector<std::uint8_t>;

[[noreturn]] inline void stop(const std::string& why) {
  fmt::print(stderr, "error: {}\n", why);
  std::exit(1);
}

inline Bytes contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) stop(fmt::format("{} cannot be opened", path));
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns the pixels of an IDX file of 28x28 images, all of them.
inline Bytes idx_pixels(const std::string& path) {
  constexpr std::size_t kHeader = 16;
  const Bytes file = contents(path);
  if (file.size() <= kHeader || file[2] != 8 || file[3] != 3)
    stop(fmt::format("{} is not an IDX file of images", path));
  return {file.begin() + kHeader, file.end()};
}

/// Parses PATH and options with one number each.
class Options {
 public:
  Options(int argc, char** argv, std::string_view usage) : arguments_(argv + 1, argv + argc) {
    if (arguments_.empty() || arguments_.size() % 2 == 0)
      stop(fmt::format("usage: {} {}", argv[0], usage));
  }
  const std::string& path() const { return arguments_[0]; }
  int number(std::string_view name, int otherwise) const {
    for (std::size_t i = 1; i < arguments_.size(); i += 2) {
      if (arguments_[i] != name) continue;
      const std::string& text = arguments_[i + 1];
      int value = 0;
      const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
      if (end.ptr != text.data() + text.size() || value < 1)
        stop(fmt::format("{} {} is not a positive number", name, text));
      return value;
    }
    return otherwise;
  }

 private:
  std::vector<std::string> arguments_;
};

inline double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Measures wall time and the whole process's CPU time since its construction.
class Stopwatch {
 public:
  void report(std::uint64_t images, std::uint64_t checksum) const {
    const double wall = seconds(CLOCK_MONOTONIC) - wall_;
    const double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_;
    const auto count = static_cast<double>(images);
    fmt::print(
        "{{\"images\": {}, \"wall_s\": {:.6f}, \"cpu_s\": {:.6f}, \"images_per_s\": {:.1f}, "
        "\"images_per_cpu_s\": {:.1f}, \"checksum\": \"{:016x}\"}}\n",
        images, wall, cpu, count / wall, count / cpu, checksum);
  }

 private:
  double wall_ = seconds(CLOCK_MONOTONIC);
  double cpu_ = seconds(CLOCK_PROCESS_CPUTIME_ID);
};

}  // namespace millrace::yardstick
