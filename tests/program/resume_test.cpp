// Contract Exact resumption: a run killed at any moment, interrupted, or prolonged ends with the
// same losses and parameters, bit for bit.
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

/// Returns the columns that do not depend on the clock: epoch, step, images, loss.
std::string steady_columns(const std::string& csv) {
  std::string kept;
  for (const std::string& line : lines_of(csv)) {
    std::size_t begin = 0;
    for (int column = 0; column < 7; ++column) {
      const std::size_t comma = line.find(',', begin);
      if (column != 2 && column != 3 && column != 4)
        kept += line.substr(begin, comma - begin) + ",";
      begin = comma + 1;
    }
    kept += "\n";
  }
  return kept;
}

class Resume : public ProgramTest {
 protected:
  void SetUp() override { MILLRACE_NEEDS_TORCH(); }

  /// 4 epochs of 7 steps, with every feature that keeps state.
  Arguments eventful(const std::string& name, const Arguments& more = {}) {
    return training(name, Arguments{"loader.batch=30", "train.epochs=4", "train.optimizer=adamw",
                                    "train.lr=0.002", "train.schedule=cosine", "train.warmup=1",
                                    "train.ema=0.9", "train.checkpoint_every=3", "eval.every=1"} +
                              more);
  }
  Arguments resumed(const std::string& name, const Arguments& more = {}) {
    return Arguments{"train", "--resume", "--run", in(name).string()} + more;
  }

  void expect_same(const std::string& one, const std::string& other) {
    EXPECT_EQ(summary(one)["parameters_hash"], summary(other)["parameters_hash"]);
    for (const char* key : {"steps", "images", "epochs", "train_loss", "train_top1", "test_loss",
                            "top1", "per_class"})
      EXPECT_EQ(summary(one)[key], summary(other)[key]) << key;
    EXPECT_EQ(steady_columns(read_file(in(one) / "steps.csv")),
              steady_columns(read_file(in(other) / "steps.csv")));
    const auto epochs = parse_json_lines(read_file(in(one) / "metrics.jsonl"));
    const auto others = parse_json_lines(read_file(in(other) / "metrics.jsonl"));
    ASSERT_EQ(epochs.size(), others.size());
    for (std::size_t i = 0; i < epochs.size(); ++i)
      for (const char* key :
           {"epoch", "images", "lr", "train_loss", "train_top1", "test_loss", "top1"})
        EXPECT_EQ(epochs[i].at(key), others[i].at(key)) << "epoch " << i + 1 << " " << key;
  }
};

TEST_F(Resume, KilledAtAnyMomentItGoesOnToTheSameEnd) {
  ASSERT_TRUE(succeeded(run(eventful("whole"))));
  std::uint64_t furthest = 0;
  for (const int milliseconds : {60, 120, 200, 300, 420}) {
    const std::string name = "killed" + std::to_string(milliseconds);
    {
      Child child(eventful(name, {"debug.log_ms=20"}));
      ASSERT_TRUE(child.says("records in"));
      sleep_ms(milliseconds);
      child.send(SIGKILL);
      child.wait();
    }
    ASSERT_TRUE(succeeded(run(resumed(name, {"debug.log_ms=0"}))));
    furthest = std::max(furthest, summary(name)["resumed_from_step"].get<std::uint64_t>());
    expect_same("whole", name);
    EXPECT_TRUE(no_temporaries(in(name)));
  }
  EXPECT_GT(furthest, 0u);
}

