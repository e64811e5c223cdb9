// millrace report: on the records of real runs, finished, killed and damaged; and the page in a
// browser.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <utility>

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
    for (const Json& chart : seen["charts"]) {
      EXPECT_GE(chart["coloured"], 25) << chart["id"] << " is empty";
      EXPECT_EQ(chart["bad"], Json::array()) << chart["id"];
    }
    EXPECT_GT(seen["rows"], charts) << "the numbers below the charts";
    EXPECT_EQ(seen["broken"], Json::array()) << "headings break between words";
    EXPECT_EQ(seen["overflow"], 0);
    std::set<std::string> titles;
    for (const Json& title : seen["titles"])
      EXPECT_TRUE(titles.insert(title.get<std::string>()).second) << title << " stands twice";
  }
  /// Expects a sound page on wide and narrow, light and dark displays.
  static void expect_sound_everywhere(const fs::path& page, std::size_t charts) {
    for (const int width : {1280, 400})
      for (const bool dark : {false, true}) {
        SCOPED_TRACE(fmt::format("{} pixels, {}", width, dark ? "dark" : "light"));
        const Json seen = look_at(page, {.width = width, .dark = dark});
        expect_sound(seen, charts);
        EXPECT_EQ(seen["width"], width);
        EXPECT_EQ(seen["paper"], dark ? "rgb(20, 24, 28)" : "rgb(255, 255, 255)");
        for (const Json& chart : seen["charts"]) {
          EXPECT_TRUE(chart["inside"]) << chart["id"];
          EXPECT_GT(chart["width"], width == 400 ? 250 : 400) << chart["id"];
        }
      }
  }
  /// Returns whether a label of the chart's axes contains `text`.
  static bool shows(const Json& chart, const std::string& text) {
    return std::any_of(chart["shown"].begin(), chart["shown"].end(), [&](const Json& label) {
      return label.get<std::string>().find(text) != std::string::npos;
    });
  }
  static const Json* chart_in(const Json& seen, const std::string& id) {
    for (const Json& chart : seen["charts"])
      if (chart["id"] == "canvas-" + id) return &chart;
    return nullptr;
  }
};

