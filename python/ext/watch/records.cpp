#include "python/ext/watch/records.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace millrace::watch {
namespace {

[[noreturn]] void fail(int error, const std::string& path) {
  throw std::system_error(error, std::generic_category(), path);
}

}  // namespace

RecordFile::RecordFile(const std::string& path, std::int64_t slots, std::int64_t parts, bool create)
    : slots_(slots),
      parts_(2 * static_cast<std::size_t>(parts)),
      size_(sizeof(Record) + parts_ * sizeof(std::int64_t)) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_TRUNC : 0), 0666);
  if (file < 0) fail(errno, path);
  const std::size_t bytes = static_cast<std::size_t>(slots_) * size_;
  int error = create && ftruncate(file, static_cast<off_t>(bytes)) != 0 ? errno : 0;
  void* const map =
      error == 0 ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (error == 0 && map == MAP_FAILED) error = errno;
  close(file);
  if (error != 0) fail(error, path);
  map_ = static_cast<std::byte*>(map);
}

RecordFile::~RecordFile() { munmap(map_, static_cast<std::size_t>(slots_) * size_); }

std::byte* RecordFile::slot(std::int64_t batch) const {
  return map_ + static_cast<std::size_t>(batch % slots_) * size_;
}

void RecordFile::write(const Record& record, const Parts& parts) {
  std::byte* const at = slot(record.batch);
  const std::size_t count = std::min(parts.size(), parts_);
  if (count > 0) std::memcpy(at + sizeof(Record), parts.data(), count * sizeof(std::int64_t));
  Record whole = record;
  whole.send_key = whole.send_begin = whole.send_end = 0;
  whole.send_cpu = whole.send_delay = whole.send_waited = 0;
  std::memcpy(at, &whole, sizeof(whole));
}

void RecordFile::write_sending(std::int64_t batch, const Reading& begin, const Reading& end,
                               std::int64_t waited) {
  const std::int64_t delay = begin.delay == kUnknown ? kUnknown : end.delay - begin.delay;
  const std::array<std::int64_t, kRecordFields - kFetchFields> fields = {
      batch + 1, begin.wall, end.wall, end.cpu - begin.cpu, delay, waited};
  std::memcpy(slot(batch) + kFetchFields * sizeof(std::int64_t), fields.data(), sizeof(fields));
}

bool RecordFile::read(std::int64_t generation, std::int64_t batch, Record& record,
                      Parts& parts) const {
  const std::byte* const at = slot(batch);
  std::memcpy(&record, at, sizeof(record));
  if (record.generation != generation || record.batch != batch) return false;
  parts.clear();
  if (record.transform == kUnknown) return true;
  parts.resize(parts_);
  if (parts_ > 0) std::memcpy(parts.data(), at + sizeof(Record), parts_ * sizeof(std::int64_t));
  return true;
}

bool RecordFile::holds_later(std::int64_t generation, std::int64_t batch) const {
  Record record;
  std::memcpy(&record, slot(batch), sizeof(record));
  return std::pair(record.generation, record.batch) > std::pair(generation, batch);
}

}  // namespace millrace::watch
