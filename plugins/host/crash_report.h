// Records which unit a thread is executing, so that a crash or an exit() there is reported with the
// names of the plugin and its unit (plugin-safety contract).
#pragma once

#include <string>

#include "base/private_api.h"
#include "millrace/millrace.h"

namespace millrace::plugins {

/// The unit or plugin whose code this thread runs. Plain memory, read by signal handlers.
struct PluginContext {
  const millrace_unit* unit = nullptr;
  const char* loading = nullptr;  ///< a plugin's file, while its initialisers run
  bool has_stack = false;         ///< this thread has a stack for signals
};
// Lies in the thread's initial TLS block, because a handler may not allocate.
extern constinit thread_local PluginContext t_plugin_context
    __attribute__((tls_model("initial-exec")));

/// Gives signals on this thread a stack of their own, in case a unit uses up the thread's stack.
void make_signal_stack();

/// Marks this thread as executing a unit, as long as the mark lives.
class UnitScope {
 public:
  explicit UnitScope(const millrace_unit& unit) : outer_(t_plugin_context.unit) {
    if (!t_plugin_context.has_stack) make_signal_stack();
    t_plugin_context.unit = &unit;
  }
  ~UnitScope() { t_plugin_context.unit = outer_; }
  UnitScope(const UnitScope&) = delete;
  UnitScope& operator=(const UnitScope&) = delete;

 private:
  const millrace_unit* outer_;
};

/// Marks this thread as loading a plugin, as long as the mark lives.
class LoadingScope {
 public:
  explicit LoadingScope(const char* file);
  ~LoadingScope() { t_plugin_context.loading = nullptr; }
  LoadingScope(const LoadingScope&) = delete;
  LoadingScope& operator=(const LoadingScope&) = delete;
};

/// Records which file a plugin's units come from, until the process ends.
void remember_plugin(const millrace_plugin_table& table, const char* file);
/// Returns the file that a unit comes from, or "" for a built-in one. Safe in a signal handler.
const char* file_of(const millrace_unit& unit);

/// Returns ": TEXT" with the first line of the exception being handled, or "" if it has no text.
std::string thrown_text();

/// Installs handlers that report crashes of plugins. SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT
/// inside a unit, or while a plugin is loaded, write one line to stderr before their previous
/// action. An exit() there, and an exception that nothing catches, write such a line and end with
/// exit code 3. A fault in a mapped data file is blamed on the data and never on a plugin. Call it
/// from programs only: a library must not change a process's signals.
MILLRACE_PRIVATE_API void install_crash_handlers();
/// Restores the previous handlers, in a child process that installs its own.
MILLRACE_PRIVATE_API void restore_crash_handlers();

}  // namespace millrace::plugins
