// The fixed parts of a report's page, made from study/report/page/ and Debian's Chart.js by the
// build.
#pragma once

#include <string_view>

namespace millrace::study {

extern const std::string_view kReportCss;
extern const std::string_view kReportJs;
extern const std::string_view kChartJs;  ///< with its licence's line

}  // namespace millrace::study
