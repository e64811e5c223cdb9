// The exceptions that the library throws. what() says in one line what went wrong and where; hint()
// says what to do about it. Each error carries the exit code that the program returns for it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "millrace/export.h"

namespace millrace {

/// Exit codes of the program.
enum class Exit {
  done = 0,
  failed = 1,        ///< the run failed (disk full, a step that cannot be taken)
  usage = 2,         ///< wrong command line or recipe
  data = 3,          ///< bad data or plugin
  device = 4,        ///< a required device or backend is missing
  interrupted = 130  ///< interrupted by Ctrl-C
};

/// Base of all exceptions that millrace throws on purpose. std::bad_alloc and standard library
/// errors pass through unchanged.
class MILLRACE_EXPORT Error : public std::runtime_error {
 public:
  Error(Exit exit, const std::string& what, std::string hint = {})
      : std::runtime_error(what), exit_(exit), hint_(std::move(hint)) {}
  ~Error() override;
  Exit exit() const { return exit_; }
  const std::string& hint() const { return hint_; }

 private:
  Exit exit_;
  std::string hint_;
};

/// Thrown when a run cannot continue: a resource, a thread or a file failed.
struct MILLRACE_EXPORT RunError : Error {
  explicit RunError(const std::string& what, std::string hint = {})
      : Error(Exit::failed, what, std::move(hint)) {}
  ~RunError() override;
};
/// Thrown for a wrong command line, recipe, option or call.
struct MILLRACE_EXPORT UsageError : Error {
  explicit UsageError(const std::string& what, std::string hint = {})
      : Error(Exit::usage, what, std::move(hint)) {}
  ~UsageError() override;
};
/// Thrown for a damaged or unsuitable data set or sample, and for a plugin that breaks a rule.
struct MILLRACE_EXPORT DataError : Error {
  explicit DataError(const std::string& what, std::string hint = {})
      : Error(Exit::data, what, std::move(hint)) {}
  ~DataError() override;
};
/// Thrown when a required device or backend is missing.
struct MILLRACE_EXPORT DeviceError : Error {
  explicit DeviceError(const std::string& what, std::string hint = {})
      : Error(Exit::device, what, std::move(hint)) {}
  ~DeviceError() override;
};

}  // namespace millrace
