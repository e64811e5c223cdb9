// millrace launch: N ranks of one run on this host, their output and how they end.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

std::string environment_of(pid_t pid) {
  std::string text = read_file("/proc/" + std::to_string(pid) + "/environ");
  for (char& c : text)
    if (c == '\0') c = '\n';
  return "\n" + text;
}

class Launch : public ProgramTest {
 protected:
  /// Returns `launch -n N --` and a run on a simulated device.
  Arguments launched(int ranks, const std::string& name, const Arguments& more = {}) {
    return Arguments{"launch", "-n", std::to_string(ranks), "--"} + simulated(name, more);
  }
  Arguments endless(int ranks, const std::string& name, const Arguments& more = {}) {
    return launched(ranks, name,
                    Arguments{"train.epochs=1000000", "simulated.update_ms=10"} + more);
  }
};

TEST_F(Launch, RanksShareEachBatch) {
  // 200 images in batches of 30: six and a rest of 20.
  const Result result = run(launched(3, "run", {"loader.batch=30", "loader.workers=1", "--json"}));
  ASSERT_TRUE(succeeded(result));
  const Json rank0 = parse_json(result.out);
  EXPECT_EQ(rank0, summary("run")) << "stdout is rank 0's, one document";
  std::uint64_t images = 0;
  for (const char* name : {"run", "run.rank1", "run.rank2"}) {
    const Json s = summary(name);
    EXPECT_EQ(s["world_size"], 3);
    EXPECT_EQ(s["batch"], 30);
    EXPECT_EQ(s["steps"], 7);
    images += s["images"].get<std::uint64_t>();
  }
  EXPECT_EQ(images, 200u);
  EXPECT_NE(result.err.find("[rank 1] epoch 1/1"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("[rank 2] epoch 1/1"), std::string::npos) << result.err;
  EXPECT_NE(("\n" + result.err).find("\nepoch 1/1"), std::string::npos) << "rank 0's stay bare";
  EXPECT_EQ(result.err.find("[rank 0]"), std::string::npos);
}

TEST_F(Launch, BatchPerRankSetsTheGlobalBatch) {
  ASSERT_TRUE(succeeded(run(launched(2, "run", {"loader.batch_per_rank=25"}))));
  EXPECT_EQ(summary("run")["batch"], 50);
  EXPECT_EQ(summary("run")["steps"], 4);
  EXPECT_EQ(summary("run.rank1")["images"], 100);
}

TEST_F(Launch, OneRankIsARunLikeAnyOther) {
  ASSERT_TRUE(succeeded(run(launched(1, "one", {"--hash"}))));
  ASSERT_TRUE(succeeded(run(simulated("alone", {"--hash"}))));
  EXPECT_EQ(summary("one")["batch_hash"], summary("alone")["batch_hash"]);
  EXPECT_EQ(summary("one")["world_size"], 1);
}

TEST_F(Launch, TheDoubleDashMayBeLeftOut) {
  ASSERT_TRUE(succeeded(run(Arguments{"launch", "-n", "2"} + simulated("run"))));
  ASSERT_TRUE(succeeded(run(Arguments{"launch", "-n", "2", "--quiet"} + simulated("quiet"))));
  EXPECT_EQ(summary("quiet.rank1")["world_size"], 2);
}

TEST_F(Launch, GivesTorchrunsEnvironment) {
  RunOptions options;
  options.env = {{"OMP_NUM_THREADS", "3"},
                 {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                 {"RANK", "7"},
                 {"WORLD_SIZE", "9"}};
  Child child(endless(2, "run"), options);
  ASSERT_TRUE(child.says("epoch 2/"));
  ASSERT_TRUE(child.says("[rank 1] epoch 2/"));
  const std::vector<pid_t> ranks = children_of(child.pid());
  ASSERT_EQ(ranks.size(), 2u);
  std::string ports[2];
  for (int rank = 0; rank < 2; ++rank) {
    const std::string env = environment_of(ranks[static_cast<std::size_t>(rank)]);
    const std::string number = std::to_string(rank);
    for (const std::string& variable :
         {"RANK=" + number, "LOCAL_RANK=" + number, std::string("WORLD_SIZE=2"),
          std::string("LOCAL_WORLD_SIZE=2"), std::string("MASTER_ADDR=127.0.0.1"),
          std::string("OMP_NUM_THREADS=3")})
      EXPECT_NE(env.find("\n" + variable + "\n"), std::string::npos) << variable << env;
    EXPECT_EQ(env.find("TORCHELASTIC_USE_AGENT_STORE"), std::string::npos);
    const auto at = env.find("\nMASTER_PORT=");
    ASSERT_NE(at, std::string::npos);
    ports[rank] = env.substr(at, env.find('\n', at + 1) - at);
  }
  EXPECT_EQ(ports[0], ports[1]);
}

TEST_F(Launch, ThreadsAreSharedByTheRanksOfTheHost) {
  ASSERT_TRUE(succeeded(run(simulated("alone", {"loader.workers=0"}))));
  const auto cores = summary("alone")["threads"].get<int>();
  ASSERT_TRUE(succeeded(run(launched(2, "run", {"loader.workers=0"}))));
  EXPECT_EQ(summary("run.rank1")["threads"], std::max(1, cores / 2));
}

TEST_F(Launch, CtrlCEndsAllRanksInOrder) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string name = "run" + std::to_string(signal);
    Child child(endless(2, name));
    ASSERT_TRUE(child.says("epoch 2/"));
    ASSERT_TRUE(child.says("[rank 1] epoch 2/"));
    child.send_to_group(signal);  // like a terminal: the ranks receive it once, from the launcher
    const Result result = child.wait();
    EXPECT_EQ(result.exit_code, 130) << result.err;
    // Each rank has its own records, so each reports it.
    EXPECT_EQ(count_of(result.err, "[rank 0] millrace: interrupted after step"), 1u) << result.err;
    EXPECT_EQ(count_of(result.err, "[rank 1] millrace: interrupted after step"), 1u) << result.err;
    EXPECT_TRUE(summary(name)["interrupted"]);
    EXPECT_TRUE(summary(name + ".rank1")["interrupted"]);
    EXPECT_FALSE(child.leaves_processes());
  }
}

