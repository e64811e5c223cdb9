// Opens, reads, checks and replaces files, and handles SIGBUS.

#include "base/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/record_file.h"
#include "base/text.h"
#include "millrace/error.h"

namespace millrace::base {

// The SIGBUS handler and the lock-free list of guarded ranges that it walks.

/// An entry of a list that only grows, so that the handler can walk it without a lock. Entries are
/// reused.
struct GuardedRange {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};  ///< 0: not in use
  std::atomic<bool> damaged{false};
  GuardedRange* next = nullptr;
};

namespace {

std::atomic<GuardedRange*> g_ranges{nullptr};
std::atomic<std::uint64_t> g_faults{0};
std::uintptr_t g_page = 4096;
struct sigaction g_before {};

GuardedRange* range_of(std::uintptr_t address) {
  for (GuardedRange* range = g_ranges.load(std::memory_order_acquire); range != nullptr;
       range = range->next)
    if (address < range->end.load(std::memory_order_acquire) &&
        address >= range->begin.load(std::memory_order_acquire))
      return range;
  return nullptr;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  if (replace_lost_page(info)) return;
  if ((g_before.sa_flags & SA_SIGINFO) != 0 && g_before.sa_sigaction != nullptr) {
    g_before.sa_sigaction(signal, info, context);
  } else if (g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN) {
    g_before.sa_handler(signal);
  } else {
    sigaction(SIGBUS, &g_before, nullptr);  // the access repeats and ends the process
  }
}

void install() {
  g_page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &g_before);
}

std::mutex& changing() {
  static auto* mutex = new std::mutex;  // outlives every thread
  return *mutex;
}

}  // namespace

bool replace_lost_page(const siginfo_t* info) {
  const auto page = reinterpret_cast<std::uintptr_t>(info->si_addr) & ~(g_page - 1);
  GuardedRange* range = info->si_code == BUS_ADRERR ? range_of(page) : nullptr;
  if (range == nullptr) return false;
  // Set the flag before the zeros become visible, so that their readers can know.
  range->damaged.store(true);
  g_faults.fetch_add(1);
  // Uses the bare system call: the library's wrapper is not guaranteed to be async-signal-safe.
  const long status =
      syscall(SYS_mmap, page, g_page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return static_cast<std::uintptr_t>(status) == page;
}

GuardedRange* guard(const void* memory, std::size_t size) {
  const std::lock_guard lock(changing());
  static const bool installed = (install(), true);
  static_cast<void>(installed);
  GuardedRange* range = g_ranges.load(std::memory_order_relaxed);
  while (range != nullptr && range->end.load(std::memory_order_relaxed) != 0) range = range->next;
  if (range == nullptr) {
    range = new GuardedRange;
    range->next = g_ranges.load(std::memory_order_relaxed);
    g_ranges.store(range, std::memory_order_release);
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  range->damaged.store(false, std::memory_order_relaxed);
  range->begin.store(begin, std::memory_order_release);
  range->end.store(begin + size, std::memory_order_release);
  return range;
}

void unguard(GuardedRange* range) {
  const std::lock_guard lock(changing());
  range->end.store(0, std::memory_order_release);
}

bool is_damaged(const GuardedRange* range) {
  return range->damaged.load(std::memory_order_acquire);
}

std::uint64_t mapped_faults() { return g_faults.load(std::memory_order_acquire); }

// Opens, reads and checks the files of a data set.

void require_resources(std::string_view path, int error) {
  if (error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS) return;
  throw RunError(fmt::format("{}: cannot be opened: {}", path, std::strerror(error)),
                 error == EMFILE ? "allow more open files: ulimit -n"
                                 : "other programs have what it takes: end some, or wait");
}

OpenFile open_regular(const char* path) {
  OpenFile file{Descriptor(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)), 0};
  struct stat status {};
  if (file.descriptor.get() < 0 || fstat(file.descriptor.get(), &status) != 0) {
    const int error = errno;
    require_resources(path, error);
    throw DataError(fmt::format("{}: cannot be read: {}", path, std::strerror(error)),
                    error == ENOENT ? "the file was removed, or a link points nowhere"
                                    : "check the file's permissions and the disk");
  }
  if (!S_ISREG(status.st_mode))
    throw DataError(fmt::format("{}: not a regular file", path),
                    "a data set is made of files; remove it or move it away");
  file.size = static_cast<std::uint64_t>(status.st_size);
  return file;
}

std::size_t read_at(int descriptor, std::uint8_t* out, std::size_t size, std::uint64_t offset,
                    const char* path) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count =
        pread(descriptor, out + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw DataError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)),
                      "check the disk");
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

