// millrace plugins: lists units, checks and trusts plugins, and starts new ones.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plugins/host/registry.h"
#include "study/records/run_directory.h"
#include "tools/commands/commands.h"
#include "tools/plugins/grants.h"
#include "tools/plugins/plugins.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

struct PluginsArguments {
  std::vector<std::string> recipe;  ///< overrides, for plugins.path
  std::vector<std::string> files;   ///< files to trust
  std::string subject;              ///< a unit, a file, or the name of a new plugin
  std::string kind = "geometric";   ///< of a new plugin
  std::string only_kind;            ///< of the units to list; empty: all
  std::string folder = ".";
  CheckOptions check;
};

Exit list(const PluginsArguments& arguments) {
  load_recipe(arguments.recipe);
  Json json = list_json();
  if (!arguments.only_kind.empty()) keep_kind(json, arguments.only_kind);
  print("{}", verbosity().json ? study::to_text(json, 2) + "\n" : list_text(json));
  return Exit::done;
}

Exit info(const PluginsArguments& arguments) {
  load_recipe(arguments.recipe);
  const std::string& of = arguments.subject;
  const Json json = of.ends_with(".so") ? info_json(load_named_plugin(of)) : info_json(of);
  print("{}", verbosity().json ? study::to_text(json, 2) + "\n" : info_text(json));
  return Exit::done;
}

Exit check(const PluginsArguments& arguments) {
  using probe::CheckLine;
  using State = CheckLine::State;
  CheckOptions options = arguments.check;
  options.file = arguments.subject;
  options.stop = &interrupted();
  require_unshared(options.file);
  const CheckReport report = check_plugin(options, [&](const CheckLine& line) {
    if (verbosity().json || (verbosity().quiet && line.state != State::failed)) return;
    print("{}\n", line.text());
    flush_output();
  });
  if (verbosity().json) {
    Json json{{"command", "plugins check"},
              {"file", options.file},
              {"sound", report.failed() == 0},
              {"checks", Json::array()},
              {"cost", Json::array()}};
    for (const CheckLine& line : report.lines)
      json["checks"].push_back({{"unit", line.unit.empty() ? Json(nullptr) : Json(line.unit)},
                                {"check", line.check},
                                {"state", probe::name_of(line.state)},
                                {"detail", line.detail}});
    for (const probe::CheckCost& cost : report.costs)
      json["cost"].push_back({{"unit", cost.unit}, {"of", cost.of}, {"ns", cost.ns}});
    print("{}\n", study::to_text(json, 2));
  }
  const auto skipped =
      std::count_if(report.lines.begin(), report.lines.end(),
                    [](const CheckLine& line) { return line.state == State::skipped; });
  if (report.failed() > 0) {
    const auto first =
        std::find_if(report.lines.begin(), report.lines.end(),
                     [](const CheckLine& line) { return line.state == State::failed; });
    throw DataError(
        fmt::format("{}: {} of {} checks failed, first {}{}: {}", options.file, report.failed(),
                    report.lines.size(), first->unit.empty() ? "" : first->unit + ": ",
                    first->check, first->detail),
        "the plugin's author has to fix it; docs/reference/plugins.md says what each check asks "
        "for");
  }
  if (!verbosity().json)
    print_unless_quiet("{}: no problems in {} checks{}\n", options.file, report.lines.size(),
                       skipped > 0 ? fmt::format(", {} of them skipped", skipped) : "");
  return Exit::done;
}

Exit make(const PluginsArguments& arguments) {
  load_recipe({});
  for (const plugins::PluginEntry& plugin : plugins::plugins())
    for (std::size_t i = 0; i < plugin.table->unit_count; ++i)
      if (arguments.subject == plugin.table->units[i]->name)
        throw UsageError(fmt::format("plugins new: a unit {} already exists in {}",
                                     arguments.subject, plugin.table->id),
                         "choose another name: plugins cannot replace existing units");
  const std::string folder =
      write_project(arguments.subject, arguments.kind, arguments.folder).string();
  if (verbosity().json) {
    print("{}\n", study::to_text(Json{{"command", "plugins new"},
                                      {"name", arguments.subject},
                                      {"kind", arguments.kind},
                                      {"folder", folder}},
                                 2));
    return Exit::done;
  }
  print_unless_quiet(
      "{0}: a {1} plugin. Next:\n"
      "  cmake -S {0} -B {0}/build -Dmillrace_DIR=BUILD   (millrace's build folder, or where it is "
      "installed: PREFIX/lib/cmake/millrace)\n"
      "  cmake --build {0}/build && ctest --test-dir {0}/build --output-on-failure\n"
      "  millrace plugins list plugins.path={0}/build\n",
      folder, arguments.kind);
  return Exit::done;
}

