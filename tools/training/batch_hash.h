// xxh3 hash over batches: every output byte, then every label, batch after batch in order.
#pragma once

#include <memory>
#include <string>

#include "millrace/loader.h"

struct XXH3_state_s;

namespace millrace::tools {

class BatchHash {
 public:
  BatchHash();
  void add(const Batch& batch);
  /// Returns 16 hex digits.
  std::string digest() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace millrace::tools
