// Records of waits: the wait breakdown in every record, traces, and the loader's modes.
#include <algorithm>
#include <numeric>
#include <set>
#include <sstream>

#include "tests/program/other_program.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

class Profiling : public ProgramTest {
 protected:
  std::vector<Json> epochs(const std::string& run) const {
    return parse_json_lines(read_file(in(run) / "metrics.jsonl"));
  }
};

double sum_of(const Json& parts) {
  double sum = 0;
  for (const auto& [name, seconds] : parts.items()) {
    EXPECT_GE(seconds.get<double>(), 0) << name;
    sum += seconds.get<double>();
  }
  return sum;
}

TEST_F(Profiling, TheBreakdownAddsUpToLoad) {
  for (const char* workers : {"loader.workers=0", "loader.workers=2"}) {
    ASSERT_TRUE(succeeded(run(simulated("run", {workers, "train.epochs=2"}))));
    const Json s = summary("run");
    EXPECT_EQ(s["blame"].size(), 8u);
    EXPECT_NEAR(sum_of(s["blame"]), s["load_s"].get<double>(), 1e-9);
    double epochs_load = 0;
    for (const Json& line : epochs("run")) {
      EXPECT_NEAR(sum_of(line["blame"]), line["load_s"].get<double>(), 1e-9);
      epochs_load += line["load_s"].get<double>();
    }
    EXPECT_NEAR(epochs_load, s["load_s"].get<double>(), 1e-9);
    EXPECT_LE(s["blame_step"]["load"]["p50"], s["blame_step"]["load"]["p99"]);
    const std::set<std::string> bounds{"device", "storage",  "decode", "augment",
                                       "cores",  "overhead", "host",   "other programs"};
    EXPECT_TRUE(bounds.contains(s["bound"]));
    const std::string bound = s["bound"];
    EXPECT_TRUE(s["verdict"].get<std::string>().starts_with(
        bound == "other programs" ? bound + ": " : bound + "-bound: "));
    EXPECT_EQ(s["loader_mode"], "normal");
  }
}

TEST_F(Profiling, BenchSaysWhatBinds) {
  const Result result = run(bench({"--json", "data.storage.latency=2", "loader.workers=1"}));
  ASSERT_TRUE(succeeded(result));
  const Json json = parse_json(result.out);
  EXPECT_LE(sum_of(json["blame"]), json["wall_s"].get<double>());
  EXPECT_GT(json["blame"]["storage"], json["blame"]["augment"]);
}

TEST_F(Profiling, ATraceIsWrittenWhereItIsAskedFor) {
  const std::string timeline = in("new/folder/timeline.json").string();
  ASSERT_TRUE(succeeded(run(simulated("run", {"--trace", timeline}))));
  const Json trace = parse_json(read_file(timeline));
  std::set<std::string> tracks;
  int steps = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") tracks.insert(event["args"]["name"]);
    steps += event["name"].get<std::string>().starts_with("step ");
  }
  EXPECT_EQ(steps, 10);
  for (const char* track : {"trainer", "simulated (1 ms per step)", "train worker 0"})
    EXPECT_TRUE(tracks.contains(track)) << track;

  const std::string file = in("named.json").string();
  const Result alone = run(bench({"--trace", file}));
  ASSERT_TRUE(succeeded(alone));
  EXPECT_NE(alone.err.find(file), std::string::npos);
  EXPECT_GT(parse_json(read_file(file))["traceEvents"].size(), 20u);
  EXPECT_TRUE(refused(run(bench({"--trace", "loader.workers=1"})), 2,
                      {"--trace loader.workers=1", ".json"}));
  EXPECT_TRUE(refused(run(bench({"--trace"})), 2, {"--trace"}));
  EXPECT_TRUE(no_temporaries(in("")));
}

