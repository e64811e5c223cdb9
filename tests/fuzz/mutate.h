// Deterministic damage to an input: equal random numbers give equal bytes.
#pragma once

#include <algorithm>

#include "base/rng.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {

/// Makes inputs from a pool of others: bytes changed, copied, removed or inserted, words of the
/// format, and numbers at the limits of their types.
class Mutator {
 public:
  /// `most` limits the length of inputs.
  Mutator(const std::vector<std::string>& tokens, std::size_t most) : tokens_(tokens), max_(most) {}

  Bytes operator()(const std::vector<Bytes>& pool, Draw& draw) const {
    Bytes bytes = pool[draw.integer(static_cast<std::uint32_t>(pool.size()))];
    for (std::uint32_t changes = 1u << draw.integer(4); changes > 0; --changes)
      change(bytes, pool, draw);
    if (bytes.size() > max_) bytes.resize(max_);
    return bytes;
  }

 private:
  /// Returns a position in `size` bytes; half of them lie where headers are.
  static std::size_t place(std::size_t size, Draw& draw) {
    const auto all = static_cast<std::uint32_t>(size);
    return draw.integer(draw.chance(.5) ? std::min(all, 64u) : all);
  }

  void change(Bytes& bytes, const std::vector<Bytes>& pool, Draw& draw) const {
    if (bytes.empty()) bytes.push_back(static_cast<std::uint8_t>(draw.bits()));
    const std::size_t at = place(bytes.size(), draw);
    const auto here = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t length = 1 + draw.integer(static_cast<std::uint32_t>(std::min<std::size_t>(
                                       bytes.size() - at, draw.chance(.8) ? 32 : 4096)));
    const auto end = here + static_cast<std::ptrdiff_t>(std::min(length, bytes.size() - at));
    switch (draw.integer(10)) {
      case 0:
        *here ^= static_cast<std::uint8_t>(1u << draw.integer(8));
        break;
      case 1:
        *here = static_cast<std::uint8_t>(draw.bits());
        break;
      case 2:
        *here = static_cast<std::uint8_t>(*here + (draw.chance(.5) ? 1 : -1));
        break;
      case 3:
        put_number(bytes, at, draw);
        break;
      case 4:  // truncate
        bytes.erase(here, bytes.end());
        break;
      case 5:
        bytes.erase(here, end);
        break;
      case 6: {  // repeat once or more
        const Bytes part(here, end);
        for (std::uint32_t times = 1u << draw.integer(4); times > 0 && bytes.size() < max_; --times)
          bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), part.begin(), part.end());
        break;
      }
      case 7: {  // insert a part of another input, or overwrite with it
        const Bytes& other = pool[draw.integer(static_cast<std::uint32_t>(pool.size()))];
        if (other.empty()) break;
        const std::size_t from = place(other.size(), draw);
        const std::size_t count = 1 + draw.integer(static_cast<std::uint32_t>(other.size() - from));
        write(bytes, at, other.data() + from, count, draw.chance(.5));
        break;
      }
      case 8: {
        if (tokens_.empty()) break;
        const std::string& token =
            tokens_[draw.integer(static_cast<std::uint32_t>(tokens_.size()))];
        write(bytes, at, reinterpret_cast<const std::uint8_t*>(token.data()), token.size(),
              draw.chance(.6));
        break;
      }
      default:  // append
        bytes.insert(bytes.end(), 1 + draw.integer(40), static_cast<std::uint8_t>(draw.bits()));
    }
  }

  static void write(Bytes& bytes, std::size_t at, const std::uint8_t* from, std::size_t count,
                    bool insert) {
    const auto here = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    if (insert) {
      bytes.insert(here, from, from + count);
    } else {
      std::copy_n(from, std::min(count, bytes.size() - at), here);
    }
  }

  static void put_number(Bytes& bytes, std::size_t at, Draw& draw) {
    constexpr std::uint64_t kEdges[] = {0,          1,          2,          0x7f,       0x80,
                                        0xff,       0x100,      0x7fff,     0x8000,     0xffff,
                                        0x10000,    0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
                                        1ull << 62, ~0ull >> 1, 1ull << 63, ~0ull - 1,  ~0ull};
    const std::uint64_t number = kEdges[draw.integer(std::size(kEdges))];
    const std::size_t width = std::size_t{1} << draw.integer(4);
    const bool big_endian = draw.chance(.5);
    for (std::size_t i = 0; i < width && at + i < bytes.size(); ++i)
      bytes[at + i] = static_cast<std::uint8_t>(number >> 8 * (big_endian ? width - 1 - i : i));
  }

  const std::vector<std::string>& tokens_;
  std::size_t max_;
};

}  // namespace millrace::fuzz