TEST_F(ReportCommand, WritesAPageIntoTheRun) {
  ASSERT_TRUE(succeeded(run(simulated("run", {"train.epochs=2", "seed=7"}))));
  const Result result = report("run");
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("report.html: "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("1 picture"), std::string::npos) << result.out << result.err;
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

TEST_F(ReportCommand, ComparesARunWithTheRecipeOfItsOwn) {
  const Result whole = run({"recipe", "mnist-lenet", "loader.workers=1", "seed=3"});
  ASSERT_TRUE(succeeded(whole));
  std::string text = whole.out;  // under a name of its own
  const std::size_t name = text.find("recipe = \"mnist-lenet\"\n");
  if (name != std::string::npos) text.erase(name, text.find('\n', name) + 1 - name);
  write_file(in("mine.toml"), text);
  Arguments command = simulated("run", {"seed=5"});
  std::replace(command.begin(), command.end(), std::string("mnist-lenet"),
               in("mine.toml").string());
  ASSERT_TRUE(succeeded(run(command)));
  fs::remove(in("mine.toml"));  // the run keeps a copy
  const Json json = report_json("run");
  const Json* config = part(json, "tables", "configuration");
  ASSERT_NE(config, nullptr);
  EXPECT_EQ((*config)["header"], Json({"key", "recipe mine", "this run"}));
  EXPECT_LE((*config)["rows"].size(), 8u) << config->dump(1);
  bool seed = false;
  for (const Json& row : (*config)["rows"]) {
    seed |= row == Json({"seed", "3", "5"});
    EXPECT_NE(row[0], "loader.workers");
  }
  EXPECT_TRUE(seed) << config->dump(1);
  EXPECT_FALSE(notes_say(json, "compared")) << json["notes"];
  fs::remove(in("run/recipe.toml"));
  EXPECT_TRUE(notes_say(report_json("run"), "there is no shipped recipe mine"));

  ASSERT_TRUE(succeeded(run(simulated("shipped"))));
  EXPECT_FALSE(fs::exists(in("shipped/recipe.toml")));
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
  EXPECT_TRUE(refused(report("data"), 2, {"is not a run and holds none", "runs/NAME"}));
  EXPECT_TRUE(refused(run({"report", in("runs").string(), in("runs/first").string()}), 2,
                      {"folder of runs", "alone"}));
  EXPECT_TRUE(refused(report("runs/first/summary.json"), 2, {"not a directory", "runs/first"}));
  EXPECT_TRUE(refused(run({"report"}), 2, {"path is required"}));
  EXPECT_TRUE(refused(report("runs/first", {"--md", "--json"}), 2, {"stdout"}));
  EXPECT_TRUE(refused(report("runs/first", {"--html", "/proc/none/page.html"}), 1, {"/proc/none"}));
}

TEST_F(ReportCommand, PlotsNameTheirReplacement) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  for (const Arguments& plots : {Arguments{"--plots", in("plots").string()}, Arguments{"--plots"},
                                 Arguments{"--plots=" + in("plots").string()}})
    EXPECT_TRUE(refused(report("run", plots), 2, {"--plots is gone", "--csv", "plot.py"}));
  EXPECT_TRUE(refused(run({"report", "--plots", in("run").string()}), 2, {"--plots is gone"}));
  EXPECT_EQ(run({"report", "--help"}).out.find("--plots"), std::string::npos);
  EXPECT_EQ(run({"completion", "words", "millrace report --pl"}).out, "");
  EXPECT_EQ(run({"completion", "man"}).out.find("-plots"), std::string::npos);
  EXPECT_FALSE(fs::exists(in("plots")));
  EXPECT_FALSE(fs::exists(in("run/report.html")));
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
  const Result swept =
      run({"sweep", "mnist-lenet", "data.path=" + data(), "train.device=simulated",
           "simulated.update_ms=0.5", "train.epochs=1", "loader.batch=20", "loader.workers=0,1",
           "--repeats", "2", "--wide", "--run", in("sweep").string()});
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
  expect_sound_everywhere(in("sweep/report.html"), json["figures"].size());
  const Json seen = look_at(in("sweep/report.html"));
  const Json* time = chart_in(seen, "load-update");
  ASSERT_NE(time, nullptr);
  EXPECT_EQ((*time)["labels"], Json({"load", "update", "predicted"}));
  EXPECT_EQ((*time)["types"], Json({"bar", "bar", "line"}));
  ASSERT_NE(chart_in(seen, "step-distribution"), nullptr);
  EXPECT_EQ((*chart_in(seen, "step-distribution"))["labels"], Json({"0", "1"}));
}

TEST_F(ReportCommand, ComparesRuns) {
  for (const char* seed : {"1", "2"})
    ASSERT_TRUE(succeeded(run(simulated(seed, {"train.epochs=2", std::string("seed=") + seed}))));
  const Result result = run({"report", in("1").string(), in("2").string(), "--md"});
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("# 1 and 2\n"), std::string::npos);
  EXPECT_NE(result.out.find("| seed | 1 | 2 |"), std::string::npos) << result.out;
}

TEST_F(ReportCommand, ComparedRunsHaveNoTwoFiguresOfOneTitle) {
  ASSERT_TRUE(succeeded(run(simulated("uninterruptedbaseline", {"train.epochs=1"}))));
  ASSERT_TRUE(succeeded(run(simulated("uninterruptedvariant", {"train.epochs=2"}))));
  const std::string page = in("page.html").string();
  const Result result = run({"report", in("uninterruptedbaseline").string(),
                             in("uninterruptedvariant").string(), "--html", page, "--json"});
  ASSERT_TRUE(succeeded(result));
  const Json json = parse_json(result.out);
  std::set<std::string> titles;
  for (const Json& figure : json["figures"])
    EXPECT_TRUE(titles.insert(figure["title"].get<std::string>()).second) << figure["title"];
  EXPECT_TRUE(titles.contains("Images per second by epoch"));
  MILLRACE_NEEDS_BROWSER();
  expect_sound(look_at(page, {.width = 400}), titles.size());
}

