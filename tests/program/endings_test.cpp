// Ctrl-C and other signals in the middle of an epoch: exit 130, one line, complete records, nothing
// left behind, no hang.
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/attempts.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

/// Most seconds from the signal to the end, for a program with nothing slow to finish.
constexpr double kSoon = 2;

class Endings : public ProgramTest {
 protected:
  /// Arguments of a run that only a signal ends. Steps take 10 ms, so that the signal comes in the
  /// middle of an epoch.
  Arguments endless(const std::string& name, const Arguments& more = {}) {
    return simulated(name, Arguments{"train.epochs=1000000", "simulated.update_ms=10"} + more);
  }
  static Result ended_by(Child& child, int signal) {
    const auto sent = std::chrono::steady_clock::now();
    child.send(signal);
    const Result result = child.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - sent;
    EXPECT_LT(took.count(), kSoon);
    EXPECT_EQ(result.exit_code, 130) << "signal " << result.signal << "\n" << result.err;
    EXPECT_EQ(count_of("\n" + result.err, "\nmillrace: "), 1u) << result.err;
    EXPECT_NE(result.err.find("millrace: interrupted"), std::string::npos) << result.err;
    return result;
  }
  void expect_whole_records(const std::string& name) {
    EXPECT_TRUE(no_temporaries(in(name)));
    ASSERT_TRUE(fs::exists(in(name) / "summary.json"));
    const Json s = summary(name);
    EXPECT_TRUE(s["interrupted"]);
    EXPECT_GT(s["steps"], 0);
    EXPECT_EQ(lines_of(read_file(in(name) / "steps.csv")).size(),
              s["steps"].get<std::size_t>() + 1);
    double images = 0;
    for (const auto& line : parse_json_lines(read_file(in(name) / "metrics.jsonl")))
      images += line["images"].get<double>();
    EXPECT_EQ(images, s["images"].get<double>());
  }
};

TEST_F(Endings, CtrlCWhileWorkersLoad) {
  Child child(endless("run", {"loader.workers=2"}));
  ASSERT_TRUE(child.says("epoch 1/"));
  sleep_ms(55);
  const Result result = ended_by(child, SIGINT);
  EXPECT_NE(result.err.find(in("run").string()), std::string::npos) << "the records' place";
  expect_whole_records("run");
}

TEST_F(Endings, CtrlCWhileLoadingInline) {
  Child child(endless("run", {"loader.workers=0"}));
  ASSERT_TRUE(child.says("epoch 1/"));
  sleep_ms(55);
  ended_by(child, SIGINT);
  expect_whole_records("run");
}

TEST_F(Endings, TermIsLikeCtrlC) {
  Child child(endless("run"));
  ASSERT_TRUE(child.says("epoch 1/"));
  ended_by(child, SIGTERM);
  expect_whole_records("run");
}

TEST_F(Endings, CtrlCInTheFirstStepOfAll) {
  Child child(endless("run", {"simulated.update_ms=300"}));
  ASSERT_TRUE(child.says("records in"));
  sleep_ms(50);
  ended_by(child, SIGINT);
  EXPECT_TRUE(no_temporaries(in("run")));
  EXPECT_TRUE(fs::exists(in("run") / "summary.json"));
}

TEST_F(Endings, SecondCtrlCEndsAtOnce) {
  test::in_attempts([&] {
    fs::remove_all(in("run"));
    Child child(endless("run", {"simulated.update_ms=20000"}));
    ASSERT_TRUE(child.says("records in"));
    sleep_ms(100);
    child.send(SIGINT);
    sleep_ms(300);
    if (!child.running()) return;  // it ended before the second signal
    const auto sent = std::chrono::steady_clock::now();
    child.send(SIGINT);
    EXPECT_EQ(child.wait().exit_code, 130);
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - sent).count(), 0.5);
    EXPECT_TRUE(no_temporaries(in("run")));
  });
}

