// Distributes pieces of a loop over threads.
#include "tools/data/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace millrace::tools {

void parallel_for(std::uint64_t count, std::uint64_t piece, int threads, const Progress& progress,
                  const std::function<void(std::uint64_t begin, std::uint64_t end)>& body) {
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::uint64_t done = 0;
  std::exception_ptr error;

  const auto work = [&] {
    while (true) {
      const std::uint64_t begin = next.fetch_add(piece);
      if (begin >= count) return;
      const std::uint64_t end = std::min(begin + piece, count);
      try {
        body(begin, end);
        const std::lock_guard lock(mutex);
        done += end - begin;
        if (progress) progress(done, count);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next = count;
      }
    }
  };

  const unsigned wanted =
      threads > 0 ? static_cast<unsigned>(threads) : std::thread::hardware_concurrency();
  {
    std::vector<std::jthread> helpers;
    for (unsigned i = 1; i < wanted; ++i) helpers.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace millrace::tools