/// The writes take longer than the steps between them, so that most moments lie in one.
TEST_F(Resume, KilledWhileACheckpointIsWritten) {
  ASSERT_TRUE(succeeded(run(eventful("whole"))));
  int torn = 0;
  for (const int milliseconds : {170, 260, 350}) {
    const std::string name = "killed" + std::to_string(milliseconds);
    {
      Child child(eventful(name, {"debug.log_ms=10", "debug.checkpoint_ms=50"}));
      ASSERT_TRUE(child.says("records in"));
      sleep_ms(milliseconds);
      child.send(SIGKILL);
      child.wait();
    }
    torn += no_temporaries(in(name)) ? 0 : 1;
    ASSERT_TRUE(succeeded(run(resumed(name, {"debug.log_ms=0", "debug.checkpoint_ms=0"}))));
    expect_same("whole", name);
    EXPECT_TRUE(no_temporaries(in(name)));
  }
  EXPECT_GT(torn, 0) << "no kill has hit a write";
}

TEST_F(Resume, AnInterruptCompletesTheCheckpointUnderWay) {
  Child child(eventful("run", {"debug.log_ms=20", "debug.checkpoint_ms=300"}));
  ASSERT_TRUE(child.says("records in"));
  sleep_ms(200);
  child.send(SIGTERM);
  EXPECT_EQ(child.wait().exit_code, 130);
  EXPECT_TRUE(no_temporaries(in("run")));
  const Json s = summary("run");
  EXPECT_EQ(fs::read_symlink(in("run") / "checkpoints/last"), "step-" + s["steps"].dump());
  EXPECT_GE(s["checkpoints"]["write_s"].get<double>(),
            0.3 * s["checkpoints"]["written"].get<double>());
}

TEST_F(Resume, AnInterruptWritesACheckpointFirst) {
  ASSERT_TRUE(succeeded(run(eventful("whole"))));
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string name = "stopped" + std::to_string(signal);
    Child child(eventful(name, {"debug.log_ms=20", "train.checkpoint_every=0"}));
    ASSERT_TRUE(child.says("records in"));
    sleep_ms(200);
    child.send(signal);
    const Result result = child.wait();
    EXPECT_EQ(result.exit_code, 130);
    EXPECT_NE(result.err.find("--resume --run"), std::string::npos) << result.err;
    const auto stopped_at = summary(name)["steps"].get<std::uint64_t>();
    ASSERT_GT(stopped_at, 0u);
    ASSERT_TRUE(succeeded(run(resumed(name, {"debug.log_ms=0"}))));
    EXPECT_EQ(summary(name)["resumed_from_step"], stopped_at) << "nothing is done twice";
    expect_same("whole", name);
  }
}

TEST_F(Resume, ARunCanBeProlonged) {
  const Arguments constant{"train.schedule=constant", "train.warmup=0"};
  ASSERT_TRUE(succeeded(run(eventful("whole", constant))));
  ASSERT_TRUE(succeeded(run(eventful("part", constant + Arguments{"train.steps=10"}))));
  ASSERT_TRUE(succeeded(run(resumed("part", {"train.steps=0"}))));
  EXPECT_EQ(summary("part")["resumed_from_step"], 10);
  expect_same("whole", "part");
}

TEST_F(Resume, TotalsOfAResumedRunHaveOneScope) {
  ASSERT_TRUE(succeeded(run(eventful("part", {"train.steps=10"}))));
  const Result result = run(resumed("part", {"train.steps=0"}));
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("\n800 images in 28 steps in all, 18 steps since it was resumed, "),
            std::string::npos)
      << result.out;
}

TEST_F(Resume, AFinishedRunIsLeftAsItIs) {
  ASSERT_TRUE(succeeded(run(eventful("run"))));
  const std::string before = read_file(in("run") / "summary.json");
  const Result again = run(resumed("run"));
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_NE(again.err.find("has finished"), std::string::npos) << again.err;
  EXPECT_EQ(read_file(in("run") / "summary.json"), before);
}

TEST_F(Resume, WhatWasKilledBeforeItsSummaryEvaluatesOnceMore) {
  ASSERT_TRUE(succeeded(run(eventful("whole"))));
  ASSERT_TRUE(succeeded(run(eventful("run"))));
  fs::remove(in("run") / "summary.json");
  ASSERT_TRUE(succeeded(run(resumed("run"))));
  EXPECT_EQ(summary("run")["resumed_from_step"], summary("whole")["steps"]);
  expect_same("whole", "run");
  EXPECT_TRUE(no_temporaries(in("run")));
}

