// Finds or generates a study's data.
#include "tools/commands/study_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "millrace/error.h"
#include "study/sweep/study_file.h"
#include "tools/launch/launch.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

/// Returns where the study's recipe expects its data.
std::string usual_path(const study::Study& study) {
  std::string recipe = study.recipe;
  for (const study::StudyRow& row : study.rows)
    if (recipe.empty() && !row.keys.empty() && row.keys[0].find('=') == std::string::npos)
      recipe = row.keys[0];
  return recipe.empty() ? "" : load_recipe({recipe}).text("data.path");
}

}  // namespace

StudyData study_data(const SweepArguments& arguments, const fs::path& sweep) {
  const study::Study study = study::parse_study(arguments.study, arguments.study_file);
  const auto sets_path = [](const std::string& word) { return word.starts_with("data.path="); };
  if (std::any_of(arguments.recipe.begin(), arguments.recipe.end(), sets_path)) return {};
  std::error_code error;
  const char* const real = std::getenv("MILLRACE_DATA");
  if (real != nullptr && !study.real_data.empty()) {
    const fs::path folder = fs::path(real) / study.real_data;
    if (fs::is_directory(folder, error))
      return {"data.path=" + folder.string(), {}, fmt::format("data: {}", folder.string())};
  }
  const std::string usual = usual_path(study);
  if (study.made_data.empty()) return {};
  if (!arguments.brief && !usual.empty() && fs::exists(usual, error))
    return {"", {}, fmt::format("data: {}", usual)};
  const fs::path folder = fs::absolute(sweep) / "data";
  StudyData data{"data.path=" + folder.string(),
                 {"data", "make", study.made_data, folder.string()},
                 fmt::format("data: generated {}", study.made_data)};
  if (arguments.brief && !study.brief_data.empty()) {
    data.make.insert(data.make.end(), study.brief_data.begin(), study.brief_data.end());
    data.note += fmt::format(" ({})", fmt::join(study.brief_data, " "));
  }
  data.note += "; MILLRACE_DATA or data.path=DIR names real data";
  return data;
}

void make_data(const StudyData& data, const fs::path& sweep) {
  std::error_code error;
  // The folder appears last, so that one that exists is complete.
  if (data.make.empty() || fs::exists(sweep / "data", error)) return;
  say(data.note);
  std::vector<std::string> command = data.make;
  const fs::path partial = fs::absolute(sweep) / "data.tmp";
  fs::remove_all(partial, error);
  std::replace(command.begin(), command.end(), (fs::absolute(sweep) / "data").string(),
               partial.string());
  const ChildResult result = run_child(command, sweep / "data.log");
  if (interrupted()) throw Error(Exit::interrupted, "interrupted while data was generated");
  if (result.exit_code != 0)
    throw RunError(fmt::format("generating data: {}", result.last_line),
                   fmt::format("its messages are in {}", (sweep / "data.log").string()));
  fs::rename(partial, sweep / "data");
}

}  // namespace millrace::tools
