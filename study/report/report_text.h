// A report as text: Markdown to read or to paste, CSV and JSON to compute with.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "study/report/report.h"

namespace millrace::study {

/// GitHub's Markdown. Figures become tables: of all values where these are few, else of what each
/// series comes to. Pictures are left out.
std::string to_markdown(const Report& report);

/// A header, then a row a category or x; one column a series, and NAME low, NAME high where it has
/// intervals. Series with x of their own stand below each other: series, x, y. A matrix: a row a
/// series. NaN is an empty field; quoted as RFC 4180 says, lines end in \n.
std::string to_csv(const Figure& figure);
std::string to_csv(const ReportTable& table);

/// The struct as it is; pictures in base64. What is not a number becomes null.
nlohmann::ordered_json to_json(const Figure& figure);
nlohmann::ordered_json to_json(const Report& report);

}  // namespace millrace::study
