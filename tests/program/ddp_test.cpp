// train.strategy=data_parallel and ddp, as a user starts them: they follow the single run, share
// its images, and end together when a rank dies.
#include <sched.h>

#include <csignal>
#include <memory>
#include <utility>

#include "tests/program/datasets.h"
#include "tests/program/nginx.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

std::vector<double> losses_of(const fs::path& run) {
  std::vector<double> losses;
  for (const std::string& line : lines_of(read_file(run / "steps.csv"))) {
    std::size_t at = 0;
    for (int column = 0; column < 6; ++column) at = line.find(',', at) + 1;
    if (line[0] != 'e') losses.push_back(std::stod(line.substr(at)));
  }
  return losses;
}

class Distributed : public ProgramTest {
 protected:
  void SetUp() override { MILLRACE_NEEDS_TORCH(); }

  Arguments launched(int ranks, const std::string& name, const Arguments& more = {}) {
    return Arguments{"launch", "-n", std::to_string(ranks), "--"} +
           training(name, Arguments{"train.strategy=ddp", "train.timeout=20"} + more);
  }

  void expect_follows(const std::string& name) {
    const auto wanted = losses_of(in("single"));
    const auto losses = losses_of(in(name));
    ASSERT_EQ(losses.size(), wanted.size());
    ASSERT_GE(wanted.size(), 20u);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(losses[i], wanted[i], 1e-4 * wanted[i]) << name << ", step " << i + 1;
    EXPECT_EQ(summary(name)["images"], summary("single")["images"]);
    EXPECT_NEAR(summary(name)["test_loss"].get<double>(),
                summary("single")["test_loss"].get<double>(), 1e-3);
  }
};

// 200 images in batches of 33: six and a rest of 2, so that one of three ranks gets none.
const Arguments kUneven{"loader.batch=33", "train.epochs=3", "train.lr=0.05"};

TEST_F(Distributed, RanksAndReplicasFollowTheSingleRun) {
  ASSERT_TRUE(succeeded(run(training("single", kUneven))));
  for (const int ranks : {2, 3}) {
    const std::string name = "ddp" + std::to_string(ranks);
    ASSERT_TRUE(succeeded(run(launched(ranks, name, kUneven))));
    expect_follows(name);
    const Json s = summary(name);
    EXPECT_EQ(s["world_size"], ranks);
    ASSERT_EQ(s["ranks"].size(), static_cast<std::size_t>(ranks));
    std::uint64_t images = 0;
    for (const Json& rank : s["ranks"]) {
      EXPECT_EQ(rank["parameters_hash"], s["parameters_hash"]);
      EXPECT_GT(rank["images"], 0);
      images += rank["images"].get<std::uint64_t>();
    }
    EXPECT_EQ(images, s["images"]);
    EXPECT_TRUE(fs::exists(in(name) / "steps.rank1.csv"));
    EXPECT_GE(s["straggler_rank"], 0);
    EXPECT_LE(s["load_s_mean"], s["load_s_max"]);
  }
  for (const int replicas : {1, 2, 3}) {
    const std::string name = "replicas" + std::to_string(replicas);
    ASSERT_TRUE(succeeded(
        run(training(name, kUneven + Arguments{"train.strategy=data_parallel",
                                               "train.replicas=" + std::to_string(replicas)}))));
    expect_follows(name);
    const Json given = summary(name)["replica_images"];
    ASSERT_EQ(given.size(), static_cast<std::size_t>(replicas));
    std::uint64_t images = 0;
    for (const Json& count : given) images += count.get<std::uint64_t>();
    EXPECT_EQ(images, summary(name)["images"]) << "what the replicas were given";
  }
}

