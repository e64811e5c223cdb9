// Blocks of a planned sweep, run by processes of their own: claims, take-overs, and that together
// they are the local sweep.
#include <csignal>
#include <set>

#include "tests/program/program.h"
#include "tests/program/small_disk.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class SweepBlocks : public ProgramTest {
 protected:
  /// Returns a sweep of two simulated combinations into in(name).
  Arguments sweep(const std::string& name, const Arguments& more = {}) {
    return Arguments{"sweep",
                     "mnist-lenet",
                     "data.path=" + data(),
                     "train.device=simulated",
                     "simulated.update_ms=0.5,1",
                     "train.epochs=1",
                     "loader.batch=20",
                     "--run",
                     in(name).string()} +
           more;
  }
  /// Plans a sweep of two blocks whose single row waits until open_gate().
  void plan_gated() {
    const std::string command = "until test -e " + in("gate").string() + "; do sleep 0.05; done";
    ASSERT_TRUE(succeeded(run({"sweep", "--command", command + "; echo {a}", "--cell", "a=1",
                               "--repeats", "2", "--plan", "--run", in("plan").string()})));
  }
  void open_gate() const { write_file(in("gate"), ""); }
  /// Leaves block 1 in `folder` as an attempt does that could not publish its complete runs. The
  /// run itself is missing.
  void leave_unpublished(const fs::path& folder) {
    plan_gated();
    Child first(block("1"));
    ASSERT_TRUE(first.says("attempt 1"));
    first.send(SIGKILL);
    first.wait();
    write_file(folder / "attempt-1/heartbeat", "complete, unpublished");
    write_file(folder / "attempt-1/runs/kept.txt", "");
  }
  Arguments block(const std::string& number, const Arguments& more = {}) const {
    return Arguments{"sweep", in("plan").string(), "--block", number} + more;
  }
  Result collect() { return run({"sweep", in("plan").string(), "--collect"}); }
  Json status() {
    const Result result = run({"sweep", "--status", in("plan").string(), "--json"});
    EXPECT_TRUE(succeeded(result));
    return parse_json(result.out)["blocks"];
  }
  Json entry(const std::string& name) const {
    return parse_json(read_file(in("plan/blocks") / name));
  }
  Json record(const std::string& name) const {
    return parse_json(read_file(in(name) / "sweep.json"));
  }
  /// Returns each row's runs: name, seed and images.
  static std::vector<std::vector<std::string>> runs_of(const Json& json) {
    std::vector<std::vector<std::string>> rows;
    for (const Json& cell : json["cells"]) {
      rows.emplace_back();
      for (const Json& one : cell["runs"])
        rows.back().push_back(one["run"].get<std::string>() + " " + one["seed"].dump());
    }
    return rows;
  }
  void edit(const std::string& file, const std::string& key, const Json& value) const {
    Json json = parse_json(read_file(in(file)));
    json[Json::json_pointer(key)] = value;
    write_file(in(file), json.dump());
  }
};

TEST_F(SweepBlocks, InAnyOrderTheyEqualTheLocalSweep) {
  ASSERT_TRUE(succeeded(run(sweep("local", {"--repeats", "3"}))));
  const Result planned = run(sweep("plan", {"--repeats", "3", "--plan"}));
  ASSERT_TRUE(succeeded(planned));
  EXPECT_EQ(planned.out, in("plan").string() + "\n");
  EXPECT_TRUE(refused(collect(), 1, {"no block of", "is done"}, false));
  for (const char* number : {"3", "1"}) ASSERT_TRUE(succeeded(run(block(number))));
  ASSERT_TRUE(succeeded(collect()));
  EXPECT_EQ(record("plan")["repeats"], 2) << "what is done can be collected at any time";
  EXPECT_EQ(record("plan")["blocks"]["planned"], 3);
  ASSERT_TRUE(succeeded(run(block("2"))));
  const Result again = run(block("2"));
  ASSERT_TRUE(succeeded(again));
  EXPECT_NE(again.err.find("block 2 is done"), std::string::npos) << again.err;
  const Result collected = collect();
  ASSERT_TRUE(succeeded(collected));
  const Json local = record("local"), blocks = record("plan");
  EXPECT_EQ(runs_of(blocks), runs_of(local)) << "names begin with the order, seeds follow";
  EXPECT_EQ(blocks["repeats"], 3);
  for (const Json& one : blocks["blocks"]["collected"]) EXPECT_EQ(one["attempt"], 1);
  for (const char* file : {"runs.csv", "table.csv"}) {
    const auto mine = lines_of(read_file(in("plan") / file));
    const auto its = lines_of(read_file(in("local") / file));
    EXPECT_EQ(mine.size(), its.size()) << file;
    EXPECT_EQ(mine[0], its[0]) << file;
  }
  for (const auto& row : runs_of(blocks))
    for (const std::string& name : row)
      EXPECT_EQ(summary("plan/runs/" + name.substr(0, name.find(' ')))["images"], 200);
  EXPECT_TRUE(succeeded(run({"report", in("plan").string()})));
  EXPECT_TRUE(no_temporaries(in("plan")));
}