TEST_F(ReportCommand, ListsTheRunsOfAFolder) {
  for (const char* workers : {"0", "1"})
    ASSERT_TRUE(succeeded(run(simulated(
        std::string("runs/workers-") + workers,
        {"train.epochs=2", "train.steps=40", std::string("loader.workers=") + workers}))));
  const Result result = report("runs");
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("runs/report.html: "), std::string::npos) << result.out;
  const Json json = report_json("runs");
  const Json* table = part(json, "tables", "runs");
  ASSERT_NE(table, nullptr);
  ASSERT_EQ((*table)["rows"].size(), 2u);
  EXPECT_EQ((*table)["rows"][0][0], "workers-0");
  EXPECT_NE(std::find((*table)["header"].begin(), (*table)["header"].end(), "loader.workers"),
            (*table)["header"].end());
  EXPECT_EQ((*part(json, "figures", "throughput"))["series"][1]["run"], "workers-1");
  MILLRACE_NEEDS_BROWSER();
  expect_sound_everywhere(in("runs/report.html"), json["figures"].size());
  const Json runs = look_at(in("runs/report.html"))["runs"];
  ASSERT_TRUE(runs.is_object());
  EXPECT_EQ(runs["rows"], 2);
  EXPECT_EQ(runs["found"], 1) << "searched by name";
  EXPECT_EQ(runs["again"], 2);
  for (const Json& chart : runs["before"]) EXPECT_EQ(chart, Json({"workers-0", "workers-1"}));
  for (const Json& chart : runs["after"]) EXPECT_EQ(chart, Json({"workers-1"}));
}

/// A profile's directory of changes with long names.
void write_profile(const fs::path& folder, int changes) {
  Json what_if = Json::array();
  for (int i = 0; i < changes; ++i)
    what_if.push_back({{"change", Json::array({fmt::format("data.storage.latency={}us", 10 * i),
                                               "augment.random_resized_crop.enabled=false",
                                               fmt::format("loader.workers={}", i)})},
                       {"baseline", 503.1},
                       {"predicted", 600.0 - i},
                       {"predicted_ratio", (600.0 - i) / 503.1},
                       {"predicted_low", 1.0},
                       {"predicted_high", 1.3}});
  write_file(folder / "predictions.json", "{}");
  write_file(folder / "summary.json",
             Json{{"command", "profile"},
                  {"complete", true},
                  {"recipe", "custom"},
                  {"verdict", "cores-bound"},
                  {"batch", 32},
                  {"workers", 1},
                  {"images_per_s", 490.0},
                  {"baseline_images_per_s", 503.1},
                  {"ceilings", {{"device", 91000.0}, {"cores", 510.0}, {"storage", 25000.0}}},
                  {"blame", {{"decode", 1.5}, {"augment", 0.5}, {"queue", 0.1}}},
                  {"what_if", what_if}}
                 .dump());
}

TEST_F(ReportCommand, NoLabelIsCutOrOverlapped) {
  MILLRACE_NEEDS_BROWSER();
  for (const int changes : {1, 5, 50}) {
    const std::string name = fmt::format("changes-{}", changes);
    write_profile(in(name), changes);
    ASSERT_TRUE(succeeded(report(name)));
    const std::size_t figures = report_json(name)["figures"].size();
    for (const auto& [width, dark] : {std::pair{400, true}, {1280, false}}) {
      SCOPED_TRACE(fmt::format("{} changes, {} pixels", changes, width));
      const Json seen = look_at(in(name) / "report.html", {.width = width, .dark = dark});
      expect_sound(seen, figures);
      const Json* what_if = chart_in(seen, "what-if");
      ASSERT_NE(what_if, nullptr);
      EXPECT_EQ((*what_if)["labels"], Json({"predicted", "as it is"})) << "nothing was measured";
      EXPECT_TRUE(shows(*what_if, "data.storage.")) << "several keys stay whole: " << *what_if;
      const Json* ceilings = chart_in(seen, "ceilings");
      ASSERT_NE(ceilings, nullptr);
      EXPECT_TRUE(shows(*ceilings, "cores|limits")) << *ceilings;
      EXPECT_TRUE(shows(*ceilings, "10,000")) << "a logarithmic axis: " << *ceilings;
    }
  }
}

TEST_F(ReportCommand, AnAblationIsLabelledByWhatItLeavesOut) {
  ASSERT_TRUE(succeeded(run({"sweep",
                             "mnist-lenet",
                             "data.path=" + data(),
                             "augment+=hflip",
                             "augment+=vflip",
                             "train.device=simulated",
                             "simulated.update_ms=0.1",
                             "train.epochs=1",
                             "loader.batch=40",
                             "--cell",
                             "",
                             "--cell",
                             "augment.random_affine.enabled=false",
                             "--cell",
                             "augment.hflip.enabled=false",
                             "--cell",
                             "augment.vflip.enabled=false",
                             "--repeats",
                             "1",
                             "--run",
                             in("ablation").string()})));
  ASSERT_TRUE(succeeded(report("ablation")));
  MILLRACE_NEEDS_BROWSER();
  for (const int width : {400, 1280}) {
    const Json seen = look_at(in("ablation/report.html"), {.width = width});
    expect_sound(seen, report_json("ablation")["figures"].size());
    const Json* rate = chart_in(seen, "rate");
    ASSERT_NE(rate, nullptr);
    for (const char* name : {"(recipe)", "random_affine", "hflip", "vflip"})
      EXPECT_NE(std::find((*rate)["shown"].begin(), (*rate)["shown"].end(), name),
                (*rate)["shown"].end())
          << name << " in " << (*rate)["shown"];
  }
}