TEST_F(Distributed, RanksOfTheRecipeAreStartedAndTheirRunIsResumedAndEvaluated) {
  ASSERT_TRUE(succeeded(run(launched(2, "launched", kUneven))));
  const Json expected = summary("launched");
  const Arguments ranks = kUneven + Arguments{"train.strategy=ddp", "train.ranks=2"};
  const Result whole = run(training("whole", ranks + Arguments{"--json"}));
  ASSERT_TRUE(succeeded(whole));
  EXPECT_EQ(parse_json(whole.out), summary("whole")) << "stdout is rank 0's, one document";
  EXPECT_EQ(summary("whole")["parameters_hash"], expected["parameters_hash"]);
  EXPECT_EQ(summary("whole")["world_size"], 2);
  EXPECT_EQ(losses_of(in("whole")), losses_of(in("launched")));
  std::uint64_t images = 0;
  const Json shares = summary("whole")["ranks"];
  for (const Json& rank : shares) images += rank["images"].get<std::uint64_t>();
  EXPECT_EQ(images, summary("whole")["images"]);

  ASSERT_TRUE(succeeded(run(training("part", ranks + Arguments{"train.steps=10"}))));
  const Result resumed = run({"train", "--resume", "--run", in("part").string(), "train.steps=0"});
  ASSERT_TRUE(succeeded(resumed));
  EXPECT_NE(resumed.out.find("images per rank: "), std::string::npos) << resumed.out;
  EXPECT_EQ(summary("part")["resumed_from_step"], 10);
  EXPECT_EQ(summary("part")["parameters_hash"], expected["parameters_hash"]);
  EXPECT_EQ(summary("part")["train_top1"], expected["train_top1"]);
  const Result again = run({"train", "--resume", "--run", in("part").string()});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(count_of(again.err, "has finished"), 1u) << again.err;

  const Result evaluated = run({"eval", in("part").string(), "--json"});
  ASSERT_TRUE(succeeded(evaluated));
  EXPECT_EQ(parse_json(evaluated.out)["top1"], expected["top1"]);
}

TEST_F(Distributed, EarlyStoppingEndsAllRanksAtOneEpoch) {
  const Arguments stopping{"train.strategy=ddp",
                           "train.ranks=2",
                           "train.epochs=50",
                           "eval.every=1",
                           "loader.batch=40",
                           "train.early_stopping.metric=test_loss",
                           "train.early_stopping.patience=2",
                           "train.early_stopping.min_delta=0.1"};
  const Result result = run(training("run", stopping));
  ASSERT_TRUE(succeeded(result));
  EXPECT_EQ(count_of(result.out, "stopped early at epoch"), 1u) << result.out;
  const Json s = summary("run");
  ASSERT_EQ(s["early_stopping"]["stopped"], true);
  EXPECT_EQ(s["epochs"], s["early_stopping"]["last_epoch"]);
  EXPECT_EQ(s["early_stopping"]["last_epoch"], s["early_stopping"]["best_epoch"].get<int>() + 2);
  EXPECT_LT(s["epochs"], 50);
  const auto rows = [&](const char* name) { return lines_of(read_file(in("run") / name)).size(); };
  EXPECT_EQ(rows("steps.csv"), 1 + s["steps"].get<std::size_t>());
  EXPECT_EQ(rows("steps.rank1.csv"), rows("steps.csv"));
  for (const Json& rank : s["ranks"]) EXPECT_EQ(rank["parameters_hash"], s["parameters_hash"]);
}

TEST_F(Distributed, RanksOfTheRecipeDieWithTheirParent) {
  const Arguments endless{"train.strategy=ddp", "train.ranks=2", "train.epochs=100000"};
  Child child(training("killed", endless));
  ASSERT_TRUE(child.says("epoch 2/"));
  ASSERT_EQ(children_of(child.pid()).size(), 2u);
  child.send(SIGKILL);
  EXPECT_EQ(child.wait().signal, SIGKILL);
  for (int i = 0; i < 100 && child.leaves_processes(); ++i) sleep_ms(50);
  EXPECT_FALSE(child.leaves_processes());
  EXPECT_TRUE(succeeded(run(
      {"train", "--resume", "--run", in("killed").string(), "train.epochs=100000",
       "train.steps=" +
           std::to_string(
               10 * (1 + parse_json_lines(read_file(in("killed") / "metrics.jsonl")).size()))})));

  Child interrupted(training("interrupted", endless));
  ASSERT_TRUE(interrupted.says("epoch 2/"));
  interrupted.send(SIGTERM);
  const Result result = interrupted.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(count_of(result.err, "interrupted after step"), 1u) << result.err;
  EXPECT_FALSE(interrupted.leaves_processes());
  EXPECT_TRUE(summary("interrupted")["interrupted"]);

  const Result other =
      run({"train", "--resume", "--run", in("interrupted").string(), "train.momentum=0.5"});
  EXPECT_TRUE(refused(other, 2, {"these keys differ", "train.momentum"}));
  EXPECT_EQ(count_of(other.err, "[rank "), 0u) << other.err;
}

