// SHA-256 of files and of what was fetched, and the keyed hash that signs requests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
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
/// Returns the hash of an open file's content; `path` is for messages. Throws DataError if it
/// cannot be read. `check` is called every 16 MiB and may throw to abort; it may be empty.
MILLRACE_PRIVATE_API Sha256 sha256_of_file(int descriptor, const std::string& path,
                                           const std::function<void()>& check = {});
/// Returns HMAC-SHA256 (RFC 2104).
MILLRACE_PRIVATE_API Sha256 hmac_sha256(std::string_view key, std::string_view message);
/// Returns the hash as 64 hexadecimal digits.
MILLRACE_PRIVATE_API std::string hex_of(const Sha256& hash);

}  // namespace millrace::pipeline
