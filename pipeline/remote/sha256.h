// SHA-256 of what was fetched, and the keyed hash that signs requests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/private_api.h"
#include "pipeline/readers/shard_index.h"

struct evp_md_ctx_st;

namespace millrace::pipeline {

/// Hashes bytes as they come.
class MILLRACE_PRIVATE_API Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream&) = delete;
  Sha256Stream& operator=(const Sha256Stream&) = delete;

  /// Forgets what was added.
  void reset();
  void add(const void* data, std::size_t size);
  /// Returns the hash; call reset() before adding again.
  Sha256 finish();

 private:
  evp_md_ctx_st* context_;
};

Sha256 sha256_of(std::string_view bytes);
/// Returns HMAC-SHA256 (RFC 2104).
Sha256 hmac_sha256(std::string_view key, std::string_view message);
std::string hex_of(const Sha256& hash);

}  // namespace millrace::pipeline