TEST_F(Distributed, ALauncherOverridesTheRanksOfTheRecipe) {
  const Result result = run(launched(3, "run", {"train.ranks=2", "loader.batch=50"}));
  ASSERT_TRUE(succeeded(result));
  EXPECT_EQ(summary("run")["world_size"], 3);
  EXPECT_EQ(count_of(result.err, "train.ranks=2, but torchrun has started 3"), 1u) << result.err;
  EXPECT_NE(read_file(in("run") / "config.toml").find("ranks = 3"), std::string::npos);
  // A Slurm batch script is a task as well, and the only one.
  RunOptions batch_script;
  batch_script.env = {{"SLURM_PROCID", "0"},
                      {"SLURM_NTASKS", "1"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_TASKS_PER_NODE", "1"},
                      {"SLURM_NODEID", "0"},
                      {"SLURM_JOB_ID", "7"},
                      {"SLURM_JOB_NODELIST", "localhost"}};
  ASSERT_TRUE(
      succeeded(run(training("batch", {"train.strategy=ddp", "train.ranks=2"}), batch_script)));
  EXPECT_EQ(summary("batch")["world_size"], 2);
}

TEST_F(Distributed, RanksThatNothingCanShareAreRefused) {
  EXPECT_TRUE(refused(run(training("run", {"train.ranks=2"})), 2,
                      {"train.ranks=2", "train.strategy=single", "only ddp has ranks"}));
  EXPECT_TRUE(refused(run(simulated("run", {"train.strategy=ddp", "train.ranks=2"})), 2,
                      {"train.strategy=ddp", "simulated"}));
  EXPECT_TRUE(refused(run(training("run", {"train.strategy=ddp"})), 2,
                      {"was not started as one of several ranks"}));
  EXPECT_TRUE(
      refused(run(training("run", {"train.strategy=ddp", "train.ranks=2", "loader.batch=0"})), 2,
              {"loader.batch"}));
  EXPECT_FALSE(fs::exists(in("run")));
}

TEST_F(Distributed, MoreRanksThanCoresAreMarked) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // for the programs started here
  const Result ranks = run(training("ranks", {"train.strategy=ddp", "train.ranks=2"}));
  const Result replicas = run(training("replicas", {"train.strategy=data_parallel"}));
  const Result single = run(training("single"));
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  for (const auto& [name, result] : {std::pair("ranks", ranks), std::pair("replicas", replicas)}) {
    ASSERT_TRUE(succeeded(result));
    EXPECT_TRUE(summary(name)["oversubscribed"]);
    EXPECT_EQ(
        count_of(result.err, std::string("warning: 2 ") + name + " share 1 core and take turns"),
        1u)
        << result.err;
  }
  ASSERT_TRUE(succeeded(single));
  EXPECT_FALSE(summary("single")["oversubscribed"]);
  EXPECT_EQ(single.err.find("share"), std::string::npos);
}

TEST_F(Distributed, RanksOfOneHostListenOnLoopbackOnly) {
  Child child(launched(2, "run", {"train.epochs=100000"}));
  ASSERT_TRUE(child.says("epoch 2/"));
  const auto ranks = children_of(child.pid());
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_GE(listens_at(ranks[0]).size(), 3u) << "the store, the control channel, Gloo";
  EXPECT_GE(listens_at(ranks[1]).size(), 1u) << "Gloo";
  for (const pid_t rank : ranks)
    for (const std::string& address : listens_at(rank))
      EXPECT_TRUE(address.starts_with("0100007F:") ||
                  address.starts_with("00000000000000000000000001000000:"))
          << address;
  EXPECT_EQ(listens_at(child.pid()).size(), 0u) << "the launcher";
}

