// Computes SHA-256 with OpenSSL.
#include "pipeline/remote/sha256.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/open_file.h"
#include "millrace/error.h"
#include "pipeline/remote/libraries.h"

namespace millrace::pipeline {
namespace {

void require(bool done) {
  if (!done) throw RunError("SHA-256 is not available in this OpenSSL", "check libssl3");
}

}  // namespace

Sha256Stream::Sha256Stream() : context_(crypto().md_new()) {
  require(context_ != nullptr);
  reset();
}

// NOLINTNEXTLINE(bugprone-exception-escape): the constructor has opened the library
Sha256Stream::~Sha256Stream() { crypto().md_free(context_); }

void Sha256Stream::reset() {
  require(crypto().digest_init(context_, crypto().sha256(), nullptr) == 1);
}

void Sha256Stream::add(const void* data, std::size_t size) {
  require(crypto().digest_update(context_, data, size) == 1);
}

Sha256 Sha256Stream::finish() {
  Sha256 hash{};
  unsigned int size = 0;
  require(crypto().digest_final(context_, hash.data(), &size) == 1 && size == hash.size());
  return hash;
}

Sha256 sha256_of(std::string_view bytes) {
  Sha256Stream stream;
  stream.add(bytes.data(), bytes.size());
  return stream.finish();
}

Sha256 sha256_of_file(int descriptor, const std::string& path, const std::function<void()>& check) {
  constexpr std::uint64_t kChecked = std::uint64_t{16} << 20;  // bytes between two calls
  Sha256Stream hash;
  std::vector<std::uint8_t> block(std::size_t{1} << 18);
  for (std::uint64_t at = 0;;) {
    const std::size_t count =
        base::read_at(descriptor, block.data(), block.size(), at, path.c_str());
    if (count == 0) return hash.finish();
    hash.add(block.data(), count);
    at += count;
    if (check && (at % kChecked < count || count < block.size())) check();
  }
}

Sha256 hmac_sha256(std::string_view key, std::string_view message) {
  std::array<std::uint8_t, 64> block{};
  if (key.size() > block.size()) {
    const Sha256 hash = sha256_of(key);
    std::copy(hash.begin(), hash.end(), block.begin());
  } else {
    std::copy(key.begin(), key.end(), block.begin());
  }
  const auto keyed = [&](std::uint8_t mask, const void* data, std::size_t size) {
    std::array<std::uint8_t, 64> masked = block;
    for (std::uint8_t& byte : masked) byte ^= mask;
    Sha256Stream stream;
    stream.add(masked.data(), masked.size());
    stream.add(data, size);
    return stream.finish();
  };
  const Sha256 inner = keyed(0x36, message.data(), message.size());
  return keyed(0x5c, inner.data(), inner.size());
}

std::string hex_of(const Sha256& hash) { return fmt::format("{:02x}", fmt::join(hash, "")); }

}  // namespace millrace::pipeline