TEST_F(Launch, AStoppedRankGoesOnToEndWithTheOthers) {
  Child child(endless(2, "run"));
  ASSERT_TRUE(child.says("epoch 2/"));
  ASSERT_TRUE(child.says("[rank 1] epoch 2/"));
  const std::vector<pid_t> ranks = children_of(child.pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGSTOP);
  child.send(SIGTERM);
  EXPECT_EQ(child.wait().exit_code, 130);
  EXPECT_TRUE(summary("run.rank1")["interrupted"]);
  EXPECT_FALSE(child.leaves_processes());
}

TEST_F(Launch, ASignalAtAnyMomentOfAStartEndsAllRanks) {
  // From before the ranks have become the program until their first steps.
  for (const int ms : {0, 1, 2, 5, 10, 20, 40, 80, 160}) {
    Child child(endless(3, "run" + std::to_string(ms)));
    while (child.running() && children_of(child.pid()).empty()) {
    }
    if (ms > 0) sleep_ms(ms);
    child.send(SIGTERM);
    const Result result = child.wait();
    EXPECT_EQ(result.exit_code, 130) << ms << " ms: " << result.err;
    EXPECT_FALSE(child.leaves_processes()) << ms << " ms";
  }
}

TEST_F(Launch, TheKeyTravelsByEnvironment) {
  Child child(endless(2, "run"));
  ASSERT_TRUE(child.says("[rank 1] epoch 1/"));
  const std::vector<pid_t> ranks = children_of(child.pid());
  ASSERT_EQ(ranks.size(), 2u);
  std::string keys[2];
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string env = environment_of(ranks[rank]);
    const auto at = env.find("\nMILLRACE_KEY=");
    ASSERT_NE(at, std::string::npos);
    keys[rank] = env.substr(at + 14, env.find('\n', at + 1) - at - 14);
    EXPECT_EQ(keys[rank].size(), 16u);
    const std::string words = read_file("/proc/" + std::to_string(ranks[rank]) + "/cmdline");
    EXPECT_NE(words.find("mnist-lenet"), std::string::npos);
    EXPECT_EQ(words.find(keys[rank]), std::string::npos);
    EXPECT_EQ(env.find("\nMILLRACE_STORE_FD=") != std::string::npos, rank == 0);
  }
  EXPECT_EQ(keys[0], keys[1]);
  Child another(endless(1, "another"));
  ASSERT_TRUE(another.says("epoch 1/"));
  EXPECT_EQ(environment_of(children_of(another.pid()).at(0)).find(keys[0]), std::string::npos);
}

