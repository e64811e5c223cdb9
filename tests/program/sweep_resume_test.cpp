// Interrupted sweeps, and what resuming makes of them.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <map>
#include <random>
#include <set>
#include <thread>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class SweepResume : public ProgramTest {
 protected:
  /// Arguments of a sweep of two simulated combinations, some 50 ms per run.
  Arguments sweep(const Arguments& more = {}) {
    return Arguments{"sweep",
                     "mnist-lenet",
                     "data.path=" + data(),
                     "train.device=simulated",
                     "simulated.update_ms=0.5,2",
                     "train.epochs=1",
                     "loader.batch=20",
                     "--run",
                     in("sweep").string()} +
           more;
  }
  Arguments resume(const Arguments& more = {}) {
    return Arguments{"sweep", "--resume", "--run", in("sweep").string()} + more;
  }
  /// Returns the finished runs, and when their summaries were written.
  std::map<std::string, fs::file_time_type> finished() const {
    std::map<std::string, fs::file_time_type> runs;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(in("sweep/runs"), none)) {
      const fs::path summary = entry.path() / "summary.json";
      if (!fs::exists(summary)) continue;
      const Json json = parse_json(read_file(summary));
      if (!json["interrupted"].get<bool>())
        runs[entry.path().filename().string()] = fs::last_write_time(summary);
    }
    return runs;
  }
  Json record() const { return parse_json(read_file(in("sweep/sweep.json"))); }
  /// Returns the table of a sweep that has nothing left to do.
  std::string table() {
    const auto before = finished();
    const Result result = run(resume());
    EXPECT_TRUE(succeeded(result));
    EXPECT_EQ(finished(), before) << "a finished run was run again";
    return result.out;
  }
};

TEST_F(SweepResume, KilledAtAnyMomentItGoesOnWhereItWas) {
  std::mt19937 random(6);  // moments from before the first run to the last
  std::map<std::string, fs::file_time_type> before;
  int killed = 0;
  for (int round = 0; round < 12; ++round) {
    Child child(sweep({"--repeats", "5", "--resume"}));
    // Early at first, then later: on any machine some come in the middle.
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % (40 + 40 * round)));
    const bool running = child.running();
    child.send(SIGKILL);
    const Result result = child.wait();
    killed += result.signal == SIGKILL ? 1 : 0;
    // Its run dies with it at once, though perhaps after kill() returns.
    bool left = child.leaves_processes();
    for (int i = 0; left && i < 200; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      left = child.leaves_processes();
    }
    EXPECT_FALSE(left) << "the run goes on without its sweep";
    const auto now = finished();
    for (const auto& [name, when] : before) {
      ASSERT_TRUE(now.contains(name)) << name << " is gone after round " << round;
      EXPECT_EQ(now.at(name), when) << name << " was run again in round " << round;
    }
    before = now;
    if (!running && result.exit_code == 0) break;
  }
  EXPECT_GE(killed, 2);
  const Result last = run(sweep({"--repeats", "5", "--resume"}));
  ASSERT_TRUE(succeeded(last));
  const auto after = finished();
  EXPECT_EQ(after.size(), 10u) << "5 blocks of 2 combinations";
  for (const auto& [name, when] : before) EXPECT_EQ(after.at(name), when) << name;
  EXPECT_EQ(table(), last.out) << "the same runs, the same table";
  for (const Json& cell : record()["cells"]) {
    ASSERT_EQ(cell["runs"].size(), 5u);
    for (std::size_t r = 0; r < 5; ++r) EXPECT_EQ(cell["runs"][r]["seed"], r);
  }
  EXPECT_TRUE(no_temporaries(in("sweep/runs")));
}

