#include "base/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/open_file.h"
#include "base/record_file.h"
#include "millrace/error.h"

namespace millrace::base {

namespace {

std::string digits(XXH64_hash_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace

std::string checksum(std::string_view bytes) {
  return digits(XXH3_64bits(bytes.data(), bytes.size()));
}

std::string file_checksum(const std::filesystem::path& file) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;  // stays in the cache while it is hashed
  const OpenFile open = find_record(file);
  if (!open.descriptor)
    throw DataError(fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)),
                    "check the file's permissions and the disk");
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(),
                                                                      &XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  std::vector<std::uint8_t> piece(kPiece);
  std::size_t size = 0;
  for (std::uint64_t at = 0;
       (size = read_at(open.descriptor.get(), piece.data(), kPiece, at, file.c_str())) > 0;
       at += size)
    XXH3_64bits_update(hash.get(), piece.data(), size);
  return digits(XXH3_64bits_digest(hash.get()));
}

}  // namespace millrace::base
