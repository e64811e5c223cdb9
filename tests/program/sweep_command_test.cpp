// Sweeps over any program: placeholders, metrics, failures, and processes that end with the sweep.
#include <csignal>
#include <set>

#include "tests/attempts.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class SweepCommand : public ProgramTest {
 protected:
  /// Returns the arguments of a sweep into in("sweep"), run from the test's folder.
  Arguments sweep(const std::string& command, const Arguments& more) {
    return Arguments{"sweep", "--command", command, "--run", in("sweep").string()} + more;
  }
  RunOptions here() const {
    RunOptions options;
    options.cwd = in(".");
    return options;
  }
  Result run_here(const Arguments& arguments) { return run(arguments, here()); }
  Json record() const { return parse_json(read_file(in("sweep/sweep.json"))); }
  std::vector<std::string> run_folders() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(in("sweep/runs")))
      if (entry.is_directory()) names.insert(entry.path().filename().string());
    return {names.begin(), names.end()};
  }
  /// Waits until no process of that id is left.
  static bool is_gone(pid_t pid) {
    for (int i = 0; i < 500; ++i, sleep_ms(10))
      if (kill(pid, 0) != 0) return true;
    return false;
  }
  /// Waits until the file holds a process id, and returns it.
  pid_t pid_in(const fs::path& file) const {
    for (int i = 0; i < 500; ++i, sleep_ms(10))
      if (fs::exists(file) && read_file(file).ends_with("\n")) return std::stoi(read_file(file));
    return 0;
  }
};

TEST_F(SweepCommand, TheLastNumberThatIsPrintedIsTheMetric) {
  const Result result =
      run_here(sweep("echo loss=9 ; printf 'step\\rloss=%s\\n' {a}{b}",
                     {"a=1,2", "b=0,5", "--metric", "loss=([0-9.]+)", "--repeats", "2", "--json"}));
  ASSERT_TRUE(succeeded(result));
  const Json json = parse_json(result.out);
  ASSERT_EQ(json["cells"].size(), 4u);
  EXPECT_EQ(json["metric"], "loss=([0-9.]+)");
  EXPECT_EQ(json["program"]["shell"], "sh");
  const double expected[] = {10, 15, 20, 25};
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(json["cells"][i]["runs"].size(), 2u);
    for (const Json& one : json["cells"][i]["runs"])
      EXPECT_EQ(one["loss=([0-9.]+)"], expected[i]) << json["cells"][i]["overrides"];
  }
  EXPECT_NEAR(json["cells"][3]["comparison"]["ratio"], 2.5, 1e-12);
  EXPECT_EQ(run_folders().size(), 8u);
  const auto table = lines_of(read_file(in("sweep/table.csv")));
  EXPECT_TRUE(table[0].starts_with("a,b,total s,")) << table[0];
  EXPECT_EQ(table[0].find("load"), std::string::npos) << "no columns that stay empty: " << table[0];
}

TEST_F(SweepCommand, WithoutAMatchOnStdoutStderrIsSearched) {
  ASSERT_TRUE(succeeded(
      run_here(sweep("echo speed 3{a} >&2; echo done", {"a=1,2", "--metric", "speed ([0-9]+)"}))));
  EXPECT_EQ(record()["cells"][1]["runs"][0]["speed ([0-9]+)"], 32.0);
}

TEST_F(SweepCommand, WallIsTheDefaultMetricAndHasVerdicts) {
  test::in_attempts([&] {
    fs::remove_all(in("sweep"));
    ASSERT_TRUE(succeeded(run_here(sweep("sleep {s}", {"s=0.02,0.2", "--repeats", "5"}))));
    const Json json = record();
    EXPECT_EQ(json["metric"], "wall_s");
    EXPECT_EQ(json["cells"][1]["comparison"]["verdict"], "slower");
    for (const Json& one : json["cells"][1]["runs"]) EXPECT_GE(one["wall_s"], 0.2);
    for (const Json& one : json["cells"][0]["runs"]) EXPECT_LT(one["wall_s"], 0.2);
  });
}

TEST_F(SweepCommand, ANumberOfAJsonFileIsAMetric) {
  const std::string command =
      "echo '{\"test\":{\"accuracy\":0.{a}}}' > {run}/r.json; "
      "echo '{\"n\":{a}}' > shared-{a}.json";
  ASSERT_TRUE(succeeded(run_here(sweep(command, {"a=5,7", "--metric", "{run}/r.json:test.accuracy",
                                                 "--metric", "shared-{a}.json:n"}))));
  const Json cells = record()["cells"];
  EXPECT_EQ(cells[1]["runs"][0]["{run}/r.json:test.accuracy"], 0.7);
  EXPECT_EQ(cells[0]["runs"][0]["shared-{a}.json:n"], 5.0);
}

TEST_F(SweepCommand, AFileThatTheRunDidNotWriteIsNoResult) {
  write_file(in("old.json"), "{\"n\": 1}");
  EXPECT_TRUE(refused(run_here(sweep("echo {a}", {"a=1,2", "--metric", "old.json:n"})), 2,
                      {"old.json:n", "has not written"}, false));
}

