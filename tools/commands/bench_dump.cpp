#include "tools/commands/bench_dump.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "millrace/error.h"

namespace millrace::tools {

BenchDump::BenchDump(std::string path, std::size_t classes)
    : path_(std::move(path)), narrow_(classes <= 256) {
  // Writes directly to a pipe or a device; writes a file atomically.
  std::error_code none;
  const auto status = std::filesystem::status(path_, none);
  target_ = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)
                ? path_
                : path_ + ".tmp";
  file_ = std::fopen(target_.c_str(), "wb");
  if (file_ == nullptr) fail();
}

BenchDump::~BenchDump() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  if (target_ != path_) std::remove(target_.c_str());
}

void BenchDump::add(const Batch& batch) {
  put(batch.data(), batch.bytes());
  labels_.insert(labels_.end(), batch.labels(), batch.labels() + batch.count());
}

void BenchDump::finish() {
  for (const std::int64_t label : labels_) {
    const auto byte = static_cast<unsigned char>(label);
    narrow_ ? put(&byte, 1) : put(&label, sizeof label);
  }
  const bool closed = std::fclose(file_) == 0;
  file_ = nullptr;
  if (closed && (target_ == path_ || std::rename(target_.c_str(), path_.c_str()) == 0)) return;
  const int error = errno;
  if (target_ != path_) std::remove(target_.c_str());
  errno = error;
  fail();
}

void BenchDump::put(const void* data, std::size_t size) {
  if (std::fwrite(data, 1, size, file_) != size) fail();
}

void BenchDump::fail() const {
  throw RunError(fmt::format("--dump {} cannot be written: {}", path_, std::strerror(errno)),
                 "make room or choose another file");
}

}  // namespace millrace::tools
