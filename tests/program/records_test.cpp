// Records of a run: its files exist, are complete, and agree with each other.
#include <sstream>

#include "tests/attempts.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string>& spans() {
  static const std::vector<std::string> names{
      "setup",     "first_batch", "load",     "h2d",        "forward", "backward", "step",
      "peer_wait", "device_wait", "evaluate", "checkpoint", "log",     "teardown"};
  return names;
}

class Records : public ProgramTest {
 protected:
  /// Returns column name -> values, without empty cells. The columns after `loss` are spans and get
  /// the prefix "span "; the optimizer's span is step_s, because `step` is the counter.
  static std::map<std::string, std::vector<double>> columns(const fs::path& csv) {
    const auto rows = lines_of(read_file(csv));
    std::vector<std::string> names;
    std::map<std::string, std::vector<double>> values;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      std::istringstream cells(rows[row] + ",");
      std::string cell;
      for (std::size_t i = 0; std::getline(cells, cell, ','); ++i) {
        if (row == 0) {
          const bool is_span = values.contains("loss");
          if (is_span && cell == "step_s") cell = "step";
          names.push_back((is_span ? "span " : "") + cell);
          values[names.back()];
        } else if (!cell.empty()) {
          values[names.at(i)].push_back(std::stod(cell));
        }
      }
    }
    return values;
  }

  /// Expects what holds for every run's records.
  void expect_consistent(const std::string& name) {
    const Json s = summary(name);
    auto table = columns(in(name) / "steps.csv");
    const auto sum = [&](const std::string& column) {
      double total = 0;
      for (const double value : table[column]) total += value;
      return total;
    };
    const std::size_t steps = s["steps"].get<std::size_t>();
    ASSERT_EQ(table["step"].size(), steps);
    for (std::size_t i = 0; i < steps; ++i) EXPECT_EQ(table["step"][i], static_cast<double>(i + 1));
    const double rounding = 1e-9 * static_cast<double>(steps) + 1e-9;
    for (const char* kind : {"load_s", "update_s", "other_s"})
      EXPECT_NEAR(sum(kind), s[kind].get<double>(), 3 * rounding) << kind;
    double all = 0;
    for (const auto& span : spans()) {
      ASSERT_EQ(table["span " + span].size(), steps) << span;
      EXPECT_NEAR(sum("span " + span), s["spans"][span].get<double>(), rounding) << span;
      all += s["spans"][span].get<double>();
    }
    EXPECT_EQ(sum("images"), s["images"].get<double>());
    const auto of = [&](const char* span) { return s["spans"][span].get<double>(); };
    EXPECT_NEAR(s["load_s"].get<double>(), of("first_batch") + of("load"), 1e-9);
    EXPECT_NEAR(s["update_s"].get<double>(),
                of("h2d") + of("forward") + of("backward") + of("step") + of("peer_wait") +
                    of("device_wait"),
                1e-9);
    EXPECT_NEAR(s["wall_s"].get<double>(), all + s["unaccounted_s"].get<double>(), 1e-6);
    EXPECT_EQ(s["first_batch_s"], s["spans"]["first_batch"]);

    const auto epochs = parse_json_lines(read_file(in(name) / "metrics.jsonl"));
    ASSERT_EQ(epochs.size(), s["epochs"].get<std::size_t>());
    double images = 0;
    double epoch_steps = 0;
    for (std::size_t i = 0; i < epochs.size(); ++i) {
      EXPECT_EQ(epochs[i]["epoch"], i + 1);
      images += epochs[i]["images"].get<double>();
      epoch_steps += epochs[i]["steps"].get<double>();
    }
    EXPECT_EQ(images, s["images"].get<double>());
    EXPECT_EQ(epoch_steps, static_cast<double>(steps));
  }
};

