// A disk that fills up during a large write: exit 1, one line that names the file, and no partial
// file under any name.
#include "tests/program/program.h"
#include "tests/program/small_disk.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

/// Small files fit; LeNet's 178 kB of weights and an epoch's images do not.
constexpr std::uint64_t kRoom = 100'000;

class FullDisk : public ProgramTest {
 protected:
  static RunOptions limited() {
    RunOptions options;
    options.max_file_bytes = kRoom;
    return options;
  }
  /// Expects no checkpoint of this run, complete or partial.
  static void expect_no_checkpoint(const fs::path& run) {
    EXPECT_TRUE(no_temporaries(run));
    if (!fs::exists(run / "checkpoints")) return;
    for (const auto& entry : fs::directory_iterator(run / "checkpoints"))
      ADD_FAILURE() << entry.path() << " stands for a checkpoint that was not written";
  }
};

TEST_F(FullDisk, CheckpointBeyondTheLimit) {
  MILLRACE_NEEDS_TORCH();
  EXPECT_TRUE(refused(run(training("run"), limited()), 1,
                      {in("run").string() + "/checkpoints/step-10", "model.safetensors"}, false));
  expect_no_checkpoint(in("run"));
  EXPECT_EQ(lines_of(read_file(in("run") / "metrics.jsonl")).size(), 1u) << "the epoch is recorded";
  // Its steps are kept too, except the last one, whose row is written at the end.
  EXPECT_GE(lines_of(read_file(in("run") / "steps.csv")).size(), 10u);
}

TEST_F(FullDisk, CheckpointOnAFullFileSystem) {
  MILLRACE_NEEDS_TORCH();
  MILLRACE_NEEDS_SMALL_DISK();
  const SmallDisk disk(in("disk"), "size=200k");
  const Result result = run(training("disk/run"));
  EXPECT_TRUE(refused(result, 1, {"model.safetensors", "No space left"}, false));
  expect_no_checkpoint(in("disk/run"));
}

TEST_F(FullDisk, ARunGoesOnFromItsCheckpointOnceThereIsSpace) {
  MILLRACE_NEEDS_TORCH();
  MILLRACE_NEEDS_SMALL_DISK();
  const Arguments epochs{"train.epochs=3"};
  ASSERT_TRUE(succeeded(run(training("whole", epochs))));
  SmallDisk disk(in("disk"), "size=700k");  // one checkpoint, not two
  EXPECT_TRUE(refused(run(training("disk/run", epochs)), 1, {"No space left"}, false));
  EXPECT_TRUE(no_temporaries(in("disk/run")));
  ASSERT_TRUE(fs::exists(in("disk/run/checkpoints/step-10")));
  disk.change("size=10m");
  ASSERT_TRUE(succeeded(run({"train", "--resume", "--run", in("disk/run").string()})));
  EXPECT_EQ(summary("disk/run")["parameters_hash"], summary("whole")["parameters_hash"]);
}

TEST_F(FullDisk, AReadOnlyRunDirectoryIsRefusedBeforeTheFirstStep) {
  MILLRACE_NEEDS_SMALL_DISK();
  SmallDisk disk(in("disk"), "size=10m");
  ASSERT_TRUE(succeeded(run(simulated("disk/old"))));
  disk.change("size=10m", /*read_only=*/true);
  const std::string cause = "Read-only file system";
  EXPECT_TRUE(refused(run(simulated("disk/run")), 1, {in("disk/run").string(), cause}));
  EXPECT_TRUE(
      refused(run({"train", "--resume", "--run", in("disk/old").string(), "train.epochs=9"}), 1,
              {in("disk/old").string(), cause}, false));
  EXPECT_TRUE(
      refused(run(Arguments{"sweep", "mnist-lenet", "data.path=" + data(), "train.device=simulated",
                            "simulated.update_ms=1,2", "--run", in("disk/sweep").string()}),
              1, {in("disk/sweep").string(), cause}, false));
}

TEST_F(FullDisk, ExplainsItselfWithJson) {
  MILLRACE_NEEDS_TORCH();
  const Result result = run(training("run", {"--json"}), limited());
  EXPECT_TRUE(refused(result, 1, {"model.safetensors"}, false));
}

TEST_F(FullDisk, StepsBeyondTheLimit) {
  // 10 steps per epoch at some 150 bytes per row: steps.csv reaches the limit long before the end.
  const Result result =
      run(simulated("run", {"simulated.update_ms=0", "train.epochs=300"}), limited());
  EXPECT_TRUE(refused(result, 1, {(in("run") / "steps.csv").string()}, false));
  EXPECT_FALSE(fs::exists(in("run") / "summary.json"));
  EXPECT_TRUE(no_temporaries(in("run")));
}

TEST_F(FullDisk, PredictionsBeyondTheLimit) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(run(training("run"))));
  RunOptions little;
  little.max_file_bytes = 1000;  // 60 rows take more
  const std::string file = in("predictions.csv").string();
  const Arguments eval{"eval", in("run").string(), "--predictions", file};
  EXPECT_TRUE(refused(run(eval, little), 1, {file}));
  EXPECT_FALSE(fs::exists(file));
  EXPECT_TRUE(no_temporaries(in("")));
}

TEST_F(FullDisk, DumpBeyondTheLimit) {
  const Arguments dump{"--dump", in("dump").string()};
  EXPECT_TRUE(refused(run(bench(dump), limited()), 1, {in("dump").string()}));
  EXPECT_FALSE(fs::exists(in("dump")));
  EXPECT_TRUE(no_temporaries(in("")));
  // An existing file stays unchanged.
  write_file(in("dump"), "before");
  EXPECT_TRUE(refused(run(bench(dump), limited()), 1, {in("dump").string()}));
  EXPECT_EQ(read_file(in("dump")), "before");
}

TEST_F(FullDisk, DumpOntoAFullDevice) {
  // Uses a link, so that a program that replaces its output file harms only the link.
  fs::create_symlink("/dev/full", in("full"));
  EXPECT_TRUE(refused(run(bench({"--dump", in("full").string()})), 1,
                      {in("full").string(), "No space left"}));
  EXPECT_TRUE(fs::is_symlink(in("full"))) << "the device's name was taken by a file";
}

TEST_F(FullDisk, DumpIntoAFolderThatIsNotThere) {
  EXPECT_TRUE(refused(run(bench({"--dump", in("nowhere/dump").string()})), 1,
                      {in("nowhere/dump").string()}));
}

}  // namespace
}  // namespace millrace::program_test
