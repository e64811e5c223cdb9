// Commands of millrace.
#include "tools/terminal/program.h"

#include "tools/commands/commands.h"

namespace millrace::tools {

const Program& this_program() {
  static constexpr Program kMillrace{
      "millrace", "millrace: trains vision models and shows where each step's time goes",
      "millrace train mnist-lenet data.path=data/digits", true};
  return kMillrace;
}

void add_commands(CLI::App& app, Command& chosen) {
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
  add_keys(app, chosen);
  add_recipe(app, chosen);
  add_doctor(app, chosen);
  add_completion(app, chosen);
}

std::string in_own_name(std::string text) { return text; }

}  // namespace millrace::tools