TEST_F(SweepResume, AKilledSweepTakesItsRunAlong) {
  Child child(sweep({"simulated.update_ms=200"}));
  ASSERT_TRUE(child.says("records in"));
  pid_t run_pid = 0;
  for (int i = 0; i < 3000 && run_pid == 0; ++i) {
    const auto pids = children_of(child.pid());
    if (!pids.empty()) run_pid = pids[0];
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_NE(run_pid, 0) << "no run was started";
  child.send(SIGKILL);
  EXPECT_EQ(child.wait().signal, SIGKILL);
  bool left = true;
  for (int i = 0; left && i < 500; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    left = child.leaves_processes();
  }
  EXPECT_FALSE(left);
}

TEST_F(SweepResume, InterruptedItSaysHowToGoOn) {
  Child child(sweep({"--repeats", "5"}));
  ASSERT_TRUE(child.says("[2/10]"));
  child.send(SIGINT);
  const Result result = child.wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_NE(result.err.find("millrace sweep --resume --run " + in("sweep").string()),
            std::string::npos)
      << result.err;
  const auto before = finished();
  EXPECT_GE(before.size(), 2u);
  const Result resumed = run(resume());
  ASSERT_TRUE(succeeded(resumed));
  EXPECT_NE(resumed.err.find("resumed: "), std::string::npos) << resumed.err;
  const auto after = finished();
  EXPECT_EQ(after.size(), 10u);
  for (const auto& [name, when] : before) EXPECT_EQ(after.at(name), when);
}

TEST_F(SweepResume, TheIndexIsMadeAgainFromTheDirectories) {
  ASSERT_TRUE(succeeded(run(sweep({"--repeats", "2"}))));
  const std::string first = table();
  fs::remove(in("sweep/index.sqlite"));
  EXPECT_EQ(table(), first);
  write_file(in("sweep/index.sqlite"), "no database");
  EXPECT_EQ(table(), first);
  EXPECT_TRUE(read_file(in("sweep/index.sqlite")).starts_with("SQLite format 3"));
}

TEST_F(SweepResume, MoreRepeatsKeepWhatThereIs) {
  ASSERT_TRUE(succeeded(run(sweep({"--repeats", "1"}))));
  const auto before = finished();
  ASSERT_TRUE(succeeded(run(resume({"--repeats", "3"}))));
  const auto after = finished();
  EXPECT_EQ(after.size(), 6u);
  for (const auto& [name, when] : before) EXPECT_EQ(after.at(name), when);
  EXPECT_EQ(record()["repeats"], 3);
}

TEST_F(SweepResume, AMissingRunIsRunAgainAlone) {
  ASSERT_TRUE(succeeded(run(sweep({"--repeats", "2"}))));
  const auto before = finished();
  const std::string lost = before.begin()->first;
  fs::remove_all(in("sweep/runs") / lost);
  ASSERT_TRUE(succeeded(run(resume())));
  const auto after = finished();
  EXPECT_EQ(after.size(), 4u);
  int kept = 0;
  for (const auto& [name, when] : before)
    if (after.contains(name) && after.at(name) == when) ++kept;
  EXPECT_EQ(kept, 3);
}

TEST_F(SweepResume, AnotherRecipeOrDataSetIsAnotherRun) {
  ASSERT_TRUE(succeeded(run(sweep())));
  const Result changed = run(sweep({"--resume", "loader.prefetch=3"}));
  ASSERT_TRUE(succeeded(changed));
  EXPECT_NE(changed.err.find("2 finished runs of another design"), std::string::npos)
      << changed.err;
  EXPECT_EQ(finished().size(), 4u);
  // Keeps names and sizes, and changes pixels.
  const fs::path images = fs::path(data()) / "train-images-idx3-ubyte";
  std::string bytes = read_file(images);
  bytes[5000] = static_cast<char>(bytes[5000] ^ 1);
  write_file(images, bytes);
  ASSERT_TRUE(succeeded(run(sweep({"--resume", "loader.prefetch=3"}))));
  EXPECT_EQ(finished().size(), 6u);
}

TEST_F(SweepResume, TwoSweepsInOneDirectoryAreRefused) {
  ASSERT_TRUE(succeeded(run(sweep())));
  const int held = open(in("sweep/run.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(held, LOCK_EX | LOCK_NB), 0) << "nobody holds it any more";
  EXPECT_TRUE(refused(run(resume()), 2, {"is in use", in("sweep").string()}));
  EXPECT_TRUE(refused(run(sweep()), 2, {"is in use"})) << "nor is it moved aside";
  EXPECT_TRUE(fs::exists(in("sweep/runs")));
  close(held);
  EXPECT_TRUE(succeeded(run(resume())));
}

TEST_F(SweepResume, NothingToResumeIsSaid) {
  EXPECT_TRUE(refused(run(resume()), 2, {"--resume", "not a sweep's directory"}));
  RunOptions elsewhere;
  elsewhere.cwd = in(".");
  EXPECT_TRUE(refused(run({"sweep", "--resume"}, elsewhere), 2, {"no sweep in runs/"}));
}

TEST_F(SweepResume, WithoutADirectoryTheNewestOfTheSameDesignGoesOn) {
  RunOptions here;
  here.cwd = in(".");
  Arguments base = sweep();
  base.resize(base.size() - 2);  // drops --run DIR
  ASSERT_TRUE(succeeded(run(base, here)));
  ASSERT_TRUE(succeeded(run(base + Arguments{"loader.prefetch=2"}, here)));
  const Result more = run(base + Arguments{"--resume", "--repeats", "2"}, here);
  ASSERT_TRUE(succeeded(more));
  EXPECT_NE(more.err.find("resumed: 2 runs"), std::string::npos) << more.err;
}

}  // namespace
}  // namespace millrace::program_test
