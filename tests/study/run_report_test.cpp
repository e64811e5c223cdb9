// Reports on directories as runs and profiles leave them: complete, half written, damaged.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "millrace/error.h"
#include "study/records/run_files.h"
#include "study/report/figures.h"
#include "study/report/reports.h"
#include "tests/study/report_files.h"

namespace millrace::report_test {
namespace {

using Json = nlohmann::ordered_json;

study::StepSum step_of(std::uint64_t number) {
  study::StepSum step{.first = number, .last = number, .steps = 1, .images = 3};
  for (std::size_t i = 0; i < measure::kSpanCount; ++i)
    step.ns[i] = static_cast<std::int64_t>(number * 7919 % 10007 * (i + 1));
  if (number % 10 == 0) {
    step.loss_sum = 0.5;
    step.losses = 1;
  }
  return step;
}

TEST(StepReduction, AddsUpAndLeavesNothingOut) {
  for (const std::uint64_t count : {0ULL, 1ULL, 39ULL, 40ULL, 41ULL, 80ULL, 81ULL, 12345ULL}) {
    SCOPED_TRACE(count);
    study::StepReduction reduction(20);
    study::StepSum all;
    for (std::uint64_t i = 1; i <= count; ++i) {
      reduction.add(step_of(i));
      all.add(step_of(i));
    }
    EXPECT_LE(reduction.sums().size(), 40u);
    if (count > 40) {
      EXPECT_GE(reduction.sums().size(), 20u);
    } else {
      EXPECT_EQ(reduction.sums().size(), count) << "nothing to reduce";
    }
    study::StepSum sum;
    std::uint64_t next = 1;
    for (const study::StepSum& one : reduction.sums()) {
      EXPECT_EQ(one.first, next);
      EXPECT_EQ(one.last, one.first + one.steps - 1);
      if (&one != &reduction.sums().back()) {
        EXPECT_EQ(one.steps, reduction.width());
      }
      next = one.last + 1;
      sum.add(one);
    }
    EXPECT_EQ(next, count + 1);
    EXPECT_EQ(sum.ns, all.ns);
    EXPECT_EQ(sum.images, all.images);
    EXPECT_EQ(sum.losses, all.losses);
    EXPECT_EQ(sum.loss_sum, all.loss_sum);
  }
}

TEST(StepTable, ReadsWhatIsThere) {
  const Folder run;
  EXPECT_FALSE(study::read_steps(run.path() / "steps.csv").there);
  run.write("steps.csv", "");
  EXPECT_EQ(study::read_steps(run.path() / "steps.csv").all.steps, 0u);
  run.write("steps.csv", steps_header() + step_row(1) + step_row(2, "2.5") + step_row(3, "nan"));
  const study::StepTable steps = study::read_steps(run.path() / "steps.csv");
  EXPECT_FALSE(steps.cut);
  EXPECT_EQ(steps.all.steps, 3u);
  EXPECT_EQ(steps.all.images, 60);
  EXPECT_EQ(steps.all.losses, 1u);
  EXPECT_EQ(steps.all.load_ns(), 15'000'000) << "first_batch 2, load 3 ms, three times";
  EXPECT_EQ(steps.all.update_ns(), 3 * (4 + 5 + 6 + 7 + 8 + 9) * 1'000'000LL);
  EXPECT_EQ(steps.all.other_ns(), 3 * (1 + 10 + 11 + 12 + 13) * 1'000'000LL);
  EXPECT_NEAR(steps.load.at(0.5), 0.005, 0.005 * 0.02);
}

TEST(StepTable, ReadsTheSpansOfALoopInPython) {
  const Folder run;
  run.write("steps.csv",
            "epoch,step,load_s,update_s,other_s,images,loss,setup,first_batch,load,update,loop,"
            "evaluate,log,between,iter\n"
            "1,1,0.005,0.009,0.036,8,,0.006,0.005,0,0.004,0.005,0.007,0.008,0.015,0.002\n");
  const study::StepTable steps = study::read_steps(run.path() / "steps.csv");
  EXPECT_EQ(steps.all.load_ns(), 5'000'000) << "iter is a part of first_batch";
  EXPECT_EQ(steps.all.update_ns(), 9'000'000) << "update and loop";
  EXPECT_EQ(steps.all.other_ns(), 36'000'000) << "setup, evaluate, log, between";
}

TEST(StepTable, AHalfRowAtTheEndIsLeftOut) {
  const Folder run;
  run.write("steps.csv", steps_header() + step_row(1) + step_row(2).substr(0, 30));
  const study::StepTable steps = study::read_steps(run.path() / "steps.csv");
  EXPECT_TRUE(steps.cut);
  EXPECT_EQ(steps.all.steps, 1u);
}

TEST(StepTable, ADamagedRowIsNamed) {
  const Folder run;
  const auto refuses = [&](const std::string& text, const std::string& where) {
    run.write("steps.csv", text);
    try {
      study::read_steps(run.path() / "steps.csv");
      ADD_FAILURE() << "accepted: " << text;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("steps.csv:" + where + " is damaged"),
                std::string::npos)
          << error.what();
    }
  };
  refuses("x,y\n1,2\n", "1");
  refuses(steps_header() + step_row(1) + "1,2,3\n" + step_row(3), "3");
  refuses(steps_header() + fmt::format("1,one{}", step_row(1).substr(3)), "2");
  refuses(steps_header() + std::string(40, '\0') + "\n" + step_row(1), "2");
}

TEST(RunReport, OfADirectoryWithNothingInIt) {
  const Folder run;
  const study::Report report = study::run_report(run.path());
  EXPECT_TRUE(report.figures.empty());
  EXPECT_TRUE(notes_say(report, "still going, or was killed"));
  EXPECT_TRUE(notes_say(report, "no steps.csv"));
  EXPECT_TRUE(notes_say(report, "no epoch has ended"));
}

TEST(RunReport, OfARunThatGoesOn) {
  const Folder run;
  run.write("config.toml", "recipe = \"r\"\n[loader]\nworkers = 3\n");
  run.write("steps.csv", steps_header() + step_row(1) + step_row(2) + "1,3,0.0");
  run.write("metrics.jsonl",
            R"({"epoch":1,"steps":2,"images":40,"load_s":0.01,"update_s":0.08,"images_per_s":444,)"
            R"("spans":{"setup":0.001,"log":0.01},"blame":{"decode":0.01,"queue":0}})"
            "\n{\"epoch\":2,");
  const study::Report report = study::run_report(run.path());
  EXPECT_TRUE(notes_say(report, "still going, or was killed"));
  EXPECT_TRUE(notes_say(report, "steps.csv ends in an incomplete row"));
  EXPECT_TRUE(notes_say(report, "metrics.jsonl ends in an incomplete line"));
  for (const char* id : {"step-time", "step-spans", "epoch-time", "blame", "throughput"})
    EXPECT_NE(figure_in(report, id), nullptr) << id;
  const study::Figure& time = *figure_in(report, "step-time");
  ASSERT_EQ(time.series.size(), 3u);
  EXPECT_EQ(time.series[0].y, (std::vector<double>{3, 3})) << "load, without the first batch";
  EXPECT_EQ(time.series[1].y, (std::vector<double>{39, 39}));
  EXPECT_EQ(time.series[2].y, (std::vector<double>{12, 12})) << "log";
  EXPECT_EQ(figure_in(report, "blame")->series.size(), 1u) << "queue is nothing";
  EXPECT_EQ(figure_in(report, "blame")->kind, study::FigureKind::stacked_bar) << "one epoch";
  EXPECT_EQ(figure_in(report, "step-distribution"), nullptr) << "two steps";
  EXPECT_EQ(figure_in(report, "throughput")->x_label, "step") << "one epoch is no curve";
  EXPECT_EQ(figure_in(report, "accuracy"), nullptr);
  const auto fact = [&](const std::string& name, const std::string& value) {
    return std::find(report.facts.begin(), report.facts.end(), std::pair(name, value)) !=
           report.facts.end();
  };
  EXPECT_TRUE(fact("loader.workers", "3"));
  EXPECT_TRUE(fact("steps", "2"));
  EXPECT_TRUE(fact("images", "40"));
}

TEST(RunReport, ShowsTheSpansAndThePlacesOfALoopInPython) {
  const Folder run;
  run.write("steps.csv",
            "epoch,step,load_s,update_s,other_s,images,loss,load,update,loop,between\n"
            "1,1,0.005,0.009,0.015,8,,0.005,0.004,0.005,0.015\n");
  run.write("metrics.jsonl",
            R"({"epoch":1,"blame":{"collate":0.004,"unknown":0.001,"load_s":0.005}})"
            "\n");
  const study::Report report = study::run_report(run.path());
  std::vector<std::string> rows;
  for (const study::ReportTable& table : report.tables)
    if (table.id == "time")
      for (const auto& row : table.rows) rows.push_back(row[0]);
  EXPECT_EQ(rows, (std::vector<std::string>{"load", "- load", "update", "- update", "- loop",
                                            "other", "- between"}));
  const auto blame = std::find_if(report.figures.begin(), report.figures.end(),
                                  [](const study::Figure& one) { return one.id == "blame"; });
  ASSERT_NE(blame, report.figures.end());
  ASSERT_EQ(blame->series.size(), 2u) << "the sum is no part";
  EXPECT_EQ(blame->series[0].name, "collate");
  EXPECT_EQ(blame->series[1].name, "unknown");
}

TEST(RunReport, ShowsTheWaitBreakdownOverTime) {
  const Folder run;
  run.write("metrics.jsonl", R"({"epoch":1,"steps":10,"blame":{"storage":0.5,"decode":0.1}})"
                             "\n"
                             R"({"epoch":2,"steps":20,"blame":{"storage":0,"decode":0.2}})"
                             "\n");
  std::string rows;
  for (int step = 1; step <= 30; ++step) rows += step_row(step);
  run.write("steps.csv", steps_header() + rows);
  const study::Report report = study::run_report(run.path());
  const study::Figure* figure = figure_in(report, "blame");
  ASSERT_NE(figure, nullptr);
  EXPECT_EQ(figure->kind, study::FigureKind::stacked_area);
  ASSERT_EQ(figure->series.size(), 2u);
  EXPECT_EQ(figure->series[0].name, "storage");
  EXPECT_EQ(figure->series[0].y, (std::vector<double>{50, 0})) << "ms per step";
  EXPECT_EQ(figure->series[1].y, (std::vector<double>{10, 10}));
  const study::Figure* steps = figure_in(report, "step-distribution");
  ASSERT_NE(steps, nullptr);
  ASSERT_EQ(steps->series.size(), 3u);
  EXPECT_EQ(steps->series[2].name, study::kWholeStep);
}

TEST(RunReport, SaysHowTheRunEnded) {
  const Folder run;
  run.write("summary.json", R"({"wall_s":1,"error":"the disk is full"})");
  EXPECT_TRUE(notes_say(study::run_report(run.path()), "failed: the disk is full"));
  run.write("summary.json", R"({"wall_s":1,"interrupted":true,"steps":12})");
  EXPECT_TRUE(notes_say(study::run_report(run.path()), "interrupted after step 12"));
  run.write("summary.json", R"({"wall_s":1,"complete":false,"steps":12})");
  EXPECT_TRUE(notes_say(study::run_report(run.path()), "cut off; the figures cover 12 steps"));
  run.write("summary.json", R"({"wall_s":1,"complete":true,"steps":12})");
  EXPECT_FALSE(notes_say(study::run_report(run.path()), "cut off"));
  run.write("summary.json", R"({"wall_s":1,"resumed_from_step":5,"failed":2,"params":0})");
  const study::Report report = study::run_report(run.path());
  EXPECT_TRUE(notes_say(report, "resumed"));
  EXPECT_TRUE(notes_say(report, "quarantine.jsonl"));
  EXPECT_TRUE(notes_say(report, "no model"));
}

TEST(RunReport, SaysWhichStepsAnEarlierSummaryCounts) {
  Folder run;
  std::string rows = steps_header();
  for (int step = 1; step <= 30; ++step) rows += step_row(step);
  run.write("steps.csv", rows);
  const auto notes = [&] {
    std::string all;
    for (const std::string& note : study::run_report(run.path()).notes) all += note + "; ";
    return all;
  };
  run.write("summary.json", R"({"version": "0.3", "complete": false, "steps": 20})");
  EXPECT_NE(notes().find("of the first 20 steps, figures and tables of 30"), std::string::npos)
      << notes();
  run.write("summary.json", R"({"version": "0.3", "complete": false, "steps": 30})");
  EXPECT_EQ(notes().find("of the first"), std::string::npos) << notes();
  run.write("summary.json", R"({"version": "0.3", "complete": true, "steps": 20})");
  EXPECT_EQ(notes().find("of the first"), std::string::npos) << notes();
}

TEST(RunReport, ShowsTheMemoryOfAWatchedLoop) {
  Folder run;
  std::string rows =
      "time_s,epoch,step,workers,trainer_bytes,workers_bytes,free_memory_bytes,"
      "free_shared_memory_bytes\n";
  EXPECT_EQ(figure_in(study::run_report(run.path()), "memory"), nullptr) << "there is no table";
  run.write("memory.csv", rows);
  EXPECT_EQ(figure_in(study::run_report(run.path()), "memory"), nullptr) << "there is no sample";
  rows += "1.0,1,10,2,1048576,3145728,7340032,5242880\n2.5,1,20,2,2097152,0,6291456,9437184\n";
  run.write("memory.csv", rows + "3.0,1,30");  // still being written
  const study::Report report = study::run_report(run.path());
  const study::Figure* const figure = figure_in(report, "memory");
  ASSERT_NE(figure, nullptr);
  ASSERT_EQ(figure->series.size(), 2u);
  EXPECT_EQ(figure->series[0].name, "trainer");
  EXPECT_EQ(figure->series[0].x, (std::vector<double>{1.0, 2.5}));
  EXPECT_EQ(figure->series[0].y, (std::vector<double>{1, 2}));
  EXPECT_EQ(figure->series[1].y, (std::vector<double>{3, 0}));
  EXPECT_NE(figure->caption.find("6 MiB of memory were free, and 5 MiB of shared"),
            std::string::npos);

  for (int i = 0; i < 3000; ++i)  // of many samples the peaks are left
    rows += fmt::format("{},1,{},2,{},1048576,7340032,5242880\n", 3 + i, 30 + i,
                        i == 1500 ? 104857600 : 1048576);
  run.write("memory.csv", rows);
  const study::Report longer = study::run_report(run.path());
  const std::vector<double>& sizes = figure_in(longer, "memory")->series[0].y;
  EXPECT_LE(sizes.size(), 400u);
  EXPECT_EQ(*std::max_element(sizes.begin(), sizes.end()), 100);

  for (const std::string bad : {"4,1,30,2,x,1,1,1\n", "4,1,30,2,1,1,1\n", "4,1,30,2,nan,1,1,1\n"}) {
    run.write("memory.csv", rows + bad);
    try {
      (void)study::run_report(run.path());
      ADD_FAILURE() << bad;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("memory.csv:3004 is damaged"), std::string::npos)
          << error.what();
    }
  }
  run.write("memory.csv", "time_s,workers\n1,2\n");
  EXPECT_THROW((void)study::run_report(run.path()), DataError);
}