TEST_F(SweepBlocks, ResumeRunsTheRestHere) {
  ASSERT_TRUE(succeeded(run(sweep("plan", {"--repeats", "2", "--plan"}))));
  ASSERT_TRUE(succeeded(run(block("2"))));
  ASSERT_TRUE(succeeded(run({"sweep", "--resume", "--run", in("plan").string()})));
  EXPECT_EQ(record("plan")["repeats"], 2);
  for (const Json& one : status()) {
    EXPECT_EQ(one["state"], "done");
    EXPECT_EQ(one["attempts"], 1);
  }
  fs::remove_all(in("plan/blocks/0002"));
  const fs::path steps = in("plan/runs") /
                         record("plan")["cells"][0]["runs"][1]["run"].get<std::string>() /
                         "steps.csv";
  ASSERT_TRUE(fs::exists(steps)) << steps;
  const auto before = fs::last_write_time(steps);
  ASSERT_TRUE(succeeded(run(block("2"))));
  ASSERT_TRUE(succeeded(collect()));
  EXPECT_GT(fs::last_write_time(steps), before) << "a block whose folder was removed is run again";
  ASSERT_TRUE(succeeded(run({"sweep", in("plan").string(), "--plan", "--repeats", "3"})));
  EXPECT_EQ(status()[2]["state"], "open");
  EXPECT_TRUE(refused(run({"sweep", in("plan").string(), "--plan", "--repeats", "1"}), 2,
                      {"another plan of 3 blocks"}));
}

TEST_F(SweepBlocks, OfTwoClaimsOneIsRefused) {
  plan_gated();
  Child first(block("1"));
  ASSERT_TRUE(first.says("attempt 1"));
  EXPECT_TRUE(refused(run(block("1")), 2,
                      {"block 1 of", "is being run by pid " + std::to_string(first.pid())}));
  Child second(block("2"));
  ASSERT_TRUE(second.says("attempt 1")) << "another block is free";
  for (const Json& one : status()) EXPECT_EQ(one["state"], "running") << one;
  open_gate();
  EXPECT_TRUE(succeeded(first.wait()));
  EXPECT_TRUE(succeeded(second.wait()));
  EXPECT_TRUE(succeeded(collect()));
}

TEST_F(SweepBlocks, KilledItIsTakenAgain) {
  plan_gated();
  Child first(block("1"));
  ASSERT_TRUE(first.says("attempt 1"));
  first.send(SIGKILL);
  EXPECT_EQ(first.wait().signal, SIGKILL);
  EXPECT_EQ(status()[0]["state"], "failed");
  open_gate();
  const Result second = run(block("1"));
  ASSERT_TRUE(succeeded(second));
  EXPECT_NE(second.err.find("has ended without a result; taking it over"), std::string::npos)
      << second.err;
  const Json states = status();
  EXPECT_EQ(states[0]["state"], "done");
  EXPECT_EQ(states[0]["attempts"], 2);
  EXPECT_EQ(states[1]["state"], "open") << "only that block is repeated";
}

TEST_F(SweepBlocks, ADeadHostIsKnownByItsHeartbeat) {
  plan_gated();
  Child first(block("1"));
  ASSERT_TRUE(first.says("attempt 1"));
  first.send(SIGKILL);
  first.wait();
  edit("plan/blocks/0001/1.json", "/owner/space", "another boot");
  open_gate();
  const Result second = run(block("1", {"--patience", "1"}));
  ASSERT_TRUE(succeeded(second));
  EXPECT_NE(second.err.find("has shown no heartbeat for 1 s; taking it over"), std::string::npos)
      << second.err;
}

