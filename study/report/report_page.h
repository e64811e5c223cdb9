// Fixed parts of a report's page. The build makes them from study/report/page/ and Debian's
// Chart.js.
#pragma once

#include <string_view>

namespace millrace::study {

extern const std::string_view kReportCss;
extern const std::string_view kReportJs;
extern const std::string_view kChartJs;  ///< with its licence line

}  // namespace millrace::study
