// Writes a report as one self-contained HTML file: it opens from the disk and makes no network
// request.
#pragma once

#include <string>

#include "study/report/report.h"

namespace millrace::study {

/// Returns the page. The embedded Chart.js draws charts; matrices are tables. Texts of the report
/// are shown literally and never act as markup or script. A page on a run that goes on loads itself
/// again every `reload_s` seconds; 0: never.
std::string to_html(const Report& report, double reload_s = 0);

}  // namespace millrace::study
