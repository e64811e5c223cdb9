// Every way in which a defective plugin can end a run is reported with the plugin's name: a crash,
// exit(), an exception, a file that is no plugin.
#include <signal.h>
#include <sys/stat.h>

#include "tests/plugins/support.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;
using plugin_test::test_plugin;

class PluginCrashes : public ProgramTest {
 protected:
  static Arguments with(const std::string& defect) {
    return {"plugins.path=" + test_plugin("defect_" + defect), "augment+=defect", "-q"};
  }
  /// Expects one line of ours that contains all of `parts`.
  static testing::AssertionResult names(const Result& result,
                                        const std::vector<std::string>& parts) {
    const auto fails = [&](const std::string& why) {
      return testing::AssertionFailure()
             << why << "\nexit " << result.exit_code << ", signal " << result.signal << "\n"
             << result.err;
    };
    if (count_of("\n" + result.err, "\nmillrace: ") != 1) return fails("expected one line");
    for (const std::string& part : parts)
      if (result.err.find(part) == std::string::npos) return fails("not said: " + part);
    return testing::AssertionSuccess();
  }
};

TEST_F(PluginCrashes, SignalsInAUnitAreNamedAndKeepTheirEffect) {
  for (const auto& [defect, number] :
       std::vector<std::pair<std::string, int>>{{"crash", SIGSEGV},
                                                {"recurses", SIGSEGV},
                                                {"aborts", SIGABRT},
                                                {"divides", SIGFPE},
                                                {"illegal", SIGILL},
                                                {"bus_error", SIGBUS}})
    for (const char* workers : {"loader.workers=0", "loader.workers=2"}) {
      const Result result = run(bench(with(defect) + Arguments{workers}));
      EXPECT_EQ(result.signal, number) << defect;
      EXPECT_TRUE(names(result, {"plugin defect (" + test_plugin("defect_" + defect) + ")",
                                 "pixel 'defect' crashed: SIG" + std::string(sigabbrev_np(number)),
                                 "plugins check"}))
          << defect;
    }
}

TEST_F(PluginCrashes, InTrainingToo) {
  const Result crash = run(simulated("run", with("crash")));
  EXPECT_EQ(crash.signal, SIGSEGV);
  EXPECT_TRUE(names(crash, {"pixel 'defect' crashed: SIGSEGV"}));
  EXPECT_TRUE(refused(
      run(simulated("run", with("throws"))), 3,
      {test_plugin("defect_throws"), "defect: it threw an exception", "the sky is falling"}));
}

TEST_F(PluginCrashes, AnExitIsNoEnd) {
  const std::string file = test_plugin("defect_exit_at_load");
  const Result at_load = run(simulated("run", with("exit_at_load")));
  EXPECT_EQ(at_load.exit_code, 3);
  EXPECT_TRUE(names(at_load, {file, "while it was loaded it called exit()"}));
  EXPECT_FALSE(fs::exists(in("run")));
  for (const char* workers : {"loader.workers=0", "loader.workers=2"}) {
    const Result in_apply = run(bench(with("calls_exit") + Arguments{workers}));
    EXPECT_EQ(in_apply.exit_code, 3);
    EXPECT_TRUE(names(in_apply, {"pixel 'defect' called exit()"}));
  }
}

TEST_F(PluginCrashes, AtLoad) {
  const Result crash = run(bench(with("crash_at_load")));
  EXPECT_EQ(crash.signal, SIGABRT);
  EXPECT_TRUE(
      names(crash, {test_plugin("defect_crash_at_load"), "while it was loaded", "SIGABRT"}));
  EXPECT_TRUE(refused(
      run(bench(with("throws_at_load"))), 3,
      {test_plugin("defect_throws_at_load"), "while it was loaded it threw an exception: no"}));
}

TEST_F(PluginCrashes, ExceptionsOfCreateAndDestroy) {
  EXPECT_TRUE(refused(run(bench(with("create_throws"))), 3,
                      {test_plugin("defect_create_throws"), "defect: create() threw",
                       "create is not in the mood"}));
  // The results stay, but the exit code reports the failure.
  const Result late = run(bench(with("destroy_throws")));
  EXPECT_EQ(late.exit_code, 3) << late.err;
  EXPECT_TRUE(names(late, {test_plugin("defect_destroy_throws"), "defect: destroy() threw",
                           "it was dear to me"}));
  // An exception that nothing can catch.
  const Result uncaught = run(bench(with("destructor_throws")));
  EXPECT_EQ(uncaught.exit_code, 3) << uncaught.err;
  EXPECT_EQ(lines_of(uncaught.err).size(), 1u) << uncaught.err;
  EXPECT_TRUE(names(uncaught, {"pixel 'defect' threw an exception: not even once"}));
}

TEST_F(PluginCrashes, WhatAPluginPrintsIsNoResult) {
  const std::string loaded = "loaded, says the plugin\n", applied = "applied, says the plugin\n";
  for (const Arguments& command : {bench(with("prints") + Arguments{"--json"}),
                                   simulated("run", with("prints") + Arguments{"--json"})}) {
    const Result result = run(command);
    ASSERT_TRUE(succeeded(result));
    EXPECT_EQ(parse_json(result.out)["plugins"].back()["id"], "defect");
    EXPECT_EQ(count_of(result.err, loaded), 1u);
    EXPECT_GE(count_of(result.err, applied), 200u);
  }
  // The results of ranks and of a sweep's runs go where they did before.
  const Result ranks = run(Arguments{"launch", "-n", "1", "--"} +
                           simulated("ranks", with("prints") + Arguments{"--json"}));
  ASSERT_TRUE(succeeded(ranks));
  EXPECT_TRUE(parse_json(ranks.out).contains("images_per_s"));
  // Lost results are still reported.
  RunOptions full;
  full.stdout_to = "/dev/full";
  EXPECT_EQ(run(bench(with("prints") + Arguments{"--json"}), full).exit_code, 1);
}

TEST_F(PluginCrashes, FilesThatAreNoPluginsAreRefusedBeforeTheyAreLoaded) {
  const auto refuses = [&](const std::string& file, const std::string& reason) {
    EXPECT_TRUE(
        refused(run(bench({"plugins.path=" + file, "-q"})), 3, {in("x.so").string(), reason}));
  };
  const std::string x = in("x.so").string();
  const std::string whole = read_file(test_plugin("defect_none"));
  write_file(x, whole.substr(0, whole.size() / 3));
  refuses(x, "cut short");
  refuses(in("").string(), "cut short");
  write_file(x, whole.substr(0, 100));
  refuses(x, "cut short");
  write_file(x, "hello");
  refuses(x, "not a shared object");
  std::string other = whole;
  other[18] = 8;  // MIPS
  other[19] = 0;
  write_file(x, other);
  refuses(x, "another kind of machine");
  fs::remove(x);
  ASSERT_EQ(mkfifo(x.c_str(), 0600), 0);
  refuses(x, "not a regular file");
  refuses(in("").string(), "not a regular file");
  EXPECT_EQ(run({"plugins", "check", x}).exit_code, 3);
}

}  // namespace
}  // namespace millrace::program_test
