// Tests each defect by its line from `plugins check`: the checking process survives.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/plugins/support.h"
#include "tools/plugins/plugins.h"

namespace millrace::plugins {
namespace {

using plugin_test::test_plugin;

/// "CHECK: DETAIL" of the first check that fails, and the number of failures.
struct Finding {
  std::string first;
  std::size_t failed = 0;
  std::size_t lines = 0;
};

Finding check(const std::string& defect) {
  tools::CheckOptions options;
  options.file = test_plugin("defect_" + defect);
  options.timeout_s = defect.starts_with("hang") ? 0.5 : 20;
  Finding finding;
  for (const probe::CheckLine& line : tools::check_plugin(options).lines) {
    ++finding.lines;
    if (line.state != probe::CheckLine::State::failed) continue;
    if (finding.failed++ == 0) finding.first = line.check + ": " + line.detail;
  }
  return finding;
}

struct Defect {
  const char* name;
  const char* first;  ///< start of its first failed line
  const char* also;   ///< another part of that line

  friend void PrintTo(const Defect& defect, std::ostream* out) { *out << defect.name; }
};

class Defects : public testing::TestWithParam<Defect> {};

TEST_P(Defects, IsReportedByName) {
  const Finding finding = check(GetParam().name);
  EXPECT_TRUE(finding.first.starts_with(GetParam().first)) << finding.first;
  EXPECT_NE(finding.first.find(GetParam().also), std::string::npos) << finding.first;
  EXPECT_GE(finding.failed, 1u);
}

INSTANTIATE_TEST_SUITE_P(
    All, Defects,
    testing::Values(
        Defect{"no_symbol", "load: ", "exports no symbol millrace_plugin"},
        Defect{"wrong_magic", "load: ", "wrong magic 0000000000001234"},
        Defect{"newer_major", "load: ", "built for plugin interface 2.3, this millrace has 1.3"},
        Defect{"newer_minor", "load: ", "built for plugin interface 1.4, this millrace has 1.3"},
        Defect{"short_struct", "load: ", "unit 'defect': pixel struct of 16 bytes"},
        Defect{"null_function", "load: ", "pixel 'defect' has no function apply or levels"},
        Defect{"bad_default", "load: ", "unit 'defect': parameter 'p', default 2"},
        Defect{"duplicate_id", "load: ", "a plugin with the id 'augmentations' is already loaded"},
        Defect{"duplicate_unit", "load: ", "a unit 'hflip' is already loaded"},
        Defect{"undefined_symbol", "load: ", "undefined symbol: function_that_is_nowhere"},
        Defect{"crash_at_load", "load: ", "it crashes: SIGABRT"},
        Defect{"hang_at_load", "load: ", "it hangs: no result after 0.5 s"},
        Defect{"create_throws", "parameters: ", "create() threw an exception"},
        Defect{"refuses_defaults", "parameters: create() rejects", "p is never right"},
        Defect{"leak", "leaks: ", "create and destroy loses"},
        Defect{"call_order", "same result: ", "the same call gives two results"},
        Defect{"thread", "threads: ", "the result depends on the thread"},
        Defect{"old_scratch", "same result: ", "what it held before"},
        Defect{"throws", "images: it throws an exception", "the sky is falling"},
        Defect{"throws_a_number", "images: it throws an exception", "1x1 gray"},
        Defect{"crash", "images: ", "it crashes: SIGSEGV"},
        Defect{"recurses", "images: ", "it crashes: SIGSEGV"},
        Defect{"hang", "images: ", "it hangs: no result after 0.5 s"},
        Defect{"exit", "images: ", "it ends the process with exit code 0"},
        Defect{"rounding", "images: ", "it leaves the rounding mode changed"},
        Defect{"locale", "images: ", "it leaves the locale changed"},
        Defect{"status", "images: ", "status 17, which the interface doesn't have"},
        Defect{"silent", "images: ", "gives no reason"},
        Defect{"error_overrun", "images: ", "its error text has no end"},
        Defect{"writes_past_row", "images: ", "writes past a row of the image: 1 bytes behind"},
        Defect{"writes_past_image", "images: ", "writes past the image: 1 bytes behind its end"},
        Defect{"writes_before_image", "images: ", "writes 1 bytes before the image"},
        Defect{"writes_past_scratch", "images: ", "writes past the scratch"},
        Defect{"reads_a_neighbour", "reach: it declares pointwise, but pixel (17, 14)",
               "depends on pixel (16, 14), which is 1 away"},
        Defect{"small_halo", "reach: it declares a halo of 1 pixel, but pixel (18, 14)",
               "depends on pixel (16, 14), which is 2 away"}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(DefectsOfOneCall, OtherChecksGoOnInAnotherProcess) {
  const std::size_t all = check("none").lines;
  EXPECT_EQ(check("none").failed, 0u) << check("none").first;
  const Finding crash = check("crash");
  EXPECT_EQ(crash.lines, all) << "not every check was made";
  EXPECT_GE(crash.failed, 3u);
}

}  // namespace
}  // namespace millrace::plugins