TEST_F(Distributed, AnInterruptDoesNotWaitForRanksThatDoNotCome) {
  // Only one of two ranks is started: rank 0 waits at the rendezvous, rank 1 for rank 0's store.
  for (const char* rank : {"0", "1"}) {
    RunOptions alone;
    alone.env = {{"RANK", rank},
                 {"WORLD_SIZE", "2"},
                 {"MASTER_ADDR", "127.0.0.1"},
                 {"MASTER_PORT", "29873"}};
    Child child(training("run", {"train.strategy=ddp", "train.timeout=300"}), alone);
    for (int i = 0; i < 300 && rank[0] == '0' && listens_at(child.pid()).empty(); ++i)
      sleep_ms(100);
    sleep_ms(rank[0] == '0' ? 500 : 3000);
    const auto begin = std::chrono::steady_clock::now();
    child.send(SIGTERM);
    const Result result = child.wait();
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(6));
    EXPECT_EQ(result.err, "millrace: interrupted before the first step\n");
    EXPECT_FALSE(fs::exists(in("run")));
  }
}

TEST_F(Distributed, AnInterruptDoesNotWaitForAStoppedRank) {
  Child child(launched(3, "run", {"train.epochs=100000", "train.timeout=300"}));
  ASSERT_TRUE(child.says("epoch 2/"));
  const auto ranks = children_of(child.pid());
  ASSERT_EQ(ranks.size(), 3u);
  kill(ranks[2], SIGSTOP);
  sleep_ms(200);  // the others are waiting for it
  const auto begin = std::chrono::steady_clock::now();
  kill(ranks[1], SIGINT);  // the launcher would wake the stopped rank
  const Result result = child.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(count_of(result.err, "rank 2 ("), 1u) << result.err;
  EXPECT_NE(result.err.find("did not answer"), std::string::npos) << result.err;
  EXPECT_FALSE(child.leaves_processes());
}

TEST_F(Distributed, AnInterruptCutsAnEvaluationShortOnAllRanks) {
  Child child(launched(2, "run",
                       {"train.epochs=2", "loader.batch=50", "train.log_every=1", "eval.every=1",
                        "--verbose", "debug.evaluate_ms=2000"}));
  ASSERT_TRUE(child.says("epoch 1 step 4/4"));  // the evaluation follows, two seconds late
  const auto ranks = children_of(child.pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGINT);
  const Result result = child.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(count_of(result.err, "millrace: interrupted after step 4: "), 1u) << result.err;
  EXPECT_TRUE(summary("run")["top1"].is_null());
  ASSERT_TRUE(succeeded(run({"launch", "-n", "2", "--", "train", "--resume", "--run",
                             in("run").string(), "debug.evaluate_ms=0"})));
  const auto epochs = parse_json_lines(read_file(in("run") / "metrics.jsonl"));
  ASSERT_EQ(epochs.size(), 2u);
  for (const Json& epoch : epochs) EXPECT_TRUE(epoch["top1"].is_number()) << epoch;
}

