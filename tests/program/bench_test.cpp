// millrace bench on sets that are too large for whole epochs: limits, warm-up, percentiles.
#include <cstdlib>

#include "tests/attempts.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

class Bench : public ProgramTest {
 protected:
  Json measured(const Arguments& more) {
    const Result result = run(bench(Arguments{"--json"} + more));
    EXPECT_TRUE(succeeded(result));
    return parse_json(result.out);
  }
};

TEST_F(Bench, EndsAfterAsManyBatchesAsAsked) {
  for (const Arguments& words : {Arguments{"bench.batches=9"}, Arguments{"--batches", "9"}}) {
    const Json json = measured(words);
    EXPECT_EQ(json["batches"], 9) << "an epoch has 7";
    EXPECT_EQ(json["measured"]["batches"], 9) << "too few for a warm-up";
  }
  const Json many = measured({"bench.batches=55", "bench.first_batch=3"});
  EXPECT_EQ(many["batches"], 55);
  EXPECT_EQ(many["measured"]["batches"], 50);
}

TEST_F(Bench, BatchesOfALimitedRunAreThoseOfAWholeOne) {
  const Json whole = measured({"--hash", "bench.epochs=2"});
  const std::uint64_t batches = whole["batches"];
  const Json limited = measured({"--hash", "bench.batches=" + std::to_string(batches)});
  EXPECT_EQ(limited["batch_hash"], whole["batch_hash"]);
  EXPECT_NE(measured({"--hash", "bench.batches=3"})["batch_hash"], whole["batch_hash"]);
}

TEST_F(Bench, EndsAfterAsLongAsAsked) {
  const Json json = measured({"--seconds", "0.3"});
  EXPECT_GE(json["measured"]["wall_s"], 0.3);
  EXPECT_GT(json["batches"], 20) << "more epochs than one";
  EXPECT_TRUE(refused(run(bench({"--seconds", "0.3", "--hash"})), 2,
                      {"--hash with bench.seconds", "bench.batches=N"}));
}

TEST_F(Bench, WarmUpIsLeftOutOfTheFigures) {
  const Json json = measured({"bench.batches=30", "bench.warmup=10"});
  const Json& part = json["measured"];
  EXPECT_EQ(json["batches"], 30);
  EXPECT_EQ(part["batches"], 20);
  EXPECT_LT(part["wall_s"], json["wall_s"]);
  EXPECT_DOUBLE_EQ(json["images_per_s"].get<double>(),
                   part["images"].get<double>() / part["wall_s"].get<double>());
  EXPECT_EQ(json["per_stage"]["machinery"]["calls"], 20);
  const Result early = run(bench({"bench.batches=30", "bench.warmup=1"}));
  EXPECT_NE(early.err.find("warning: bench.warmup=1 is too short"), std::string::npos) << early.err;
  EXPECT_TRUE(refused(run(bench({"bench.batches=5", "bench.warmup=5"})), 2,
                      {"bench.warmup=5 leaves nothing to measure"}));
}

TEST_F(Bench, AWholeRunHasNoWarmUp) {
  const Json json = measured({});
  EXPECT_EQ(json["measured"]["batches"], json["batches"]);
  EXPECT_EQ(json["measured"]["images"], json["images"]);
  EXPECT_EQ(json["measured"]["wall_s"], json["wall_s"]);
}

TEST_F(Bench, PercentilesOfBatchesAndStages) {
  // One worker sleeps 4 ms in each read of a batch: the storage sets the pace. A late sleeper has
  // its next deadlines measured from the one it missed, so that a busy machine moves the median.
  test::in_attempts([&] {
    const Json json = measured({"bench.batches=40", "loader.workers=1", "loader.batch=4",
                                "loader.io_threads=0", "data.storage.latency=1ms"});
    const Json& interval = json["batch_interval_s"];
    EXPECT_GE(interval["p50"], 0.0039);
    EXPECT_LE(interval["p50"], interval["p90"]);
    EXPECT_LE(interval["p90"], interval["p99"]);
    EXPECT_LE(interval["p99"].get<double>(), 1.02 * interval["max"].get<double>());
    EXPECT_GE(json["per_stage"]["read"]["per_image_s"]["p50"], 0.0009);
    EXPECT_LT(json["per_stage"]["augment"]["per_image_s"]["p50"], 0.0009)
        << "a median of 160 samples";
  });
  const Result text = run(bench({"bench.batches=40"}));
  ASSERT_TRUE(succeeded(text));
  EXPECT_NE(text.out.find("time between batches: median "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("p99 µs"), std::string::npos) << text.out;
}

/// Runs a command on a pseudo-terminal, as Python's pty makes one.
TEST_F(Bench, ProgressOnATerminalHasRateAndTimeLeft) {
  const std::string script =
      "import pty, sys\npty.spawn(['" MILLRACE_BUILD
      "/millrace', 'bench', 'mnist-lenet', "
      "'data.path=" +
      data() + "', '--seconds', '1', 'data.storage.latency=1ms', 'loader.batch=4'])\n";
  write_file(in("terminal.py"), script);
  const std::string command =
      "python3 " + in("terminal.py").string() + " < /dev/null > " + in("screen").string() + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << read_file(in("screen"));
  const std::string screen = read_file(in("screen"));
  EXPECT_NE(screen.find(" images/s, "), std::string::npos) << screen;
  EXPECT_NE(screen.find(" s left"), std::string::npos) << screen;
}

}  // namespace
}  // namespace millrace::program_test
