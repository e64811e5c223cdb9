// Computes SHA-256 with OpenSSL.
#include "tools/data/sha256.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <memory>
#include <vector>

#include "base/files.h"
#include "millrace/error.h"

namespace millrace::tools {

std::array<std::uint8_t, 32> sha256_of(int descriptor, const std::string& path) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  bool sound = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::vector<std::uint8_t> block(std::size_t{1} << 18);
  for (std::uint64_t at = 0; sound;) {
    const std::size_t count =
        base::read_at(descriptor, block.data(), block.size(), at, path.c_str());
    if (count == 0) break;
    sound = EVP_DigestUpdate(context.get(), block.data(), count) == 1;
    at += count;
  }
  std::array<std::uint8_t, 32> hash{};
  unsigned int size = 0;
  if (!sound || EVP_DigestFinal_ex(context.get(), hash.data(), &size) != 1 || size != hash.size())
    throw RunError("SHA-256 is not available in this OpenSSL");
  return hash;
}

std::string hex(const std::array<std::uint8_t, 32>& hash) {
  return fmt::format("{:02x}", fmt::join(hash, ""));
}

}  // namespace millrace::tools
