// millrace sweep: an ablation. Every combination as a process of its own, interleaved, one table.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "study/run_directory.h"
#include "study/sweep.h"
#include "tools/child.h"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/interrupt.h"
#include "tools/pipeline_setup.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::vector<std::string> recipe;
  std::uint64_t repeats = 1;
  std::string run;
  std::string metric = "images_per_s";
};

double number(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_number() ? json[key].get<double>() : std::nan("");
}

SweepFigures figures_of(const fs::path& summary) {
  std::ifstream in(summary);
  const Json json = Json::parse(in, nullptr, false);
  if (json.is_discarded())
    throw DataError(summary.string() + " is not a summary",
                    "was the run killed while it wrote it?");
  return {number(json, "load_s_per_step"),
          number(json, "update_s_per_step"),
          number(json, "load_s"),
          number(json, "update_s"),
          number(json, "wall_s"),
          number(json, "images_per_s"),
          number(json, "top1"),
          number(json, "threads")};
}

/// "workers=2,random_affine.enabled=true", as a folder's name.
std::string folder_name(const std::vector<SweepAxis>& axes,
                        const std::vector<std::string>& overrides, std::uint64_t repeat) {
  std::string name;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].values.size() < 2) continue;
    const std::string& text = overrides[i];
    const auto equals = text.find('=');
    const auto dot = text.rfind('.', equals);
    name += (name.empty() ? "" : ",") + text.substr(dot == std::string::npos ? 0 : dot + 1);
  }
  for (char& c : name)
    if (c == '/' || c == ' ' || static_cast<unsigned char>(c) < 0x20) c = '_';
  if (name.size() > 120) name.resize(120);
  return fmt::format("{}r{}", name.empty() ? "" : name + "-", repeat + 1);
}

Json to_json(const SweepFigures& f) {
  const auto finite = [](double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
  };
  return {{"load_s_per_step", finite(f.load_s_per_step)},
          {"update_s_per_step", finite(f.update_s_per_step)},
          {"load_s", finite(f.load_s)},
          {"update_s", finite(f.update_s)},
          {"wall_s", finite(f.wall_s)},
          {"images_per_s", finite(f.images_per_s)},
          {"top1", finite(f.top1)},
          {"threads", finite(f.threads)}};
}

