// Runs gnuplot and checks its results.
#include "study/report/report_plots.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <system_error>

#include "millrace/error.h"
#include "study/records/run_directory.h"
#include "study/report/plot_script.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

constexpr std::array kDrawn{".svg", ".png"};

fs::path find_gnuplot() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path file = fs::absolute(folder.empty() ? "." : folder) / "gnuplot";
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored) && access(file.c_str(), X_OK) == 0) return file;
  }
  throw DeviceError("plots are drawn by the program gnuplot, which is not in PATH",
                    "install it: apt-get install gnuplot-nox");
}

struct Ended {
  int status = 0;      ///< as returned by waitpid()
  std::string output;  ///< stdout and stderr
};

/// Runs gnuplot in `folder` with its default settings, ignoring the user's own (-d).
Ended run_gnuplot(const fs::path& program, const fs::path& folder, std::string script) {
  std::array<int, 2> pipe{};
  if (pipe2(pipe.data(), O_CLOEXEC) != 0)
    throw RunError(fmt::format("a pipe cannot be opened: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], STDERR_FILENO);
  std::string name = "gnuplot";
  std::string defaults = "-d";
  std::array<char*, 4> argv{name.data(), defaults.data(), script.data(), nullptr};
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe[1]);
  Ended ended;
  std::array<char, 4096> buffer{};
  while (error == 0) {
    const ssize_t got = read(pipe[0], buffer.data(), buffer.size());
    if (got > 0) ended.output.append(buffer.data(), static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) break;
  }
  close(pipe[0]);
  if (error != 0)
    throw RunError(fmt::format("{} cannot be started: {}", program.string(), std::strerror(error)));
  while (waitpid(pid, &ended.status, 0) < 0 && errno == EINTR) {
  }
  return ended;
}

/// Returns the line with the error. gnuplot prints the offending command before it.
std::string telling_line(const std::string& output) {
  std::istringstream lines(output);
  std::string first;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\" line ") != std::string::npos) return line;
    if (first.empty() && line.find_first_not_of(" \t^") != std::string::npos) first = line;
  }
  return first.empty() ? "it says nothing" : first;
}

bool names_a_file(const std::string& id) {
  return !id.empty() && id[0] != '-' && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-';
  });
}

}  // namespace

void write_plots(std::span<const Figure> figures, const fs::path& folder) {
  const fs::path gnuplot = find_gnuplot();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw RunError(fmt::format("{} cannot be made: {}", folder.string(), error.message()),
                   "choose another folder");
  for (const Figure& figure : figures) {
    if (!names_a_file(figure.id))
      throw RunError(fmt::format("a figure's name is \"{}\", which cannot be a file's", figure.id));
    const PlotScript plot = plot_script(figure);
    write_file(folder / (figure.id + ".dat"), plot.data);
    write_file(folder / (figure.id + ".gp"), plot.script);
    for (const char* type : kDrawn) fs::remove(folder / (figure.id + type), error);
    const Ended ended = run_gnuplot(gnuplot, folder, figure.id + ".gp");
    if (WIFSIGNALED(ended.status))
      throw RunError(fmt::format("gnuplot was ended by signal {} while it drew {}",
                                 WTERMSIG(ended.status), figure.id));
    if (ended.status != 0)
      throw RunError(
          fmt::format("gnuplot cannot draw {}: {}", figure.id, telling_line(ended.output)),
          fmt::format("see {}", (folder / (figure.id + ".gp")).string()));
    for (const char* type : kDrawn)  // gnuplot ignores write errors
      if (const fs::path file = folder / (figure.id + type);
          fs::file_size(file, error) == 0 || error)
        throw RunError(fmt::format("gnuplot left no {}", file.string()), "is the disk full?");
  }
}

}  // namespace millrace::study
