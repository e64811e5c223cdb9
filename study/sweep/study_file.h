// A study file: the rows of an ablation with published figures beside them, as TOML.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "study/sweep/design.h"

namespace millrace::study {

struct StudyRow {
  std::string name;
  std::string group;               ///< rows are compared within their group
  std::vector<std::string> keys;   ///< key=value; may begin with a recipe
  std::vector<std::string> brief;  ///< what --short changes in this row
  std::map<std::string, SourceFigure> source;
};

struct Study {
  std::string title;
  std::string source;  ///< title of the publication
  std::string recipe;
  std::vector<std::string> keys;  ///< of all rows
  std::string repeats = "1";
  std::string metric = "images_per_s";
  std::vector<std::string> columns;
  std::vector<std::string> notes;
  std::vector<StudyRow> rows;
  std::string real_data;                ///< folder below MILLRACE_DATA
  std::string made_data;                ///< kind of `millrace data make` where there is none
  std::vector<std::string> brief_data;  ///< options of `millrace data make` with --short
  std::vector<std::string> brief;       ///< keys that --short changes in all rows
};

/// Returns whether a TOML text is a study file: it has [[row]]. False for anything malformed.
bool is_study(const std::string& text);

/// Parses a study file. Throws UsageError with `where` and the line.
Study parse_study(const std::string& text, const std::string& where);

/// Returns recipe and design of a study. `overrides` (key=value) apply to all rows, last. `brief`:
/// with what --short changes.
SweepWords study_words(const Study& study, bool brief, const std::vector<std::string>& overrides);

}  // namespace millrace::study
