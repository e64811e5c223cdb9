// The state of NumPy's PCG64 generator, seeded as numpy.random.PCG64(entropy) seeds it, for
// compiled functions that draw without Python.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace millrace::python {

/// Memory that NumPy's functions next_uint64(), next_uint32() and next_double() of a PCG64 advance.
/// The layout is NumPy's (pcg64.h): its extension module uses the same compiler's 128-bit integers.
class Pcg64 {
 public:
  /// `entropy`: 128 bits, the least significant word first.
  explicit Pcg64(const std::array<std::uint32_t, 4>& entropy) {
    const std::array<std::uint64_t, 4> words = seed_sequence(entropy);
    const Wide seed = Wide{words[0]} << 64 | words[1];
    random_.increment = (Wide{words[2]} << 64 | words[3]) << 1 | 1;
    step();
    random_.state += seed;
    step();
  }
  Pcg64(const Pcg64&) = delete;
  Pcg64& operator=(const Pcg64&) = delete;

  /// Returns what NumPy's functions take as their state.
  void* state() { return &state_; }

 private:
  __extension__ using Wide = unsigned __int128;
  struct Random {
    Wide state = 0, increment = 0;
  };
  struct State {
    Random* random;
    int has_uint32 = 0;
    std::uint32_t uinteger = 0;
  };

  void step() {
    constexpr Wide kMultiplier = Wide{0x2360ED051FC65DA4} << 64 | 0x4385DF649FCCF645;
    random_.state = random_.state * kMultiplier + random_.increment;
  }

  /// numpy.random.SeedSequence(entropy).generate_state(4, uint64), after O'Neill's seed_seq_fe128.
  static std::array<std::uint64_t, 4> seed_sequence(const std::array<std::uint32_t, 4>& entropy) {
    std::uint32_t factor = 0x43b0d7e5;
    const auto hashed = [&](std::uint32_t value, std::uint32_t multiplier) {
      value ^= factor;
      factor *= multiplier;
      value *= factor;
      return value ^ value >> 16;
    };
    std::array<std::uint32_t, 4> pool{};
    for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = hashed(entropy[i], 0x931e8875);
    for (std::size_t from = 0; from < pool.size(); ++from)
      for (std::size_t to = 0; to < pool.size(); ++to) {
        if (from == to) continue;
        const std::uint32_t mixed =
            0xca01f9dd * pool[to] - 0x4973f715 * hashed(pool[from], 0x931e8875);
        pool[to] = mixed ^ mixed >> 16;
      }
    factor = 0x8b51f9dd;
    std::array<std::uint64_t, 4> words{};
    for (std::size_t i = 0; i < 8; ++i)
      words[i / 2] |= std::uint64_t{hashed(pool[i % 4], 0x58f38ded)} << (32 * (i % 2));
    return words;
  }

  Random random_;
  State state_{&random_};
};

}  // namespace millrace::python