TEST_F(Launch, TooFewDescriptorsAreRefused) {
  RunOptions options;
  options.max_files = 24;
  EXPECT_TRUE(refused(run(launched(2, "run"), options), 1, {"open files", "24"}));
  EXPECT_FALSE(fs::exists(in("run")));
}

TEST_F(Launch, ASchedulersSignalToEveryProcessIsOneSignal) {
  Child child(endless(2, "run", {"simulated.update_ms=400"}));
  ASSERT_TRUE(child.says("records in"));
  ASSERT_TRUE(child.says("[rank 1] mnist-lenet"));
  sleep_ms(500);
  // Signals the ranks first, whose parent is the launcher, not this test.
  for (const pid_t rank : children_of(child.pid())) kill(rank, SIGTERM);
  child.send(SIGTERM);
  EXPECT_EQ(child.wait().exit_code, 130);
  EXPECT_TRUE(summary("run")["interrupted"]);
  EXPECT_TRUE(summary("run.rank1")["interrupted"]);
}

TEST_F(Launch, ASecondCtrlCKills) {
  Child child(launched(2, "run", {"simulated.update_ms=60000"}));
  ASSERT_TRUE(child.says("records in"));
  ASSERT_TRUE(child.says("[rank 1] mnist-lenet"));
  sleep_ms(100);
  child.send(SIGINT);
  sleep_ms(500);
  ASSERT_TRUE(child.running()) << "a step of a minute is waited for";
  child.send(SIGINT);
  EXPECT_EQ(child.wait().exit_code, 130);
  for (int i = 0; i < 100 && child.leaves_processes(); ++i) sleep_ms(50);
  EXPECT_FALSE(child.leaves_processes());
}

TEST_F(Launch, ARankThatIsKilledIsNamedAndEndsTheOthers) {
  Child child(endless(3, "run"));
  ASSERT_TRUE(child.says("[rank 1] epoch 2/"));
  ASSERT_TRUE(child.says("[rank 2] epoch 2/"));
  const std::vector<pid_t> ranks = children_of(child.pid());
  ASSERT_EQ(ranks.size(), 3u);
  kill(ranks[1], SIGKILL);
  const Result result = child.wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("millrace: rank 1 (pid " + std::to_string(ranks[1]) +
                            ") was killed by SIGKILL"),
            std::string::npos)
      << result.err;
  EXPECT_FALSE(child.leaves_processes());
}