TEST_F(SweepBlocks, StoppedOvertakenAndContinuedItNeverCounts) {
  plan_gated();
  Child first(block("1"));
  ASSERT_TRUE(first.says("attempt 1"));
  first.send(SIGSTOP);
  Child second(block("1", {"--patience", "1"}));
  ASSERT_TRUE(second.says("attempt 2"));
  first.send(SIGCONT);  // before the second has a result
  const Result overtaken = first.wait();
  EXPECT_TRUE(refused(
      overtaken, 1,
      {"block 1 was taken over by pid " + std::to_string(second.pid()), "do not count"}, false));
  open_gate();
  ASSERT_TRUE(succeeded(second.wait()));
  EXPECT_EQ(entry("0001/3.json")["owner"]["pid"], second.pid());
  EXPECT_EQ(entry("0001/3.json")["attempt"], 2);
  EXPECT_FALSE(fs::exists(in("plan/blocks/0001/4.json")));
  ASSERT_TRUE(succeeded(run(block("2"))));
  ASSERT_TRUE(succeeded(collect()));
  EXPECT_EQ(record("plan")["blocks"]["collected"][0]["attempt"], 2);
}

TEST_F(SweepBlocks, AnInterruptedBlockIsFree) {
  plan_gated();
  Child first(block("1"));
  ASSERT_TRUE(first.says("attempt 1"));
  first.send(SIGTERM);
  const Result result = first.wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_NE(result.err.find("--block 1"), std::string::npos) << result.err;
  EXPECT_EQ(status()[0]["state"], "failed");
  EXPECT_EQ(status()[0]["detail"], "interrupted");
  open_gate();
  EXPECT_TRUE(succeeded(run(block("1"))));
}

TEST_F(SweepBlocks, RunsThatCouldNotBePublishedAreNotRepeated) {
  plan_gated();
  RunOptions as_user;
  as_user.obey_permissions = true;
  Child first(block("1"), as_user);
  ASSERT_TRUE(first.says("attempt 1"));
  const fs::path folder = in("plan/blocks/0001");
  fs::permissions(folder, fs::perms::owner_write, fs::perm_options::remove);
  open_gate();
  EXPECT_TRUE(
      refused(first.wait(), 1, {"block 1 is complete, but not published", "denied"}, false));
  fs::permissions(folder, fs::perms::owner_write, fs::perm_options::add);
  const Json state = status()[0];
  EXPECT_EQ(state["state"], "failed");
  EXPECT_NE(state["detail"].get<std::string>().find("could not publish"), std::string::npos);
  fs::remove(in("gate"));  // a run would not end
  // As if this were another host.
  edit("plan/blocks/0001/1.json", "/owner/space", "another boot");
  edit("plan/blocks/0001/1.json", "/owner/host", "elsewhere");
  const Result second = run(block("1"));
  ASSERT_TRUE(succeeded(second));
  EXPECT_NE(second.err.find("publishing the runs that"), std::string::npos) << second.err;
  EXPECT_EQ(entry("0001/3.json")["attempt"], 2);
  open_gate();
  ASSERT_TRUE(succeeded(run(block("2"))));
  ASSERT_TRUE(succeeded(collect()));
  EXPECT_EQ(record("plan")["blocks"]["collected"][0]["host"], "elsewhere") << "where it was run";
}

TEST_F(SweepBlocks, ACommandThatHadFailedIsTriedOnceMoreWhenItsBlockIsPublished) {
  const std::string gate = in("gate").string(), log = in("log").string();
  const std::string command = "until test -e " + gate + "; do sleep 0.05; done; echo {a} >> " +
                              log + "; test {a} = 1 || test -e " + in("mended").string();
  ASSERT_TRUE(succeeded(run({"sweep", "--command", command, "a=1,2", "--repeats", "1", "--plan",
                             "--run", in("plan").string()})));
  RunOptions as_user;
  as_user.obey_permissions = true;
  Child first(block("1"), as_user);
  ASSERT_TRUE(first.says("attempt 1"));
  const fs::path folder = in("plan/blocks/0001");
  fs::permissions(folder, fs::perms::owner_write, fs::perm_options::remove);
  open_gate();
  EXPECT_TRUE(refused(first.wait(), 1, {"block 1 is complete, but not published"}, false));
  fs::permissions(folder, fs::perms::owner_write, fs::perm_options::add);
  write_file(in("mended"), "");
  ASSERT_TRUE(succeeded(run(block("1"))));
  ASSERT_TRUE(succeeded(collect()));
  const std::string tried = read_file(log);
  EXPECT_EQ(count_of(tried, "1\n"), 1u) << tried;
  EXPECT_EQ(count_of(tried, "2\n"), 2u) << tried;
  for (const Json& cell : record("plan")["cells"]) EXPECT_EQ(cell["runs"].size(), 1u) << cell;
}

