// Run directories: new records never overwrite existing ones.
#include <sys/stat.h>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class RunFolder : public ProgramTest {};

TEST_F(RunFolder, EarlierRunsAreMovedAside) {
  for (int seed = 1; seed <= 3; ++seed)
    ASSERT_TRUE(succeeded(run(simulated("run", {"seed=" + std::to_string(seed)}))));
  EXPECT_EQ(summary("run")["seed"], 3);
  EXPECT_EQ(summary("run.1")["seed"], 1);
  EXPECT_EQ(summary("run.2")["seed"], 2);
  for (const char* name : {"run", "run.1", "run.2"})
    for (const char* file : {"config.toml", "steps.csv", "metrics.jsonl"})
      EXPECT_TRUE(fs::exists(in(name) / file)) << name << "/" << file;
}

TEST_F(RunFolder, MoveIsSaid) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  const Result again = run(simulated("run"));
  ASSERT_TRUE(succeeded(again));
  EXPECT_NE(again.err.find(in("run.1").string()), std::string::npos) << again.err;
}

TEST_F(RunFolder, SlashAtTheEndMeansTheSameFolder) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  ASSERT_TRUE(succeeded(run(simulated("run/", {"seed=2"}))));
  EXPECT_EQ(summary("run")["seed"], 2);
  EXPECT_EQ(summary("run.1")["seed"], 0);
}

TEST_F(RunFolder, EmptyFolderIsTaken) {
  fs::create_directories(in("run"));
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  EXPECT_FALSE(fs::exists(in("run.1")));
}

TEST_F(RunFolder, DeepFolderIsMade) {
  ASSERT_TRUE(succeeded(run(simulated("a/b/c"))));
  EXPECT_TRUE(fs::exists(in("a/b/c/summary.json")));
}

TEST_F(RunFolder, ForeignFolderIsRefusedAndLeftAlone) {
  write_file(in("thesis/chapter1.tex"), "years of work");
  EXPECT_TRUE(refused(run(simulated("thesis")), 2, {in("thesis").string()}));
  EXPECT_EQ(read_file(in("thesis/chapter1.tex")), "years of work");
  std::size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(in("thesis"))) entries += entry.exists();
  EXPECT_EQ(entries, 1u);
  EXPECT_FALSE(fs::exists(in("thesis.1")));
}

TEST_F(RunFolder, FileOfThatNameIsRefusedAndLeftAlone) {
  write_file(in("notes"), "text");
  EXPECT_TRUE(refused(run(simulated("notes")), 2, {in("notes").string()}));
  EXPECT_EQ(read_file(in("notes")), "text");
}

TEST_F(RunFolder, PlaceThatCannotBeWrittenIsNamed) {
  write_file(in("file"), "");
  EXPECT_TRUE(refused(run(simulated("file/run")), 1, {in("file/run").string()}));
  Arguments arguments = simulated("unused");
  arguments.back() = "/proc/millrace-run";
  EXPECT_TRUE(refused(run(arguments), 1, {"/proc/millrace-run"}));
}

TEST_F(RunFolder, ReadOnlyFolderIsNamed) {
  RunOptions options;
  options.obey_permissions = true;
  fs::create_directories(in("locked"));
  fs::permissions(in("locked"), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_TRUE(refused(run(simulated("locked"), options), 1, {in("locked").string()}));
  EXPECT_TRUE(refused(run(simulated("locked/run"), options), 1, {in("locked/run").string()}));
  fs::permissions(in("locked"), fs::perms::owner_all);
  EXPECT_TRUE(fs::is_empty(in("locked")));
}

TEST_F(RunFolder, FileTakesTheRunsPermissionsFromUmask) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  const mode_t mask = umask(0);
  umask(mask);
  for (const char* name : {"summary.json", "config.toml", "steps.csv", "metrics.jsonl"}) {
    const auto mode = static_cast<unsigned>(fs::status(in("run") / name).permissions());
    EXPECT_EQ(mode, 0666u & ~mask) << name;
  }
}

}  // namespace
}  // namespace millrace::program_test