TEST(RunReport, DamagedFilesAreErrors) {
  for (const char* name : {"summary.json", "metrics.jsonl", "steps.csv"}) {
    const Folder run;
    run.write(name, "half of {\nsomething\n");
    EXPECT_THROW(study::run_report(run.path()), DataError) << name;
  }
  // Valid JSON of an unexpected shape is shown as far as possible.
  const Folder odd;
  odd.write("summary.json", R"({"wall_s":"x","spans":3,"blame":[1],"blame_step":7,"ranks":{},)"
                            R"("per_class":[1],"confusion":[[1,2],[3]],"dataset":null})");
  odd.write("metrics.jsonl", "{\"epoch\":\"one\",\"spans\":[],\"top1\":{}}\n");
  EXPECT_NO_THROW(study::run_report(odd.path()));
}

TEST(ModelReport, TrainingAccuracyStandsBesideTheTestSets) {
  study::JsonLines epochs;
  epochs.push_back(Json::parse(R"({"epoch":1,"train_top1":0.5})"));
  epochs.push_back(Json::parse(R"({"epoch":2,"train_top1":0.75,"top1":0.625,"top5":1.0})"));
  study::Report report;
  study::add_model("run", {}, epochs, study::StepTable(), report);
  const study::Figure* figure = figure_in(report, "accuracy");
  ASSERT_NE(figure, nullptr);
  ASSERT_EQ(figure->series.size(), 3u);
  EXPECT_EQ(figure->series[0].name, "train top-1");
  EXPECT_EQ(figure->series[0].y, (std::vector<double>{50, 75}));
  EXPECT_EQ(figure->series[1].name, "test top-1");
  EXPECT_EQ(figure->series[1].x, std::vector<double>{2}) << "evaluated once";
  EXPECT_EQ(figure->series[2].y, std::vector<double>{100});
}

