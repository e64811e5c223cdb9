// millrace launch: starts several ranks of one training run on this host.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "tools/commands/commands.h"
#include "tools/launch/launch.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

constexpr int kMaxRanks = 1024;
constexpr const char* kExample =
    "for example: millrace launch -n 2 -- train mnist-lenet data.path=data/digits "
    "train.strategy=ddp";

Exit launch(int count, std::vector<std::string> arguments) {
  if (count < 1 || count > kMaxRanks)
    throw UsageError(
        fmt::format("launch -n {}: the number of ranks must be from 1 to {}", count, kMaxRanks),
        kExample);
  if (arguments.empty())
    throw UsageError(fmt::format("launch -n {}: nothing to launch", count), kExample);
  if (arguments.front() != "train")
    throw UsageError(
        fmt::format("launch runs train, not {}: no other command has ranks", arguments.front()),
        kExample);
  if (verbosity().quiet) arguments.emplace_back("--quiet");
  if (verbosity().verbose) arguments.emplace_back("--verbose");
  if (verbosity().json) arguments.emplace_back("--json");
  allow_descriptors(count);
  return launch_ranks(count, arguments);
}

}  // namespace

void add_launch(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand("launch", "train with N ranks on this host");
  auto count = std::make_shared<int>(0);
  command->add_option("-n", *count, "number of ranks, the processes that share each batch")
      ->required();
  command->prefix_command();  // everything from the first other word on is the ranks' command line
  add_common(*command, kVerboseTraining);
  command->footer(
      "After the options: -- train and its arguments, as for a run with one rank.\n"
      "Example:\n  millrace launch -n 2 -- train mnist-lenet data.path=data/digits "
      "train.strategy=ddp");
  command->callback([command, count, &chosen] {
    chosen = [command, count](const ProgramStart&) { return launch(*count, command->remaining()); };
  });
}

}  // namespace millrace::tools