TEST_F(SweepCommand, AFileOfEqualSizeIsWrittenAgainByEveryRun) {
  // Short runs, one right after the other: their files differ in nothing but their times.
  const Arguments more{"a=1,2", "--metric", "same.json:n", "--repeats", "8"};
  ASSERT_TRUE(succeeded(run_here(sweep("echo '{\"n\": 7}' > same.json; : {a}", more))));
  for (const Json& cell : record()["cells"]) {
    ASSERT_EQ(cell["runs"].size(), 8u);
    for (const Json& one : cell["runs"]) EXPECT_EQ(one["same.json:n"], 7.0) << one;
  }
}

TEST_F(SweepCommand, AWatchRecordGivesLoadAndUpdate) {
  const std::string command =
      R"(echo '{"images_per_s": 1{a}0, "load_s": 0.{a}, "update_s": 0.1}' > {run}/summary.json)";
  const Result result = run_here(sweep(command, {"a=1,2", "--metric", "images_per_s", "--wide"}));
  ASSERT_TRUE(succeeded(result));
  const Json one = record()["cells"][1]["runs"][0];
  EXPECT_EQ(one["images_per_s"], 120.0);
  EXPECT_EQ(one["load_s"], 0.2);
  EXPECT_NE(result.out.find("update s"), std::string::npos) << result.out;
  EXPECT_TRUE(refused(run_here(sweep("echo {a}", {"a=1,2", "--metric", "images_per_s"})), 2,
                      {"summary.json has no such number"}, false));
}

TEST_F(SweepCommand, AWatchRecordThatWasCutOffIsNoResult) {
  const std::string command =
      R"(echo '{"complete": false, "images_per_s": 1{a}0}' > {run}/summary.json)";
  EXPECT_TRUE(refused(run_here(sweep(command, {"a=1,2", "--metric", "images_per_s"})), 2,
                      {"summary.json has no such number"}, false));
}

