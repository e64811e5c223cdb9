// Chooses the data set of a study: real where there is one, else generated.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/commands/sweep_arguments.h"

namespace millrace::tools {

/// The data set of a study's rows.
struct StudyData {
  std::string override_text;      ///< data.path=...; empty: the recipes' own
  std::vector<std::string> make;  ///< command that generates it: data make ...; may be empty
  std::string note;               ///< what the rows run on
};

/// Returns, in this order: nothing if the arguments set data.path; the study's folder below
/// MILLRACE_DATA; without --short the recipe's own data set; one to generate in `sweep`/data.
StudyData study_data(const SweepArguments& arguments, const std::filesystem::path& sweep);

/// Generates the data set, unless it is there. Throws RunError with its last message.
void make_data(const StudyData& data, const std::filesystem::path& sweep);

}  // namespace millrace::tools
