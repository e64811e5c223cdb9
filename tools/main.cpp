// Entry point of the program. Commands live in tools/commands.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include "base/suggest.h"
#include "plugins/host/unit.h"
#include "tools/commands/commands.h"
#include "tools/plugins/grants.h"
#include "tools/terminal/console.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/uncaught.h"
#include "tools/version.h"

using namespace millrace;
using namespace millrace::tools;

namespace {

std::vector<std::string> names_in(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* sub :
       command.get_subcommands([](const CLI::App* app) { return !app->get_group().empty(); }))
    names.push_back(sub->get_name());
  return names;
}

/// Returns "millrace 0.2.0 (commit 8a5abbe, LibTorch 2.11.0)".
std::string version_line() {
  const std::string torch = kTorch;
  return fmt::format("millrace {} (commit {}, {})", kVersion, kGit,
                     torch.empty() ? "without LibTorch" : "LibTorch " + torch);
}

/// Rejects a word or option that no command takes, and suggests the nearest one of the innermost
/// command.
[[noreturn]] void refuse_extras(const CLI::App& app, const CLI::ExtrasError& error) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  std::string extra = error.what();
  extra = extra.substr(extra.rfind(": ") + 2);
  std::vector<std::string> names = names_in(*command);
  for (const CLI::Option* option : command->get_options())
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  throw UsageError(
      fmt::format("{}unknown {}: {}", command == &app ? "" : command->get_name() + ": ",
                  command == &app ? "command or option" : "option or argument", extra),
      fmt::format("did you mean {}? {} --help lists the {}", base::nearest(extra, names),
                  command == &app ? "millrace" : "millrace " + command->get_name(),
                  command == &app ? "commands" : "options"));
}

/// Returns the command line without the -- that may precede the command of `launch`: CLI11 would
/// pass the words after it to no command.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() && words.front() == "launch") {
    const auto mark = std::find(words.begin(), words.end(), "--");
    if (mark != words.end()) words.erase(mark);
  }
  return words;
}

Exit run(int argc, char** argv, const ProgramStart& start) {
  CLI::App app{"millrace: trains vision models and shows where each step's time goes", "millrace"};
  app.set_version_flag("--version", version_line());
  app.require_subcommand(0, 1);
  Command chosen;
  add_train(app, chosen);
  add_eval(app, chosen);
  add_bench(app, chosen);
  add_profile(app, chosen);
  add_sweep(app, chosen);
  add_report(app, chosen);
  add_inspect(app, chosen);
  add_data(app, chosen);
  add_plugins(app, chosen);
  add_launch(app, chosen);
  add_doctor(app, chosen);
  add_completion(app, chosen);
  try {
    std::vector<std::string> words = words_of(argc, argv);
    grant_plugins(words);
    std::reverse(words.begin(), words.end());  // CLI11 takes them in reverse
    app.parse(std::move(words));
  } catch (const CLI::ExtrasError& error) {
    refuse_extras(app, error);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version
      std::ostringstream text;
      app.exit(error, text, text);
      print("{}", text.str());
      return Exit::done;
    }
    std::string what = error.what();
    const auto line_end = what.find('\n');
    throw UsageError(what.substr(0, line_end),
                     "millrace --help lists the commands, millrace COMMAND "
                     "--help lists its options");
  }
  if (!chosen) {
    const CLI::App* command = &app;
    while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
    throw UsageError(
        fmt::format("{}which command? {}", command == &app ? "" : command->get_name() + ": ",
                    fmt::join(names_in(*command), ", ")),
        "for example: millrace train mnist-lenet data.path=data/digits");
  }
  return chosen(start);
}

}  // namespace

void millrace::tools::add_common(CLI::App& command) {
  command.add_flag("-q,--quiet", verbosity().quiet, "print only errors on stderr");
  command.add_flag("-v,--verbose", verbosity().verbose,
                   "print the loss every train.log_every steps");
  command.add_flag("--json", verbosity().json,
                   "print one JSON document on stdout and nothing else");
}

int main(int argc, char** argv) {
  open_standard_streams();
  const ProgramStart start{base::Clock::now(), base::Clock::steady_ns()};
  catch_interrupts();
  explain_uncaught();
  plugins::tell_crashes();  // installed first: it names the plugin that threw
  Exit exit = Exit::failed;
  try {
    exit = run(argc, argv, start);
    if (exit == Exit::done) finish_output();
    plugins::throw_late_exception();
  } catch (...) {
    exit = explain(std::current_exception());
  }
  flush_output();  // output that precedes an error
  // Skips tearing down LibTorch and thread pools, which would cost time that no record shows.
  _exit(static_cast<int>(exit));
}
