// Writes a report as one self-contained HTML file: it opens from the disk and makes no network
// request.
#pragma once

#include <string>

#include "study/report/report.h"

namespace millrace::study {

/// Returns the page. The embedded Chart.js draws charts; matrices are tables. Texts of the report
/// are shown literally and never act as markup or script.
std::string to_html(const Report& report);

}  // namespace millrace::study