study::Report model_report(const Json& summary) {
  study::Report report;
  study::add_model("run", study::summary_from(summary), {}, study::StepTable(), report);
  return report;
}

TEST(ModelReport, ClassesAndConfusions) {
  const study::Report report = model_report(Json::parse(
      R"({"per_class":{"ape":0.5,"bee":1.0,"cat":null},"confusion":[[2,1,1],[0,4,0],[0,0,0]]})"));
  const study::Figure* classes = figure_in(report, "class-accuracy");
  ASSERT_NE(classes, nullptr);
  EXPECT_EQ(classes->categories, (std::vector<std::string>{"ape", "bee"}));
  EXPECT_EQ(classes->series[0].y, (std::vector<double>{50, 100}));
  const study::Figure* matrix = figure_in(report, "confusion");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->series[0].y, (std::vector<double>{2, 1, 1}));
  EXPECT_EQ(matrix->series[2].name, "cat");
  const study::ReportTable* mistakes = table_in(report, "mistakes");
  ASSERT_NE(mistakes, nullptr);
  EXPECT_EQ(mistakes->rows[0], (std::vector<std::string>{"ape", "bee", "1", "25.0%"}));
  Json many;
  for (int i = 0; i < 200; ++i) many["per_class"][fmt::format("c{}", i)] = 0.005 * i;
  const study::Report lowest = model_report(many);
  classes = figure_in(lowest, "class-accuracy");
  ASSERT_NE(classes, nullptr);
  EXPECT_EQ(classes->categories.size(), 60u);
  EXPECT_EQ(classes->categories[0], "c0");
  EXPECT_NE(classes->caption.find("lowest of 200"), std::string::npos);
  EXPECT_TRUE(notes_say(lowest, "no confusion matrix was recorded"));
}

