// stdout and stderr that are full, closed or abandoned by their reader: a run continues to its end,
// its output lands in no other file, and the exit code reports lost results.
#include <unistd.h>

#include <utility>

#include "tests/program/datasets.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

/// A pipe without a reader, to be opened by name.
class LeftPipe {
 public:
  LeftPipe() {
    if (pipe(ends_) != 0) throw std::runtime_error("no pipe");
    close(ends_[0]);
  }
  ~LeftPipe() { close(ends_[1]); }
  LeftPipe(const LeftPipe&) = delete;
  LeftPipe& operator=(const LeftPipe&) = delete;
  std::string name() const { return "/proc/self/fd/" + std::to_string(ends_[1]); }

 private:
  int ends_[2] = {-1, -1};
};

class Streams : public ProgramTest {
 protected:
  /// Expects all records of a run of three epochs, without any messages in them.
  void expect_whole(const std::string& name) {
    ASSERT_TRUE(fs::exists(in(name) / "summary.json"));
    EXPECT_EQ(summary(name)["epochs"], 3);
    EXPECT_EQ(parse_json_lines(read_file(in(name) / "metrics.jsonl")).size(), 3u);
    EXPECT_EQ(lines_of(read_file(in(name) / "steps.csv")).size(), 31u);
    for (const auto& entry : fs::recursive_directory_iterator(in(name))) {
      if (!entry.is_regular_file()) continue;
      EXPECT_EQ(read_file(entry.path()).find("epoch 1/"), std::string::npos) << entry.path();
    }
  }
  Arguments three_epochs(const std::string& name) {
    return simulated(name, {"train.epochs=3", "--verbose", "train.log_every=1"});
  }
};

TEST_F(Streams, StderrThatIsFullClosedOrLeftEndsNoRun) {
  const LeftPipe left;
  std::vector<std::pair<std::string, RunOptions>> cases(3);
  cases[0] = {"full", {}};
  cases[0].second.stderr_to = "/dev/full";
  cases[1] = {"closed", {}};
  cases[1].second.close_stderr = true;
  cases[2] = {"left", {}};
  cases[2].second.stderr_to = left.name();
  for (const auto& [name, options] : cases) {
    SCOPED_TRACE(name);
    const Result result = run(three_epochs(name), options);
    EXPECT_TRUE(succeeded(result));
    EXPECT_NE(result.out.find("records: "), std::string::npos) << result.out;
    expect_whole(name);
  }
}

TEST_F(Streams, ALostResultIsToldAfterTheRun) {
  std::vector<std::pair<std::string, RunOptions>> cases(2);
  cases[0] = {"No space left", {}};
  cases[0].second.stdout_to = "/dev/full";
  cases[1] = {"Bad file descriptor", {}};
  cases[1].second.close_stdout = true;
  for (const auto& [why, options] : cases) {
    SCOPED_TRACE(why);
    EXPECT_TRUE(
        refused(run(three_epochs(why), options), 1, {"stdout cannot be written", why}, false));
    expect_whole(why);
  }
}

TEST_F(Streams, NoStreamAtAllEndsNoRun) {
  const LeftPipe left;  // like: millrace train ... 2>&1 | head -1
  RunOptions both;
  both.stdout_to = both.stderr_to = left.name();
  EXPECT_EQ(run(three_epochs("left"), both).exit_code, 0);
  expect_whole("left");
  RunOptions none;
  none.close_stdin = none.close_stdout = none.close_stderr = true;
  EXPECT_EQ(run(three_epochs("closed"), none).exit_code, 1);
  expect_whole("closed");
}

TEST_F(Streams, AReaderThatHasSeenEnoughIsNoError) {
  const LeftPipe left;  // like: millrace report runs/first --md | head -1
  RunOptions piped;
  piped.stdout_to = left.name();
  const Result trained = run(three_epochs("run") + Arguments{"-q"}, piped);
  EXPECT_TRUE(succeeded(trained));
  expect_whole("run");
  for (const Arguments& command : std::vector<Arguments>{
           {"report", in("run").string(), "--md"}, {"keys"}, {"plugins", "list", "--json"}}) {
    const Result result = run(command, piped);
    EXPECT_TRUE(succeeded(result)) << command[0];
    EXPECT_EQ(result.err, "") << command[0];
  }
}

