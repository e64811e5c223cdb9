// Steps common to all kinds of units, their lines, and the guards around each call.
#include "probe/probe.h"

#include <fmt/format.h>
#include <locale.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace millrace::probe {
namespace {

using Clock = std::chrono::steady_clock;

/// State of the thread and the process that a plugin must leave unchanged.
struct Surroundings {
  int rounding = std::fegetround();
#if defined(__x86_64__)
  unsigned control = _mm_getcsr() & ~0x3Fu;  // control bits without the status flags
#else
  unsigned control = 0;
#endif
  std::string locale = setlocale(LC_ALL, nullptr);
  locale_t thread_locale = uselocale(locale_t{});

  void check() const {
    const Surroundings now;
    if (now.rounding != rounding) throw Defect("it leaves the rounding mode changed");
    if (now.control != control)
      throw Defect(
          fmt::format("it leaves MXCSR changed: {:04x} instead of {:04x}", now.control, control));
    if (now.locale != locale || now.thread_locale != thread_locale)
      throw Defect(
          fmt::format("it leaves the locale changed: {} instead of {}", now.locale, locale));
  }
};

/// Returns the bytes on the heap, in this thread's arena.
std::int64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

std::int64_t open_files() {
  std::error_code none;
  const std::filesystem::directory_iterator all("/proc/self/fd", none);
  return std::distance(begin(all), end(all));
}

/// Throws Defect if repeated calls of `function` keep memory or files. Caches may fill and the heap
/// may settle: only losses in every round count.
void expect_no_leak(const std::string& what, const std::function<void()>& function) {
  constexpr int kRounds = 4;
  constexpr int kTimes = 64;
  constexpr std::int64_t kLeast = 16;  // in bytes; malloc's smallest allocation
  std::int64_t bytes_lost = 0;
  std::int64_t files_lost = kTimes;
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t bytes = heap_bytes();
    const std::int64_t files = open_files();
    for (int i = 0; i < kTimes; ++i) function();
    files_lost = std::min(files_lost, open_files() - files);
    const std::int64_t lost = heap_bytes() - bytes;
    bytes_lost = round == 0 ? lost : std::min(bytes_lost, lost);
  }
  if (bytes_lost >= kLeast * kTimes)
    throw Defect(fmt::format("{} loses {} bytes a time", what, bytes_lost / kTimes));
  if (files_lost >= kTimes) throw Defect(fmt::format("{} leaves a file open each time", what));
}

constexpr std::array<Placement, 3> kPlacements{{{Guarded::Near::behind, 0, 0x00},
                                                {Guarded::Near::before, 13, 0xFF},
                                                {Guarded::Near::behind, 64, 0x5A}}};

std::string same_results(const Subject& subject) {
  const Session session = subject.open();
  std::vector<Outcome> first;
  for (const Input& input : subject.inputs) {
    first.push_back(session(input, kPlacements[0]));
    if (!session(input, kPlacements[0]).same_as(first.back()))
      throw Defect(
          fmt::format("the same call gives two results ({}): something is kept between "
                      "calls, or was never set",
                      input.text()));
  }
  for (std::size_t i = subject.inputs.size(); i-- > 0;)
    if (!session(subject.inputs[i], kPlacements[0]).same_as(first[i]))
      throw Defect(
          fmt::format("the result depends on the calls before it ({})", subject.inputs[i].text()));
  const Session other = subject.open();
  for (const Placement& placement : kPlacements)
    for (std::size_t i = 0; i < subject.inputs.size(); ++i)
      if (!other(subject.inputs[i], placement).same_as(first[i]))
        throw Defect(
            fmt::format("the result depends on where memory lies, how far rows are "
                        "apart or what it held before ({})",
                        subject.inputs[i].text()));
  return fmt::format("{} calls, twice, in two orders, in {} places", subject.inputs.size(),
                     kPlacements.size());
}

std::string same_on_threads(const Subject& subject, const std::atomic<bool>* stop) {
  constexpr std::size_t kThreads = 4;
  constexpr auto kAtLeast = std::chrono::milliseconds(60);
  std::vector<Outcome> expected;
  const Session session = subject.open();
  for (const Input& input : subject.inputs) expected.push_back(session(input, kPlacements[0]));

  std::array<std::string, kThreads> wrong;
  std::atomic<std::size_t> waiting{0};
  std::atomic<std::uint64_t> calls{0};
  const auto work = [&](std::size_t thread) {
    try {
      const Session own = subject.open();
      waiting.fetch_add(1);
      while (waiting.load() < kThreads) std::this_thread::yield();
      const auto end = Clock::now() + kAtLeast;
      for (std::size_t round = 0; round < 2 || Clock::now() < end; ++round) {
        for (std::size_t i = 0; i < expected.size(); ++i) {
          if (stop != nullptr && *stop) return;
          const std::size_t at = (i + thread * 3) % expected.size();
          calls.fetch_add(1, std::memory_order_relaxed);
          if (own(subject.inputs[at], kPlacements[0]).same_as(expected[at])) continue;
          throw Defect(
              fmt::format("the result depends on the thread, or on what other threads do "
                          "({})",
                          subject.inputs[at].text()));
        }
      }
    } catch (const std::exception& error) {
      wrong[thread] = error.what();
      waiting.fetch_add(kThreads);
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& what : wrong)
    if (!what.empty()) throw Defect(what);
  return fmt::format("{} calls on {} threads at once", calls.load(), kThreads);
}

std::string no_leaks(const Subject& subject) {
  expect_no_leak("create and destroy", subject.make_and_drop);
  const Session session = subject.open();
  if (!subject.inputs.empty())
    expect_no_leak("a call", [&] { session(subject.inputs.back(), kPlacements[0]); });
  return "neither memory nor files are lost";
}

double median_ns(const Session& session, const Input& input, std::chrono::milliseconds time) {
  std::vector<double> all;
  const auto end = Clock::now() + time;
  while (all.size() < 9 || (Clock::now() < end && all.size() < 100'000))
    all.push_back(session(input, kPlacements[0]).ns);
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2),
                   all.end());
  return all[all.size() / 2];
}

}  // namespace

