// Command line: rejected words, help texts, and the effect of -q.
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

class CommandLine : public ProgramTest {};

const std::vector<std::string>& commands() {
  static const std::vector<std::string> all{"train", "eval",   "bench",  "sweep", "report",
                                            "data",  "launch", "doctor", "keys",  "recipe"};
  return all;
}

TEST_F(CommandLine, HelpOfEachCommandEndsWithAWorkedExample) {
  std::vector<Arguments> all{
      {"data", "make"}, {"data", "make", "digits"}, {"data", "make", "photos"}, {"data", "verify"}};
  for (const auto& command : commands()) all.push_back({command});
  for (const auto& command : all) {
    std::string name = "millrace";
    for (const auto& word : command) name += " " + word;
    const Result result = run(command + Arguments{"--help"});
    ASSERT_TRUE(succeeded(result)) << name;
    EXPECT_EQ(result.err, "") << name;
    const std::size_t example = result.out.find("\nExample:\n");
    ASSERT_NE(example, std::string::npos) << name << ":\n" << result.out;
    const auto lines = lines_of(result.out.substr(example + 10));
    ASSERT_FALSE(lines.empty()) << name;
    for (const auto& line : lines)
      EXPECT_TRUE(line.empty() || line.starts_with("  " + name + " ")) << name << ": " << line;
    if (name == "millrace data" || name == "millrace data make") continue;  // they take no options
    EXPECT_NE(result.out.find("--json"), std::string::npos) << name;
    EXPECT_NE(result.out.find("-q"), std::string::npos) << name;
  }
}

TEST_F(CommandLine, TheProgramsHelpNamesEveryCommand) {
  const Result result = run({"--help"});
  ASSERT_TRUE(succeeded(result));
  for (const auto& command : commands())
    EXPECT_NE(result.out.find("\n  " + command), std::string::npos) << command;
}