TEST_F(Streams, NoCheckpointBecomesStderr) {
  MILLRACE_NEEDS_TORCH();
  RunOptions closed;
  closed.close_stdin = closed.close_stderr = true;
  ASSERT_TRUE(succeeded(run(training("run", {"--verbose", "train.log_every=1"}), closed)));
  EXPECT_TRUE(succeeded(run({"eval", in("run").string()})));
}

TEST_F(Streams, RanksWhoseLauncherHasNoStderrTrainOn) {
  MILLRACE_NEEDS_TORCH();
  RunOptions full;
  full.stderr_to = "/dev/full";
  ASSERT_TRUE(succeeded(run(
      Arguments{"launch", "-n", "2", "--"} + training("run", {"train.strategy=ddp", "--verbose"}),
      full)));
  EXPECT_EQ(summary("run")["world_size"], 2);
}

TEST_F(Streams, EveryCommandTellsOfLostResults) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  const std::string ran = in("run").string();
  const std::vector<Arguments> commands{
      {"--help"},
      {"--version"},
      {"report", ran, "--md"},
      {"report", ran, "--json"},
      {"data", "verify", data()},
      {"data", "verify", data(), "--json"},
      {"plugins", "list"},
      {"plugins", "info", "hflip", "--json"},
      {"doctor", "--json"},
      {"inspect", "mnist-lenet", "data.path=" + data(), "--plan"},
      bench(),
      {"sweep", "mnist-lenet", "data.path=" + data(), "train.device=simulated",
       "simulated.update_ms=0.1", "loader.workers=0,1", "--run", in("sweep").string()}};
  RunOptions full;
  full.stdout_to = "/dev/full";
  for (const Arguments& command : commands)
    EXPECT_TRUE(
        refused(run(command, full), 1, {"stdout cannot be written", "No space left"}, false))
        << command[0] << " " << (command.size() > 1 ? command[1] : "");
}

TEST_F(Streams, NamesDoNothingToATerminal) {
  // Clears the screen, sets the title, starts a line of its own, reverses the writing direction.
  const std::string evil = "\x1b[2J\x1b]0;owned\x07\nmillrace: all is well\xc2\x9b\xe2\x80\xae";
  write_photos(in("set"), 4);
  fs::rename(in("set/train/ape"), in("set/train") / evil);
  const std::string path = in("set").string();
  const Arguments recipe{"imagenet-rrc", "data.reader=folder", "data.path=" + path,
                         "loader.batch=2"};
  const Arguments run_it =
      Arguments{"train"} + recipe +
      Arguments{"train.device=simulated", "simulated.update_ms=0.1", "--run", in("run").string()};
  std::vector<Result> results{run({"data", "verify", path}),
                              run(run_it),
                              run({"report", in("run").string(), "--md"}),
                              run({"report", in(evil).string()}),
                              run({"train", evil}),
                              run(bench({"loader." + evil + "=1"})),
                              run(bench({"data.reader=" + evil + "\x9b"})),
                              run(bench({"data.path=" + in(evil).string()})),
                              run({"plugins", "info", evil}),
                              run({"plugins", "info", in(evil).string() + ".so"})};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(succeeded(results[i]));
  for (const Result& result : results) {
    EXPECT_EQ(result.out.find_first_of("\x1b\x07\x9b"), std::string::npos) << result.out;
    EXPECT_EQ(result.err.find_first_of("\x1b\x07\x9b"), std::string::npos) << result.err;
    EXPECT_EQ((result.out + result.err).find("\xe2\x80\xae"), std::string::npos);
    EXPECT_EQ(("\n" + result.err).find("\nmillrace: all is well"), std::string::npos) << result.err;
  }
  const Json document = parse_json(run({"data", "verify", path, "--json"}).out);
  EXPECT_TRUE(document["splits"][0]["classes"].contains(evil)) << document;
}

}  // namespace
}  // namespace millrace::program_test
