// Yardstick: ways to read samples of one size from a large file in random order, with the page
// cache warm or dropped. Every way adds up all bytes of a sample, as an augmentation's pass would
// read them, and all sums are compared.
//
//   build/read_paths FILE [--bytes 262144] [--samples 4000] [--rounds 5]
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kPage = 4096;
/// Requests that io_uring has in flight, one buffer each.
constexpr unsigned kDepth = 8;
/// Bytes of a mapping that are read before its pages are released.
constexpr std::size_t kBound = std::size_t{32} << 20;

[[noreturn]] void stop(const char* what) {
  std::perror(what);
  std::exit(1);
}

double clock_s(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::uint64_t sum_of(const std::uint8_t* bytes, std::size_t size) {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at + 8 <= size; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, 8);
    sum += word;
  }
  return sum;
}

struct Task {
  int file;
  std::size_t file_size, bytes;
  std::vector<std::uint64_t> offsets;
};

std::uint64_t by_pread(const Task& task) {
  std::vector<std::uint8_t> buffer(task.bytes);
  std::uint64_t sum = 0;
  for (const std::uint64_t offset : task.offsets) {
    if (pread(task.file, buffer.data(), task.bytes, static_cast<off_t>(offset)) !=
        static_cast<ssize_t>(task.bytes))
      stop("pread");
    sum += sum_of(buffer.data(), task.bytes);
  }
  return sum;
}

/// As the loader's I/O threads do: as many reads in flight as io_uring has.
std::uint64_t by_threads(const Task& task) {
  std::atomic<std::uint64_t> sum{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kDepth; ++i)
    threads.emplace_back([&, i] {
      Task part{task.file, task.file_size, task.bytes, {}};
      for (std::size_t k = i; k < task.offsets.size(); k += kDepth)
        part.offsets.push_back(task.offsets[k]);
      sum += by_pread(part);
    });
  for (std::thread& thread : threads) thread.join();
  return sum;
}

/// Maps the whole file, and releases its pages after each kBound bytes. `populate` brings in a
/// sample's pages with one call instead of by faults.
std::uint64_t by_mapping(const Task& task, bool populate) {
  void* memory = mmap(nullptr, task.file_size, PROT_READ, MAP_SHARED, task.file, 0);
  if (memory == MAP_FAILED) stop("mmap");
  auto* bytes = static_cast<std::uint8_t*>(memory);
  std::uint64_t sum = 0;
  std::size_t since = 0;
  for (const std::uint64_t offset : task.offsets) {
    if (populate) {
      const std::uint64_t begin = offset / kPage * kPage;
      constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ
      if (madvise(bytes + begin, offset + task.bytes - begin, kPopulateRead) != 0) stop("madvise");
    }
    sum += sum_of(bytes + offset, task.bytes);
    since += task.bytes;
    if (since < kBound) continue;
    madvise(memory, task.file_size, MADV_DONTNEED);
    since = 0;
  }
  munmap(memory, task.file_size);
  return sum;
}