TEST_F(Profiling, TraceTakesOneFileBeforeOrAfterTheRecipe) {
  const std::string data_key = "data.path=" + data();
  const Arguments device{"train.device=simulated", "simulated.update_ms=1"};
  for (const Arguments& words :
       {Arguments{"train", "--trace", in("before.json").string(), "mnist-lenet", data_key, "--run",
                  in("one").string()},
        Arguments{"train", "mnist-lenet", data_key, "--run", in("two").string(), "--trace",
                  in("after.json").string()},
        Arguments{"bench", "--trace", in("bench.json").string(), "mnist-lenet", data_key}})
    EXPECT_TRUE(succeeded(run(words + device)));
  for (const char* file : {"before.json", "after.json", "bench.json"})
    EXPECT_GT(parse_json(read_file(in(file)))["traceEvents"].size(), 20u) << file;
  EXPECT_TRUE(
      succeeded(run(Arguments{"profile", "--trace", in("profile.json").string(), "mnist-lenet",
                              data_key, "--given", "--change", "loader.workers=1", "--seconds",
                              "0.05", "--run", in("profile").string()} +
                    device)));
  EXPECT_GT(parse_json(read_file(in("profile.json")))["traceEvents"].size(), 20u);
}

TEST_F(Profiling, OnlyWhenAskedFor) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  EXPECT_FALSE(std::filesystem::exists(in("run") / "timeline.json"));
}

TEST_F(Profiling, OneStepHasNoVerdict) {
  ASSERT_TRUE(succeeded(run(simulated("run", {"train.steps=1"}))));
  const Json s = summary("run");
  EXPECT_EQ(s["bound"], "too short");
  EXPECT_EQ(s["verdict"], "too short: 1 step, and a verdict needs 20: 19 more");
  EXPECT_TRUE(s["workers_needed"].is_null());
}

TEST_F(Profiling, OtherProgramsAreNamedFirst) {
  Result result;
  {
    const OtherProgram other;
    result = run(simulated("run", {"train.epochs=15", "simulated.update_ms=5"}));
  }
  ASSERT_TRUE(succeeded(result));
  EXPECT_GT(summary("run")["others_busy"].get<double>(), 0.1);
  EXPECT_TRUE(result.out.starts_with("warning: other programs took ")) << result.out;
}

TEST_F(Profiling, ModesLeaveTheDevice) {
  for (const std::string mode : {"synthetic", "cached"}) {
    ASSERT_TRUE(succeeded(
        run(simulated(mode, {"loader.mode=" + mode, "train.epochs=2", "simulated.update_ms=5"}))));
    const Json s = summary(mode);
    EXPECT_EQ(s["loader_mode"], mode);
    EXPECT_EQ(s["steps"], 20);
    EXPECT_EQ(s["images"], 400);
    EXPECT_EQ(s["bound"], "device") << s["verdict"];
    const std::string config = read_file(in(mode) / "config.toml");
    EXPECT_NE(config.find("mode = \"" + mode + "\""), std::string::npos);
    if (mode == "synthetic") {
      EXPECT_EQ(s["blame"]["augment"], 0.0);
    }
  }
}

TEST_F(Profiling, AModelTrainsOnNoise) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(run(training("run", {"loader.mode=synthetic", "train.steps=5"}))));
  EXPECT_EQ(summary("run")["steps"], 5);
  EXPECT_TRUE(summary("run")["top1"].is_number()) << "evaluation is on the real data";
}

TEST_F(Profiling, ModesThatMakeNoSenseAreRefused) {
  EXPECT_TRUE(refused(run(simulated("run", {"loader.mode=synthetic", "data.cache=cold"})), 2,
                      {"loader.mode=synthetic", "data.cache=cold", "nothing is read"}));
  EXPECT_TRUE(refused(run(simulated("run", {"loader.mode=cached", "data.storage.latency=1"})), 2,
                      {"loader.mode=cached", "data.storage.latency"}));
  EXPECT_TRUE(
      refused(run(bench({"loader.mode=synthetic"})), 2, {"loader.mode=synthetic", "bench"}));
  EXPECT_TRUE(refused(run(simulated("run", {"loader.mode=sythetic"})), 2, {"synthetic"}));
  EXPECT_FALSE(std::filesystem::exists(in("run")));
}

}  // namespace
}  // namespace millrace::program_test