TEST_F(Launch, ARankThatIsKilledBeforeTheFirstStepIsNamedAtOnce) {
  MILLRACE_NEEDS_TORCH();
  for (const std::size_t victim : {0u, 1u}) {
    Child child(Arguments{"launch", "-n", "2", "--"} + training("run", {"train.strategy=ddp"}));
    std::vector<pid_t> ranks;
    while (child.running() && ranks.size() < 2) ranks = children_of(child.pid());
    ASSERT_EQ(ranks.size(), 2u);
    kill(ranks[victim], SIGKILL);
    const auto killed = std::chrono::steady_clock::now();
    const Result result = child.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - killed;
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find("millrace: rank " + std::to_string(victim)), std::string::npos)
        << result.err;
    EXPECT_NE(result.err.find("was killed by SIGKILL"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("interrupted"), std::string::npos) << result.err;
    EXPECT_LT(took.count(), 3.0);  // 5 s are given to ranks that watch each other
    EXPECT_FALSE(child.leaves_processes());
  }
}

TEST_F(Launch, ARankThatDoesNotEndIsKilledInTheEnd) {
  Child child(endless(2, "run"));
  ASSERT_TRUE(child.says("[rank 1] epoch 2/"));
  const std::vector<pid_t> ranks = children_of(child.pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[0], SIGSTOP);
  kill(ranks[1], SIGSEGV);
  const Result result = child.wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("was killed by SIGSEGV"), std::string::npos) << result.err;
  EXPECT_FALSE(child.leaves_processes());
}

TEST_F(Launch, TheFirstFailuresExitCodeIsItsOwn) {
  const Result usage = run(launched(2, "run", {"loader.wrokers=1"}));
  EXPECT_EQ(usage.exit_code, 2);
  EXPECT_NE(usage.err.find("did you mean loader.workers?"), std::string::npos) << usage.err;
  EXPECT_NE(usage.err.find("was the first to fail: exit code 2"), std::string::npos) << usage.err;
  EXPECT_EQ(count_of(usage.err, "did you mean"), 1u) << "said once\n" << usage.err;
  const Result data = run(launched(2, "run", {"data.path=" + in("nothing").string()}));
  EXPECT_EQ(data.exit_code, 3) << data.err;
}

TEST_F(Launch, RanksDieWithTheLauncher) {
  Child child(endless(2, "run"));
  ASSERT_TRUE(child.says("[rank 1] epoch 2/"));
  child.send(SIGKILL);
  EXPECT_EQ(child.wait().signal, SIGKILL);
  for (int i = 0; i < 100 && child.leaves_processes(); ++i) sleep_ms(50);
  EXPECT_FALSE(child.leaves_processes());
}

TEST_F(Launch, RanksOfAStrategyWithoutRanksAreRefused) {
  const Result result = run(Arguments{"launch", "-n", "2"} + training("run"));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("train.strategy=single, but 2 ranks were started"), std::string::npos)
      << result.err;
  EXPECT_FALSE(fs::exists(in("run")));
}

TEST_F(Launch, WrongUseIsRefused) {
  EXPECT_TRUE(refused(run({"launch", "-n", "2"}), 2, {"nothing to launch"}));
  EXPECT_TRUE(refused(run({"launch", "-n", "2", "--"}), 2, {"nothing to launch"}));
  EXPECT_TRUE(refused(run({"launch", "-n", "0", "--", "train"}), 2, {"-n 0", "from 1"}));
  EXPECT_TRUE(refused(run({"launch", "-n", "-3", "train"}), 2, {"-n -3"}));
  EXPECT_TRUE(refused(run({"launch", "-n", "two", "--", "train"}), 2, {"two"}));
  EXPECT_TRUE(refused(run({"launch", "--", "train"}), 2, {"-n"}));
  EXPECT_TRUE(refused(run({"launch", "-n", "2", "--", "bench"}), 2, {"train, not bench"}));
  EXPECT_TRUE(refused(run({"launch", "-n", "2", "sweep"}), 2, {"train, not sweep"}));
}

TEST_F(Launch, HelpEndsInAnExample) {
  const Result result = run({"launch", "--help"});
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("Example:\n  millrace launch -n 2 -- train"), std::string::npos)
      << result.out;
}

}  // namespace
}  // namespace millrace::program_test