TEST_F(Resume, AWindowOfBatchesIsCompletedFirst) {
  const Arguments windows{"train.accumulate=3", "train.checkpoint_every=1"};
  ASSERT_TRUE(succeeded(run(eventful("whole", windows))));
  Child child(eventful("stopped", windows + Arguments{"debug.log_ms=20"}));
  ASSERT_TRUE(child.says("records in"));
  sleep_ms(150);
  child.send(SIGTERM);
  EXPECT_EQ(child.wait().exit_code, 130);
  const auto at = summary("stopped")["steps"].get<std::uint64_t>() % 7;  // step within the epoch
  EXPECT_TRUE(at == 0 || at == 3 || at == 6) << at;
  ASSERT_TRUE(succeeded(run(resumed("stopped", {"debug.log_ms=0"}))));
  expect_same("whole", "stopped");
}

TEST_F(Resume, BeforeTheFirstCheckpointTheRunBeginsAgain) {
  ASSERT_TRUE(succeeded(run(eventful("run"))));
  fs::remove_all(in("run") / "checkpoints");
  const Result result = run(resumed("run"));
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.err.find("no checkpoint yet"), std::string::npos);
  EXPECT_EQ(summary("run")["resumed_from_step"], 0);
  EXPECT_EQ(lines_of(read_file(in("run") / "steps.csv")).size(), 29u);
}

TEST_F(Resume, WithARecipeItMayFindNothing) {
  const Result result = run(eventful("run", {"--resume"}));
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.err.find("nothing to resume"), std::string::npos);
  EXPECT_EQ(summary("run")["steps"], 28);
}

TEST_F(Resume, OtherKeysAreRefusedByName) {
  ASSERT_TRUE(succeeded(run(eventful("run", {"train.steps=3"}))));
  EXPECT_TRUE(refused(run(resumed("run", {"train.momentum=0.5", "loader.batch=10"})), 2,
                      {"--resume", "loader.batch", "train.momentum"}));
  EXPECT_TRUE(refused(run(resumed("none")), 2, {"none", "not a run's directory"}));
  EXPECT_TRUE(refused(run({"train", "--resume"}), 2, {"--resume", "which run"}));
  EXPECT_TRUE(succeeded(run(resumed("run", {"train.steps=5", "loader.workers=2"}))));
}

TEST_F(Resume, DamagedCheckpointsAreNamed) {
  ASSERT_TRUE(succeeded(run(eventful("run", {"train.steps=3"}))));
  const fs::path folder = fs::canonical(in("run") / "checkpoints" / "last");
  for (const char* name :
       {"model.safetensors", "training.safetensors", "ema.safetensors", "position.json"}) {
    const std::string whole = read_file(folder / name);
    write_file(folder / name, whole.substr(0, whole.size() / 2));
    EXPECT_TRUE(refused(run(resumed("run", {"train.steps=5"})), 3, {name}, /*alone=*/false));
    write_file(folder / name, whole);
  }
  // The file as written before there were checksums.
  Json position = parse_json(read_file(folder / "position.json"));
  position.erase("files");
  position.erase("checksum");
  write_file(folder / "position.json", position.dump());
  EXPECT_TRUE(succeeded(run(resumed("run", {"train.steps=5"}))));
}