TEST_F(ReportCommand, AFolderKeepsResultsInViewAndGroupsByRecipe) {
  ASSERT_TRUE(succeeded(run(simulated("one", {"loader.workers=0"}))));
  const std::string config = read_file(in("one/config.toml"));
  const auto with = [&](std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  };
  for (int i = 0; i < 12; ++i) {
    const fs::path to = in(fmt::format("runs/a_rather_long_name_of_a_run_{}", i));
    fs::create_directories(to.parent_path());
    fs::copy(in("one"), to, fs::copy_options::recursive);
    std::string mine = with(config, "\nworkers = 0\n", fmt::format("\nworkers = {}\n", i % 3));
    mine = with(mine, "\nlr = ", fmt::format("\nlr = {}", 1 + i % 4));
    if (i == 7) mine = with(mine, "\nprefetch = ", "\nprefetch = 7");
    write_file(to / "config.toml", mine);
  }
  for (int i = 0; i < 2; ++i) {
    const fs::path to = in(fmt::format("runs/other-{}", i));
    fs::copy(in("one"), to, fs::copy_options::recursive);
    write_file(to / "config.toml", with(config, "mnist-lenet", "another"));
    write_file(to / "summary.json", with(read_file(to / "summary.json"), "mnist-lenet", "another"));
  }
  const Json json = report_json("runs");
  const Json& header = (*part(json, "tables", "runs"))["header"];
  EXPECT_EQ(header[1], "images/s");
  EXPECT_EQ(header[header.size() - 3], "train.lr");
  EXPECT_EQ(header[header.size() - 2], "loader.workers");
  EXPECT_EQ(header.back(), "other keys") << "of the odd run";
  EXPECT_EQ((*part(json, "tables", "runs"))["rows"].size(), 12u);
  ASSERT_NE(part(json, "tables", "runs-2"), nullptr);
  EXPECT_EQ((*part(json, "tables", "runs-2"))["rows"].size(), 2u);
  MILLRACE_NEEDS_BROWSER();
  ASSERT_TRUE(succeeded(report("runs")));
  for (const int width : {400, 1280}) {
    SCOPED_TRACE(width);
    const Json seen = look_at(in("runs/report.html"), {.width = width, .dark = width == 400});
    expect_sound(seen, json["figures"].size());
    const Json& runs = seen["runs"];
    EXPECT_EQ(runs["tables"], 2);
    EXPECT_GT(runs["scrolled"], 0);
    EXPECT_EQ(runs["inView"], runs["stuck"].size());
    ASSERT_GE(runs["stuck"].size(), 2u);
    EXPECT_EQ(runs["stuck"][1], "images/s");
  }
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
  expect_sound_everywhere(in("run/report.html"), json["figures"].size() - 1);
}