const char* name_of(CheckLine::State state) {
  constexpr std::array kNames{"ok", "failed", "skipped"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string CheckLine::text() const {
  return fmt::format("{:7}  {:32}  {}", name_of(state), unit.empty() ? check : unit + ": " + check,
                     detail);
}

CheckLine run(const Step& step) {
  using State = CheckLine::State;
  CheckLine line{step.unit, step.check, State::ok, ""};
  try {
    line.detail = step.run();
  } catch (const Skip& skip) {
    line.state = State::skipped;
    line.detail = skip.what();
  } catch (const std::exception& error) {
    line.state = State::failed;
    line.detail = error.what();
  }
  std::replace_if(
      line.detail.begin(), line.detail.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

std::string Input::text() const {
  std::string text;
  if (size.width > 0) text = fmt::format("{}x{} ", size.width, size.height);
  if (channels > 0) text += channels == 1 ? "gray, " : "RGB, ";
  return text + fmt::format("number {}", seed);
}

Outcome watched_call(plugins::CallContext& context,
                     const std::function<millrace_status()>& function) {
  Outcome outcome;
  const Surroundings before;
  context.call.error[0] = '\0';
  errno = EDOM;  // an arbitrary value: a plugin that reads errno without a reason sees it
  try {
    const auto begin = Clock::now();
    outcome.status = function();
    outcome.ns = std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
  } catch (const Defect&) {
    throw;
  } catch (const std::exception& error) {
    throw Defect(fmt::format("it throws an exception through the C interface: {}", error.what()));
  } catch (...) {
    throw Defect("it throws an exception through the C interface");
  }
  before.check();
  const char* error = context.call.error;
  if (std::find(error, error + context.call.error_size, '\0') == error + context.call.error_size)
    throw Defect("its error text has no end");
  if (outcome.status != MILLRACE_OK && outcome.status != MILLRACE_BAD_DATA &&
      outcome.status != MILLRACE_BAD_USE)
    throw Defect(
        fmt::format("it returns status {}, which the interface doesn't have", outcome.status));
  if (outcome.status != MILLRACE_OK && *error == '\0')
    throw Defect(fmt::format("it fails with status {} and gives no reason", outcome.status));
  outcome.error = error;
  return outcome;
}

std::vector<Variant> variants_of(const millrace_unit& unit) {
  const std::vector<Param> declared = plugins::to_declaration(unit).params;
  std::vector<Variant> all{{"defaults", Params(declared)}};
  for (const Param& param : declared) {
    std::vector<Value> values;
    switch (param.type) {
      case Param::Type::boolean:
        values = {false, true};
        break;
      case Param::Type::integer:
        for (const double bound : {param.min, param.max})
          if (std::abs(bound) <= 0x1p53) values.emplace_back(static_cast<std::int64_t>(bound));
        break;
      case Param::Type::number:
        for (const double bound : {param.min, param.max})
          if (std::isfinite(bound)) values.emplace_back(bound);
        break;
      case Param::Type::choice:
        for (const std::string& choice : param.choices) values.emplace_back(choice);
        break;
      case Param::Type::numbers:
        for (const std::size_t length :
             param.lengths.empty() ? std::vector<std::size_t>{0, 1, 7} : param.lengths)
          for (const double bound : {param.min, param.max})
            if (std::isfinite(bound)) values.emplace_back(std::vector<double>(length, bound));
        break;
      case Param::Type::text:
        break;
    }
    for (Value& value : values) {
      Variant variant{fmt::format("{}={}", param.name, to_toml(value)), Params(declared)};
      variant.params.set(param.name, std::move(value));
      all.push_back(std::move(variant));
    }
  }
  return all;
}

void add_common_steps(std::vector<Step>& steps, const std::shared_ptr<Subject>& subject,
                      const Options& options, const std::function<void(const CheckCost&)>& cost) {
  const std::string name = subject->unit.name;
  steps.push_back({name, "same result", [subject] { return same_results(*subject); }});
  steps.push_back({name, "threads",
                   [subject, stop = options.stop] { return same_on_threads(*subject, stop); }});
  steps.push_back({name, "leaks", [subject] { return no_leaks(*subject); }});
  const auto time = std::chrono::milliseconds(options.cost ? 500 : 30);
  const std::size_t count = options.cost ? subject->costs.size() : 1;
  steps.push_back({name, "cost", [subject, time, count, cost, name] {
                     const Session session = subject->open();
                     std::string text;
                     for (std::size_t i = 0; i < std::min(count, subject->costs.size()); ++i) {
                       const Input& input = subject->costs[i];
                       const double ns = median_ns(session, input, time);
                       const std::string of =
                           input.size.width == 0
                               ? "sample"
                               : fmt::format("{}x{} {}", input.size.width, input.size.height,
                                             input.channels == 1 ? "gray" : "RGB");
                       cost({name, of, ns});
                       text += fmt::format("{}{:.2f} µs per {}", i > 0 ? ", " : "", ns * 1e-3, of);
                     }
                     return text;
                   }});
}

}  // namespace millrace::probe