Exit sweep(const Arguments& arguments) {
  std::string recipe_name;
  std::vector<SweepAxis> axes;
  for (const auto& text : arguments.recipe) {
    if (text.find('=') == std::string::npos) {
      if (!recipe_name.empty())
        throw UsageError(fmt::format("two recipes: {} and {}", recipe_name, text),
                         "one recipe, then keys as key=a,b,c");
      recipe_name = text;
    } else if (text.starts_with("augment+=")) {
      axes.push_back({"augment+", {text.substr(9)}});
    } else {
      axes.push_back(parse_axis(text));
    }
  }
  const auto cells = grid(axes);
  sweep_table(axes, {}, arguments.metric);  // an unknown metric is found now, not at the end
  std::vector<Recipe> recipes;
  for (const auto& cell : cells) {  // a wrong key or value is found before anything runs
    std::vector<std::string> all = cell;
    if (!recipe_name.empty()) all.insert(all.begin(), recipe_name);
    recipes.push_back(load_recipe(all));
  }
  const std::uint64_t seed = static_cast<std::uint64_t>(recipes.front().integer("seed"));

  const fs::path path = arguments.run.empty() ? new_run_path("sweep-" + recipes.front().name())
                                              : fs::path(arguments.run);
  RunDirectory directory(path, recipes.front().to_toml());
  if (!directory.moved_aside().empty())
    say(fmt::format("{} held an earlier run: it is now {}", path.string(),
                    directory.moved_aside().string()));
  const auto runs = interleaved(cells.size(), arguments.repeats, seed);
  say(fmt::format("{} combinations x {} = {} runs, interleaved; records in {}", cells.size(),
                  arguments.repeats, runs.size(), path.string()));

  std::vector<std::vector<SweepFigures>> results(cells.size());
  ProgressLine line;
  std::size_t done = 0;
  for (const SweepRun& run : runs) {
    const std::string name = folder_name(axes, cells[run.cell], run.repeat);
    const fs::path folder = path / "runs" / fmt::format("{:03}-{}", done + 1, name);
    if (line.due()) line.show(static_cast<double>(done), static_cast<double>(runs.size()), name);
    std::vector<std::string> child{"train"};
    if (!recipe_name.empty()) child.push_back(recipe_name);
    for (const auto& text : cells[run.cell]) child.push_back(text);
    child.push_back(fmt::format(
        "seed={}", static_cast<std::uint64_t>(recipes[run.cell].integer("seed")) + run.repeat));
    child.insert(child.end(), {"--run", folder.string()});
    fs::create_directories(folder.parent_path());
    fs::path log = folder;
    log += ".log";
    const ChildResult result = run_child(child, log);
    line.clear();
    if (interrupted())
      throw Error(Exit::interrupted,
                  fmt::format("interrupted after {} of {} runs", done, runs.size()),
                  "finished runs are in " + (path / "runs").string());
    if (result.exit_code != 0)
      throw Error(
          static_cast<Exit>(result.exit_code >= 1 && result.exit_code <= 4 ? result.exit_code : 1),
          fmt::format("{}: {}", name, result.last_line), "all that it said is in " + log.string());
    results[run.cell].push_back(figures_of(folder / "summary.json"));
    ++done;
    const SweepFigures& f = results[run.cell].back();
    say(fmt::format("[{}/{}] {}: load {:.3f} ms, update {:.3f} ms a step, {} images/s", done,
                    runs.size(), name, 1e3 * f.load_s_per_step, 1e3 * f.update_s_per_step,
                    with_commas(f.images_per_s)));
  }

  const auto rows = sweep_table(axes, results, arguments.metric);
  Json json{{"command", "sweep"},
            {"recipe", recipes.front().name()},
            {"repeats", arguments.repeats},
            {"metric", arguments.metric},
            {"cells", Json::array()}};
  for (std::size_t i = 0; i < cells.size(); ++i) {
    Json cell{{"overrides", cells[i]}, {"runs", Json::array()}};
    for (const auto& figures : results[i]) cell["runs"].push_back(to_json(figures));
    json["cells"].push_back(std::move(cell));
  }
  write_file(path / "sweep.json", to_text(json, 2) + "\n");
  if (verbosity().json) {
    fmt::print("{}\n", to_text(json, 2));
  } else {
    fmt::print("\n{}", to_table(rows));
    if (arguments.repeats > 1)
      fmt::print("median [smallest .. largest] of {} runs; ratios are medians over blocks\n",
                 arguments.repeats);
    else
      fmt::print("one run a row: no interval, so small differences mean nothing (--repeats N)\n");
  }
  return Exit::done;
}

}  // namespace

void add_sweep(CLI::App& app, Command& chosen) {
  auto* command =
      app.add_subcommand("sweep", "an ablation: every combination of key=a,b,c, interleaved");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("recipe", arguments->recipe,
                      "[RECIPE] key=a,b,c ... (commas inside [] don't separate)");
  command->add_option("--repeats", arguments->repeats, "runs a combination, each with another seed")
      ->check(CLI::Range(1, 10000));
  command->add_option("--run", arguments->run, "directory (default: runs/sweep-RECIPE-DATE-TIME)");
  command->add_option("--metric", arguments->metric,
                      "what rows are compared by (default images_per_s)");
  add_common(*command);
  command->footer(
      "Example:\n  millrace sweep mnist-lenet data.path=data/digits loader.workers=0,1,2 "
      "train.epochs=1");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart&) { return sweep(*arguments); };
  });
}

}  // namespace millrace