TEST_F(ReportCommand, ShowsTheMostConfidentlyWrongImages) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(run(training("run", {"train.lr=0.002"}))));
  EXPECT_EQ(part(report_json("run"), "tables", "wrong-images"), nullptr) << "no predictions";
  const fs::path file = in("run/predictions.csv");
  ASSERT_TRUE(
      succeeded(run({"eval", in("run").string(), "--predictions", file.string(), "--json"})));
  const std::string predictions = read_file(file);
  std::vector<double> wrong;
  for (const std::string& line : lines_of(predictions)) {
    std::vector<std::string> cells(1);
    for (const char c : line) c == ',' ? cells.emplace_back() : cells.back() += c;
    if (cells[1] != cells[2] && cells[1] != "label") wrong.push_back(std::stod(cells[3]));
  }
  ASSERT_GE(wrong.size(), 3u) << "a model that has barely learnt";
  const Json json = report_json("run");
  const Json* table = part(json, "tables", "wrong-images");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ((*table)["rows"].size(), std::min<std::size_t>(24, wrong.size()));
  EXPECT_EQ((*table)["rows"][0][3],
            fmt::format("{:.1f}%", 100 * *std::max_element(wrong.begin(), wrong.end())));
  const std::size_t pictures = (*table)["rows"].size();
  ASSERT_TRUE(succeeded(report("run")));
  EXPECT_EQ(count_of(read_file(in("run/report.html")), "data:image/jpeg;base64,/9j/"), pictures);

  // Another file, of hostile names; the image itself is found by its own name.
  const std::string name =
      predictions.substr(predictions.find('\n') + 1, predictions.find(',', predictions.find('\n')) -
                                                         predictions.find('\n') - 1);
  write_file(in("other.csv"), "name,label,predicted,probability\n" + name +
                                  ",<script>window.planted=1</script>,"
                                  "\"\"\"><img src=x onerror=window.planted=1>\",0.75\n");
  const Arguments other{"--predictions", in("other.csv").string()};
  ASSERT_TRUE(succeeded(report("run", other)));
  if (!find_browser().empty())
    for (const int width : {1280, 400}) {
      const Json seen = look_at(in("run/report.html"), {.width = width});
      expect_sound(seen, seen["charts"].size());
      ASSERT_EQ(seen["pictures"].size(), 2u) << "one wrong image, and the samples";
      for (const Json& picture : seen["pictures"]) {
        EXPECT_TRUE(picture["loaded"]);
        EXPECT_TRUE(picture["inside"]);
      }
    }

  fs::rename(in("data"), in("gone"));
  fs::remove(in("run/mistakes.json"));  // as in a run that was evaluated by an earlier version
  const Json without = report_json("run");
  EXPECT_TRUE(notes_say(without, "no images of wrong predictions: "));
  EXPECT_NE(part(without, "tables", "wrong-images"), nullptr) << "the list stays";
  EXPECT_TRUE(refused(report("run", {"--predictions", in("none.csv").string()}), 2,
                      {"none.csv", "millrace eval"}));
  write_file(file, "name,label\n");
  EXPECT_TRUE(refused(report("run"), 3, {"predictions.csv is damaged"}));
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
  const Json epochs = parse_json_lines(read_file(in("run/metrics.jsonl")));
  const Json* accuracy = part(json, "figures", "accuracy");
  for (std::size_t i = 0; i < epochs.size(); ++i)
    EXPECT_NEAR((*accuracy)["series"][0]["y"][i].get<double>(),
                100 * epochs[i]["train_top1"].get<double>(), 1e-9);
  MILLRACE_NEEDS_BROWSER();
  ASSERT_TRUE(succeeded(report("run")));
  expect_sound_everywhere(in("run/report.html"), json["figures"].size() - 1);
  const Json seen = look_at(in("run/report.html"));
  ASSERT_NE(chart_in(seen, "accuracy"), nullptr);
  EXPECT_EQ((*chart_in(seen, "accuracy"))["labels"],
            Json({"train top-1", "test top-1", "test top-5"}));
}

TEST_F(ReportCommand, ShowsWhatRanksAndReplicasWereGiven) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(run(training(
      "ranks", {"train.strategy=ddp", "train.ranks=2", "train.steps=3", "loader.batch=21"}))));
  const Json ranks = report_json("ranks");
  const Json* table = part(ranks, "tables", "ranks");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ((*table)["header"][2], "images");
  double images = 0;
  for (const Json& row : (*table)["rows"]) images += std::stod(row[2].get<std::string>());
  EXPECT_EQ(images, summary("ranks")["images"].get<double>()) << "the shares of all batches";
  ASSERT_TRUE(succeeded(run(training(
      "replicas", {"train.strategy=data_parallel", "train.replicas=2", "train.steps=3"}))));
  const Json replicas = report_json("replicas");
  ASSERT_NE(part(replicas, "tables", "replicas"), nullptr);
  EXPECT_EQ((*part(replicas, "tables", "replicas"))["rows"],
            Json::parse(R"([["0","30","50.0%"],["1","30","50.0%"]])"));
  MILLRACE_NEEDS_BROWSER();
  ASSERT_TRUE(succeeded(report("ranks")));
  expect_sound_everywhere(in("ranks/report.html"), ranks["figures"].size() - 1);
}

}  // namespace
}  // namespace millrace::program_test
