// Hand-written records of runs, as input of reports.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "measure/spans.h"
#include "study/report/report.h"

namespace millrace::report_test {

/// A folder that is removed when the test ends.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "millrace-report-XXXXXX");
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

/// Returns the header of steps.csv.
inline std::string steps_header() {
  std::string header = "epoch,step,load_s,update_s,other_s,images,loss";
  for (const auto name : measure::kSpanNames)
    header.append(",").append(name == "step" ? "step_s" : name);
  return header + "\n";
}

/// Returns a row whose spans are 1, 2, 3 ... ms.
inline std::string step_row(int step, const std::string& loss = "") {
  std::string row = fmt::format("1,{},0.005,0.039,0.047,20,{}", step, loss);
  for (std::size_t i = 1; i <= measure::kSpanCount; ++i) row += fmt::format(",0.0{:02}000000", i);
  return row + "\n";
}

inline const study::Figure* figure_in(const study::Report& report, const std::string& id) {
  for (const study::Figure& figure : report.figures)
    if (figure.id == id) return &figure;
  return nullptr;
}

inline const study::ReportTable* table_in(const study::Report& report, const std::string& id) {
  for (const study::ReportTable& table : report.tables)
    if (table.id == id) return &table;
  return nullptr;
}

inline bool notes_say(const study::Report& report, const std::string& text) {
  for (const std::string& note : report.notes)
    if (note.find(text) != std::string::npos) return true;
  return false;
}

}  // namespace millrace::report_test