TEST_F(SweepBlocks, RunsThatCannotBeTakenOverStayForALaterAttempt) {
  const fs::path folder = in("plan/blocks/0001");
  ASSERT_NO_FATAL_FAILURE(leave_unpublished(folder));
  open_gate();
  RunOptions as_user;
  as_user.obey_permissions = true;
  fs::permissions(folder / "attempt-1", fs::perms::owner_write, fs::perm_options::remove);
  EXPECT_TRUE(refused(run(block("1"), as_user), 1, {"attempt-1/runs cannot be moved"}, false));
  EXPECT_EQ(entry("0001/3.json")["kind"], "failure");
  fs::permissions(folder / "attempt-1", fs::perms::owner_write, fs::perm_options::add);
  const Result last = run(block("1"), as_user);
  ASSERT_TRUE(succeeded(last));
  EXPECT_NE(last.err.find("publishing the runs that"), std::string::npos) << last.err;
  EXPECT_EQ(entry("0001/5.json")["attempt"], 4);
  EXPECT_TRUE(fs::exists(folder / "attempt-4/runs/kept.txt"));
  EXPECT_FALSE(fs::exists(folder / "attempt-1/runs"));
}

TEST_F(SweepBlocks, OnAFullDiskABlockIsKeptAndPublishedLater) {
  MILLRACE_NEEDS_SMALL_DISK();
  SmallDisk disk(in("plan"), "size=10m,nr_inodes=200");
  // The command leaves one inode: enough for a record, but not for an entry and its link.
  const std::string command =
      "echo run >> " + in("log").string() +
      "; i=0; while true > {run}/$i; do i=$((i+1)); done 2> {run}/0; rm {run}/1; echo {a}";
  ASSERT_TRUE(succeeded(run({"sweep", "--command", command, "--cell", "a=1", "--repeats", "2",
                             "--plan", "--run", in("plan").string()})));
  EXPECT_TRUE(refused(run(block("1")), 1,
                      {"block 1 is complete, but not published", "No space left"}, false));
  EXPECT_EQ(status()[0]["state"], "failed");
  disk.change("size=10m,nr_inodes=500");
  const Result second = run(block("1"));
  ASSERT_TRUE(succeeded(second));
  EXPECT_NE(second.err.find("publishing the runs that"), std::string::npos) << second.err;
  EXPECT_EQ(read_file(in("log")), "run\n") << "it was run again";
  disk.change("size=10m,nr_inodes=2000");
  EXPECT_TRUE(succeeded(collect()));
  EXPECT_EQ(record("plan")["repeats"], 1);
}

TEST_F(SweepBlocks, APublicationThatIsInterruptedKeepsTheRuns) {
  const fs::path folder = in("plan/blocks/0001");
  ASSERT_NO_FATAL_FAILURE(leave_unpublished(folder));
  Child second(block("1"));  // executes the run that is in fact missing
  ASSERT_TRUE(second.says("publishing the runs that"));
  second.send(SIGTERM);
  EXPECT_EQ(second.wait().exit_code, 130);
  EXPECT_NE(status()[0]["detail"].get<std::string>().find("could not publish"), std::string::npos);
  open_gate();
  ASSERT_TRUE(succeeded(run(block("1"))));
  EXPECT_EQ(entry("0001/4.json")["attempt"], 3);
  EXPECT_TRUE(fs::exists(folder / "attempt-3/runs/kept.txt"));
}

TEST_F(SweepBlocks, ABlockNeedsNoLock) {
  plan_gated();
  open_gate();
  RunOptions options;
  options.no_locks = true;
  for (const char* number : {"1", "2"}) EXPECT_TRUE(succeeded(run(block(number), options)));
  EXPECT_TRUE(succeeded(collect()));
}

