// A report opened in a browser without a window, and what became of it there.
#pragma once

#include <filesystem>
#include <string>

#include "tests/program/program.h"

namespace millrace::program_test {

/// The browser's file; empty where there is none.
std::string find_browser();

#define MILLRACE_NEEDS_BROWSER() \
  if (find_browser().empty())    \
  GTEST_SKIP() << "no Chromium here: nothing is opened; install chromium-headless-shell"

/// Opens a copy of `page` from the disk, with a script in it that looks at the page:
/// {"errors": [what the console, scripts and the page's policy complained of], "requests": how
/// many things it asked for, "charts": [{"id", "coloured": pixels in the colours of its
/// series, bounds aside}], "rows": lines of the tables of numbers, "planted": whether a name of the
/// data ran as script}. Fails the test and gives null where the browser ends without an answer.
Json look_at(const std::filesystem::path& page);

}  // namespace millrace::program_test