/// Prints the trust list.
Exit tell_trusted(const char* command, const TrustList& list) {
  Json json{
      {"command", command}, {"list", TrustList::place().string()}, {"trusted", Json::array()}};
  for (const TrustList::Entry& entry : list.entries())
    json["trusted"].push_back({{"file", entry.path}, {"sha256", entry.hash}});
  if (verbosity().json) {
    print("{}\n", study::to_text(json, 2));
    return Exit::done;
  }
  for (const TrustList::Entry& entry : list.entries()) print("{}  {}\n", entry.hash, entry.path);
  say(fmt::format("{}: {} trusted", TrustList::place().string(), list.entries().size()));
  return Exit::done;
}

Exit trust(const PluginsArguments& arguments) {
  TrustList list;
  for (const std::string& file : arguments.files) {
    plugins::check_plugin_file(file);
    require_unshared(file);
    list.add(file);
  }
  if (!arguments.files.empty()) list.save();
  return tell_trusted("plugins trust", list);
}

Exit distrust(const PluginsArguments& arguments) {
  TrustList list;
  for (const std::string& file : arguments.files)
    if (!list.remove(file))
      throw UsageError(fmt::format("plugins distrust: {} is not in the list", file),
                       "millrace plugins trust, without a file, shows the list");
  list.save();
  return tell_trusted("plugins distrust", list);
}

}  // namespace

void add_plugins(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand("plugins", "list, explain, check, trust or create plugins");
  command->require_subcommand(0, 1);  // main() reports a missing one after it has checked the
  // options
  command->footer("Example:\n  millrace plugins list plugins.path=build/lib/plugins/examples");
  add_common(*command);

  const auto add = [&](const std::string& name, const std::string& help, auto run) {
    auto* sub = command->add_subcommand(name, help);
    auto arguments = std::make_shared<PluginsArguments>();
    add_common(*sub);
    sub->callback([arguments, run, &chosen] {
      chosen = [arguments, run](const ProgramStart&) { return run(*arguments); };
    });
    return std::pair(sub, arguments);
  };

  auto [list_command, list_arguments] =
      add("list", "list all units: kind, name, plugin, version, help", list);
  list_command->add_option("recipe", list_arguments->recipe, "[RECIPE] [plugins.path=DIR:...]");
  list_command->add_option("--kind", list_arguments->only_kind,
                           fmt::format("only these: {}", fmt::join(unit_kinds(), ", ")));
  list_command->footer("Example:\n  millrace plugins list plugins.path=build/lib/plugins/examples");

  auto [info_command, info_arguments] =
      add("info", "show the parameters of a unit or plugin: types, ranges, defaults", info);
  info_command
      ->add_option("unit", info_arguments->subject, "name of a unit or of a plugin, or FILE.so")
      ->required();
  info_command->add_option("recipe", info_arguments->recipe, "[RECIPE] [plugins.path=DIR:...]");
  info_command->footer("Example:\n  millrace plugins info random_affine");

  auto [check_command, check_arguments] = add("check", "test a plugin in a child process", check);
  CheckOptions& options = check_arguments->check;
  check_command->add_option("file", check_arguments->subject, "the plugin: FILE.so")->required();
  check_command->add_option("--sample", options.sample, "an image for its decoders");
  check_command->add_option("--path", options.path, "a data set for its readers");
  check_command->add_option("--split", options.split, "split of that data set (train)");
  check_command->add_option("--timeout", options.timeout_s, "seconds for one check (10)")
      ->check(CLI::PositiveNumber);
  check_command->add_flag("--cost", options.cost, "measure the cost for longer and at more sizes");
  check_command->footer(
      "Example:\n  millrace plugins check build/lib/plugins/examples/qoi.so --sample a.qoi");

  auto [trust_command, trust_arguments] = add(
      "trust", "allow recipes to load these plugins as they are now; without FILE, show the list",
      trust);
  trust_command->add_option("file", trust_arguments->files, "FILE.so ...");
  trust_command->footer("Example:\n  millrace plugins trust my_op/build/my_op.so");

  auto [distrust_command, distrust_arguments] =
      add("distrust", "remove plugins from the list of trusted ones", distrust);
  distrust_command->add_option("file", distrust_arguments->files, "FILE.so ...")->required();
  distrust_command->footer("Example:\n  millrace plugins distrust my_op/build/my_op.so");

  auto [new_command, new_arguments] =
      add("new", "create a plugin project that is ready to build", make);
  new_command->add_option("name", new_arguments->subject, "name of the unit and the plugin")
      ->required();
  new_command->add_option("--kind", new_arguments->kind,
                          fmt::format("{} (geometric)", fmt::join(project_kinds(), ", ")));
  new_command->add_option("--dir", new_arguments->folder,
                          "folder to create NAME/ in (default: current directory)");
  new_command->footer("Example:\n  millrace plugins new my_op --kind pixel");
}

}  // namespace millrace::tools