TEST(GroupsOf, HoldEachOnce) {
  for (const std::size_t count : {0, 1, 48, 49, 200, 1001}) {
    std::size_t next = 0;
    for (const study::Group& group : study::groups_of(count, 48)) {
      EXPECT_EQ(group.begin, next);
      EXPECT_GT(group.end, group.begin);
      next = group.end;
    }
    EXPECT_EQ(next, count);
    EXPECT_LE(study::groups_of(count, 48).size(), 48u);
  }
}

const char* const kWhatIf =
    R"("what_if":[{"change":["loader.workers=1"],"predicted":50,"measured":40,"error":0.25,)"
    R"("baseline":100,"predicted_ratio":0.5,"measured_ratio":0.4,"runs_here":true},)"
    R"({"change":["loader.workers=4","cores=4"],"predicted":190,"measured":null,"error":null,)"
    R"("predicted_low":1.8,"predicted_high":2,)"
    R"("baseline":100,"predicted_ratio":1.9,"measured_ratio":null,"runs_here":false}])";

TEST(ProfileReport, PredictionsMeasurementsAndBounds) {
  const Folder run;
  run.write("predictions.json",
            std::string("{\"recipe\":\"r\",\"verdict\":\"v\",") + kWhatIf + "}");
  const study::Report predicted = study::profile_report(run.path());
  EXPECT_TRUE(notes_say(predicted, "no summary.json"));
  EXPECT_EQ(predicted.verdict, "v");
  ASSERT_NE(table_in(predicted, "what-if-table"), nullptr);

  run.write("summary.json",
            std::string(R"({"recipe":"r","verdict":"w","workers":2,"blame":{"decode":1,"queue":0},)"
                        R"("ceilings":{"device":300,"decode":120,"cores":200},)") +
                kWhatIf + "}");
  const study::Report report = study::profile_report(run.path());
  EXPECT_EQ(report.verdict, "w");
  const auto& rows = table_in(report, "what-if-table")->rows;
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0], (std::vector<std::string>{"loader.workers=4 cores=4", "190", "1.900",
                                               "1.800 to 2.000", "not run here", "", ""}));
  EXPECT_EQ(rows[1], (std::vector<std::string>{"loader.workers=1", "50", "0.500", "", "40", "0.400",
                                               "+25.0%"}));
  const study::Figure* workers = figure_in(report, "workers");
  ASSERT_NE(workers, nullptr);
  ASSERT_EQ(workers->series.size(), 4u) << "predicted, measured, device, cores";
  EXPECT_EQ(workers->series[0].x, (std::vector<double>{1, 2})) << "not with more cores";
  EXPECT_EQ(workers->series[0].y, (std::vector<double>{50, 100}));
  EXPECT_EQ(workers->series[1].y, (std::vector<double>{40, 100}));
  EXPECT_TRUE(workers->series[2].bound && workers->series[3].bound);
  EXPECT_EQ(workers->series[2].y, (std::vector<double>{300, 300}));
  EXPECT_EQ(figure_in(report, "ceilings")->categories.size(), 3u);
  EXPECT_EQ(figure_in(report, "workers-time"), nullptr) << "no batch, no time per step";
}

