// Turns exceptions into messages and exit codes.
#include "tools/terminal/uncaught.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <system_error>

#include "tools/terminal/console.h"

namespace millrace::tools {
namespace {

[[noreturn]] void end() {
  std::set_terminate(std::abort);  // explaining may fail too
  if (const std::exception_ptr failure = std::current_exception())
    _exit(static_cast<int>(explain(failure)));
  std::abort();
}

}  // namespace

Exit explain(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    print_error(error);
    return error.exit();
  } catch (const std::bad_alloc&) {
    print_error(RunError("out of memory", "lower loader.batch or loader.prefetch"));
  } catch (const std::system_error& error) {
    // std::thread's message is only "Resource temporarily unavailable".
    const bool thread = error.code() == std::errc::resource_unavailable_try_again;
    print_error(thread ? RunError(fmt::format("cannot start a thread: {}", error.what()),
                                  "allow more processes or memory (ulimit -u, ulimit -v), or lower "
                                  "loader.workers and train.threads")
                       : RunError(error.what()));
  } catch (const std::exception& error) {
    print_error(RunError(error.what()));
  } catch (...) {
    print_error(RunError("an exception of unknown type"));
  }
  return Exit::failed;
}

void explain_uncaught() { std::set_terminate(end); }

}  // namespace millrace::tools
