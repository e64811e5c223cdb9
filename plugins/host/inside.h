// Which unit a thread is inside of, so that a crash there, or an exit(), can be told with the names
// of the plugin and its unit.
#pragma once

#include <string>

#include "millrace/millrace.h"

namespace millrace::plugins {

/// The unit or plugin whose code this thread runs. Plain memory, read by signal handlers.
struct Inside {
  const millrace_unit* unit = nullptr;
  const char* loading = nullptr;  ///< a plugin's file, while its initialisers run
  bool has_stack = false;         ///< signals have a stack of their own here
};
// In the block that a thread starts with: a handler may not allocate.
extern constinit thread_local Inside t_inside __attribute__((tls_model("initial-exec")));

/// Gives signals on this thread a stack of their own, for a unit that uses up the thread's.
void make_signal_stack();

/// Marks this thread as inside of a unit, for as long as it lives.
class InsideUnit {
 public:
  explicit InsideUnit(const millrace_unit& unit) : outer_(t_inside.unit) {
    if (!t_inside.has_stack) make_signal_stack();
    t_inside.unit = &unit;
  }
  ~InsideUnit() { t_inside.unit = outer_; }
  InsideUnit(const InsideUnit&) = delete;
  InsideUnit& operator=(const InsideUnit&) = delete;

 private:
  const millrace_unit* outer_;
};

/// Marks this thread as loading a plugin.
class InsideLoading {
 public:
  explicit InsideLoading(const char* file);
  ~InsideLoading() { t_inside.loading = nullptr; }
  InsideLoading(const InsideLoading&) = delete;
  InsideLoading& operator=(const InsideLoading&) = delete;
};

/// Remembers where a plugin's units come from, for good.
void remember_plugin(const millrace_plugin_table& table, const char* file);
/// The file that a unit comes from; "" for one that is built in. Safe in a signal handler.
const char* file_of(const millrace_unit& unit);

/// ": TEXT" of the exception that is being handled, one line of it; "" where it carries no text.
std::string thrown_text();

/// From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT inside of a unit, or while a plugin is
/// loaded, put one line on stderr before they do what they did before; an exit() there, and an
/// exception that nothing catches, become such a line and exit code 3. A fault in a mapped data
/// file is the data's, never a plugin's. For programs: a library leaves a process's signals alone.
void tell_crashes();
/// Undoes that, in a child process with handlers of its own.
void leave_crashes_alone();

}  // namespace millrace::plugins