bool set_path(Location& location, std::string_view path) {
  if (path.size() >= location.path.size()) return false;
  *std::copy(path.begin(), path.end(), location.path.begin()) = '\0';
  return true;
}

Sample read_located(const Location& location, int descriptor, Buffer& scratch) {
  if (location.size >= kTooLong)
    throw DataError(fmt::format("{}: too long for an image", location.path.data()),
                    "files of 4 GiB and more cannot be samples; or set loader.on_error=skip");
  // One byte more reveals a whole file that is longer than expected.
  const std::size_t wanted = location.size + (location.whole_file ? 1 : 0);
  std::uint8_t* bytes = scratch.reserve(wanted);
  const std::size_t count =
      read_at(descriptor, bytes, wanted, location.offset, location.path.data());
  if (count == location.size) return {{bytes, location.size}, location.label};
  struct stat status {};
  fstat(descriptor, &status);
  throw DataError(
      fmt::format("{}: changed while the set is in use: {} bytes, listed with {}{}",
                  location.path.data(), status.st_size, location.whole_file ? "" : "at least ",
                  location.offset + location.size),
      "leave the set alone while it is used; restart to list it again");
}

Sample read_located(const Location& location, Buffer& scratch) {
  return read_located(location, open_regular(location.path.data()).descriptor.get(), scratch);
}

void require_folder(const std::string& path, const std::string& kind) {
  const std::string hint = fmt::format("check data.path, or make a set: millrace data make {} {}",
                                       kind, path.empty() ? "DIR" : shell_word(path));
  if (path.empty()) throw DataError("data.path is empty", hint);
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    throw DataError(fmt::format("{}: {}", path, std::strerror(errno)), hint);
  if (!S_ISDIR(status.st_mode))
    throw DataError(fmt::format("{}: not a folder", path),
                    "data.path names the folder that holds the data set");
}

bool exists(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// Computes checksums with xxHash.
namespace {

std::string digits(XXH64_hash_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace

std::string checksum(std::string_view bytes) {
  return digits(XXH3_64bits(bytes.data(), bytes.size()));
}

std::string file_checksum(const std::filesystem::path& file) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;  // stays in the cache while it is hashed
  const base::OpenFile open = base::find_record(file);
  if (!open.descriptor)
    throw DataError(fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)),
                    "check the file's permissions and the disk");
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(),
                                                                      &XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  std::vector<std::uint8_t> piece(kPiece);
  std::size_t size = 0;
  for (std::uint64_t at = 0;
       (size = base::read_at(open.descriptor.get(), piece.data(), kPiece, at, file.c_str())) > 0;
       at += size)
    XXH3_64bits_update(hash.get(), piece.data(), size);
  return digits(XXH3_64bits_digest(hash.get()));
}

// Implements AtomicFile with POSIX calls.
namespace {

constexpr std::string_view kMark = ".tmp-";  ///< followed by the writer's process id

/// Makes a rename survive a power cut, which needs the folder on disk as well. Some file systems
/// cannot do that; the file itself is complete all the same.
void sync_folder(const std::filesystem::path& folder) {
  const int directory =
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  fsync(directory);
  close(directory);
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : path_(path), temporary_(path.string() + std::string(kMark) + std::to_string(getpid())) {
  // Replaces what a killed process of the same id has left. Never follows a link.
  unlink(temporary_.c_str());
  file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0) fail("created");
  flock(file_, LOCK_EX | LOCK_NB);  // marks the writer as alive, where locks work
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  close(file_);
  unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (fsync(file_) != 0) fail("written to the disk");
  replace();
  sync_folder(path_.parent_path());
}

void AtomicFile::replace() {
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("renamed");
  close(file_);
  file_ = -1;
}

void AtomicFile::fail(const char* doing) const {
  const int reason = errno;
  throw RunError(
      path_.string() + " cannot be " + doing + ": " + std::generic_category().message(reason),
      reason == ENOSPC || reason == EDQUOT ? "free some space and run again"
                                           : "check the folder and its write permissions");
}

void remove_stale_temporaries(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const std::size_t mark = name.rfind(kMark);
    if (mark == std::string::npos || !std::filesystem::is_regular_file(entry.symlink_status(error)))
      continue;
    const std::string_view pid = std::string_view(name).substr(mark + kMark.size());
    if (pid.empty() || pid.find_first_not_of("0123456789") != std::string_view::npos) continue;
    const int file = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) continue;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) unlink(entry.path().c_str());
    close(file);
  }
}

}  // namespace millrace::base
