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

struct Display {
  int width = 1200;
  bool dark = false;
};

/// Opens a copy of `page` from the disk, with an added script that inspects it. Returns
///   "errors": complaints of the console, scripts and the page's policy; "requests": their number;
///   "planted": whether a name in the data ran as script;
///   "charts": [{"id", "coloured": pixels in the colours of its series, without bounds, "labels"
///   and
///     "types" of its series, "width", "inside": whether it ends within the window, "bad": labels
///     that are cut, turned, squeezed or overlapped, "shown": labels of its axes, lines separated
///     by |}];
///   "pictures": [{"loaded", "inside"}];
///   "rows": lines of the tables of numbers; "titles": of figures and tables;
///   "broken": words of headings that are broken over lines; "width" of the page and its "overflow"
///     in pixels; "paper": the colour of the background;
///   "runs": null, or of a table of runs: "rows", "found" by searching the first one, "again" after
///     that, "tables": their number, "stuck": headings of columns that stay in view where the first
///     table is "scrolled" by so many pixels, "inView": how many of them are then seen, and the
///     labels of the charts' series "before" and "after" the first run was left out.
/// Fails the test and returns null if the browser ends without an answer.
Json look_at(const std::filesystem::path& page, const Display& display = {});

}  // namespace millrace::program_test
