// Runs a fuzz target without libFuzzer: its seeds, then mutations of them for some seconds, or the
// files given. With code built with -fsanitize-coverage=trace-pc, it also mutates inputs that reach
// new code. README.md shows how to call it.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "tests/fuzz/mutate.h"

extern "C" {
void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

/// Limits one allocation: a few bytes must not make a parser ask for much memory.
__attribute__((used, visibility("default"))) const char* __asan_default_options() {
  return "max_allocation_size_mb=256";
}
}

namespace millrace::fuzz {
namespace {

using Clock = std::chrono::steady_clock;
constexpr unsigned kSlowSeconds = 30;  ///< an input that takes longer counts as a hang

/// The input that is running, for report_failure().
struct Running {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
  std::uint64_t round = 0;
  bool replay = false;
  char file[256] = "failing-input";
} running;

/// Writes the failing input to a file and a line to stderr. Allocates nothing, because it runs in
/// signal handlers too.
void report_failure() {
  if (running.data == nullptr) return;
  char text[512];
  if (running.replay) {
    std::snprintf(text, sizeof text, "\nfuzz: this input fails\n");
  } else {
    const int file = open(running.file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const bool written =
        file >= 0 && write(file, running.data, running.size) == static_cast<ssize_t>(running.size);
    if (file >= 0) close(file);
    std::snprintf(text, sizeof text, "\nfuzz: input %llu of %zu bytes fails, %s %s\n",
                  static_cast<unsigned long long>(running.round), running.size,
                  written ? "written to" : "not written to", running.file);
  }
  running.data = nullptr;  // report once
  static_cast<void>(!write(STDERR_FILENO, text, std::strlen(text)));
}

void on_signal(int number) {
  const char* what =
      number == SIGALRM ? "\nfuzz: the input takes too long" : "\nfuzz: stopped by a signal";
  static_cast<void>(!write(STDERR_FILENO, what, std::strlen(what)));
  report_failure();
  _exit(1);
}

void catch_failures() {
  const bool sanitizer = __sanitizer_set_death_callback != nullptr;
  if (sanitizer) __sanitizer_set_death_callback(&report_failure);
  static std::array<char, 1 << 16> stack;  // an overflowed stack cannot hold the handler
  const stack_t other{stack.data(), 0, stack.size()};
  if (!sanitizer) sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_handler = &on_signal;
  action.sa_flags = sanitizer ? 0 : SA_ONSTACK;
  sigaction(SIGALRM, &action, nullptr);
  sigaction(SIGABRT, &action, nullptr);
  if (sanitizer) return;  // the sanitizer reports the others with a trace
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
}

// Positions reached: one bit for each pair of consecutive ones and their count, in powers of two.
constexpr std::size_t kMap = 1 << 16;
std::array<std::uint8_t, kMap> hits;
std::array<std::uint8_t, kMap> known;
std::array<std::uint16_t, kMap> reached;  ///< positions in `hits` that are not 0
std::size_t reached_count;
std::uintptr_t last_place;

/// Records the positions of the last input. Returns true if some are new.
bool new_places() {
  bool found = false;
  for (std::size_t i = 0; i < reached_count; ++i) {
    const std::size_t at = reached[i];
    const auto bit = static_cast<std::uint8_t>(std::bit_floor(hits[at]));
    found |= (known[at] & bit) == 0;
    known[at] |= bit;
    hits[at] = 0;
  }
  reached_count = 0;
  return found;
}

void run(const Bytes& bytes) {
  // Copies the input to memory of exactly its size, so that a read behind it is seen.
  const std::unique_ptr<std::uint8_t[]> copy(new std::uint8_t[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), copy.get());
  running.data = copy.get();
  running.size = bytes.size();
  last_place = 0;
  alarm(kSlowSeconds);
  try {
    LLVMFuzzerTestOneInput(copy.get(), bytes.size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz: an exception got out: %s", error.what());
    report_failure();
    std::exit(1);
  }
  alarm(0);
  running.data = nullptr;
}

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UsageError(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

double to_number(const std::string& text, const std::string& what) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, number);
  if (status != std::errc() || stop != end || !(number >= 0))
    throw UsageError(what + " takes a number of at least 0, not '" + text + "'");
  return number;
}

struct Options {
  double seconds = MILLRACE_FUZZ_SECONDS;
  std::uint64_t seed = 1;
  std::string seeds_to;
  std::vector<std::string> files;
};

Options parsed(int count, char** arguments) {
  Options options;
  if (const char* seconds = std::getenv("MILLRACE_FUZZ_SECONDS"))
    options.seconds = to_number(seconds, "MILLRACE_FUZZ_SECONDS");
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (!argument.starts_with("--")) {
      options.files.push_back(argument);
      continue;
    }
    if (++i == count) throw UsageError(argument + " takes a value");
    if (argument == "--seconds") {
      options.seconds = to_number(arguments[i], argument);
    } else if (argument == "--seed") {
      options.seed = static_cast<std::uint64_t>(to_number(arguments[i], argument));
    } else if (argument == "--write-seeds") {
      options.seeds_to = arguments[i];
    } else {
      throw UsageError("unknown argument " + argument +
                       ": --seconds, --seed, --write-seeds, or files");
    }
  }
  return options;
}

int fuzz(const std::string& target, const Options& options) {
  if (!options.files.empty()) {
    running.replay = true;
    for (const std::string& path : options.files) {
      std::fprintf(stderr, "fuzz: %s\n", path.c_str());
      run(read_file(path));
    }
    return 0;
  }
  const Corpus start = corpus();
  if (!options.seeds_to.empty()) {
    for (std::size_t i = 0; i < start.seeds.size(); ++i)
      std::ofstream(options.seeds_to + "/seed-" + std::to_string(i), std::ios::binary)
          .write(reinterpret_cast<const char*>(start.seeds[i].data()), std::ssize(start.seeds[i]));
    return 0;
  }
  std::vector<Bytes> pool = start.seeds;
  std::size_t longest = 2048;
  for (const Bytes& seed : pool) longest = std::max(longest, seed.size());
  const Mutator mutated(start.tokens, 2 * longest);
  const auto began = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  double slowest = 0;
  const auto timed = [&](const Bytes& bytes) {
    const double before = passed();
    run(bytes);
    ++running.round;
    slowest = std::max(slowest, passed() - before);
    return new_places();
  };
  for (const Bytes& seed : start.seeds) timed(seed);
  while (passed() < options.seconds) {
    Draw draw(base::stream({options.seed, 0, running.round}, base::op_id(target)));
    Bytes bytes = mutated(pool, draw);
    if (timed(bytes)) pool.push_back(std::move(bytes));
  }
  const auto places =
      std::count_if(known.begin(), known.end(), [](std::uint8_t bits) { return bits != 0; });
  std::printf(
      "%s: %llu inputs, %.0f per second, slowest %.3f s, %zu seeds, %zu inputs kept for reaching "
      "new places, %td places\n",
      target.c_str(), static_cast<unsigned long long>(running.round),
      static_cast<double>(running.round) / passed(), slowest, start.seeds.size(),
      pool.size() - start.seeds.size(), places);
  return 0;
}

}  // namespace
}  // namespace millrace::fuzz

/// Called on every edge by code built with -fsanitize-coverage=trace-pc.
extern "C" void __sanitizer_cov_trace_pc() {
  using namespace millrace::fuzz;
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  const auto at = static_cast<std::uint16_t>((place ^ place >> 16) * 0x9E3779B1u ^ last_place);
  if (hits[at] == 0) reached[reached_count++] = at;
  if (hits[at] < 255) ++hits[at];
  last_place = place * 0x9E3779B1u >> 1;
}

int main(int count, char** arguments) {
  const std::string path = arguments[0];
  const std::string target = path.substr(path.rfind('/') + 1);
  std::snprintf(millrace::fuzz::running.file, sizeof millrace::fuzz::running.file, "%s.failing",
                target.c_str());
  millrace::fuzz::catch_failures();
  try {
    return millrace::fuzz::fuzz(target, millrace::fuzz::parsed(count, arguments));
  } catch (const millrace::Error& error) {
    std::fprintf(stderr, "fuzz: %s\n", error.what());
    return 2;
  }
}