TEST_F(SweepCommand, AFailedRunFailsItsRowAlone) {
  const Result result = run_here(sweep(
      "echo starting >&2; test {a} = 2 && { echo 'no {{memory}} left' >&2; exit 3; }; echo {a}",
      {"a=1,2,3", "--metric", "[0-9]+", "--repeats", "2"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("failed: exit code 3: no {memory} left"), std::string::npos)
      << result.err;
  EXPECT_NE(result.out.find("failed: exit code 3"), std::string::npos) << result.out;
  const Json cells = record()["cells"];
  EXPECT_EQ(cells[0]["runs"].size(), 2u);
  EXPECT_EQ(cells[1]["runs"].size(), 0u);
  EXPECT_EQ(cells[1]["refusal"], "exit code 3: no {memory} left");
  EXPECT_EQ(cells[2]["runs"].size(), 2u);
  int kept = 0;
  for (const auto& folder : run_folders())
    kept += read_file(in("sweep/runs") / folder / "stderr.txt").find("left") != std::string::npos;
  EXPECT_EQ(kept, 1) << "a row that failed is not run again in later blocks";
  const Result all = run_here(sweep("exit {a}", {"a=4,5"}));
  EXPECT_TRUE(refused(all, 1, {"every combination failed", "exit code"}, false));
}

TEST_F(SweepCommand, ANumberThatIsNotFiniteFailsItsRow) {
  const Result result = run_here(sweep("echo loss={a}", {"a=1,nan", "--metric", "loss=(.+)"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(record()["cells"][1]["refusal"], "loss=(.+) is nan");
}

TEST_F(SweepCommand, ATimeoutFailsTheRow) {
  const Result result = run_here(sweep("sleep {s}", {"s=0,60", "--timeout", "0.3"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_LT(result.wall_s, 20);
  EXPECT_EQ(record()["cells"][1]["refusal"], "timed out after 0.3 s");
}

TEST_F(SweepCommand, MistakesShowBeforeAnythingRuns) {
  const auto mistake = [&](const std::string& command, const Arguments& more,
                           const std::vector<std::string>& parts) {
    EXPECT_TRUE(refused(run_here(sweep(command, more)), 2, parts));
    EXPECT_FALSE(fs::exists(in("sweep"))) << command;
  };
  mistake("echo {workes}", {"workers=0,1"}, {"workers=0", "the command has no {workers}"});
  mistake("echo {workers} {aug}", {"workers=0,1"}, {"{aug} has no values"});
  mistake("echo {a}", {"a=1"}, {"nothing is swept"});
  mistake("echo {a}", {"train.py", "a=1,2"}, {"train.py is not key=a,b,c"});
  mistake("echo {a}", {"a=1,2", "--metric", "("}, {"no regular expression"});
  mistake("echo {a}", {"a=1,2", "--metric", "r.json:"}, {"no key"});
  mistake("echo '{a}", {"a=1,2", "--shell", "none"}, {"is not closed"});
  mistake("no_such_program {a}", {"a=1,2", "--shell", "none"},
          {"no_such_program: command not found"});
  mistake("echo {a}", {"a=1,2", "--shell", "no_such_shell"}, {"no_such_shell: command not found"});
  mistake("echo {a}", {"a=1,2", "--timeout", "-1"}, {"--timeout"});
  EXPECT_TRUE(refused(run_here({"sweep", "mnist-lenet", "loader.workers=0,1", "--shell", "sh"}), 2,
                      {"--shell belongs to --command"}));
}

TEST_F(SweepCommand, MistakesThatOnlyARunShowsStopTheSweep) {
  EXPECT_TRUE(refused(run_here(sweep("no_such_program {a}", {"a=1,2"})), 2,
                      {"command not found", "no_such_program"}, false));
  EXPECT_TRUE(refused(run_here(sweep("echo {a}", {"a=1,2", "--metric", "loss=([0-9]+)"})), 2,
                      {"--metric 'loss=([0-9]+)'", "no line of the output matches"}, false));
  EXPECT_TRUE(refused(run_here(sweep("echo a{a}", {"a=1,2", "--metric", "a."})), 2,
                      {"'a", "is not a number"}, false));
}

TEST_F(SweepCommand, ACorrectedMetricReadsTheRunsThatThereAre) {
  run_here(sweep("echo run >> log; echo loss {a}", {"a=1,2", "--metric", "los=([0-9]+)"}));
  ASSERT_EQ(lines_of(read_file(in("log"))).size(), 1u);
  const Arguments again{"sweep",    "--resume",     "--run", in("sweep").string(),
                        "--metric", "loss ([0-9]+)"};
  ASSERT_TRUE(succeeded(run_here(again)));
  EXPECT_EQ(lines_of(read_file(in("log"))).size(), 2u) << "the first run was run again";
  RunOptions elsewhere;
  elsewhere.cwd = "/";
  ASSERT_TRUE(succeeded(
      run({"sweep", "--resume", "--run", in("sweep").string(), "--repeats", "3"}, elsewhere)));
  EXPECT_EQ(lines_of(read_file(in("log"))).size(), 6u)
      << "resumed elsewhere, the command runs where the sweep was started";
}

TEST_F(SweepCommand, ValuesArePartOfTheShellsText) {
  ASSERT_TRUE(
      succeeded(run_here(sweep("set -- {x}; echo n=$#", {"x=a,b c", "--metric", "n=([0-9]+)"}))));
  EXPECT_EQ(record()["cells"][1]["runs"][0]["n=([0-9]+)"], 2.0);
}

TEST_F(SweepCommand, WithoutAShellAValueStaysOneWord) {
  ASSERT_TRUE(succeeded(run_here(sweep("sh -c 'echo n=$#' name {x} \"$HOME\"",
                                       {"x=a,b c", "--metric", "n=([0-9]+)", "--shell", "none"}))));
  EXPECT_EQ(record()["cells"][1]["runs"][0]["n=([0-9]+)"], 2.0);
}

TEST_F(SweepCommand, AReportShowsTheCommandAndItsMetric) {
  ASSERT_TRUE(succeeded(
      run_here(sweep("echo loss={a}", {"a=1,2", "--metric", "loss=([0-9]+)", "--repeats", "2"}))));
  const Result report = run({"report", in("sweep").string(), "--csv"});
  ASSERT_TRUE(succeeded(report));
  EXPECT_EQ(read_file(in("sweep/report/table.csv")), read_file(in("sweep/table.csv")));
}

TEST_F(SweepCommand, AKilledSweepTakesAllProcessesAlong) {
  // A shell, a child of it, and a grandchild in a session of its own.
  Child child(sweep("setsid sh -c 'echo $$ > {run}/../../../deep; sleep 60' & sleep 60; echo {a}",
                    {"a=1,2"}),
              here());
  const pid_t deep = pid_in(in("sweep/deep"));
  ASSERT_GT(deep, 0);
  child.send(SIGKILL);
  EXPECT_EQ(child.wait().signal, SIGKILL);
  EXPECT_TRUE(is_gone(deep));
}

TEST_F(SweepCommand, CtrlCReachesTheCommand) {
  Child child(sweep("trap 'echo stopped > seen; exit 1' INT; echo $$ > pid; "
                    "while :; do sleep 0.05; done; echo {a}",
                    {"a=1,2"}),
              here());
  ASSERT_GT(pid_in(in("pid")), 0);
  child.send(SIGINT);
  const Result result = child.wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(read_file(in("seen")), "stopped\n");
  EXPECT_NE(result.err.find("millrace sweep --resume --run"), std::string::npos) << result.err;
}

TEST_F(SweepCommand, WhatACommandLeavesBehindEndsWithIt) {
  ASSERT_TRUE(succeeded(run_here(sweep("sleep 60 & echo $! > {run}/pid; echo {a}", {"a=1,2"}))));
  for (const auto& folder : run_folders())
    EXPECT_TRUE(is_gone(std::stoi(read_file(in("sweep/runs") / folder / "run/pid"))));
}

}  // namespace
}  // namespace millrace::program_test
