#include "measure/data_loader/record_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <utility>

namespace millrace::measure {
namespace {

[[noreturn]] void fail(int error, const std::string& path) {
  throw std::system_error(error, std::generic_category(), path);
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

/// Reserves the pages of a new file, so that a lack of memory is an error here and no SIGBUS later.
/// Returns an error number.
int reserve(int file, off_t bytes) {
  int error = EINTR;
  while (error == EINTR) error = posix_fallocate(file, 0, bytes);
  return error;
}

/// The field of a slot that is written last, and read first.
std::atomic_ref<std::int64_t> send_key_of(std::byte* slot) {
  return std::atomic_ref(*reinterpret_cast<std::int64_t*>(slot + offsetof(WorkerRecord, send_key)));
}

}  // namespace

RecordRing::RecordRing(std::int64_t slots, std::int64_t parts, const std::string& path)
    : path_(path),
      slots_(slots),
      parts_(2 * static_cast<std::size_t>(parts)),
      size_(sizeof(WorkerRecord) + parts_ * sizeof(std::int64_t)),
      file_(path.empty() ? memfd_create("pymillrace", MFD_CLOEXEC | MFD_ALLOW_SEALING)
                         : open(path.c_str(), O_RDWR | O_CLOEXEC)) {
  const int file = file_.number();
  if (file < 0) fail(errno, path.empty() ? "memfd_create" : path);
  if (path.empty()) {
    path_ = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file);
    if (const int error = reserve(file, static_cast<off_t>(bytes())); error != 0)
      fail(error, "records of batches");
    if (fcntl(file, F_ADD_SEALS, kSeals) != 0) fail(errno, path_);
  } else {
    // Where /proc is that of other processes, the path may be somebody's file.
    if (fcntl(file, F_GET_SEALS) != kSeals) fail(EINVAL, path + ": no records of batches");
    struct stat status {};
    if (fstat(file, &status) != 0) fail(errno, path);
    if (static_cast<std::size_t>(status.st_size) < bytes())
      fail(EINVAL, path + ": the file is shorter than its records");
  }
  void* const at = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) fail(errno, path_);
  map_ = static_cast<std::byte*>(at);
}

RecordRing::~RecordRing() { munmap(map_, bytes()); }

std::byte* RecordRing::slot(std::int64_t batch) const {
  return map_ + static_cast<std::uint64_t>(batch) % static_cast<std::uint64_t>(slots_) * size_;
}

void RecordRing::write(const WorkerRecord& record, const Parts& parts) {
  std::byte* const at = slot(record.batch);
  send_key_of(at).store(0, std::memory_order_release);
  const std::size_t count = std::min(parts.size(), parts_);
  if (count > 0) std::memcpy(at + sizeof(WorkerRecord), parts.data(), count * sizeof(std::int64_t));
  WorkerRecord whole = record;
  whole.send_key = whole.send_begin = whole.send_end = 0;
  whole.send_cpu = whole.send_delay = whole.send_waited = 0;
  std::memcpy(at, &whole, sizeof(whole));
}

void RecordRing::write_sending(std::int64_t batch, std::int64_t begin, std::int64_t end,
                               const Usage& usage, std::int64_t waited) {
  const std::array<std::int64_t, kRecordFields - kFetchFields - 1> fields = {begin, end, usage.cpu,
                                                                             usage.delay, waited};
  std::byte* const at = slot(batch);
  std::memcpy(at + offsetof(WorkerRecord, send_begin), fields.data(), sizeof(fields));
  send_key_of(at).store(batch + 1, std::memory_order_release);
}

bool RecordRing::read(std::int64_t generation, std::int64_t batch, WorkerRecord& record,
                      Parts& parts) const {
  std::byte* const at = slot(batch);
  const std::int64_t key = send_key_of(at).load(std::memory_order_acquire);
  std::memcpy(&record, at, sizeof(record));
  record.send_key = key;  // what followed it may be newer, and is then not yet whole
  if (record.generation != generation || record.batch != batch) return false;
  parts.clear();
  if (record.transform == kUnknown) return true;
  parts.resize(parts_);
  if (parts_ > 0)
    std::memcpy(parts.data(), at + sizeof(WorkerRecord), parts_ * sizeof(std::int64_t));
  return true;
}

std::vector<WorkerRecord> RecordRing::made() const {
  std::vector<WorkerRecord> all;
  for (std::int64_t i = 0; i < slots_; ++i) {
    WorkerRecord one;
    const std::int64_t key = send_key_of(slot(i)).load(std::memory_order_acquire);
    std::memcpy(&one, slot(i), sizeof(one));
    one.send_key = key;
    if (one.generation <= 0 || one.begin <= 0 || one.end < one.begin) continue;
    if (!one.sent()) one.send_begin = one.send_end = 0;
    if (one.collate < one.begin || one.collate > one.end) one.collate = 0;
    all.push_back(one);
  }
  return all;
}

bool RecordRing::holds_later(std::int64_t generation, std::int64_t batch) const {
  WorkerRecord record;
  std::memcpy(&record, slot(batch), sizeof(record));
  return std::pair(record.generation, record.batch) > std::pair(generation, batch);
}

}  // namespace millrace::measure
