// Detects the SIMD levels of this processor and holds the level in use.
#include "base/simd.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "millrace/error.h"

namespace millrace::base {
namespace {

constexpr Simd kLevels[] = {Simd::scalar, Simd::avx2, Simd::avx512};

#if defined(__x86_64__)
/// Asks the processor itself: clang 14 has no __builtin_cpu_supports("f16c").
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

/// Returns the levels available here: "scalar, avx2".
std::string choices() {
  std::string list;
  for (const Simd level : kLevels)
    if (level <= simd_supported())
      list += fmt::format("{}{}", list.empty() ? "" : ", ", name_of(level));
  return list;
}

Simd from_environment() {
  const char* text = std::getenv("MILLRACE_SIMD");
  if (text == nullptr || *text == '\0') return simd_supported();
  for (const Simd level : kLevels)
    if (name_of(level) == text && level <= simd_supported()) return level;
  throw UsageError(fmt::format("MILLRACE_SIMD={}: this processor can do {}", text, choices()),
                   "unset MILLRACE_SIMD to use the best");
}

std::atomic<Simd>& level_in_force() {
  static std::atomic<Simd> level{from_environment()};
  return level;
}

}  // namespace

std::string_view name_of(Simd level) {
  switch (level) {
    case Simd::avx2:
      return "avx2";
    case Simd::avx512:
      return "avx512";
    default:
      return "scalar";
  }
}

Simd simd_supported() {
#if defined(__x86_64__)
  // These ask the operating system too: registers that it does not save count as missing.
  static const Simd level = [] {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
      return Simd::scalar;
    const bool has_avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
    return has_avx512 ? Simd::avx512 : Simd::avx2;
  }();
  return level;
#else
  return Simd::scalar;
#endif
}

Simd simd_level() { return level_in_force().load(std::memory_order_relaxed); }

void set_simd_level(Simd level) {
  if (level > simd_supported())
    throw UsageError(
        fmt::format("SIMD level {}: this processor can do {}", name_of(level), choices()));
  level_in_force().store(level, std::memory_order_relaxed);
}

}  // namespace millrace::base
