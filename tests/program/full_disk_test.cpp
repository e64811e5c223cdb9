// A disk that fills up during a large write: exit 1, one line that names the file, and no partial
// file under any name.
#include <sys/mount.h>

#include <cerrno>
#include <cstring>

#include "tests/program/program.h"

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
  fs::create_directories(in("disk"));
  if (mount("tmpfs", in("disk").c_str(), "tmpfs", 0, "size=200k") != 0)
    GTEST_SKIP() << "no tmpfs can be mounted here (" << std::strerror(errno)
                 << "): a file system that is really full is not tried; run as root to try it";
  const Result result = run(training("disk/run"));
  EXPECT_TRUE(refused(result, 1, {"model.safetensors", "No space left"}, false));
  expect_no_checkpoint(in("disk/run"));
  umount2(in("disk").c_str(), MNT_DETACH);
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
