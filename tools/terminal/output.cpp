// Writes to stdout and stderr, and keeps the first error of stdout.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/text.h"
#include "millrace/error.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {
namespace {

/// First error of stdout, which its FILE does not keep.
int g_output_error = 0;

/// Stream for results; null: the stdout that all code in this process shares.
std::FILE* g_own_stdout = nullptr;

std::FILE* results() { return g_own_stdout != nullptr ? g_own_stdout : stdout; }

void remember(bool written) {
  if (!written && g_output_error == 0) g_output_error = errno;
}

}  // namespace

void open_standard_streams() {
  // Opens them for reading, so that writes of results to a closed stdout fail instead of seeming to
  // succeed. open() returns the lowest free number, which is the missing one.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF) open("/dev/null", O_RDONLY);
}

void keep_stdout_for_results() {
  if (g_own_stdout != nullptr) return;
  remember(std::fflush(stdout) == 0);
  const int own = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (own < 0) return;  // keeps the shared stdout, which is better than no results
  g_own_stdout = fdopen(own, "w");
  if (g_own_stdout == nullptr)
    close(own);
  else
    dup2(STDERR_FILENO, STDOUT_FILENO);
}

void write_output(std::string_view text) {
  const std::string safe = base::printable_lines(text);
  remember(std::fwrite(safe.data(), 1, safe.size(), results()) == safe.size());
}

void write_error(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void flush_output() {
  remember(std::fflush(results()) == 0);
  if (results() != stdout) std::fflush(stdout);
}

void finish_output() {
  flush_output();
  if (g_output_error != 0 && g_output_error != EPIPE)
    throw RunError(fmt::format("stdout cannot be written: {}", std::strerror(g_output_error)),
                   "the results are lost: free some space, or redirect stdout to a file");
}

}  // namespace millrace::tools
