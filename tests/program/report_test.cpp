// millrace report: on the records of real runs, finished, killed and damaged; and the page in a
// browser.
#include <csignal>

#include "tests/program/browser.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class ReportCommand : public ProgramTest {
 protected:
  Result report(const std::string& name, const Arguments& more = {}) {
    return run(Arguments{"report", in(name).string()} + more);
  }
  Json report_json(const std::string& name) {
    const Result result = report(name, {"--json"});
    EXPECT_TRUE(succeeded(result));
    return parse_json(result.out);
  }
  static const Json* part(const Json& json, const char* kind, const std::string& id) {
    for (const Json& one : json[kind])
      if (one["id"] == id) return &one;
    return nullptr;
  }
  static bool notes_say(const Json& json, const std::string& text) {
    for (const Json& note : json["notes"])
      if (note.get<std::string>().find(text) != std::string::npos) return true;
    return false;
  }
  /// Expects that every chart is drawn, without errors and requests.
  static void expect_sound(const Json& seen, std::size_t charts) {
    ASSERT_TRUE(seen.is_object());
    EXPECT_EQ(seen["errors"], Json::array());
    EXPECT_EQ(seen["requests"], 0);
    EXPECT_FALSE(seen["planted"]);
    EXPECT_EQ(seen["charts"].size(), charts);
    for (const Json& chart : seen["charts"])
      EXPECT_GE(chart["coloured"], 25) << chart["id"] << " is empty";
    EXPECT_GT(seen["rows"], charts) << "the numbers below the charts";
  }
};

TEST_F(ReportCommand, WritesAPageIntoTheRun) {
  ASSERT_TRUE(succeeded(run(simulated("run", {"train.epochs=2", "seed=7"}))));
  const Result result = report("run");
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("report.html: "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("1 pictures"), std::string::npos) << result.out << result.err;
  const std::string html = read_file(in("run/report.html"));
  EXPECT_TRUE(html.ends_with("</html>\n"));
  EXPECT_NE(html.find("data:image/png;base64,iVBORw0KGgo"), std::string::npos);
  EXPECT_EQ(read_file(in("run/report.html")), (report("run"), read_file(in("run/report.html"))))
      << "the same run, the same page";
  ASSERT_TRUE(succeeded(report("run", {"--html", in("other/page.html").string()})));
  EXPECT_EQ(read_file(in("other/page.html")), html);
}

TEST_F(ReportCommand, SaysTheSameInEveryForm) {
  ASSERT_TRUE(succeeded(run(simulated("run", {"train.epochs=2", "seed=7", "loader.workers=1"}))));
  const Json json = report_json("run");
  EXPECT_FALSE(fs::exists(in("run/report.html"))) << "--json alone writes nothing";
  for (const char* id : {"step-time", "epoch-time", "throughput"})
    EXPECT_NE(part(json, "figures", id), nullptr) << id;
  EXPECT_TRUE(notes_say(json, "no model"));
  EXPECT_EQ(json["command"], "report");
  const Json s = summary("run");
  EXPECT_EQ(json["verdict"], s["verdict"]);
  // Grouped or not, the figure adds up to the run's update time.
  double update = 0;
  for (const Json& series : (*part(json, "figures", "step-time"))["series"])
    if (series["name"] == "update")
      for (const Json& y : series["y"]) update += 1e-3 * y.get<double>();
  EXPECT_NEAR(update, s["update_s"].get<double>(), 1e-6);
  const Json* config = part(json, "tables", "configuration");
  ASSERT_NE(config, nullptr);
  bool seed = false;
  for (const Json& row : (*config)["rows"]) seed |= row == Json({"seed", "0", "7"});
  EXPECT_TRUE(seed) << config->dump(1);

  const Result markdown = report("run", {"--md"});
  ASSERT_TRUE(succeeded(markdown));
  EXPECT_TRUE(markdown.out.starts_with("# run: mnist-lenet\n"));
  EXPECT_NE(markdown.out.find("| seed | 0 | 7 |"), std::string::npos) << markdown.out;

  ASSERT_TRUE(succeeded(report("run", {"--csv"})));
  for (const char* kind : {"figures", "tables"})
    for (const Json& one : json[kind])
      EXPECT_TRUE(fs::exists(in("run/report") / (one["id"].get<std::string>() + ".csv")));
  const auto rows = lines_of(read_file(in("run/report/throughput.csv")));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0], "epoch,images/s");
}

TEST_F(ReportCommand, OfARunThatWasKilled) {
  Child child(simulated("run", {"train.epochs=1000", "simulated.update_ms=2"}));
  ASSERT_TRUE(child.says("epoch 3/1000"));
  child.send(SIGKILL);
  EXPECT_EQ(child.wait().signal, SIGKILL);
  ASSERT_TRUE(succeeded(report("run")));
  const Json json = report_json("run");
  EXPECT_TRUE(notes_say(json, "still going, or was killed"));
  EXPECT_NE(part(json, "figures", "epoch-time"), nullptr);
  EXPECT_EQ(json["verdict"], "");
  EXPECT_TRUE(fs::exists(in("run/report.html")));
}