TEST_F(Endings, CtrlCWhileAModelTrainsKeepsItsWeights) {
  MILLRACE_NEEDS_TORCH();
  Child child(training("run", {"train.epochs=1000000", "eval.every=1000"}));
  ASSERT_TRUE(child.says("epoch 2/"));
  sleep_ms(20);
  const Result result = ended_by(child, SIGINT);
  EXPECT_NE(result.err.find("--resume --run"), std::string::npos) << result.err;
  expect_whole_records("run");
  const std::string step = "step-" + summary("run")["steps"].dump();
  EXPECT_TRUE(fs::exists(in("run") / "checkpoints" / step / "model.safetensors"));
  EXPECT_TRUE(succeeded(run({"eval", in("run").string()})));
}

TEST_F(Endings, CtrlCDuringABenchLeavesNoDump) {
  Child child(bench({"bench.epochs=100000000", "--dump", in("dump").string(), "--json"}));
  sleep_ms(300);
  ASSERT_TRUE(child.running());
  const Result result = ended_by(child, SIGINT);
  EXPECT_EQ(result.out, "");
  EXPECT_FALSE(fs::exists(in("dump"))) << "a dump that may be partial";
  EXPECT_TRUE(no_temporaries(in("")));
}

TEST_F(Endings, CtrlCDuringASweepEndsItsChildrenToo) {
  Child child({"sweep", "mnist-lenet", "data.path=" + data(), "loader.workers=0,1",
               "train.device=simulated", "simulated.update_ms=10", "train.epochs=100000", "--run",
               in("sweep").string()});
  ASSERT_TRUE(child.says("records in"));
  sleep_ms(500);
  ASSERT_TRUE(child.running());
  ended_by(child, SIGINT);
  EXPECT_FALSE(child.leaves_processes()) << "a run goes on behind the sweep's back";
  EXPECT_TRUE(no_temporaries(in("sweep")));
  EXPECT_FALSE(fs::exists(in("sweep") / "sweep.json"));
}

TEST_F(Endings, CtrlCOnATerminalLetsASweepsRunFinishItsRecords) {
  // The terminal's signal reaches the sweep and its child. The child must not get a second one,
  // which would end it at once.
  Child child({"sweep", "mnist-lenet", "data.path=" + data(), "loader.workers=0,1",
               "train.device=simulated", "simulated.update_ms=400", "train.epochs=100000", "--run",
               in("sweep").string()});
  ASSERT_TRUE(child.says("records in"));
  sleep_ms(600);
  child.send_to_group(SIGINT);
  const Result result = child.wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_FALSE(child.leaves_processes());
  EXPECT_TRUE(no_temporaries(in("sweep")));
  for (const auto& entry : fs::directory_iterator(in("sweep/runs")))
    EXPECT_TRUE(!entry.is_directory() || fs::exists(entry.path() / "summary.json"))
        << entry.path() << " was cut off";
}

TEST_F(Endings, KilledRunLeavesReadableRecordsAndNoSummary) {
  Child child(endless("run"));
  ASSERT_TRUE(child.says("epoch 2/"));
  child.send(SIGKILL);
  EXPECT_EQ(child.wait().signal, SIGKILL);
  EXPECT_FALSE(fs::exists(in("run") / "summary.json"));
  EXPECT_GE(parse_json_lines(read_file(in("run") / "metrics.jsonl")).size(), 2u);
  // Its folder does not block the next run.
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  EXPECT_TRUE(fs::exists(in("run.1") / "metrics.jsonl"));
}

TEST_F(Endings, ReaderThatLeavesIsNoCrash) {
  // `millrace bench --json | true` breaks the pipe: the program may fail, but not by a signal.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  RunOptions options;
  options.stdout_to = "/proc/self/fd/" + std::to_string(ends[1]);
  close(ends[0]);
  const Result result = run(bench({"--json"}), options);
  close(ends[1]);
  EXPECT_EQ(result.signal, 0);
}

}  // namespace
}  // namespace millrace::program_test
