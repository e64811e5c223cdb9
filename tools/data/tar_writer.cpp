// Writes headers and padding of the ustar format.
#include "tools/data/tar_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "millrace/error.h"

namespace millrace::tools {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kBuffer = std::size_t{1} << 20;

[[noreturn]] void fail(const std::string& path) {
  const int error = errno;
  throw RunError(fmt::format("{}: cannot be written: {}", path, std::strerror(error)),
                 error == ENOSPC || error == EDQUOT || error == EFBIG
                     ? "make room, or choose a folder on another disk"
                     : "check the folder's permissions");
}

}  // namespace

TarWriter::TarWriter(std::string path)
    : path_(std::move(path)),
      file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (file_.get() < 0) fail(path_);
  pending_.reserve(kBuffer + kBlock);
}

std::uint64_t TarWriter::member_size(std::uint64_t bytes) {
  return kBlock + (bytes + kBlock - 1) / kBlock * kBlock;
}

void TarWriter::add(std::string_view name, std::span<const std::uint8_t> bytes) {
  std::array<std::uint8_t, kBlock> header{};
  const auto text = [&](std::size_t at, std::string_view value) {
    std::copy(value.begin(), value.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
  };
  if (name.size() > 100)
    throw RunError(fmt::format("{}: the name '{}' is too long for a member", path_, name),
                   "an archive's names have up to 100 bytes");
  text(0, name);
  text(100, "0000644");
  text(108, "0000000");
  text(116, "0000000");
  text(124, fmt::format("{:011o}", bytes.size()));  // below 8 GiB: samples are below 4 GiB
  text(136, "00000000000");
  text(148, "        ");
  text(156, "0");
  text(257, std::string_view("ustar\0"
                             "00",
                             8));
  const auto sum = std::accumulate(header.begin(), header.end(), 0u);
  text(148, fmt::format("{:06o}", sum));
  header[154] = 0;
  put(header);
  put(bytes);
  constexpr std::array<std::uint8_t, kBlock> kZeros{};
  put(std::span(kZeros).first((kBlock - bytes.size() % kBlock) % kBlock));
}

void TarWriter::finish() {
  const std::vector<std::uint8_t> end(2 * kBlock);
  put(end);
  flush();
  if (fsync(file_.get()) != 0) fail(path_);
  file_ = base::Descriptor();
}

void TarWriter::put(std::span<const std::uint8_t> bytes) {
  size_ += bytes.size();
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  if (pending_.size() >= kBuffer) flush();
}

void TarWriter::flush() {
  std::span<const std::uint8_t> left = pending_;
  while (!left.empty()) {
    const ssize_t count = write(file_.get(), left.data(), left.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path_);
    left = left.subspan(static_cast<std::size_t>(count));
  }
  pending_.clear();
}

}  // namespace millrace::tools
