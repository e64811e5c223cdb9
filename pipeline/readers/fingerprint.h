// Identifies a data set's contents: xxh3 over everything added, in order (determinism contract).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/private_api.h"

struct XXH3_state_s;

namespace millrace::pipeline {

class MILLRACE_PRIVATE_API Fingerprint {
 public:
  Fingerprint();
  void add(std::span<const std::uint8_t> bytes);
  /// Adds a name with an end mark, so that "a" + "bc" differs from "ab" + "c".
  void add(std::string_view name);
  void add(std::uint64_t number);
  std::uint64_t value() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace millrace::pipeline