TEST_F(Resume, AFlippedBitIsNamedAndTheCheckpointBeforeIsOffered) {
  ASSERT_TRUE(succeeded(run(eventful("whole"))));
  ASSERT_TRUE(succeeded(run(eventful("run", {"train.steps=10", "eval.every=0"}))));
  const fs::path folder = fs::canonical(in("run") / "checkpoints/step-10");
  for (const char* name :
       {"model.safetensors", "training.safetensors", "ema.safetensors", "position.json"}) {
    const std::string whole = read_file(folder / name);
    std::string flipped = whole;
    char& byte = name == std::string("position.json")
                     ? flipped[flipped.find("10") + 1]  // the number of steps in it
                     : flipped[flipped.size() - 1000];
    byte = static_cast<char>(byte ^ 1);
    write_file(folder / name, flipped);
    EXPECT_TRUE(refused(
        run(resumed("run", {"train.steps=0"})), 3,
        {(folder / name).string() + " is damaged", "checksum", "step-7 is intact",
         "rm -r " + folder.string() + " && millrace train --resume --run " + in("run").string()}));
    write_file(folder / name, whole);
  }
  const auto flip = [](const fs::path& file) {
    std::string bytes = read_file(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x10);
    write_file(file, bytes);
  };
  flip(folder / "ema.safetensors");
  EXPECT_TRUE(refused(run({"eval", in("run").string()}), 3, {"ema.safetensors is damaged"}));
  fs::remove_all(folder);  // follows the hint
  ASSERT_TRUE(succeeded(run(resumed("run", {"train.steps=0", "eval.every=1"}))));
  EXPECT_EQ(summary("run")["resumed_from_step"], 7);
  EXPECT_EQ(summary("run")["parameters_hash"], summary("whole")["parameters_hash"]);

  for (const auto& entry : fs::directory_iterator(in("run") / "checkpoints"))
    if (!entry.is_symlink()) flip(entry.path() / "model.safetensors");
  EXPECT_TRUE(
      refused(run(resumed("run")), 3, {"is damaged", "no other checkpoint", "without --resume"}));
}

TEST_F(Resume, RecordsOfAnotherKindAreNamed) {
  ASSERT_TRUE(succeeded(run(eventful("run", {"train.steps=10"}))));
  const std::string lines = read_file(in("run") / "metrics.jsonl");
  for (const char* step : {R"("two")", "-1", "1.5", "[1]", "null"}) {
    std::string changed = R"({"epoch":1,"step":)";
    changed.append(step).append("}\n").append(lines);
    write_file(in("run") / "metrics.jsonl", changed);
    EXPECT_TRUE(refused(run(resumed("run", {"train.steps=0"})), 3,
                        {"metrics.jsonl:1 is damaged", "step"}, false))
        << step;
  }
  write_file(in("run") / "metrics.jsonl", lines);
  ASSERT_TRUE(succeeded(run(resumed("run", {"train.steps=0"}))));
  const std::string before = read_file(in("run") / "summary.json");
  for (const char* key : {"wall_s", "steps", "verdict", "spans"}) {
    Json changed = parse_json(before);
    changed[key] = Json::array({"another", "kind"});
    write_file(in("run") / "summary.json", changed.dump());
    EXPECT_TRUE(refused(run(resumed("run")), 3, {"summary.json is damaged"}, false)) << key;
  }
}

