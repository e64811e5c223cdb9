# Embeds the fixed parts of a report's page as C++: our style and script, and Chart.js from Debian's
# package, so that a report is one file that needs no network.
find_file(MILLRACE_CHART_JS chart.min.js PATH_SUFFIXES share/javascript/chart.js javascript/chart.js)
if(NOT MILLRACE_CHART_JS)
  message(FATAL_ERROR "Chart.js is missing, which reports are drawn with: install libjs-chart.js, or "
                      "give -DMILLRACE_CHART_JS=FOLDER/chart.min.js (version 3)")
endif()
set(text "// Made by the build from study/report/page/ and Chart.js.\n#include \"study/report/report.h\"\n\n")
string(APPEND text "namespace millrace::study {\n\n")
foreach(part "kReportCss ${CMAKE_SOURCE_DIR}/study/report/page/report.css"
             "kReportJs ${CMAKE_SOURCE_DIR}/study/report/page/report.js" "kChartJs ${MILLRACE_CHART_JS}")
  string(REGEX MATCH "^([^ ]+) (.+)$" part "${part}")
  set(name ${CMAKE_MATCH_1})
  set(file ${CMAKE_MATCH_2})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} content)
  if(content MATCHES "</[sS][cC][rR][iI][pP][tT]|<!--")
    message(FATAL_ERROR "${file} cannot stand inside <script>: it holds an end tag or a comment")
  endif()
  string(APPEND text "const std::string_view ${name} = R\"page(${content})page\";\n\n")
endforeach()
string(APPEND text "}  // namespace millrace::study\n")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/study/report_page.cpp CONTENT "@text@" @ONLY)
