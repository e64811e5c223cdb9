// Computes fingerprints with xxHash.
#include "pipeline/readers/fingerprint.h"

#include <xxhash.h>

#include <array>
#include <new>

namespace millrace::pipeline {

void Fingerprint::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Fingerprint::Fingerprint() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

void Fingerprint::add(std::span<const std::uint8_t> bytes) {
  XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

void Fingerprint::add(std::string_view name) {
  XXH3_64bits_update(state_.get(), name.data(), name.size());
  XXH3_64bits_update(state_.get(), "", 1);
}

void Fingerprint::add(std::uint64_t number) {
  std::array<std::uint8_t, 8> bytes{};
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(number);
    number >>= 8;
  }
  add(std::span<const std::uint8_t>(bytes));
}

std::uint64_t Fingerprint::value() const { return XXH3_64bits_digest(state_.get()); }

}  // namespace millrace::pipeline
