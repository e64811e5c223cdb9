// Writes a report as text: Markdown for reading, CSV and JSON for further computation.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "study/report/report.h"

namespace millrace::study {

/// Returns GitHub's Markdown. Figures become tables of their values, or of a summary per series if
/// there are many values. Leaves pictures out.
std::string to_markdown(const Report& report);

/// Returns a header, then one row per category or x. Each series has one column, plus NAME low and
/// NAME high if it has intervals. Series with different x are stacked: series, x, y. A matrix has
/// one row per series. NaN is an empty field. Quoting follows RFC 4180; lines end in LF.
std::string csv(const std::vector<std::vector<std::string>>& rows);
std::string to_csv(const Figure& figure);
std::string to_csv(const ReportTable& table);

/// Returns the struct's members; pictures in base64. Values that are not finite become null.
nlohmann::ordered_json to_json(const Figure& figure);
nlohmann::ordered_json to_json(const Report& report);

}  // namespace millrace::study
