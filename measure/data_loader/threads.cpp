#include "measure/data_loader/threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <memory>
#include <string>
#include <system_error>

#include "measure/data_loader/script_descriptor.h"

namespace millrace::measure {
namespace {

constexpr std::size_t kMaxThreads = 4096, kMaxFollowed = 32;
constexpr std::int64_t kClockNs = 1500;  // one reading of another thread's clock

/// Reads both times of a thread from a file of scheduling statistics. Returns whether it could.
bool read_times(int folder, const std::string& name, ThreadTimes& times) {
  const ScriptDescriptor file(openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 96> text{};
  const ssize_t size = file.number() < 0 ? -1 : read(file.number(), text.data(), text.size());
  if (size <= 0) return false;
  const char* const end = text.data() + size;
  const auto cpu = std::from_chars(text.data(), end, times.cpu);
  if (cpu.ec != std::errc() || cpu.ptr == end) return false;
  return std::from_chars(cpu.ptr + 1, end, times.delay).ec == std::errc();
}

}  // namespace

std::vector<ThreadTimes> threads_of(std::int64_t process) {
  const std::string path =
      "/proc/" + (process == 0 ? std::string("self") : std::to_string(process)) + "/task";
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  std::vector<ThreadTimes> found;
  if (folder == nullptr) return found;
  while (const dirent* const entry = readdir(folder.get())) {
    const std::string name = entry->d_name;
    ThreadTimes times;
    const auto id = std::from_chars(name.data(), name.data() + name.size(), times.id);
    if (id.ec != std::errc() || !read_times(dirfd(folder.get()), name + "/schedstat", times))
      continue;
    found.push_back(times);
    if (found.size() == kMaxThreads) break;
  }
  return found;
}

void OtherThreads::follow(std::vector<std::int64_t> threads) {
  if (threads.size() > kMaxFollowed) threads.resize(kMaxFollowed);
  followed_.clear();
  for (const std::int64_t id : threads) followed_.push_back({.id = id});
  drop();
}

/// Returns the CPU time of all followed threads since they started.
std::int64_t OtherThreads::cpu() {
  std::int64_t sum = 0;
  for (Followed& one : followed_) {
    // The kernel's clock of a thread's scheduled time, as pthread_getcpuclockid() would make it.
    const auto clock = static_cast<clockid_t>((~static_cast<std::uint32_t>(one.id) << 3U) | 6U);
    timespec time{};
    if (clock_gettime(clock, &time) == 0)
      one.cpu = 1'000'000'000 * static_cast<std::int64_t>(time.tv_sec) + time.tv_nsec;
    sum += one.cpu;
  }
  return sum;
}

void OtherThreads::begin(std::int64_t now) {
  const auto readings = static_cast<std::int64_t>(followed_.size());
  std::int64_t used = kUnknown;
  if (in_body_) {
    used = cpu();
    sums_.body_cpu += used - got_cpu_;
    sums_.body_wall += now - got_;
  }
  drop();
  if (!sampler_.due(now, 3 * readings * kClockNs)) return;
  begin_ = now;
  begin_cpu_ = used == kUnknown ? cpu() : used;
  in_next_ = true;
}

void OtherThreads::end_next(std::int64_t now) {
  got_ = now;
  got_cpu_ = cpu();
  sums_.next_cpu += got_cpu_ - begin_cpu_;
  sums_.next_wall += got_ - begin_;
  in_next_ = false;
  in_body_ = true;
}

}  // namespace millrace::measure