/// The kernel's rings, mapped.
class Ring {
 public:
  Ring() {
    io_uring_params params{};
    file_ = static_cast<int>(syscall(SYS_io_uring_setup, kDepth, &params));
    if (file_ < 0) return;
    const std::size_t size =
        std::max(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                 params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    auto* rings = static_cast<char*>(map(size, IORING_OFF_SQ_RING));
    entries_ =
        static_cast<io_uring_sqe*>(map(params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
    tail_ = reinterpret_cast<unsigned*>(rings + params.sq_off.tail);
    array_ = reinterpret_cast<unsigned*>(rings + params.sq_off.array);
    mask_ = *reinterpret_cast<unsigned*>(rings + params.sq_off.ring_mask);
    done_head_ = reinterpret_cast<unsigned*>(rings + params.cq_off.head);
    done_tail_ = reinterpret_cast<unsigned*>(rings + params.cq_off.tail);
    done_mask_ = *reinterpret_cast<unsigned*>(rings + params.cq_off.ring_mask);
    done_ = reinterpret_cast<io_uring_cqe*>(rings + params.cq_off.cqes);
  }
  ~Ring() {
    if (file_ >= 0) close(file_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  bool works() const { return file_ >= 0; }

  void read(int file, std::uint8_t* to, std::size_t bytes, std::uint64_t offset, unsigned id) {
    const unsigned at = *tail_ & mask_;
    io_uring_sqe& entry = entries_[at];
    entry = {};
    entry.opcode = IORING_OP_READ;
    entry.fd = file;
    entry.addr = reinterpret_cast<std::uint64_t>(to);
    entry.len = static_cast<unsigned>(bytes);
    entry.off = offset;
    entry.user_data = id;
    array_[at] = at;
    std::atomic_ref(*tail_).store(*tail_ + 1, std::memory_order_release);
    ++queued_;
  }

  /// Submits what is queued, waits for one completion and returns its id.
  unsigned wait(std::size_t bytes) {
    while (std::atomic_ref(*done_tail_).load(std::memory_order_acquire) == *done_head_ ||
           queued_ > 0) {
      const bool is_empty =
          std::atomic_ref(*done_tail_).load(std::memory_order_acquire) == *done_head_;
      const long count = syscall(SYS_io_uring_enter, file_, queued_, is_empty ? 1 : 0,
                                 is_empty ? IORING_ENTER_GETEVENTS : 0, nullptr, 0);
      if (count < 0) stop("io_uring_enter");
      queued_ -= static_cast<unsigned>(count);
    }
    const io_uring_cqe one = done_[*done_head_ & done_mask_];
    std::atomic_ref(*done_head_).store(*done_head_ + 1, std::memory_order_release);
    if (one.res != static_cast<int>(bytes)) stop("io_uring read");
    return static_cast<unsigned>(one.user_data);
  }

 private:
  void* map(std::size_t size, off_t what) const {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, what);
    if (memory == MAP_FAILED) stop("mmap of a ring");
    return memory;
  }

  int file_ = -1;
  unsigned queued_ = 0, mask_ = 0, done_mask_ = 0;
  unsigned *tail_ = nullptr, *array_ = nullptr, *done_head_ = nullptr, *done_tail_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
  io_uring_cqe* done_ = nullptr;
};

std::uint64_t by_uring(const Task& task) {
  Ring ring;
  if (!ring.works()) stop("io_uring_setup");
  std::vector<std::vector<std::uint8_t>> buffers(kDepth, std::vector<std::uint8_t>(task.bytes));
  std::size_t next = 0;
  const auto begin = [&](unsigned id) {
    if (next < task.offsets.size())
      ring.read(task.file, buffers[id].data(), task.bytes, task.offsets[next++], id);
  };
  for (unsigned id = 0; id < kDepth; ++id) begin(id);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < task.offsets.size(); ++i) {
    const unsigned id = ring.wait(task.bytes);
    sum += sum_of(buffers[id].data(), task.bytes);
    begin(id);
  }
  return sum;
}

struct Way {
  std::string name;
  std::function<std::uint64_t(const Task&)> run;
  std::vector<double> cpu, wall;
};

double middle_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const Task& task, bool warm, int rounds) {
  std::vector<Way> ways{
      {"pread", by_pread, {}, {}},
      {"pread, 8 threads", by_threads, {}, {}},
      {"mapped, bounded", [](const Task& t) { return by_mapping(t, false); }, {}, {}},
      {"mapped, populated", [](const Task& t) { return by_mapping(t, true); }, {}, {}}};
  if (Ring().works())
    ways.push_back({"io_uring, 8 in flight", by_uring, {}, {}});
  else
    std::printf("io_uring is forbidden here\n");
  const std::uint64_t expected = by_pread(task);
  for (int round = 0; round < rounds; ++round)
    for (Way& way : ways) {
      if (!warm) posix_fadvise(task.file, 0, 0, POSIX_FADV_DONTNEED);
      const double cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID), wall = clock_s(CLOCK_MONOTONIC);
      if (way.run(task) != expected) stop("the sums differ");
      way.cpu.push_back(clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu);
      way.wall.push_back(clock_s(CLOCK_MONOTONIC) - wall);
    }
  for (const Way& way : ways)
    std::printf("%-5s %-22s %8.1f us CPU %8.1f us per sample of %zu bytes\n",
                warm ? "warm" : "cold", way.name.c_str(),
                1e6 * middle_of(way.cpu) / static_cast<double>(task.offsets.size()),
                1e6 * middle_of(way.wall) / static_cast<double>(task.offsets.size()), task.bytes);
}

}  // namespace

int main(int count, char** arguments) {
  const std::span words(arguments, static_cast<std::size_t>(count));
  if (count < 2) {
    std::fprintf(stderr, "read_paths FILE [--bytes N] [--samples N] [--rounds N]\n");
    return 2;
  }
  const auto option = [&](const char* name, long fallback) {
    for (std::size_t i = 2; i + 1 < words.size(); ++i)
      if (std::strcmp(words[i], name) == 0) return std::atol(words[i + 1]);
    return fallback;
  };
  Task task{open(words[1], O_RDONLY | O_CLOEXEC), 0, 0, {}};
  struct stat status {};
  if (task.file < 0 || fstat(task.file, &status) != 0) stop(words[1]);
  posix_fadvise(task.file, 0, 0, POSIX_FADV_RANDOM);
  task.file_size = static_cast<std::size_t>(status.st_size);
  task.bytes = static_cast<std::size_t>(option("--bytes", 262'144)) / 8 * 8;
  std::mt19937_64 random(1);
  const std::size_t places = task.file_size / task.bytes;
  if (places == 0) stop("the file is too small");
  for (long i = 0; i < option("--samples", 4000); ++i)
    task.offsets.push_back(random() % places * task.bytes);
  const int rounds = static_cast<int>(option("--rounds", 5));
  measure(task, true, rounds);
  measure(task, false, rounds);
  return 0;
}