TEST_F(SweepBlocks, MistakesAreNamed) {
  ASSERT_TRUE(succeeded(run(sweep("plan", {"--repeats", "2", "--plan"}))));
  for (const char* number : {"0", "3", "-1", "x", "1x", "99999999999999999999"})
    EXPECT_TRUE(refused(run({"sweep", in("plan").string(), std::string("--block=") + number}), 2,
                        {std::string("--block ") + number, "has the blocks 1 to 2"}));
  for (const char* option : {"--collect", "--status", "--block=1"})
    EXPECT_TRUE(refused(run({"sweep", in("none").string(), option}), 2,
                        {in("none").string(), "not the directory of a planned sweep"}));
  EXPECT_TRUE(refused(run(sweep("auto", {"--repeats", "auto", "--plan"})), 2, {"--repeats auto"}));
  EXPECT_FALSE(fs::exists(in("auto")));
  EXPECT_TRUE(refused(run(sweep("plan")), 2, {"holds a planned sweep"}));
  EXPECT_TRUE(refused(run({"sweep", "--command", "echo {a} > a.json", "--cell", "a=1", "--metric",
                           "a.json:a", "--repeats", "2", "--plan", "--run", in("file").string()}),
                      2, {"--metric a.json", "would write the same file", "{run}"}));
  EXPECT_TRUE(refused(run(sweep("other", {"--time", "5"})), 2, {"--on slurm"}));
  RunOptions bare;
  bare.env = {{"PATH", "/nowhere"}};
  EXPECT_TRUE(refused(run({"sweep", in("plan").string(), "--on", "slurm"}, bare), 2,
                      {"sbatch: command not found"}));
}

TEST_F(SweepBlocks, ResumeTakesNoSweepOfTheOtherKind) {
  ASSERT_TRUE(succeeded(run(sweep("runs/sweep-plan", {"--repeats", "2", "--plan"}))));
  RunOptions inside;
  inside.cwd = in("");
  EXPECT_TRUE(refused(run({"sweep", "--resume"}, inside), 2, {"is a planned one", "--run"}));
  ASSERT_TRUE(succeeded(run(sweep("local", {"--repeats", "2"}))));
  const std::string index = read_file(in("local/sweep.json"));
  EXPECT_TRUE(refused(run(sweep("local", {"--resume", "--plan"})), 2, {"was not planned"}));
  EXPECT_FALSE(fs::exists(in("local/plan.json")));
  EXPECT_EQ(read_file(in("local/sweep.json")), index);
}

TEST_F(SweepBlocks, AnotherVersionIsRefused) {
  ASSERT_TRUE(succeeded(run(sweep("plan", {"--repeats", "2", "--plan"}))));
  ASSERT_TRUE(succeeded(run(block("1"))));
  const std::string plan = read_file(in("plan/plan.json"));
  edit("plan/plan.json", "/format", 99);
  EXPECT_TRUE(refused(run(block("2")), 2, {"planned by another version", "format 99"}));
  EXPECT_TRUE(refused(run({"sweep", "--status", in("plan").string()}), 2, {"format 99"}));
  write_file(in("plan/plan.json"), plan);
  edit("plan/plan.json", "/binary", "0123456789abcdef");
  EXPECT_TRUE(refused(run(block("2")), 2, {"mixed versions are refused", "01234567"}));
  EXPECT_TRUE(refused(collect(), 2, {"mixed versions are refused"}));
  write_file(in("plan/plan.json"), plan);
  edit("plan/blocks/0001/2.json", "/binary", "fedcba9876543210");
  EXPECT_TRUE(refused(collect(), 2, {"block 1 of", "fedcba98", "mixed versions are refused"}));
}

TEST_F(SweepBlocks, AChangedDataSetIsRefused) {
  ASSERT_TRUE(succeeded(run(sweep("plan", {"--repeats", "2", "--plan"}))));
  const fs::path images = fs::path(data()) / "train-images-idx3-ubyte";
  std::string bytes = read_file(images);
  bytes[5000] = static_cast<char>(bytes[5000] ^ 1);
  write_file(images, bytes);
  EXPECT_TRUE(refused(run(block("1")), 2, {"no longer what was planned"}));
  EXPECT_EQ(status()[0]["state"], "open") << "nothing was claimed";
}

}  // namespace
}  // namespace millrace::program_test
