// Entry point of the program. Commands live in tools/commands.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "plugins/host/unit.h"
#include "recipe/key_hints.h"
#include "recipe/recipe_words.h"
#include "tools/commands/commands.h"
#include "tools/plugins/grants.h"
#include "tools/terminal/program.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"
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
  return fmt::format("{} {} (commit {}, {})", this_program().name, kVersion, kGit,
                     torch.empty() ? "without LibTorch" : "LibTorch " + torch);
}

/// Returns the innermost command that was called, and its name: "millrace data make".
std::pair<const CLI::App*, std::string> called_command(const CLI::App& app) {
  const CLI::App* command = &app;
  std::string name = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  return {command, name};
}

bool takes_recipe_keys(const CLI::App& command) {
  return command.get_option_no_throw("recipe") != nullptr ||
         command.get_option_no_throw("overrides") != nullptr;
}

/// Returns what to write in place of an unknown option or word: the nearest of the command's
/// options and subcommands, or a recipe key for an option of another program: --epochs=3.
std::string hint_for_extra(const CLI::App& command, const std::string& called,
                           const std::string& extra, const std::string& next) {
  constexpr std::size_t kTypingError = 2;
  const std::string option = extra.substr(0, extra.find('='));
  std::vector<std::string> names = names_in(command);
  const bool is_option = extra.starts_with('-');
  const bool lists_commands = !is_option && !names.empty();
  for (const CLI::Option* known : command.get_options())
    for (const auto& name : known->get_lnames()) names.push_back("--" + name);
  const std::string near = base::nearest(option, names);
  const bool is_mistyped = base::edit_distance(option, near) <= kTypingError &&
                           recipe::answer_to_familiar(option).empty();
  if (is_option && !is_mistyped && takes_recipe_keys(command)) {
    const bool next_is_value =
        !next.empty() && !next.starts_with('-') && next.find('=') == std::string::npos;
    const std::string value = option.size() < extra.size() ? extra.substr(option.size() + 1)
                              : next_is_value              ? next
                                                           : "";
    std::string meant = recipe::override_for_option(option, value);
    if (meant.find(' ') != std::string::npos) return meant;
    if (!meant.empty()) return fmt::format("recipe keys have no dashes: {}", meant);
  }
  return fmt::format("did you mean {}? {} --help lists the {}", near, called,
                     lists_commands ? "commands" : "options");
}

/// Rejects the first word or option that no command takes.
[[noreturn]] void refuse_extras(const CLI::App& app, const std::vector<std::string>& words) {
  const auto [command, called] = called_command(app);
  const std::vector<std::string> unknown = app.remaining(true);
  const auto extra = std::find_first_of(words.begin(), words.end(), unknown.begin(), unknown.end());
  const std::string given = extra == words.end() ? "" : *extra;
  const std::string next = words.end() - extra > 1 ? *(extra + 1) : "";
  const char* const kind = given.starts_with('-')       ? "option"
                           : names_in(*command).empty() ? "argument"
                                                        : "command";
  throw UsageError(
      fmt::format("{}unknown {}: {}",
                  command == &app ? "" : called.substr(called.find(' ') + 1) + ": ", kind, given),
      hint_for_extra(*command, called, given, next));
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
  CLI::App app{this_program().about, this_program().name};
  app.set_version_flag("--version", version_line());
  app.require_subcommand(0, 1);
  Command chosen;
  add_commands(app, chosen);
  const std::vector<std::string> words = words_of(argc, argv);
  try {
    grant_plugins(words);
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them so
  } catch (const CLI::ExtrasError&) {
    refuse_extras(app, words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version
      std::ostringstream text;
      app.exit(error, text, text);
      print("{}", in_own_name(text.str()));
      return Exit::done;
    }
    std::string what = error.what();
    const auto line_end = what.find('\n');
    const auto [command, called] = called_command(app);
    throw UsageError(
        what.substr(0, line_end),
        fmt::format("{} --help lists the {}", called, command == &app ? "commands" : "options"));
  }
  if (!chosen) {
    const CLI::App* const command = called_command(app).first;
    throw UsageError(
        fmt::format("{}which command? {}", command == &app ? "" : command->get_name() + ": ",
                    fmt::join(names_in(*command), ", ")),
        fmt::format("for example: {}", this_program().example));
  }
  return chosen(start);
}

}  // namespace

void millrace::tools::add_common(CLI::App& command, const std::string& verbose) {
  command.add_flag("-q,--quiet", verbosity().quiet,
                   "print only results and errors: no progress, warnings or proposals");
  CLI::Option* option = command.add_flag("-v,--verbose", verbosity().verbose, verbose);
  if (verbose.empty()) option->group("");  // taken everywhere, not listed where it has no effect
  command.add_flag("--json", verbosity().json,
                   "print one JSON document on stdout and nothing else");
}

int main(int argc, char** argv) {
  open_standard_streams();
  const ProgramStart start{base::Clock::read_both(), {argv + std::min(argc, 1), argv + argc}};
  catch_interrupts();
  explain_uncaught();
  plugins::install_crash_handlers();  // installed first: it names the plugin that threw
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
