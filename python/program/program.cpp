// Commands of pymillrace that need neither LibTorch nor Python. `python -m pymillrace` runs this
// program for them.
#include "tools/terminal/program.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "millrace/error.h"
#include "tools/commands/commands.h"

namespace millrace::tools {
namespace {

constexpr std::array<std::string_view, 8> kCommands{"bench",  "inspect", "data", "plugins",
                                                    "report", "sweep",   "keys", "recipe"};

/// Returns whether one of our commands stands at the beginning of `text`.
bool begins_with_command(std::string_view text) {
  for (const std::string_view command : kCommands)
    if (text.starts_with(command) &&
        (text.size() == command.size() ||
         std::isalnum(static_cast<unsigned char>(text[command.size()])) == 0))
      return true;
  return false;
}

}  // namespace

const Program& this_program() {
  static constexpr Program kPymillrace{
      "pymillrace",
      "pymillrace: batches for training loops in Python, and where a loader's time goes",
      "pymillrace bench mnist-lenet data.reader=synthetic", false};
  return kPymillrace;
}

void add_commands(CLI::App& app, Command& chosen) {
  // Listed here; __main__.py runs them in Python.
  for (const auto& [name, about] :
       {std::pair{"watch", "run a Python program and record its DataLoaders"},
        std::pair{"what-if", "predict a recorded program's images/s under other settings"},
        std::pair{"compare", "print the differences of two recorded runs, with intervals"},
        std::pair{"top", "show a recorded program's loop while it goes on"}})
    app.add_subcommand(name, about)->final_callback([name] {
      throw UsageError(fmt::format("{} needs Python", name),
                       fmt::format("run: python -m pymillrace {}", name));
    });
  add_bench(app, chosen);
  add_sweep(app, chosen);
  add_report(app, chosen);
  add_inspect(app, chosen);
  add_data(app, chosen);
  add_plugins(app, chosen);
  add_keys(app, chosen);
  add_recipe(app, chosen);
  // The runs of a sweep are this command: with train.device=simulated, as LibTorch is missing.
  add_train(app, chosen);
  app.get_subcommand("train")->group("");
}

std::string in_own_name(std::string text) {
  constexpr std::string_view kName = "millrace ";
  for (std::size_t at = 0; (at = text.find(kName, at)) != text.npos;) {
    const bool is_word = at == 0 || std::isalnum(static_cast<unsigned char>(text[at - 1])) == 0;
    if (is_word && begins_with_command(std::string_view(text).substr(at + kName.size()))) {
      text.insert(at, "py");
      at += 2;
    }
    at += kName.size();
  }
  return text;
}

}  // namespace millrace::tools
