// Interface of a fuzz target: the entry that libFuzzer calls, and inputs to begin with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace millrace::fuzz {

using Bytes = std::vector<std::uint8_t>;

struct Corpus {
  std::vector<Bytes> seeds;         ///< sound inputs of each form
  std::vector<std::string> tokens;  ///< words of the format, which mutations insert
};

/// Defined by each target.
Corpus corpus();

/// Checks a property of accepted inputs. Throws an exception that no target catches.
inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("does not hold: " + what);
}

/// Runs `call`, which may reject its input with an Error of `exit` and in no other way. Returns
/// true if it accepts.
template <class Call>
bool accepts(Exit exit, const Call& call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    const std::string_view what = error.what();
    require(!what.empty(), "an error has a text");
    require(error.exit() == exit, "the error is of the expected kind: " + std::string(what));
    return false;
  }
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

}  // namespace millrace::fuzz
