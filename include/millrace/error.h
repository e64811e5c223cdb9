// One way to fail: what went wrong and where in one line, then what to do about it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {

/// Exit codes of the program; each Error carries the one it leads to.
enum class Exit {
  done = 0,
  failed = 1,        ///< the run failed (disk full, a step that cannot be taken)
  usage = 2,         ///< wrong command line or recipe
  data = 3,          ///< bad data or plugin
  device = 4,        ///< a needed device or backend is missing
  interrupted = 130  ///< Ctrl-C
};

class Error : public std::runtime_error {
 public:
  Error(Exit exit, const std::string& what, std::string hint = {})
      : std::runtime_error(what), exit_(exit), hint_(std::move(hint)) {}
  Exit exit() const { return exit_; }
  const std::string& hint() const { return hint_; }

 private:
  Exit exit_;
  std::string hint_;
};

struct RunError : Error {
  explicit RunError(const std::string& what, std::string hint = {})
      : Error(Exit::failed, what, std::move(hint)) {}
};
struct UsageError : Error {
  explicit UsageError(const std::string& what, std::string hint = {})
      : Error(Exit::usage, what, std::move(hint)) {}
};
struct DataError : Error {
  explicit DataError(const std::string& what, std::string hint = {})
      : Error(Exit::data, what, std::move(hint)) {}
};
struct DeviceError : Error {
  explicit DeviceError(const std::string& what, std::string hint = {})
      : Error(Exit::device, what, std::move(hint)) {}
};

}  // namespace millrace
