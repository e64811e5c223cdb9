// --json: one document on stdout and nothing else there.
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

class JsonOutput : public ProgramTest {
 protected:
  /// Runs with --json and returns the document.
  static Json document(const Arguments& arguments) {
    const Result result = run(arguments + Arguments{"--json"});
    EXPECT_TRUE(succeeded(result));
    const Json json = parse_json(result.out);
    EXPECT_TRUE(json.is_object());
    return json;
  }
  static void expect_keys(const Json& json, const std::vector<std::string>& keys) {
    for (const auto& key : keys) EXPECT_TRUE(json.contains(key)) << key;
  }
};

TEST_F(JsonOutput, TrainPrintsItsSummary) {
  const Json printed = document(simulated("run"));
  EXPECT_EQ(printed["command"], "train");
  EXPECT_EQ(printed, summary("run"));
}

TEST_F(JsonOutput, BenchPrintsWhatItMeasured) {
  const Json json = document(bench({"--hash", "bench.epochs=2"}));
  expect_keys(json, {"images_per_s", "cpu_s_per_1000", "wall_s", "images", "batches", "workers",
                     "per_stage", "peak_rss_bytes", "batch_hash"});
  EXPECT_EQ(json["images"], 400);
  EXPECT_EQ(json["batches"], 14);  // 7 per epoch, the last with 8 images
  EXPECT_GT(json["images_per_s"], 0.0);
  EXPECT_NEAR(json["images_per_s"].get<double>() * json["wall_s"].get<double>(), 400, 1);
  for (const auto& [name, stage] : json["per_stage"].items()) {
    expect_keys(stage, {"calls", "cpu_s", "wall_s", "bytes"});
    EXPECT_GE(stage["cpu_s"], 0.0) << name;
  }
  EXPECT_EQ(json["per_stage"]["read"]["bytes"], 400 * 28 * 28);
  EXPECT_EQ(json["per_stage"]["augment"]["bytes"], 400 * 28 * 28 * 4);
  EXPECT_FALSE(document(bench()).contains("batch_hash"));
}

TEST_F(JsonOutput, SweepPrintsItsRecord) {
  const Json json = document({"sweep", "mnist-lenet", "data.path=" + data(), "loader.workers=0,1",
                              "train.device=simulated", "simulated.update_ms=0.5", "train.epochs=1",
                              "--run", in("sweep").string()});
  EXPECT_EQ(json["command"], "sweep");
  EXPECT_EQ(json["cells"].size(), 2u);
  EXPECT_EQ(json, parse_json(read_file(in("sweep") / "sweep.json")));
}

TEST_F(JsonOutput, EvalPrintsItsFigures) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(run(training("run"))));
  const Json json = document({"eval", in("run").string()});
  expect_keys(json, {"top1", "top5", "test_loss", "per_class", "confusion", "images"});
  EXPECT_EQ(json["images"], 60);
  std::uint64_t images = 0;
  std::uint64_t right = 0;
  for (std::size_t i = 0; i < json["confusion"].size(); ++i) {
    for (const auto& count : json["confusion"][i]) images += count.get<std::uint64_t>();
    right += json["confusion"][i][i].get<std::uint64_t>();
  }
  EXPECT_EQ(images, 60u);
  EXPECT_DOUBLE_EQ(json["top1"].get<double>(), static_cast<double>(right) / 60);
}

TEST_F(JsonOutput, BenchOpsPrintsBothSidesOfEachOp) {
  MILLRACE_NEEDS_TORCH();
  const Json json = document({"bench", "ops", "--batch", "5,3", "--rounds", "2"});
  expect_keys(json, {"torch", "batch", "device", "threads", "rounds", "simd", "ops"});
  EXPECT_EQ(json["batch"], (std::vector<int>{5, 3}));
  std::map<std::string, std::vector<std::string>> ops;
  for (const Json& op : json["ops"]) {
    const std::string name = op["op"];
    if (op["batch"] == 5) ops[op["model"]].push_back(name);
    EXPECT_GT(op["torch"]["forward_s"], 0) << op;
    EXPECT_GT(op["torch"]["backward_s"], 0) << op;
    if (name == "step") {
      EXPECT_GT(op["torch"]["step_s"], 0) << op;
    }
    const bool has_native = op["model"] == "simple_conv" || op["model"] == "lenet5";
    EXPECT_EQ(op.contains("native"), has_native && name.find("linear") == std::string::npos) << op;
    if (!op.contains("native")) continue;  // LibTorch's ops on both sides
    EXPECT_GT(op["native"]["forward_s"], 0) << op;
    EXPECT_LE(op["difference"], 1e-4) << op;
  }
  EXPECT_EQ(json["ops"].size(), 40u) << "20 for each batch";
  EXPECT_EQ(ops["linear"], (std::vector<std::string>{"fc linear 784->10", "step"}));
  EXPECT_EQ(ops["mlp"],
            (std::vector<std::string>{"fc1 linear 784->128", "fc2 linear 128->10", "step"}));
  EXPECT_EQ(ops["simple_conv"],
            (std::vector<std::string>{"conv1 1->6 3x3 of 28x28", "conv1 1->6 3x3 of 28x28, ReLU",
                                      "fc1 linear 4704->128", "fc2 linear 128->10", "step"}));
  EXPECT_EQ(ops["lenet5"].size(), 10u);
  EXPECT_EQ(document({"bench", "ops", "--model", "mlp", "--batch", "5", "--rounds", "1"})["batch"],
            5);
}

TEST_F(JsonOutput, OpsBenchmarkNeedsItsDevice) {
  MILLRACE_NEEDS_TORCH();
  EXPECT_TRUE(refused(run({"bench", "ops", "--device", "gpu"}), 2, {"gpu", "cpu, cuda or cuda:N"}));
  EXPECT_TRUE(refused(run({"bench", "ops", "--device", "cuda:99"}), 4, {"--device cuda:99: "}));
}

TEST_F(JsonOutput, DoctorPrintsWhatItFound) {
  std::filesystem::create_directories(in("storage"));
  const Json json = document({"doctor", "--storage", in("storage").string()});
  expect_keys(json, {"cores", "simd", "libtorch", "cuda", "storage", "memory"});
  EXPECT_GE(json["cores"]["usable"], 1);
  EXPECT_EQ(json["libtorch"].get<std::string>().starts_with("not in this build"),
            MILLRACE_HAS_TORCH == 0);
  EXPECT_TRUE(std::filesystem::is_empty(in("storage"))) << "doctor left a file behind";
}

TEST_F(JsonOutput, DataVerifyPrintsWhatIsThere) {
  const Json json = document({"data", "verify", data()});
  EXPECT_EQ(json["command"], "data verify");
  EXPECT_EQ(json["sound"], true);
  ASSERT_EQ(json["splits"].size(), 2u);
  for (const auto& split : json["splits"])
    EXPECT_EQ(split["count"], split["name"] == "train" ? 200 : 60);
}

TEST_F(JsonOutput, ErrorsLeaveStdoutEmpty) {
  EXPECT_TRUE(refused(run(bench({"--json", "loader.wrokers=1"})), 2, {"loader.wrokers"}));
  EXPECT_TRUE(refused(run({"eval", in("nothing").string(), "--json"}), 3, {"nothing"}));
}

TEST_F(JsonOutput, ADocumentThatCannotBeWrittenIsAnError) {
  RunOptions options;
  options.stdout_to = "/dev/full";
  const Result result = run(bench({"--json"}), options);
  EXPECT_EQ(result.exit_code, 1) << "the document is lost, and nobody is told";
  EXPECT_NE(result.err.find("No space left"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace millrace::program_test