TEST_F(Records, SummaryHasEveryKey) {
  ASSERT_TRUE(succeeded(run(simulated("run", {"seed=5", "loader.workers=1", "--hash"}))));
  const Json s = summary("run");
  for (const char* key : {"command",
                          "version",
                          "git",
                          "host",
                          "device",
                          "world_size",
                          "seed",
                          "dataset",
                          "model",
                          "params",
                          "strategy",
                          "workers",
                          "io_threads",
                          "prefetch",
                          "threads",
                          "batch",
                          "epochs",
                          "steps",
                          "images",
                          "failed",
                          "resumed_from_step",
                          "wall_s",
                          "load_s",
                          "update_s",
                          "other_s",
                          "spans",
                          "unaccounted_s",
                          "load_s_per_step",
                          "update_s_per_step",
                          "update_s_per_step_median",
                          "setup_steps",
                          "setup_update_s",
                          "setup_updates",
                          "first_batch_s",
                          "images_per_s",
                          "train_loss",
                          "train_top1",
                          "test_loss",
                          "top1",
                          "top5",
                          "per_class",
                          "parameters_hash",
                          "batch_hash",
                          "peak_rss_bytes",
                          "peak_device_bytes",
                          "clock"})
    EXPECT_TRUE(s.contains(key)) << key;
  EXPECT_EQ(s["command"], "train");
  EXPECT_GE(s["cores"], 1);
  for (const char* key : {"cpu", "memory_bytes", "gpus"}) EXPECT_TRUE(s.contains(key)) << key;
  EXPECT_GT(s["memory_bytes"], s["peak_rss_bytes"]);
  EXPECT_TRUE(s["gpus"].is_array());
  EXPECT_EQ(s["seed"], 5);
  EXPECT_EQ(s["workers"], 1);
  EXPECT_EQ(s["batch"], 20);
  EXPECT_EQ(s["epochs"], 1);
  EXPECT_EQ(s["steps"], 10);
  EXPECT_EQ(s["images"], 200);
  EXPECT_EQ(s["failed"], 0);
  EXPECT_EQ(s["resumed_from_step"], 0);
  EXPECT_EQ(s["world_size"], 1);
  EXPECT_EQ(s["spans"].size(), spans().size());
  EXPECT_NEAR(s["load_s_per_step"].get<double>() * 10, s["load_s"].get<double>(), 1e-9);
  EXPECT_NEAR(s["update_s_per_step"].get<double>() * 10, s["update_s"].get<double>(), 1e-9);
  EXPECT_NEAR(
      s["images_per_s"].get<double>() * (s["load_s"].get<double>() + s["update_s"].get<double>()),
      200, 1e-3);
  EXPECT_GT(s["peak_rss_bytes"], 1 << 20);
  EXPECT_FALSE(s["interrupted"]);
}

TEST_F(Records, AgreeForASimulatedRun) {
  ASSERT_TRUE(succeeded(run(simulated("run", {"train.epochs=3", "loader.batch=32"}))));
  EXPECT_EQ(summary("run")["steps"], 21);
  expect_consistent("run");
}

TEST_F(Records, AgreeInline) {
  ASSERT_TRUE(succeeded(run(simulated("run", {"train.epochs=2", "loader.workers=0"}))));
  expect_consistent("run");
}

TEST_F(Records, AgreeForATrainedModel) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(
      succeeded(run(training("run", {"train.epochs=2", "train.log_every=5", "eval.every=1"}))));
  expect_consistent("run");
  const Json s = summary("run");
  for (const char* key : {"train_loss", "train_top1", "test_loss", "top1", "top5"})
    EXPECT_TRUE(s[key].is_number()) << key;
  EXPECT_EQ(s["per_class"].size(), 10u);
  const auto weights = fs::file_size(in("run") / "checkpoints/last/model.safetensors");
  EXPECT_GT(weights, 4 * s["params"].get<std::uintmax_t>());
  EXPECT_LT(weights, 4 * s["params"].get<std::uintmax_t>() + 8192) << "a float each and a header";
  EXPECT_EQ(s["model"], "lenet5_plain");
  EXPECT_GT(s["spans"]["evaluate"], 0.0);
  EXPECT_GT(s["spans"]["checkpoint"], 0.0);
  for (const auto& line : parse_json_lines(read_file(in("run") / "metrics.jsonl"))) {
    EXPECT_TRUE(line["train_loss"].is_number());
    EXPECT_TRUE(line["train_top1"].is_number());
    EXPECT_TRUE(line["top1"].is_number());
  }
  // Only the steps whose loss was to be read have one, and it is a number.
  const auto table = columns(in("run") / "steps.csv");
  EXPECT_GE(table.at("loss").size(), 4u);
}

