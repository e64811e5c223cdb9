// Recognises directories, and adds configurations and pictures to reports.

#include "tools/commands/report_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include "base/record_file.h"
#include "millrace/error.h"
#include "pipeline/readers/url.h"
#include "recipe/recipe_file.h"
#include "strategies/trainer/checkpoint.h"
#include "study/report/figures.h"
#include "study/report/reports.h"
#include "tools/inspect/mistakes.h"
#include "tools/inspect/sheet.h"
#include "tools/terminal/terminal.h"
#include "tools/training/provenance.h"
#include "tools/training/setup.h"

namespace millrace::tools {

// Decides which data set a report opens.

namespace {

namespace fs = std::filesystem;

/// Returns the recipe with which a report opens the data set of a run. Throws UsageError if it may
/// not: a run may come from a stranger, so its record opens no data set over a network, and no
/// other one than those of this user's own runs, those beside the run, and `words`, the data.path
/// of this command line.
Recipe data_recipe(const fs::path& run, const std::vector<std::string>& words) {
  const fs::path config = run / "config.toml";
  std::vector<std::string> all{config.string()};
  all.insert(all.end(), words.begin(), words.end());
  all.emplace_back("data.cache=os");
  Recipe recipe = load_recipe(all, pipeline::Plugins::none);
  const std::string& path = recipe.text("data.path");
  if (pipeline::is_remote(path))
    throw UsageError("the data set is remote, and a report opens none over a network");
  std::error_code error;
  if (path.empty() || Provenance(config, words).is_granted("data.path", to_toml(path)) ||
      Provenance::lies_in(path, fs::canonical(run, error).parent_path()))
    return recipe;
  throw UsageError(fmt::format(
      "{} is not signed with your key, and its data set lies elsewhere; to show it, add {}",
      config.string(), shell_word("data.path=" + path)));
}

/// Adds a picture to each row: those that the evaluation kept, or else from the data set.
void add_thumbnails(const fs::path& run, const fs::path& predictions,
                    const std::vector<study::WrongImage>& images,
                    const std::vector<std::string>& words, study::ReportTable& table,
                    std::vector<std::string>& notes) {
  try {
    table.pictures = kept_mistakes(run, predictions, images);
    if (table.pictures.empty()) table.pictures = draw_mistakes(images, data_recipe(run, words));
  } catch (const std::exception& error) {
    notes.push_back(fmt::format("no images of wrong predictions: {}", error.what()));
  }
}

bool is_older(const fs::path& file, const fs::path& other) {
  std::error_code error;
  const auto mine = fs::last_write_time(file, error);
  if (error) return false;
  const auto others = fs::last_write_time(other, error);
  return !error && mine < others;
}

}  // namespace

void add_wrong_images(const fs::path& run, const fs::path& file,
                      const std::vector<std::string>& words, study::Report& report) {
  const study::Predictions predictions = study::read_predictions(file, kMistakes);
  const std::string name = file.filename().string();
  if (is_older(file, train::last_checkpoint(run) / "position.json"))
    report.notes.push_back(fmt::format(
        "{} is older than the last checkpoint: the predictions may be another model's", name));
  if (predictions.wrong == 0) {
    report.notes.push_back(fmt::format("{}: no image is wrong", name));
    return;
  }
  study::ReportTable table{
      .id = "wrong-images",
      .title = "Most confidently wrong images",
      .caption = fmt::format("{} of {} images in {} are wrong; shown are those whose wrong class "
                             "got the highest probability.",
                             predictions.wrong, predictions.images, name),
      .header = {"image", "label", "predicted", "probability"}};
  for (const study::WrongImage& image : predictions.confident)
    table.rows.push_back({image.name, image.label, image.predicted,
                          fmt::format("{:.1f}%", 100 * image.probability)});
  add_thumbnails(run, file, predictions.confident, words, table, report.notes);
  report.tables.push_back(std::move(table));
}

namespace {

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
  throw UsageError(fmt::format("{} is not a run and holds none: no config.toml", path.string()),
                   example + "runs/NAME, or a folder of such directories");
}

std::string value_of(const study::ConfigValues& values, const std::string& key) {
  for (const auto& [name, value] : values)
    if (name == key) return value;
  return "";
}

/// Returns the file of a shipped recipe; empty if there is none of that name. The name stands in a
/// record, so it must not lead to any other file.
std::string shipped_recipe(const std::string& name) {
  std::error_code error;
  if (base::is_file_name(name))
    for (const fs::path& folder : recipe_folders())
      if (const fs::path file = folder / (name + ".toml"); fs::is_regular_file(file, error))
        return file.string();
  return {};
}

/// Returns the file of the recipe that the run began with: the run's copy of a recipe of the user's
/// own, or the shipped one of that name; empty if there is neither.
std::string recipe_of(const fs::path& run, const std::string& name) {
  const fs::path own = run / kOwnRecipe;
  std::error_code error;
  return fs::is_regular_file(fs::symlink_status(own, error)) ? own.string() : shipped_recipe(name);
}

/// Adds the keys in which the run differs from its recipe.
void add_configuration(const fs::path& run, study::Report& report) {
  const auto values = study::config_at(run / "config.toml");
  std::string name = value_of(values, "recipe");
  if (name.size() >= 2) name = name.substr(1, name.size() - 2);
  std::string other = name;
  std::vector<std::string> words;
  if (const std::string file = recipe_of(run, name); !file.empty()) {
    words = {file};
  } else if (!name.empty() && name != "custom") {
    report.notes.push_back(fmt::format(
        "there is no shipped recipe {}, and the run keeps none: no keys are compared", name));
    return;
  }
  std::string began;
  try {
    began = load_recipe(words, pipeline::Plugins::none).to_toml();
  } catch (const Error& error) {
    report.notes.push_back(fmt::format("no keys are compared: {}", error.what()));
    return;
  }
  study::ConfigValues known = recipe::recipe_values(began, other);
  // Keys that an older run does not record are not differences, but a removed op is one.
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
void add_pictures(const fs::path& run, const std::vector<std::string>& words,
                  study::Report& report) {
  try {
    // Records may come from a stranger, so a report never runs code that they name.
    const std::string plugins = value_of(study::config_at(run / "config.toml"), "plugins.path");
    ContactSheet sheet = contact_sheet(data_recipe(run, words), 0, false, kPictures, kColumns);
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
    throw UsageError(fmt::format("--live follows a run; {} is not one", paths[0]), wanted);
  return folder_at(paths[0]);
}

void add_fixed_parts(const fs::path& run, const fs::path& predictions,
                     const std::vector<std::string>& words, study::Report& report) {
  std::error_code error;
  const fs::path file = predictions.empty() ? run / "predictions.csv" : predictions;
  if (!predictions.empty() && !fs::is_regular_file(file, error))
    throw UsageError(fmt::format("--predictions {}: no such file", file.string()),
                     fmt::format("make it: millrace eval {} --predictions {}",
                                 shell_word(run.string()), shell_word(file.string())));
  if (fs::is_regular_file(file, error)) add_wrong_images(run, file, words, report);
  add_configuration(run, report);
  add_pictures(run, words, report);
}

study::Report make_report(const std::vector<std::string>& paths, const fs::path& predictions,
                          const std::vector<std::string>& words) {
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
  add_fixed_parts(path, predictions, words, report);
  return report;
}

}  // namespace millrace::tools