TEST_F(ReportCommand, RefusesWhatIsNoRun) {
  ASSERT_TRUE(succeeded(run(simulated("runs/first"))));
  EXPECT_TRUE(refused(report("nowhere"), 2, {"nowhere does not exist", "directory"}));
  EXPECT_TRUE(refused(report("runs"), 2, {"is not a run", "runs/first"}));
  EXPECT_TRUE(refused(report("runs/first/summary.json"), 2, {"not a directory", "runs/first"}));
  EXPECT_TRUE(refused(run({"report"}), 2, {"path is required"}));
  EXPECT_TRUE(refused(report("runs/first", {"--md", "--json"}), 2, {"stdout"}));
  EXPECT_TRUE(refused(report("runs/first", {"--html", "/proc/none/page.html"}), 1, {"/proc/none"}));
}

TEST_F(ReportCommand, DamagedRecordsAreNamed) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  for (const char* name : {"summary.json", "metrics.jsonl", "steps.csv", "config.toml"}) {
    const std::string whole = read_file(in("run") / name);
    write_file(in("run") / name, "[half of\n" + whole);
    EXPECT_TRUE(refused(report("run"), 3, {name, "damaged"})) << name;
    write_file(in("run") / name, whole);
  }
  EXPECT_FALSE(fs::exists(in("run/report.html")));
  EXPECT_TRUE(succeeded(report("run")));
}

TEST_F(ReportCommand, WithoutTheDataSetThereAreNoPictures) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  fs::rename(in("data"), in("gone"));
  const Json json = report_json("run");
  EXPECT_EQ(json["images"], Json::array());
  EXPECT_TRUE(notes_say(json, "no images of samples: "));
}

TEST_F(ReportCommand, ShowsASweepsTable) {
  const Result swept = run({"sweep", "mnist-lenet", "data.path=" + data(), "train.device=simulated",
                            "simulated.update_ms=0.5", "train.epochs=1", "loader.batch=20",
                            "loader.workers=0,1", "--repeats", "2", "--run", in("sweep").string()});
  ASSERT_TRUE(succeeded(swept));
  const Json json = report_json("sweep");
  const Json* table = part(json, "tables", "table");
  ASSERT_NE(table, nullptr);
  ASSERT_EQ((*table)["rows"].size(), 2u);
  for (const Json& row : (*table)["rows"])
    for (const Json& cell : row)
      EXPECT_NE(swept.out.find(cell.get<std::string>()), std::string::npos) << cell;
  EXPECT_NE(part(json, "figures", "workers"), nullptr);
  EXPECT_EQ((*part(json, "tables", "rows"))["rows"][1][1], "loader.workers = 1 (not 0)");

  fs::remove(in("sweep/sweep.json"));
  EXPECT_TRUE(notes_say(report_json("sweep"), "4 of 4 runs"));

  MILLRACE_NEEDS_BROWSER();
  ASSERT_TRUE(succeeded(report("sweep")));
  expect_sound(look_at(in("sweep/report.html")), json["figures"].size());
}

TEST_F(ReportCommand, ComparesRuns) {
  for (const char* seed : {"1", "2"})
    ASSERT_TRUE(succeeded(run(simulated(seed, {"train.epochs=2", std::string("seed=") + seed}))));
  const Result result = run({"report", in("1").string(), in("2").string(), "--md"});
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("# 1 and 2\n"), std::string::npos);
  EXPECT_NE(result.out.find("| seed | 1 | 2 |"), std::string::npos) << result.out;
}

TEST_F(ReportCommand, ThePageIsSoundInABrowser) {
  MILLRACE_NEEDS_BROWSER();
  ASSERT_TRUE(succeeded(run(simulated("run", {"train.epochs=2"}))));
  // Results as a model would leave them, with class names that would do harm.
  Json s = summary("run");
  s["per_class"] = {{"</script><script>window.planted=1</script>", 0.5},
                    {"\"><img src=x onerror=window.planted=1>", 0.75},
                    {"<!--<script>", 1.0}};
  s["confusion"] = {{1, 1, 0}, {1, 3, 0}, {0, 0, 4}};
  write_file(in("run/summary.json"), s.dump());
  const Json json = report_json("run");
  EXPECT_NE(part(json, "figures", "class-accuracy"), nullptr);
  EXPECT_NE(part(json, "figures", "confusion"), nullptr);
  ASSERT_TRUE(succeeded(report("run")));
  expect_sound(look_at(in("run/report.html")), json["figures"].size() - 1);
}

TEST_F(ReportCommand, OfATrainedModel) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(run(training("run", {"train.epochs=2", "train.log_every=2"}))));
  const Json s = summary("run");
  double images = 0, right = 0;
  for (std::size_t i = 0; i < s["confusion"].size(); ++i)
    for (std::size_t j = 0; j < s["confusion"].size(); ++j) {
      images += s["confusion"][i][j].get<double>();
      if (i == j) right += s["confusion"][i][j].get<double>();
    }
  EXPECT_EQ(images, 60);
  EXPECT_NEAR(right / images, s["top1"].get<double>(), 1e-12);
  const Json json = report_json("run");
  for (const char* id : {"loss", "step-loss", "accuracy", "class-accuracy", "confusion"})
    EXPECT_NE(part(json, "figures", id), nullptr) << id;
  MILLRACE_NEEDS_BROWSER();
  ASSERT_TRUE(succeeded(report("run")));
  expect_sound(look_at(in("run/report.html")), json["figures"].size() - 1);
}

}  // namespace
}  // namespace millrace::program_test