/// Returns the sum of an object's `update_s`.
double updates_in(const Json& set_ups) {
  double sum = 0;
  for (const auto& [kind, one] : set_ups.items()) sum += one["update_s"].get<double>();
  return sum;
}

TEST_F(Records, StepsThatSetSomethingUpAreKeptApart) {
  MILLRACE_NEEDS_TORCH();
  // 200 images: the last of an epoch's four batches has 8, another shape.
  const Arguments keys{"train.epochs=2", "loader.batch=64"};
  ASSERT_TRUE(succeeded(run(training("run", keys))));
  const Json s = summary("run");
  ASSERT_EQ(s["steps"], 8);
  EXPECT_EQ(s["setup_steps"], 2);
  EXPECT_EQ(s["setup_updates"]["first"]["steps"], 1);
  EXPECT_EQ(s["setup_updates"]["shape"]["steps"], 1);
  const double set_up = s["setup_update_s"];
  EXPECT_GT(set_up, 0);
  EXPECT_NEAR(updates_in(s["setup_updates"]), set_up, 1e-9);
  EXPECT_NEAR(set_up + 6 * s["update_s_per_step"].get<double>(), s["update_s"].get<double>(), 1e-9);
  EXPECT_GT(s["update_s_per_step_median"], 0.0);
  // A resumed process sets up again, and its figures are its own.
  ASSERT_TRUE(succeeded(run({"train", "--run", in("run").string(), "--resume", "train.epochs=3"})));
  const Json resumed = summary("run");
  EXPECT_EQ(resumed["resumed_from_step"], 8);
  EXPECT_EQ(resumed["setup_steps"], 2);
  EXPECT_NEAR(
      resumed["setup_update_s"].get<double>() + 2 * resumed["update_s_per_step"].get<double>(),
      resumed["update_s"].get<double>(), 1e-9);
}

TEST_F(Records, ARunOfSetUpAloneHasNoStepWithout) {
  MILLRACE_NEEDS_TORCH();
  const Result result = run(training("run", {"train.steps=1"}));
  ASSERT_TRUE(succeeded(result));
  const Json s = summary("run");
  EXPECT_EQ(s["setup_steps"], 1);
  EXPECT_TRUE(s["update_s_per_step"].is_null());
  EXPECT_NEAR(s["setup_update_s"].get<double>(), s["update_s"].get<double>(), 1e-9);
  EXPECT_NE(result.out.find("set-up: "), std::string::npos) << result.out;
}

TEST_F(Records, StepsEndTheRunEarly) {
  ASSERT_TRUE(succeeded(run(simulated("run", {"train.epochs=5", "train.steps=13"}))));
  const Json s = summary("run");
  EXPECT_EQ(s["steps"], 13);
  EXPECT_EQ(s["images"], 260);
  EXPECT_EQ(s["epochs"], 1) << "the second one was not finished";
  EXPECT_FALSE(s["interrupted"]);
  EXPECT_EQ(lines_of(read_file(in("run") / "steps.csv")).size(), 14u);
  EXPECT_EQ(lines_of(read_file(in("run") / "metrics.jsonl")).size(), 2u);
}

TEST_F(Records, TheSummaryFollowsItsSchema) {
  ASSERT_TRUE(succeeded(run(simulated("run", {"train.clock=async", "data.cache=cold"}))));
  Json s = summary("run");  // as in each other test
  s["dataset"]["samples"] = 1.5;
  EXPECT_EQ(schema_problem(s, summary_schema()), R"(.dataset.samples is not of type ["integer"])");
  s["dataset"].erase("samples");
  EXPECT_EQ(schema_problem(s, summary_schema()), ".dataset lacks samples");
  s["dataset"] = summary("run")["dataset"];
  s["spans"]["load"] = "1";
  EXPECT_EQ(schema_problem(s, summary_schema()), R"(.spans.load is not of type ["number","null"])");
  s["spans"]["load"] = 1;
  s["new_key"] = 1;
  EXPECT_EQ(schema_problem(s, summary_schema()), ".new_key is not in the schema");
}

