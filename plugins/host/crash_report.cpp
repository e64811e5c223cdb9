// Names the plugin in crash reports: a signal handler and what it needs.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include "base/mapped_file_guard.h"
#include "millrace/error.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"

namespace millrace::plugins {

constinit thread_local PluginContext t_plugin_context;

namespace {

/// An entry of a list that only grows, so that a signal handler can walk it without a lock.
struct Known {
  const millrace_plugin_table* table;
  std::string file;
  Known* next;
};
std::atomic<Known*> g_known{nullptr};
std::atomic<bool> g_reporting{false};
std::atomic_flag g_told = ATOMIC_FLAG_INIT;
std::terminate_handler g_terminate_before = nullptr;

struct Signal {
  int number;
  std::string_view name;
  struct sigaction before {};
};
std::array<Signal, 5> g_signals{{{SIGSEGV, "SIGSEGV"},
                                 {SIGBUS, "SIGBUS"},
                                 {SIGFPE, "SIGFPE"},
                                 {SIGILL, "SIGILL"},
                                 {SIGABRT, "SIGABRT"}}};

/// A line of text in memory of its own, because a handler may not allocate.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    for (const char c : text)
      if (size_ + 1 < text_.size())
        text_[size_++] = static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
    return *this;
  }
  void write() {
    text_[size_++] = '\n';
    for (std::size_t done = 0; done < size_;) {
      const ssize_t count = ::write(STDERR_FILENO, text_.data() + done, size_ - done);
      if (count <= 0) return;  // stderr is closed
      done += static_cast<std::size_t>(count);
    }
  }

 private:
  std::array<char, 4096> text_;
  std::size_t size_ = 0;
};

const Known* known_of(const millrace_unit& unit) {
  for (const Known* known = g_known.load(std::memory_order_acquire); known != nullptr;
       known = known->next)
    for (std::size_t i = 0; i < known->table->unit_count; ++i)
      if (known->table->units[i] == &unit) return known;
  return nullptr;
}

/// Writes "millrace: plugin ID (FILE): KIND 'NAME' EVENT" and a hint to stderr. If two threads
/// crash at once, the first one writes and the other waits until the process ends.
void tell(std::string_view event, std::string_view detail = {}) {
  if (g_told.test_and_set())
    for (;;) pause();
  Line line;
  line << "millrace: ";
  std::string_view file;
  if (const millrace_unit* unit = t_plugin_context.unit; unit != nullptr) {
    if (const Known* known = known_of(*unit); known != nullptr) {
      file = known->file;
      line << "plugin " << known->table->id << " (" << file << "): ";
    }
    line << name_of(kind_of(*unit)) << " '" << unit->name << "' " << event << detail;
  } else {
    file = t_plugin_context.loading;
    line << file << ": plugin refused: while it was loaded it " << event << detail;
  }
  if (file.empty())
    line << "; it is built in: please report it";
  else
    line << "; report it to its author; millrace plugins check " << file << " may tell more";
  line.write();
}

bool in_plugin() { return t_plugin_context.unit != nullptr || t_plugin_context.loading != nullptr; }

void on_crash(int number, siginfo_t* info, void* context) {
  if (number == SIGBUS && base::replace_lost_page(info)) return;
  const auto signal = std::find_if(g_signals.begin(), g_signals.end(),
                                   [&](const Signal& s) { return s.number == number; });
  // A signal from another process says nothing about the unit.
  if (in_plugin() && (info->si_code > 0 || info->si_pid == getpid()))
    tell("crashed: ", signal->name);
  const struct sigaction& before = signal->before;
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, nullptr);
    // A fault repeats when the handler returns; a sent signal must be sent again.
    if (info->si_code <= 0) raise(number);
  }
}

void on_exit() {
  if (!g_reporting.load() || !in_plugin()) return;
  tell("called exit()");
  _exit(static_cast<int>(Exit::data));
}

/// Called for an exception that nothing can catch: from an initialiser or a destructor.
[[noreturn]] void on_terminate() {
  if (in_plugin()) {
    tell("threw an exception", thrown_text());
    _exit(static_cast<int>(Exit::data));
  }
  if (g_terminate_before != nullptr) g_terminate_before();
  std::abort();
}

/// A thread's stack for signals, with a guard page below it.
class SignalStack {
 public:
  SignalStack() {
    stack_t there{};
    // Keep a signal stack that the thread already has.
    if (sigaltstack(nullptr, &there) != 0 || (there.ss_flags & SS_DISABLE) == 0) return;
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const long least = sysconf(_SC_SIGSTKSZ);  // depends on the size of the processor's registers
    const std::size_t wanted =
        std::max<std::size_t>(65536, least > 0 ? static_cast<std::size_t>(least) : 0);
    size_ = page + (wanted + page - 1) / page * page;
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) {
      memory_ = nullptr;  // a stack overflow will then have no line
      return;
    }
    mprotect(memory_, page, PROT_NONE);
    stack_t own{};
    own.ss_sp = static_cast<char*>(memory_) + page;
    own.ss_size = size_ - page;
    sigaltstack(&own, nullptr);
  }
  ~SignalStack() {
    if (memory_ == nullptr) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
    munmap(memory_, size_);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  void* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace

std::string thrown_text() {
  const std::exception_ptr thrown = std::current_exception();
  if (thrown == nullptr) return "";
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    return ": " + std::string(text.substr(0, text.find('\n')));
  } catch (...) {  // not a std::exception: no text
    return "";
  }
}

void make_signal_stack() {
  t_plugin_context.has_stack = true;
  if (!g_reporting.load(std::memory_order_relaxed)) return;
  static thread_local SignalStack stack;
  static_cast<void>(&stack);
}

LoadingScope::LoadingScope(const char* file) {
  if (!t_plugin_context.has_stack) make_signal_stack();
  // Register last, so that it runs before handlers registered earlier and after the plugin's own.
  std::atexit(on_exit);
  std::at_quick_exit(on_exit);
  t_plugin_context.loading = file;
}

void remember_plugin(const millrace_plugin_table& table, const char* file) {
  auto* known = new Known{&table, file, g_known.load(std::memory_order_relaxed)};
  while (!g_known.compare_exchange_weak(known->next, known, std::memory_order_release)) {
  }
}

const char* file_of(const millrace_unit& unit) {
  const Known* known = known_of(unit);
  return known == nullptr ? "" : known->file.c_str();
}

void install_crash_handlers() {
  g_reporting.store(true);
  g_terminate_before = std::set_terminate(on_terminate);
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (Signal& signal : g_signals) sigaction(signal.number, &action, &signal.before);
}

void restore_crash_handlers() {
  g_reporting.store(false);
  std::set_terminate(g_terminate_before);
  for (const Signal& signal : g_signals) sigaction(signal.number, &signal.before, nullptr);
}

}  // namespace millrace::plugins
