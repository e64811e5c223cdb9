// Runs the probe in child processes and reads its lines.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/descriptor.h"
#include "base/open_file.h"
#include "millrace/error.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"
#include "probe/probe.h"
#include "tools/plugins/plugins.h"

namespace millrace::tools {
namespace {

using probe::CheckCost;
using probe::CheckLine;
using probe::Step;
using State = CheckLine::State;

/// Line protocol from the child: a word, then fields separated by tabs.
class Channel {
 public:
  explicit Channel(int descriptor) : descriptor_(descriptor) {}
  void say(std::string_view word, const std::vector<std::string>& fields = {}) const {
    std::string line(word);
    for (const std::string& field : fields) line += '\t' + field;
    line += '\n';
    if (write(descriptor_, line.data(), line.size()) < 0) _exit(1);  // the parent is gone
  }

 private:
  int descriptor_;
};

std::vector<Step> steps_of(const millrace_plugin_table& table, const CheckOptions& options,
                           const Channel& channel) {
  std::vector<Step> steps;
  const auto cost = [&channel](const CheckCost& c) {
    channel.say("cost", {c.unit, c.of, fmt::format("{}", c.ns)});
  };
  for (std::size_t i = 0; i < table.unit_count; ++i) {
    const millrace_unit& unit = *table.units[i];
    if (unit.decoder != nullptr)
      add_decoder_steps(steps, unit, options, cost);
    else if (unit.reader != nullptr)
      add_reader_steps(steps, unit, options, cost);
    else
      probe::add_augmentation_steps(steps, unit, options, cost);
  }
  return steps;
}

/// Runs everything from step `first` on; other children have done the earlier steps.
void run_steps(const CheckOptions& options, std::size_t first, const Channel& channel) {
  const auto attempt = [&](const Step& step) {
    channel.say("begin", {step.unit, step.check});
    const CheckLine line = probe::run(step);
    channel.say(probe::name_of(line.state), {line.detail});
  };
  const millrace_plugin_table* table = nullptr;
  attempt({"", "load", [&] {
             table = plugins::add_plugin(options.file).table;
             return fmt::format("{} {} ({}), plugin interface {}.{}, {} unit{}", table->id,
                                table->version, table->licence, table->abi_major, table->abi_minor,
                                table->unit_count, table->unit_count == 1 ? "" : "s");
           }});
  if (table == nullptr) return channel.say("end");
  std::vector<Step> steps = steps_of(*table, options, channel);
  for (std::size_t i = first; i < steps.size(); ++i) {
    channel.say("step", {std::to_string(i)});
    attempt(steps[i]);
  }
  channel.say("end");
}

[[noreturn]] void run_child(const CheckOptions& options, std::size_t first, int lines, int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  plugins::restore_crash_handlers();
  probe::report_touches(lines);
  run_steps(options, first, Channel(lines));
  _exit(0);
}

/// Returns the last line of the child's output, for a crash that explains itself.
std::string last_words(int output) {
  std::string text(4096, '\0');
  const off_t size = lseek(output, 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - static_cast<off_t>(text.size()));
  const ssize_t count = pread(output, text.data(), text.size(), from);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, count)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t line = text.rfind('\n');
  return line == std::string::npos ? text : text.substr(line + 1);
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : fmt::format("signal {}", signal);
}

/// Watches one child after another.
class Watch {
 public:
  Watch(const CheckOptions& options, CheckReport& report,
        const std::function<void(const CheckLine&)>& line)
      : options_(options), report_(report), tell_(line) {}

