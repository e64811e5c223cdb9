#include "measure/data_loader/lock_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <optional>
#include <utility>

#include "measure/data_loader/clock.h"

namespace millrace::measure {
namespace {

constexpr int kSilentLooks = 5;
constexpr std::int64_t kAgain = 2;      // a stall is reported again after so many times its length
constexpr std::size_t kMaxLine = 4000;  // bytes: a pipe takes up to 4096 in one write
constexpr time_t kPatienceS = 2;

/// Writes a line to a file that takes it at once.
void write_at_once(int file, std::string line) {
  line.resize(std::min(line.size(), kMaxLine));
  line += '\n';
  pollfd one{file, POLLOUT, 0};
  if (poll(&one, 1, 0) != 1 || one.revents != POLLOUT) return;
  [[maybe_unused]] const ssize_t written = write(file, line.data(), line.size());
}

void append(const std::string& path, const std::string& line) {
  const int file =
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t written = write(file, line.data(), line.size());
  close(file);
}

struct Report {
  std::string record;
  std::string line;
  LockWatch::Output output;
};

}  // namespace

struct LockWatch::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  int silent = 0;  // looks since the latest beat
  std::vector<Loader> loaders;
  Output output;
  std::int64_t since = 0, next_ns = 0;  // the stall under way, and its length at the next report
  std::int64_t reports = 0;
  std::int64_t look_ns = 0;

  /// Returns what is to be written now. Keeps it: the next look does not report it again.
  std::optional<Report> stall(std::int64_t now) {
    if (silent < kSilentLooks || reports >= output.limit) return std::nullopt;
    for (const Loader& one : loaders) {
      const std::int64_t began = one.waiting->since.load(std::memory_order_relaxed);
      const std::int64_t waited = now - began;
      if (began == 0 || waited < (began == since ? next_ns : one.limit_ns)) continue;
      since = began;
      next_ns = kAgain * waited;
      ++reports;
      const long long step = one.waiting->step.load(std::memory_order_relaxed);
      const double seconds = 1e-9 * static_cast<double>(waited);
      char in_record[96], in_line[96];
      std::snprintf(in_record, sizeof(in_record), ", \"step\": %lld, \"waited_s\": %.3f}\n", step,
                    seconds);
      std::snprintf(in_line, sizeof(in_line), ": no batch for %.0f s after step %lld: ", seconds,
                    step);
      return Report{one.record + in_record, one.name + in_line + one.text, output};
    }
    return std::nullopt;
  }
};

LockWatch::LockWatch() : state_(std::make_shared<State>()) {}

void* LockWatch::look(void* of) {
  const std::unique_ptr<std::shared_ptr<State>> owned(static_cast<std::shared_ptr<State>*>(of));
  try {
    look_around(**owned);
  } catch (const std::exception&) {  // no memory is left: nobody looks, and the training goes on
  }
  return nullptr;
}

void LockWatch::look_around(State& state) {
  std::unique_lock lock(state.mutex);
  while (!state.ended) {
    state.changed.wait_for(lock, std::chrono::nanoseconds(state.look_ns));
    if (state.ended) break;
    ++state.silent;
    const std::optional<Report> report = state.stall(wall_ns());
    if (!report) continue;
    lock.unlock();
    append(report->output.file, report->record);
    if (report->output.line_file >= 0) write_at_once(report->output.line_file, report->line);
    lock.lock();
  }
}

bool LockWatch::begin(std::int64_t look_ns) {
  if (runs_) return false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = false;
    state_->silent = 0;
    state_->look_ns = look_ns;
  }
  auto* const state = new std::shared_ptr<State>(state_);
  // The script's handlers run in its own threads, and a limit of files' sizes kills nobody.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  runs_ = pthread_create(&thread_, nullptr, look, state) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!runs_) delete state;
  return runs_;
}

void LockWatch::beat(std::vector<Loader> loaders, Output output) {
  const std::lock_guard lock(state_->mutex);
  state_->silent = 0;
  state_->loaders.swap(loaders);
  state_->output = std::move(output);
}

void LockWatch::end() {
  if (!runs_) return;
  runs_ = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
  }
  state_->changed.notify_all();
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kPatienceS;
  if (pthread_timedjoin_np(thread_, nullptr, &until) != 0) {
    pthread_detach(thread_);  // a disk takes nothing: the thread keeps its state
    const auto next = std::make_shared<State>();
    next->reports = reports();
    state_ = next;
  }
}

std::int64_t LockWatch::reports() const {
  const std::lock_guard lock(state_->mutex);
  return state_->reports;
}

}  // namespace millrace::measure
