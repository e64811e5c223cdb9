// Recognises directories and adds configurations and pictures to reports.
#include "tools/commands/report_input.h"

#include <fmt/format.h>

#include <algorithm>

#include "millrace/error.h"
#include "pipeline/recipe/recipe_values.h"
#include "study/records/config_table.h"
#include "study/report/comparison_report.h"
#include "study/report/run_report.h"
#include "study/report/sweep_report.h"
#include "study/report/what_if_report.h"
#include "tools/commands/report_errors.h"
#include "tools/inspect/contact_sheet.h"
#include "tools/terminal/console.h"
#include "tools/training/pipeline_setup.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPictures = 12;
constexpr int kColumns = 4;

enum class Kind { run, profile, sweep, folder };

bool has(const fs::path& path, const char* name) {
  std::error_code error;
  return fs::exists(path / name, error);
}

Kind kind_of(const fs::path& path) {
  std::error_code error;
  const std::string example = "give the directory of a run, a profile or a sweep: ";
  if (!fs::exists(path, error))
    throw UsageError(fmt::format("{} does not exist", path.string()), example + "runs/NAME");
  if (!fs::is_directory(path, error))
    throw UsageError(fmt::format("{} is not a directory", path.string()),
                     example + path.parent_path().string());
  if (has(path, "sweep.json") || has(path, "design.json")) return Kind::sweep;
  if (has(path, "predictions.json")) return Kind::profile;
  if (has(path, "config.toml")) return Kind::run;
  if (!study::runs_below(path).empty()) return Kind::folder;
  throw UsageError(
      fmt::format("{} is not a run and holds none: there is no config.toml", path.string()),
      example + "runs/NAME, or a folder of such directories");
}

std::string value_of(const study::ConfigValues& values, const std::string& key) {
  for (const auto& [name, value] : values)
    if (name == key) return value;
  return "";
}

/// Adds the keys in which the run's recipe differs from the shipped one.
void add_configuration(const fs::path& run, study::Report& report) {
  const auto values = study::config_at(run / "config.toml");
  std::string name = value_of(values, "recipe");
  if (name.size() >= 2) name = name.substr(1, name.size() - 2);
  std::string other = name;
  std::string shipped;
  try {
    shipped = load_recipe(name.empty() || name == "custom" ? std::vector<std::string>()
                                                           : std::vector<std::string>{name},
                          Plugins::none)
                  .to_toml();
  } catch (const Error& error) {
    report.notes.push_back(
        fmt::format("the recipe is compared with the defaults: {}", error.what()));
    other = "custom";
    shipped = load_recipe({}, Plugins::none).to_toml();
  }
  study::ConfigValues known = pipeline::recipe_values(shipped, other);
  // Keys that an older run does not record are no differences, but a removed op is one.
  std::erase_if(known, [&](const auto& one) {
    return one.first.find("augment.") == std::string::npos && value_of(values, one.first).empty();
  });
  study::ReportTable table = study::config_table(
      {{other == "custom" || other.empty() ? "default" : "recipe " + other, std::move(known)},
       {"this run", values}});
  table.title = "Configuration";
  table.caption = table.rows.empty() ? "Same as " + table.header[1] + "." : "Keys that differ.";
  report.tables.push_back(std::move(table));
}

/// Adds pictures of the model's first samples. A report is made without them if they fail.
void add_pictures(const fs::path& run, study::Report& report) {
  try {
    // Records may come from a stranger, so a report never runs code that they name.
    const std::string plugins = value_of(study::config_at(run / "config.toml"), "plugins.path");
    ContactSheet sheet = contact_sheet({(run / "config.toml").string(), "data.cache=os"}, 0, false,
                                       kPictures, kColumns, Plugins::none);
    report.images.push_back(
        {.id = "samples",
         .title = "What the model sees",
         .caption =
             fmt::format("The first {} samples of the first epoch before normalisation, with the "
                         "random draws that made them.",
                         sheet.samples.size()),
         .png = std::move(sheet.png)});
    if (plugins != "\"\"" && !plugins.empty())
      report.notes.push_back(fmt::format(
          "a report loads no plugins: the images of samples are made without {}", plugins));
  } catch (const std::exception& error) {
    report.notes.push_back(fmt::format("no images of samples: {}", error.what()));
  }
}

/// Returns the directory's absolute path, without a separator at its end.
fs::path folder_at(const std::string& path) {
  const fs::path folder = fs::absolute(path).lexically_normal();
  return folder.has_filename() ? folder : folder.parent_path();
}

}  // namespace

fs::path the_run_in(const std::vector<std::string>& paths) {
  const std::string wanted = "give the directory of one run: millrace report --live runs/NAME";
  if (paths.size() != 1)
    throw UsageError(fmt::format("--live follows one run, not {}", paths.size()), wanted);
  if (kind_of(paths[0]) != Kind::run)
    throw UsageError(fmt::format("--live follows a run; {} is none", paths[0]), wanted);
  return folder_at(paths[0]);
}

void add_fixed_parts(const fs::path& run, const fs::path& predictions, study::Report& report) {
  std::error_code error;
  const fs::path file = predictions.empty() ? run / "predictions.csv" : predictions;
  if (!predictions.empty() && !fs::is_regular_file(file, error))
    throw UsageError(fmt::format("--predictions {}: there is no such file", file.string()),
                     fmt::format("make it: millrace eval {} --predictions {}",
                                 shell_word(run.string()), shell_word(file.string())));
  if (fs::is_regular_file(file, error)) add_wrong_images(run, file, report);
  add_configuration(run, report);
  add_pictures(run, report);
}

study::Report make_report(const std::vector<std::string>& paths, const fs::path& predictions) {
  std::vector<fs::path> folders;
  std::vector<Kind> kinds;
  for (const std::string& path : paths) {
    folders.push_back(folder_at(path));
    kinds.push_back(kind_of(path));
  }
  if (!predictions.empty() && (folders.size() > 1 || kinds[0] != Kind::run))
    throw UsageError("--predictions belongs to a report on one run",
                     "give the directory of the evaluated run alone");
  if (folders.size() > 1) {
    for (std::size_t i = 0; i < kinds.size(); ++i)
      if (kinds[i] == Kind::sweep || kinds[i] == Kind::folder)
        throw UsageError(
            fmt::format("{} is a {}, which cannot be compared with other runs", paths[i],
                        kinds[i] == Kind::sweep ? "sweep" : "folder of runs"),
            "give it alone, or runs only");
    return study::comparison_report(folders);
  }
  const fs::path& path = folders[0];
  if (kinds[0] == Kind::folder) return study::folder_report(path);
  study::Report report = kinds[0] == Kind::sweep     ? study::sweep_report(path)
                         : kinds[0] == Kind::profile ? study::profile_report(path)
                                                     : study::run_report(path);
  add_fixed_parts(path, predictions, report);
  return report;
}

}  // namespace millrace::tools