  /// Runs a child that continues where the last one ended. Returns whether it finished, or got no
  /// further.
  bool run() {
    const std::size_t first = next_;
    int pipe_ends[2];
    output_ = base::Descriptor(memfd_create("plugin-output", MFD_CLOEXEC));
    if (pipe2(pipe_ends, O_CLOEXEC) != 0 || output_.get() < 0)
      throw RunError(fmt::format("plugins check: {}", std::strerror(errno)));
    base::Descriptor from(pipe_ends[0]);
    pid_t pid = 0;
    {
      const base::Descriptor to(pipe_ends[1]);
      std::fflush(nullptr);
      pid = fork();
      if (pid < 0) throw RunError(fmt::format("plugins check: fork: {}", std::strerror(errno)));
      if (pid == 0) run_child(options_, next_, to.get(), output_.get());
    }
    setpgid(pid, pid);
    const bool hangs = !read_lines(from.get());
    kill(-pid, SIGKILL);  // also kills processes that it may have started
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (stopped()) throw Error(Exit::interrupted, "plugins check: interrupted");
    if (ended_) return true;
    if (!open_ && next_ == first) {  // between two checks: by a thread of its own, or at its end
      current_ = {"", "process", State::ok, ""};
      open_ = true;
    }
    if (open_)
      finish(State::failed, hangs
                                ? fmt::format("it hangs: no result after {} s", options_.timeout_s)
                                : ending(status));
    return in_load_ || next_ == first;
  }

 private:
  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  std::string ending(int status) const {
    const std::string words = last_words(output_.get());
    const std::string quoted = words.empty() ? "" : fmt::format(" ({})", words);
    if (WIFSIGNALED(status))
      return fmt::format("it crashes: {}{}", signal_name(WTERMSIG(status)), quoted);
    return fmt::format("it ends the process with exit code {}{}", WEXITSTATUS(status), quoted);
  }

  /// Returns false after the time-out.
  bool read_lines(int from) {
    using Clock = std::chrono::steady_clock;
    std::string text;
    auto deadline = Clock::now() + std::chrono::duration<double>(options_.timeout_s);
    while (!stopped()) {
      if (Clock::now() >= deadline) return false;
      pollfd ready{from, POLLIN, 0};
      if (poll(&ready, 1, 50) <= 0) continue;
      char buffer[4096];
      const ssize_t count = read(from, buffer, sizeof buffer);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      deadline = Clock::now() + std::chrono::duration<double>(options_.timeout_s);
      text.append(buffer, static_cast<std::size_t>(count));
      for (std::size_t end = 0; (end = text.find('\n')) != std::string::npos;
           text.erase(0, end + 1))
        take(text.substr(0, end));
    }
    return true;
  }

  void take(const std::string& line) {
    std::vector<std::string> fields;
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t end = std::min(line.find('\t', begin), line.size());
      fields.push_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    fields.resize(std::max<std::size_t>(fields.size(), 4));
    const std::string& word = fields[0];
    if (word == "step") {
      next_ = std::stoul(fields[1]) + 1;
    } else if (word == "begin") {
      open_ = true;
      current_ = {fields[1], fields[2], State::ok, ""};
      in_load_ = current_.check == "load" && current_.unit.empty();
    } else if (word == "cost") {
      report_.costs.push_back({fields[1], fields[2], std::stod(fields[3])});
    } else if (word == "end") {
      ended_ = true;
    } else {
      finish(word == "ok"        ? State::ok
             : word == "skipped" ? State::skipped
                                 : State::failed,
             fields[1]);
    }
  }

  void finish(State state, const std::string& detail) {
    open_ = false;
    if (in_load_ && loaded_ && state == State::ok) return;  // an earlier child reported it
    loaded_ |= in_load_ && state == State::ok;
    current_.state = state;
    current_.detail = detail;
    report_.lines.push_back(current_);
    if (tell_) tell_(current_);
    in_load_ = in_load_ && state != State::ok;
  }

  const CheckOptions& options_;
  CheckReport& report_;
  const std::function<void(const CheckLine&)>& tell_;
  base::Descriptor output_;
  std::size_t next_ = 0;
  CheckLine current_;
  bool open_ = false;     ///< current_ has begun and not ended
  bool in_load_ = false;  ///< current_ is the loading, and has not succeeded
  bool loaded_ = false;
  bool ended_ = false;
};

}  // namespace

std::size_t CheckReport::failed() const {
  return static_cast<std::size_t>(std::count_if(
      lines.begin(), lines.end(), [](const CheckLine& l) { return l.state == State::failed; }));
}

CheckReport check_plugin(const CheckOptions& options,
                         const std::function<void(const CheckLine&)>& line) {
  if (!options.sample.empty()) base::open_regular(options.sample);  // throws if it does not exist
  CheckReport report;
  Watch watch(options, report, line);
  while (!watch.run()) {
  }
  return report;
}

}  // namespace millrace::tools