TEST_F(CommandLine, VersionIsOneLine) {
  const Result result = run({"--version"});
  ASSERT_TRUE(succeeded(result));
  EXPECT_EQ(lines_of(result.out).size(), 1u);
  EXPECT_TRUE(result.out.starts_with("millrace ")) << result.out;
  EXPECT_NE(result.out.find("commit"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("LibTorch"), std::string::npos) << result.out;
}

TEST_F(CommandLine, UnknownCommandIsRefusedByName) {
  EXPECT_TRUE(refused(run({"trian", "mnist-lenet"}), 2, {"trian"}));
}

TEST_F(CommandLine, NoCommandAtAllIsRefused) { EXPECT_TRUE(refused(run({}), 2, commands())); }

TEST_F(CommandLine, UnknownOptionIsRefusedByName) {
  for (const Arguments& command : std::vector<Arguments>{
           {"train"}, {"eval", "runs/real"}, {"bench"}, {"sweep"}, {"data"}, {"doctor"}})
    EXPECT_TRUE(refused(run(command + Arguments{"--wrokers"}), 2, {"--wrokers"})) << command[0];
}

TEST_F(CommandLine, OptionWithoutItsValueIsRefusedByName) {
  EXPECT_TRUE(refused(run({"train", "mnist-lenet", "--run"}), 2, {"--run"}));
}

TEST_F(CommandLine, EvalWithoutARunIsRefused) { EXPECT_TRUE(refused(run({"eval"}), 2, {"what"})); }

TEST_F(CommandLine, QuietLeavesStderrEmptyAndResultsWhereTheyWere) {
  const Result loud = run(simulated("loud"));
  ASSERT_TRUE(succeeded(loud));
  EXPECT_NE(loud.err, "");
  const Result quiet = run(simulated("quiet", {"-q"}));
  ASSERT_TRUE(succeeded(quiet));
  EXPECT_EQ(quiet.err, "");
  EXPECT_NE(quiet.out.find("update"), std::string::npos) << quiet.out;
}

TEST_F(CommandLine, QuietCommandsThatWriteFilesPrintNothing) {
  const std::string run_path = in("run").string();
  ASSERT_TRUE(succeeded(run(simulated("run", {"-q"}))));
  for (const Arguments& command : std::vector<Arguments>{
           {"data", "make", "digits", in("digits").string(), "--train", "20", "--test", "10"},
           {"data", "make", "photos", in("photos").string(), "--count", "4", "--classes", "2"},
           {"data", "pack", in("photos").string(), in("packed").string()},
           {"data", "index", in("packed").string()},
           {"data", "verify", in("digits").string()},
           {"plugins", "new", "my_op", "--dir", in("").string()},
           {"plugins", "check", MILLRACE_EXAMPLE_PLUGINS "/vignette.so"},
           {"inspect", "mnist-lenet", "data.path=" + data(), "--out", in("sheet.png").string()},
           {"report", run_path},
           {"report", run_path, "--csv"}}) {
    const Result result = run(command + Arguments{"-q"});
    const std::string name = command[0] + " " + command[1];
    EXPECT_TRUE(succeeded(result)) << name;
    EXPECT_EQ(result.out + result.err, "") << name;
  }
}

TEST_F(CommandLine, QuietStillTellsProblemsThatItLooksFor) {
  data();
  write_file(in("data/train-labels-idx1-ubyte"), "no labels");
  const Result result = run({"data", "verify", data(), "-q"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.out.find("problem: "), std::string::npos) << result.out;
}

TEST_F(CommandLine, VerboseIsListedWhereItPrintsMore) {
  for (const auto& command : commands()) {
    const bool trains = command == "train" || command == "launch";
    EXPECT_EQ(run({command, "--help"}).out.find("--verbose") != std::string::npos, trains)
        << command;
  }
  EXPECT_TRUE(succeeded(run({"keys", "-v"}))) << "taken everywhere";
}

TEST_F(CommandLine, QuietStillTellsErrors) {
  EXPECT_TRUE(refused(run({"train", "no-such-recipe", "-q"}), 2, {"no-such-recipe"}));
}

TEST_F(CommandLine, OffATerminalEachEpochIsOneLine) {
  const Result result = run(simulated("run", {"train.epochs=3"}));
  ASSERT_TRUE(succeeded(result));
  EXPECT_EQ(count_of("\n" + result.err, "\nepoch "), 3u) << result.err;
  EXPECT_EQ(result.err.find('\r'), std::string::npos);
  EXPECT_EQ(result.err.find('\033'), std::string::npos);
}

TEST_F(CommandLine, RunsWithoutAStdin) {
  RunOptions options;
  options.close_stdin = true;
  ASSERT_TRUE(succeeded(run(simulated("run", {"--hash"}), options)));
  ASSERT_TRUE(succeeded(run(simulated("other", {"--hash"}))));
  // A data file that replaced stdin would be read like any other.
  EXPECT_EQ(summary("run")["batch_hash"], summary("other")["batch_hash"]);
}

TEST_F(CommandLine, RunsWithoutARunOptionLandUnderRuns) {
  RunOptions options;
  options.cwd = in("");
  Arguments arguments = simulated("unused");
  arguments.erase(arguments.end() - 2, arguments.end());
  ASSERT_TRUE(succeeded(run(arguments, options)));
  ASSERT_TRUE(succeeded(run(arguments, options)));
  std::size_t runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(in("runs"))) {
    ++runs;
    EXPECT_TRUE(entry.path().filename().string().starts_with("mnist-lenet-")) << entry.path();
    EXPECT_TRUE(std::filesystem::exists(entry.path() / "summary.json"));
  }
  EXPECT_EQ(runs, 2u);
}

TEST_F(CommandLine, DoctorRefusesAFolderThatIsNotThere) {
  EXPECT_TRUE(refused(run({"doctor", "--storage", "/nope"}), 2, {"--storage /nope"}));
  EXPECT_TRUE(succeeded(run({"doctor", "--storage", in("").string()})));
}

/// Tests that the program does not load LibTorch before a command needs it, so that the CUDA module
/// can come first (see also tests/torch/cuda_hooks_test.cpp).
TEST_F(CommandLine, TheProgramItselfLoadsNoLibTorch) {
  RunOptions options;
  options.env = {{"LD_TRACE_LOADED_OBJECTS", "1"}};  // makes the loader list libraries and exit
  const Result result = run({}, options);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.out.find("libtbb"), std::string::npos) << result.out;
  for (const char* name :
       {"libtorch", "libc10", "libcuda", "libmillrace_torch", "libmillrace_cuda"})
    EXPECT_EQ(result.out.find(name), std::string::npos) << result.out;
}

}  // namespace
}  // namespace millrace::program_test
