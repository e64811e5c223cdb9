// Tests what a report says about ranks and replicas: time, images, waits, devices.
#include <algorithm>

#include "study/report/reports.h"
#include "tests/study/report_files.h"

namespace millrace::report_test {
namespace {

/// Returns whether a report states that fact.
bool states(const study::Report& report, const std::string& fact, const std::string& value) {
  return std::find(report.facts.begin(), report.facts.end(), std::pair(fact, value)) !=
         report.facts.end();
}

TEST(RankReport, RanksHaveATable) {
  const Folder run;
  run.write("steps.csv", steps_header() + step_row(1) + step_row(2));
  run.write("steps.rank1.csv", steps_header() + step_row(1) + "1,2");
  run.write("steps.rankX.csv", "no table\n");
  run.write(
      "summary.json",
      R"({"world_size":3,"straggler_rank":1,"straggler_on":"load","network_wait_s":0.5,)"
      R"("ranks":[{"rank":0,"host":"a","images":30},)"
      R"({"rank":1,"host":"b","images":10,"blamed_wait_s":0.25,"blamed_on":{"load":0.2,"update":0.05,"other":0},)"
      R"("gpu_utilization":0.875}]})");
  const study::Report report = study::run_report(run.path());
  const study::ReportTable* table = table_in(report, "ranks");
  ASSERT_NE(table, nullptr);
  ASSERT_EQ(table->rows.size(), 2u);
  const auto cell = [&](std::size_t row, const std::string& column) {
    const auto at = std::find(table->header.begin(), table->header.end(), column);
    return at == table->header.end()
               ? "no such column"
               : table->rows[row][static_cast<std::size_t>(at - table->header.begin())];
  };
  EXPECT_EQ(cell(0, "steps"), "2");
  EXPECT_EQ(cell(1, "host"), "b");
  EXPECT_EQ(cell(1, "steps"), "1");
  EXPECT_EQ(cell(1, "waited for, s"), "0.250");
  EXPECT_EQ(cell(1, "because of"), "load");
  EXPECT_EQ(cell(0, "because of"), "-");
  EXPECT_TRUE(states(report, "straggler", "rank 1 (load)"));
  EXPECT_TRUE(states(report, "waits for the network", "0.500 s per rank"));
  EXPECT_EQ(cell(0, "images"), "30");
  EXPECT_EQ(cell(0, "of all"), "75.0%");
  EXPECT_EQ(cell(1, "of all"), "25.0%");
  EXPECT_EQ(cell(0, "GPU utilisation"), "-");
  EXPECT_EQ(cell(1, "GPU utilisation"), "87.5%");
  EXPECT_TRUE(notes_say(report, "tables of 2 of 3 ranks"));
  EXPECT_TRUE(notes_say(report, "steps.rank1.csv ends in an incomplete row"));
  EXPECT_NE(figure_in(report, "rank-time"), nullptr);
}

TEST(RankReport, ASlowNetworkIsNoRanksFault) {
  const Folder run;
  run.write("steps.csv", steps_header() + step_row(1));
  run.write("steps.rank1.csv", steps_header() + step_row(1));
  run.write("summary.json", R"({"world_size":2,"straggler_rank":1,"straggler_on":"network",)"
                            R"("network_wait_s":2,"ranks":[{"rank":0},{"rank":1}]})");
  EXPECT_TRUE(states(study::run_report(run.path()), "straggler", "the network, no rank"));
  for (const auto& [wall, shown] :
       {std::pair("100", "the network, no rank"), std::pair("300", "none")}) {
    run.write("summary.json", std::string(R"({"world_size":2,"straggler_rank":1,"wall_s":)") +
                                  wall + R"(,"straggler_on":"network","network_wait_s":2,)" +
                                  R"("ranks":[{"rank":0},{"rank":1}]})");
    EXPECT_TRUE(states(study::run_report(run.path()), "straggler", shown)) << wall;
  }
}

TEST(RankReport, ReplicasHaveATable) {
  const Folder run;
  run.write("steps.csv", steps_header() + step_row(1));
  run.write("summary.json", R"({"replica_images":[300,100],"gpu_utilization":0.5})");
  const study::Report report = study::run_report(run.path());
  const study::ReportTable* table = table_in(report, "replicas");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->rows,
            (std::vector<std::vector<std::string>>{{"0", "300", "75.0%"}, {"1", "100", "25.0%"}}));
  EXPECT_EQ(table_in(report, "ranks"), nullptr);
  EXPECT_TRUE(states(report, "GPU utilisation", "50.0%"));
}

}  // namespace
}  // namespace millrace::report_test
