// Reports on a run that goes on: what is appended is read once, and a page reads a bounded part.
#include <limits>

#include "millrace/error.h"
#include "study/report/report.h"
#include "study/report/reports.h"
#include "tests/study/report_files.h"

namespace millrace::report_test {
namespace {

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

void append(const Folder& run, const char* name, const std::string& text) {
  std::ofstream(run.path() / name, std::ios::binary | std::ios::app) << text;
}

std::string rows(int first, int last) {
  std::string text;
  for (int step = first; step <= last; ++step) text += step_row(step, "1.5");
  return text;
}

TEST(RunReader, AGrowingRunIsReportedAsIfReadAtOnce) {
  const Folder run;
  run.write("config.toml", "");
  study::RunReader reader(run.path());
  EXPECT_TRUE(notes_say(reader.report(kAll), "no steps.csv"));
  append(run, "steps.csv", steps_header().substr(0, 20));
  reader.report(kAll);
  append(run, "steps.csv", steps_header().substr(20) + rows(1, 500) + step_row(501).substr(0, 30));
  EXPECT_TRUE(notes_say(reader.report(kAll), "incomplete row"));
  append(run, "steps.csv", step_row(501).substr(30) + rows(502, 900));
  append(run, "steps.rank1.csv", steps_header() + rows(1, 900));
  append(run, "metrics.jsonl", "{\"epoch\":1,\"train_loss\":2}\n");
  const study::Report grown = reader.report(kAll);
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(study::to_html(grown), study::to_html(study::run_report(run.path())));
}

TEST(RunReader, APageReadsABoundedPart) {
  const Folder run;
  run.write("config.toml", "");
  run.write("steps.csv", steps_header() + rows(1, 100));
  run.write("steps.rank1.csv", steps_header() + rows(1, 100));
  study::RunReader reader(run.path());
  const auto steps = [](const study::Report& report) {
    for (const auto& [name, value] : report.facts)
      if (name == "steps") return value;
    return std::string();
  };
  EXPECT_EQ(steps(reader.report(60)), "60");
  EXPECT_FALSE(reader.at_end());
  EXPECT_EQ(steps(reader.report(60)), "100");
  EXPECT_FALSE(reader.at_end()) << "80 rows of rank 1 are left";
  reader.report(60);
  EXPECT_FALSE(reader.at_end());
  const study::Report whole = reader.report(60);
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(study::to_html(whole), study::to_html(study::run_report(run.path())));
}

TEST(RunReader, ATableThatIsCutIsReadAgainFromItsStart) {
  const auto expect_all = [](study::RunReader& reader, const Folder& run) {
    const study::Report now = reader.report(kAll);
    EXPECT_TRUE(reader.at_end());
    EXPECT_EQ(study::to_html(now), study::to_html(study::run_report(run.path())));
  };
  for (const char* table : {"steps.csv", "steps.rank1.csv"}) {
    const Folder run;
    run.write("config.toml", "");
    for (const char* name : {"steps.csv", "steps.rank1.csv"})
      run.write(name, steps_header() + rows(1, 60));
    const auto cut_to = [&](int last) {
      std::filesystem::resize_file(run.path() / table, (steps_header() + rows(1, last)).size());
    };
    study::RunReader reader(run.path());
    expect_all(reader, run);
    cut_to(20);
    expect_all(reader, run);
    append(run, table, rows(21, 30));
    expect_all(reader, run);
    // It is cut and has grown beyond where it was, with rows of other lengths, between two looks.
    cut_to(10);
    std::string others;
    for (int step = 11; step <= 90; ++step) others += step_row(step, "0.123456789");
    append(run, table, others);
    expect_all(reader, run);
  }
}

TEST(RunReader, ADamagedRowIsNamedByItsLine) {
  const Folder run;
  run.write("config.toml", "");
  run.write("steps.csv", steps_header() + rows(1, 2));
  study::RunReader reader(run.path());
  reader.report(kAll);
  append(run, "steps.csv", "no row\n");
  try {
    reader.report(kAll);
    ADD_FAILURE() << "accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("steps.csv:4 is damaged"), std::string::npos)
        << error.what();
  }
}

TEST(ReportHtml, OnlyAPageOfALiveRunLoadsItselfAgain) {
  const study::Report report{.title = "run"};
  const std::string live = study::to_html(report, 2.5);
  EXPECT_NE(live.find("<body data-reload=\"2.5\">"), std::string::npos);
  EXPECT_NE(live.find("<noscript><meta http-equiv=\"refresh\" content=\"3\"></noscript>"),
            std::string::npos);
  const std::string page = study::to_html(report);
  EXPECT_EQ(page.find("http-equiv=\"refresh\""), std::string::npos);
  EXPECT_NE(page.find("<body>"), std::string::npos);
}

}  // namespace
}  // namespace millrace::report_test