TEST_F(Resume, EarlyStoppingEndsAtTheSameEpoch) {
  const auto stopping = [&](const std::string& name, const Arguments& more = {}) {
    return training(
        name, Arguments{"loader.batch=30", "train.epochs=50", "train.lr=0.05", "eval.every=1",
                        "train.early_stopping.metric=test_loss", "train.early_stopping.patience=3",
                        "train.early_stopping.min_delta=0.02"} +
                  more);
  };
  const Result whole = run(stopping("whole"));
  ASSERT_TRUE(succeeded(whole));
  const Json told = summary("whole")["early_stopping"];
  ASSERT_EQ(told["stopped"], true);
  const int last = told["last_epoch"];
  ASSERT_EQ(last, told["best_epoch"].get<int>() + 3);
  ASSERT_LT(last, 50);
  EXPECT_EQ(summary("whole")["epochs"], last);
  const std::string line = "stopped early at epoch " + std::to_string(last) +
                           ": test_loss has not improved by more than 0.02 since epoch " +
                           std::to_string(last - 3);
  EXPECT_NE(whole.out.find(line + "\n"), std::string::npos) << whole.out;
  EXPECT_NE(run({"report", in("whole").string(), "--md"}).out.find(line), std::string::npos);

  // Killed with evaluations that count towards the patience behind it and one before it.
  {
    Child child(stopping("killed", {"debug.evaluate_ms=150"}));
    ASSERT_TRUE(child.says("epoch " + std::to_string(last - 1) + "/50"));
    child.send(SIGKILL);
    child.wait();
  }
  ASSERT_FALSE(fs::exists(in("killed") / "summary.json"));
  ASSERT_TRUE(succeeded(run(resumed("killed", {"debug.evaluate_ms=0"}))));
  EXPECT_GT(summary("killed")["resumed_from_step"], 0);
  expect_same("whole", "killed");
  EXPECT_EQ(summary("killed")["early_stopping"], told);

  fs::remove(in("killed") / "summary.json");  // as if killed before it was written
  ASSERT_TRUE(succeeded(run(resumed("killed"))));
  expect_same("whole", "killed");
  EXPECT_EQ(summary("killed")["early_stopping"], told);
  const Result again = run(resumed("killed"));
  ASSERT_TRUE(succeeded(again));
  EXPECT_NE(again.err.find(line + "; to continue it, raise train.early_stopping.patience"),
            std::string::npos)
      << again.err;

  // More patience continues the run as if it had been there from the start.
  const Arguments patient{"train.early_stopping.patience=5"};
  ASSERT_TRUE(succeeded(run(stopping("patient", patient))));
  ASSERT_TRUE(succeeded(run(resumed("killed", patient))));
  EXPECT_GT(summary("killed")["epochs"], last);
  expect_same("patient", "killed");
  EXPECT_TRUE(refused(run(resumed("killed", {"train.early_stopping.min_delta=0"})), 2,
                      {"train.early_stopping.min_delta"}));
}

TEST_F(Resume, WithoutCheckpointsARunIsTheSameAndLeavesNone) {
  ASSERT_TRUE(succeeded(run(eventful("with", {"debug.checkpoint_ms=40"}))));
  ASSERT_TRUE(
      succeeded(run(eventful("without", {"debug.checkpoint_ms=40", "train.checkpoints=false"}))));
  expect_same("with", "without");
  EXPECT_TRUE(fs::exists(in("with") / "checkpoints"));
  EXPECT_FALSE(fs::exists(in("without") / "checkpoints"));
  EXPECT_LT(summary("without")["spans"]["checkpoint"].get<double>(), 0.02);
  const auto says = [&](const char* name) {
    return summary(name)["verdict"].get<std::string>().find("; checkpoints take ");
  };
  EXPECT_NE(says("with"), std::string::npos) << summary("with")["verdict"];
  EXPECT_EQ(says("without"), std::string::npos);
  EXPECT_TRUE(refused(run({"eval", in("without").string()}), 3, {"holds no checkpoint"}));
}

TEST_F(Resume, TheBestAndTheNewestCheckpointsStay) {
  ASSERT_TRUE(succeeded(run(eventful("run", {"train.checkpoint_keep=1"}))));
  std::size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(in("run") / "checkpoints"))
    folders += !entry.is_symlink();
  EXPECT_LE(folders, 2u);
  EXPECT_EQ(fs::read_symlink(in("run") / "checkpoints" / "last"), "step-28");
  double best = 0;
  std::uint64_t step = 0;
  for (const Json& epoch : parse_json_lines(read_file(in("run") / "metrics.jsonl")))
    if (epoch["top1"].get<double>() >= best) {
      best = epoch["top1"];
      step = epoch["step"];
    }
  EXPECT_EQ(fs::read_symlink(in("run") / "checkpoints" / "best"), "step-" + std::to_string(step));
}

}  // namespace
}  // namespace millrace::program_test