TEST_F(Records, MetricsAreThereWhileTheRunGoesOn) {
  Child child(simulated("run", {"train.epochs=1000", "simulated.update_ms=5"}));
  ASSERT_TRUE(child.says("epoch 2/1000"));
  const auto lines = lines_of(read_file(in("run") / "metrics.jsonl"));
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(parse_json(lines[1])["epoch"], 2);
  EXPECT_TRUE(fs::exists(in("run") / "config.toml"));
  EXPECT_FALSE(fs::exists(in("run") / "summary.json")) << "it stands for a run that has ended";
}

TEST_F(Records, ClosingTableShowsWhatTheSummaryHolds) {
  const Result result = run(simulated("run"));
  ASSERT_TRUE(succeeded(result));
  for (const char* part : {"load", "update", "device_wait", "other", "wall", "unaccounted"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << " is not in\n" << result.out;
  EXPECT_NE(result.out.find("200 images in 10 steps, "), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("-0.0000%"), std::string::npos) << result.out;
}

TEST_F(Records, ADeviceHasATimelineOfItsOwn) {
  for (const char* clock : {"sync", "async"}) {
    SCOPED_TRACE(clock);
    ASSERT_TRUE(succeeded(run(simulated(clock, {std::string("train.clock=") + clock}))));
    const Json s = summary(clock);
    EXPECT_EQ(s["clock"], clock);
    EXPECT_EQ(s["inflight"], 2);
    const double steps = s["steps"];
    EXPECT_NEAR(s["device_busy_s"].get<double>(), steps * 1e-3, steps * 2e-6);
    double spans = 0;
    for (const auto& [name, seconds] : s["spans"].items()) spans += seconds.get<double>();
    double gaps = 0;
    for (const auto& [name, seconds] : s["device_gaps"].items()) gaps += seconds.get<double>();
    const double load = s["device_gap_load_s"];
    const double other = s["device_gap_other_s"];
    EXPECT_NEAR(gaps, load + other, 1e-9 + 1e-9 * gaps);
    EXPECT_NEAR(s["device_busy_s"].get<double>() + gaps, spans, 1e-6 * spans);
    const double wall = s["wall_s"];
    EXPECT_LE(std::abs(s["unaccounted_s"].get<double>()), 1e-3 * wall);
    const auto rows = lines_of(read_file(in(clock) / "steps.csv"));
    EXPECT_EQ(rows.size(), static_cast<std::size_t>(steps) + 1);
    EXPECT_EQ(s["device_busy_is"], "exact") << "a simulated device waits for nothing";
    EXPECT_EQ(s["setup_steps"], 0);
    // Each step but an epoch's first is submitted behind another.
    const double behind = clock == std::string("async") ? steps - s["epochs"].get<double>() : 0;
    EXPECT_EQ(s["device_submissions"].get<double>(), behind);
    EXPECT_LE(s["device_starved"].get<double>(), behind);
    EXPECT_TRUE(s["device_parts"].is_null());
  }
}

/// The host's spans would blame the loader, for whose batches the host waits, or call a device busy
/// that is idle. Delays are long, so that a machine under load changes no verdict.
TEST_F(Records, TheVerdictFollowsTheDevicesOwnTimeline) {
  const auto verdict = [&](const std::string& name, const Arguments& keys) {
    std::filesystem::remove_all(in(name));
    EXPECT_TRUE(
        succeeded(run(simulated(name, Arguments{"train.clock=async", "train.inflight=4"} + keys))));
    return summary(name)["verdict"].get<std::string>();
  };
  test::in_attempts([&] {
    const std::string device =
        verdict("device", {"simulated.update_ms=40", "debug.next_ms=15", "train.epochs=2"});
    EXPECT_TRUE(device.starts_with("device-bound")) << device;
  });
  test::in_attempts([&] {
    const std::string host =
        verdict("host", {"simulated.update_ms=1", "debug.forward_ms=40", "train.epochs=2"});
    EXPECT_TRUE(host.starts_with("host-bound: ")) << host;
    EXPECT_EQ(summary("host")["bound"], "host");
  });
  test::in_attempts([&] {
    const std::string load =
        verdict("load", {"simulated.update_ms=1", "debug.next_ms=40", "train.epochs=2"});
    EXPECT_TRUE(load.starts_with("overhead-bound"))
        << load << ": handover, where a delay is planted";
  });
}

}  // namespace
}  // namespace millrace::program_test
