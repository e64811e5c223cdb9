// Feeds batches to xxh3.
#include "tools/training/batch_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace millrace::tools {

void BatchHash::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

BatchHash::BatchHash() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

void BatchHash::add(const Batch& batch) {
  XXH3_64bits_update(state_.get(), batch.data(), batch.bytes());
  const auto count = static_cast<std::size_t>(batch.count());
  XXH3_64bits_update(state_.get(), batch.labels(), count * sizeof(std::int64_t));
  if (batch.classes() > 0)
    XXH3_64bits_update(state_.get(), batch.probabilities(),
                       count * static_cast<std::size_t>(batch.classes()) * sizeof(float));
}

std::string BatchHash::digest() const {
  return fmt::format("{:016x}", XXH3_64bits_digest(state_.get()));
}

}  // namespace millrace::tools