TEST(ProfileReport, FactsSayTheRateOfTheTables) {
  const Folder run;
  run.write("summary.json",
            R"({"recipe":"r","images_per_s":490,"baseline_images_per_s":503.1,)"
            R"("what_if":[{"change":["loader.workers=4"],"predicted":1006.2,"baseline":503.1,)"
            R"("predicted_ratio":2}]})");
  const study::Report report = study::profile_report(run.path());
  std::string rates;
  for (const auto& [name, value] : report.facts)
    if (name.find("images/s") != std::string::npos) rates += name + " " + value + ";";
  EXPECT_EQ(rates, "baseline, images/s 503;") << "not the first run's 490";
  for (const study::Series& series : figure_in(report, "what-if")->series)
    if (series.bound) {
      EXPECT_EQ(series.y[0], 503.1);
    }
}

TEST(ProfileReport, ShowsMeasurementsOnlyIfThereAreAny) {
  const Folder run;
  run.write("summary.json",
            R"({"recipe":"r","workers":2,"what_if":[{"change":["loader.workers=4"],)"
            R"("predicted":190,"baseline":100,"predicted_ratio":1.9}]})");
  const study::Report report = study::profile_report(run.path());
  const study::ReportTable* table = table_in(report, "what-if-table");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->title, "Predictions");
  EXPECT_EQ(table->header.back(), "90%");
  EXPECT_EQ(table->rows[0].size(), table->header.size());
  EXPECT_EQ(figure_in(report, "what-if")->caption.find("measured"), std::string::npos);
  EXPECT_EQ(figure_in(report, "workers")->caption, "") << "no ceilings, no dashed lines";
}

