// Parts that reports on several runs share.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "study/records/summary.h"
#include "study/report/report.h"

namespace millrace::study {

/// Returns the folders' names, or whole paths if two names are equal.
std::vector<std::string> names_of(const std::vector<std::filesystem::path>& runs);

/// Merges the figures of lines and of distributions with one id of all reports into one figure.
std::vector<Figure> overlaid(const std::vector<std::string>& names,
                             const std::vector<Report>& reports);

/// Tells figures of one id or of one title apart by their x axes: one run has two epochs and
/// another has not.
void make_distinct(std::vector<Figure>& figures);

/// Returns the keys in which the recipes differ.
std::set<std::string> keys_in(const ReportTable& configs);

/// Notes in what else the runs differ than the keys of their recipes: it is part of what the report
/// compares.
void add_confounders(const std::vector<Summary>& summaries, const std::set<std::string>& keys,
                     Report& report);

}  // namespace millrace::study