TEST_F(Distributed, FailedSamplesOfAllRanksAreCounted) {
  write_photos(in("photos"), 8, 32);
  // Damages samples of both ranks, in the training and the evaluation set.
  for (const char* name : {"ape/10.jpg", "ape/13.jpg", "bee/12.jpg", "cat/15.jpg", "cat/16.jpg"})
    cut(in("photos") / "train" / name, 0.5);
  const Arguments photos{"train",
                         "cifar10-lenet",
                         "data.reader=folder",
                         "data.path=" + in("photos").string(),
                         "eval.split=train",
                         "loader.on_error=skip",
                         "loader.batch=6",
                         "eval.batch=6",
                         "loader.shuffle=none",
                         "train.threads=1",
                         "train.epochs=2"};
  ASSERT_TRUE(succeeded(run(photos + Arguments{"--run", in("single").string()})));
  const Json single = summary("single");
  EXPECT_EQ(single["failed"], 2 * (5 + 5));
  const Result result = run(Arguments{"launch", "-n", "2", "--"} + photos +
                            Arguments{"train.strategy=ddp", "--run", in("ddp").string()});
  ASSERT_TRUE(succeeded(result));
  const Json s = summary("ddp");
  EXPECT_EQ(s["failed"], single["failed"]);
  EXPECT_EQ(s["images"], single["images"]);
  EXPECT_FALSE(s["interrupted"]);
  std::uint64_t failed = 0;
  for (const Json& rank : s["ranks"]) {
    EXPECT_GT(rank["failed"], 0) << "both ranks are to have some";
    failed += rank["failed"].get<std::uint64_t>();
  }
  EXPECT_EQ(s["failed"], failed);
}

TEST_F(Distributed, AnErrorOfOneRankIsSaidOnceWithItsNumber) {
  write_photos(in("photos"), 8, 32);
  cut(in("photos") / "train" / "cat/15.jpg", 0.5);
  const Result result =
      run({"launch", "-n", "3", "--", "train", "cifar10-lenet", "data.reader=folder",
           "data.path=" + in("photos").string(), "eval.split=train", "loader.batch=6",
           "loader.shuffle=none", "train.threads=1", "train.epochs=1", "train.strategy=ddp",
           "train.timeout=20", "--run", in("run").string()});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_EQ(count_of(result.err, "cat/15.jpg"), 1u) << result.err;
  EXPECT_NE(result.err.find("] millrace: " + (in("photos") / "train" / "cat/15.jpg").string()),
            std::string::npos)
      << result.err;
}

TEST_F(Distributed, KilledRanksAreNamedByTheOthers) {
  for (const std::size_t victim : {0u, 1u, 2u}) {
    const std::string name = "run" + std::to_string(victim);
    Child child(launched(3, name, {"train.epochs=100000"}));
    ASSERT_TRUE(child.says("epoch 2/"));
    const auto ranks = children_of(child.pid());
    ASSERT_EQ(ranks.size(), 3u);
    kill(ranks[victim], SIGKILL);
    const Result result = child.wait();
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_LT(result.wall_s, 20) << "within train.timeout";
    const std::string named = "rank " + std::to_string(victim) + " (";
    EXPECT_GE(count_of(result.err, named), 2u) << result.err;
    EXPECT_NE(result.err.find("pid " + std::to_string(ranks[victim])), std::string::npos);
    EXPECT_FALSE(child.leaves_processes());
  }
}

TEST_F(Distributed, AStoppedRankEndsTheRun) {
  Child child(launched(2, "run", {"train.epochs=100000", "train.timeout=4"}));
  ASSERT_TRUE(child.says("epoch 2/"));
  const auto ranks = children_of(child.pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGSTOP);
  const Result result = child.wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("rank 1 ("), std::string::npos) << result.err;
  EXPECT_FALSE(child.leaves_processes());
}

TEST_F(Distributed, AnInterruptOfOneRankIsAgreedOnAndResumed) {
  const Arguments epochs{"loader.batch=33", "train.epochs=6"};
  ASSERT_TRUE(succeeded(run(launched(3, "whole", epochs))));
  Child child(launched(3, "run", epochs + Arguments{"debug.log_ms=20"}));
  ASSERT_TRUE(child.says("epoch 1/"));
  const auto ranks = children_of(child.pid());
  ASSERT_EQ(ranks.size(), 3u);
  kill(ranks[2], SIGINT);
  const Result result = child.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  const auto at = summary("run")["steps"].get<std::uint64_t>();
  ASSERT_TRUE(succeeded(run({"launch", "-n", "3", "--", "train", "--resume", "--run",
                             in("run").string(), "debug.log_ms=0"})));
  EXPECT_EQ(summary("run")["resumed_from_step"], at);
  EXPECT_EQ(summary("run")["parameters_hash"], summary("whole")["parameters_hash"]);
  EXPECT_EQ(losses_of(in("run")), losses_of(in("whole")));
}