TEST(ProfileReport, MarksTheCeilingThatLimits) {
  const Folder run;
  run.write("summary.json",
            R"({"recipe":"r","ceilings":{"device":91000,"cores":510,"storage":25000}})");
  const study::Report report = study::profile_report(run.path());
  const study::Figure* ceilings = figure_in(report, "ceilings");
  ASSERT_NE(ceilings, nullptr);
  EXPECT_TRUE(ceilings->logarithmic);
  EXPECT_EQ(ceilings->marked, "cores");
}

TEST(ProfileReport, SaysThatAVerificationIsVoidAndWhatToChange) {
  const Folder run;
  run.write(
      "summary.json",
      std::string(
          R"({"recipe":"r","workers":2,"others_busy":0.4,)"
          R"("advice":{"workers":1,"prefetch":2,"images_per_s":90,)"
          R"("best_images_per_s":90,"change":["loader.io_threads=16"],)"
          R"("change_ratio":1.5,"text":"advice: loader.io_threads=16 gives 9",)"
          R"("workers_text":"enough workers: loader.workers=1 gives 90"},"verification":{"counted":null,"void":true,)"
          R"("most_others":0.1,"void_runs":2,"runs":[{},{},{}]},)") +
          kWhatIf + "}");
  const study::Report report = study::profile_report(run.path());
  EXPECT_TRUE(notes_say(report, "more than 10% of the machine in 2 of 3 runs"));
  const auto fact = [&report](const std::string& name) {
    for (const auto& [key, value] : report.facts)
      if (key == name) return value;
    return std::string();
  };
  EXPECT_EQ(fact("advice"), "loader.io_threads=16 gives 9") << "as the profile said it";
  EXPECT_TRUE(fact("enough workers").starts_with("loader.workers=1"));
  EXPECT_EQ(fact("verified"), "");
}

