// Opens a report in a headless browser and returns what happened there.
#pragma once

#include <filesystem>
#include <string>

#include "tests/program/program.h"

namespace millrace::program_test {

/// Returns the browser's file; empty if there is none.
std::string find_browser();

#define MILLRACE_NEEDS_BROWSER() \
  if (find_browser().empty())    \
  GTEST_SKIP() << "no Chromium here: nothing is opened; install chromium-headless-shell"

/// Opens a copy of `page` from the disk, with an added script that inspects it. Returns {"errors":
/// [complaints of the console, scripts and the page's policy], "requests": number of requests,
/// "charts": [{"id", "coloured": pixels in the colours of its series, without bounds}], "rows":
/// lines of the tables of numbers, "planted": whether a name in the data ran as script}. Fails the
/// test and returns null if the browser ends without an answer.
Json look_at(const std::filesystem::path& page);

}  // namespace millrace::program_test