TEST_F(Distributed, RanksThatDisagreeAboutWhatIsResumedEndTogether) {
  ASSERT_TRUE(succeeded(run(launched(2, "run", {"train.epochs=1"}))));
  const std::string port = std::to_string(free_port());
  const auto rank = [&](const std::string& number, const std::string& directory) {
    RunOptions options;
    options.env = {{"RANK", number},          {"WORLD_SIZE", "2"},   {"LOCAL_RANK", number},
                   {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_PORT", port}, {"MASTER_ADDR", "127.0.0.1"}};
    const Arguments more{"train.strategy=ddp", "train.timeout=20", "train.epochs=2", "--resume"};
    return std::make_unique<Child>(training(directory, more), options);
  };
  const auto first = rank("0", "run");
  const auto second = rank("1", "on another disk");
  const std::string steps = std::to_string(summary("run")["steps"].get<int>());
  for (Child* const one : {first.get(), second.get()})
    EXPECT_TRUE(refused(one->wait(), 2,
                        {"rank 1 starts from a new run, rank 0 from step " + steps, "same path"},
                        /*alone=*/false));
  EXPECT_FALSE(fs::exists(in("on another disk")));
}

TEST_F(Distributed, ARankThatIsKilledCostsNoMoreThanItsLastSteps) {
  const Arguments epochs{"loader.batch=33", "train.epochs=6", "train.checkpoint_every=2"};
  ASSERT_TRUE(succeeded(run(launched(3, "whole", epochs))));
  // The second run's records and checkpoints take longer than the steps between them.
  for (const std::size_t victim : {0u, 2u}) {
    const std::string name = "run" + std::to_string(victim);
    Child child(
        launched(3, name,
                 epochs + Arguments{"debug.log_ms=20", victim == 0 ? "debug.checkpoint_ms=0"
                                                                   : "debug.checkpoint_ms=60"}));
    ASSERT_TRUE(child.says("epoch 2/"));
    const auto ranks = children_of(child.pid());
    ASSERT_EQ(ranks.size(), 3u);
    kill(ranks[victim], SIGKILL);
    EXPECT_EQ(child.wait().exit_code, 1);
    ASSERT_TRUE(succeeded(run({"launch", "-n", "3", "--", "train", "--resume", "--run",
                               in(name).string(), "debug.log_ms=0", "debug.checkpoint_ms=0"})));
    EXPECT_GT(summary(name)["resumed_from_step"], 0);
    EXPECT_EQ(summary(name)["parameters_hash"], summary("whole")["parameters_hash"]);
    EXPECT_EQ(losses_of(in(name)), losses_of(in("whole")));
  }
}

TEST_F(Distributed, WhatCannotBeSharedIsRefused) {
  EXPECT_TRUE(
      refused(run(training("run", {"train.strategy=ddp"})), 2, {"train.strategy=ddp", "launch"}));
  EXPECT_TRUE(refused(run(training("run", {"train.strategy=data_parallel", "train.device=cuda:1"})),
                      2, {"data_parallel", "cuda:1"}, /*alone=*/false));
  RunOptions alone;
  alone.env = {{"RANK", "0"},
               {"WORLD_SIZE", "2"},
               {"LOCAL_RANK", "0"},
               {"LOCAL_WORLD_SIZE", "2"},
               {"MASTER_ADDR", "127.0.0.1"},
               {"MASTER_PORT", "29871"}};
  EXPECT_TRUE(refused(run(training("run", {"train.strategy=ddp", "train.timeout=2"}), alone), 1,
                      {"rank 1"}));
  EXPECT_TRUE(refused(run(training("run", {}), alone), 2, {"2 ranks", "train.strategy=single"}));
}

}  // namespace
}  // namespace millrace::program_test