TEST(ProfileReport, SaysHowManyRatiosTheIntervalsHeld) {
  const Folder run;
  run.write("summary.json",
            R"({"recipe":"r","verification":{"counted":3,"median_error":0.012,"worst_error":0.044,)"
            R"("skill":0.99,"with_interval":10,"held":9,"void":false,"accept_noise":true,)"
            R"("most_others":0.1,"void_runs":2,"runs":[{},{},{}]},"what_if":[)"
            R"({"change":["loader.workers=1"],"predicted":50,"measured":null,"baseline":100,)"
            R"("disturbed_ratio":0.4,"predicted_ratio":0.5,"runs_here":true}]})");
  const study::Report report = study::profile_report(run.path());
  const auto has = [&](const char* name, const char* value) {
    return std::find(report.facts.begin(), report.facts.end(),
                     std::pair<std::string, std::string>(name, value)) != report.facts.end();
  };
  EXPECT_TRUE(has("verified", "changes that count: 3; median error 1.2%, worst 4.4%, skill 0.99"));
  EXPECT_TRUE(has("within the 90% interval", "9 of 10 measured ratios"));
  EXPECT_TRUE(notes_say(report, "used disturbed runs (--accept-noise): other programs took more"));
  EXPECT_EQ(
      table_in(report, "what-if-table")->rows[0],
      (std::vector<std::string>{"loader.workers=1", "50", "0.500", "", "void: 40", "0.400", ""}));
}

TEST(ProfileReport, WorkersHaveThePredictedCurve) {
  const Folder run;
  run.write("summary.json",
            std::string(R"({"recipe":"r","workers":2,"batch":10,)") + kWhatIf + "}");
  run.write("config.toml", "[loader]\nworkers = 2\nbatch = 10\n");
  const auto child = [&](const std::string& name, int workers, int batch, double load) {
    run.write(
        "runs/" + name + "/config.toml",
        fmt::format("[loader]\nworkers = {}\nbatch = {}\n[train]\nsteps = 9\n", workers, batch));
    run.write(
        "runs/" + name + "/summary.json",
        Json{{"workers", workers}, {"load_s_per_step", load}, {"update_s_per_step", 0.05}}.dump());
  };
  child("001-device", 2, 10, 9);
  child("002-baseline", 2, 10, 0.04);
  child("003-baseline", 2, 10, 0.06);
  child("004-loader.workers=1", 1, 10, 0.2);
  child("005-loader.batch=20", 2, 20, 9);
  const study::Report report = study::profile_report(run.path());
  const study::Figure* figure = figure_in(report, "workers-time");
  ASSERT_NE(figure, nullptr);
  EXPECT_EQ(figure->categories, (std::vector<std::string>{"1", "2"}));
  ASSERT_EQ(figure->series.size(), 3u);
  EXPECT_NEAR(figure->series[0].y[0], 200, 1e-9) << "load of one worker";
  EXPECT_NEAR(figure->series[0].y[1], 50, 1e-9) << "mean of the baselines, without other changes";
  EXPECT_NEAR(figure->series[1].y[1], 50, 1e-9);
  EXPECT_TRUE(figure->series[2].line);
  EXPECT_NEAR(figure->series[2].y[0], 200, 1e-9) << "10 images at 50 images/s";
  EXPECT_NEAR(figure->series[2].y[1], 100, 1e-9);
}

}  // namespace
}  // namespace millrace::report_test
