// A report as one HTML file that needs no other: opens from the disk, asks the network for nothing.
#pragma once

#include <string>

#include "study/report/report.h"

namespace millrace::study {

/// Charts are drawn by Chart.js, which is inside; matrices are tables. Whatever stands in the
/// report's texts is shown as it is, and is never markup or script.
std::string to_html(const Report& report);

}  // namespace millrace::study
