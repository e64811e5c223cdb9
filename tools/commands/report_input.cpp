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
#include "tools/inspect/contact_sheet.h"
#include "tools/training/pipeline_setup.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPictures = 12;
constexpr int kColumns = 4;

enum class Kind { run, profile, sweep };

bool has(const fs::path& path, const char* name) {
  std::error_code error;
  return fs::exists(path / name, error);
}

/// Returns the newest run, profile or sweep directly below `path`.
fs::path newest_below(const fs::path& path) {
  fs::path newest;
  fs::file_time_type when;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const auto written = fs::last_write_time(entry.path() / "config.toml", error);
    if (error || (!newest.empty() && written <= when)) continue;
    newest = entry.path();
    when = written;
  }
  return newest;
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
  const fs::path newest = newest_below(path);
  throw UsageError(fmt::format("{} is not a run: it has no config.toml", path.string()),
                   example + (newest.empty() ? "runs/NAME" : newest.string()));
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

}  // namespace

study::Report make_report(const std::vector<std::string>& paths) {
  std::vector<fs::path> folders;
  std::vector<Kind> kinds;
  for (const std::string& path : paths) {
    folders.push_back(fs::absolute(path).lexically_normal());
    if (!folders.back().has_filename()) folders.back() = folders.back().parent_path();
    kinds.push_back(kind_of(path));
  }
  if (folders.size() > 1) {
    const auto sweep = std::find(kinds.begin(), kinds.end(), Kind::sweep);
    if (sweep != kinds.end())
      throw UsageError(fmt::format("{} is a sweep, which cannot be compared with other runs",
                                   paths[static_cast<std::size_t>(sweep - kinds.begin())]),
                       "give the sweep alone, or runs only");
    return study::comparison_report(folders);
  }
  const fs::path& path = folders[0];
  study::Report report = kinds[0] == Kind::sweep     ? study::sweep_report(path)
                         : kinds[0] == Kind::profile ? study::profile_report(path)
                                                     : study::run_report(path);
  add_configuration(path, report);
  add_pictures(path, report);
  return report;
}

}  // namespace millrace::tools
