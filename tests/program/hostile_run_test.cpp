// Run directories from strangers: whatever stands in place of a file, each command ends with a
// documented exit code and one line, and nothing outside the directory changes.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>

#include "base/checksum.h"
#include "base/descriptor.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

/// Things that stand in place of a file or a folder of a run.
const std::vector<std::string> kThings{"fifo",     "socket", "device", "folder",
                                       "dangling", "sparse", "outside"};

class HostileRun : public ProgramTest {
 protected:
  /// Puts `thing` in place of `path`, which moves to in("outside/moved").
  void put(const std::string& thing, const fs::path& path) {
    fs::remove_all(in("outside"));
    fs::create_directories(in("outside"));
    fs::rename(path, in("outside/moved"));
    write_file(in("outside/victim"), "kept");
    if (thing == "fifo") mkfifo(path.c_str(), 0600);
    if (thing == "socket") make_socket(path);
    if (thing == "device") fs::create_symlink("/dev/zero", path);
    if (thing == "folder") fs::create_directory(path);
    if (thing == "dangling") fs::create_symlink(in("outside/new"), path);
    if (thing == "sparse") {
      write_file(path, "");
      fs::resize_file(path, std::uintmax_t{100} << 30);
    }
    if (thing == "outside") fs::create_symlink(in("outside/moved"), path);
  }
  /// Binds a socket to a short name, because its address has room for 107 characters only.
  void make_socket(const fs::path& path) const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = in("s").string();
    std::strncpy(address.sun_path, name.c_str(), sizeof address.sun_path - 1);
    const base::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    ASSERT_EQ(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    fs::rename(name, path);
  }
  /// Returns all files below in("outside") with their content.
  std::map<std::string, std::string> outside() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(in("outside")))
      files[entry.path().string()] =
          entry.is_regular_file() && entry.file_size() < 1'000'000 ? read_file(entry.path()) : "";
    return files;
  }
  /// Returns the files and folders below `folder` whose name is not in `without`, in order.
  static std::set<fs::path> parts_of(const fs::path& folder, const std::set<std::string>& without) {
    std::set<fs::path> parts;
    for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::end(entry); ++entry) {
      if (without.contains(entry->path().filename().string())) {
        entry.disable_recursion_pending();
        continue;
      }
      parts.insert(fs::relative(entry->path(), folder));
    }
    return parts;
  }
  /// Runs each command on copies of in(genuine) in which each thing replaces each part. Without
  /// MILLRACE_LONG_TESTS in the environment, one thing in three replaces a part, each in turn.
  void attack(const std::string& genuine, const std::set<fs::path>& parts,
              const std::vector<Arguments>& commands) {
    const int stride = std::getenv("MILLRACE_LONG_TESTS") != nullptr ? 1 : 3;
    int number = 0;
    for (const fs::path& part : parts)
      for (const std::string& thing : kThings)
        if (number++ % stride == 0)
          for (const Arguments& command : commands) attack_once(genuine, part, thing, command);
  }
  void attack_once(const std::string& genuine, const fs::path& part, const std::string& thing,
                   const Arguments& command) {
    fs::remove_all(in("runs"));
    fs::create_directory(in("runs"));
    fs::copy(in(genuine), in("runs/run"),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    put(thing, in("runs/run") / part);
    if (HasFatalFailure()) return;
    const auto before = outside();
    RunOptions options;
    options.cwd = in("");
    const Result result = run(command, options);
    SCOPED_TRACE(thing + " in place of " + part.string() + ": " + command[0] + " " + command[1] +
                 "\n" + result.err);
    EXPECT_TRUE(ends_well(result));
    EXPECT_EQ(outside(), before) << "changed outside of the run";
  }
  static testing::AssertionResult ends_well(const Result& result) {
    if (result.signal != 0 || result.exit_code < 0 || result.exit_code > 3)
      return testing::AssertionFailure()
             << "exit " << result.exit_code << ", signal " << result.signal;
    const auto lines = lines_of(result.err);
    if (result.exit_code == 0) return testing::AssertionSuccess();
    std::size_t at = lines.size();
    if (at > 0 && lines[at - 1].starts_with("  hint: ")) --at;
    if (at == 0 || !lines[at - 1].starts_with("millrace: "))
      return testing::AssertionFailure() << "no line says what is wrong";
    return testing::AssertionSuccess();
  }
  std::string the_run() const { return in("runs/run").string(); }
  /// Returns a simulated sweep of two combinations.
  Arguments sweep(const std::string& name, const Arguments& more = {}) {
    return Arguments{"sweep",
                     "mnist-lenet",
                     "data.path=" + data(),
                     "train.device=simulated",
                     "simulated.update_ms=0.1,0.2",
                     "train.steps=3",
                     "loader.batch=20",
                     "--run",
                     in(name).string()} +
           more;
  }
};

/// Records of a training run, without the files of TensorBoard, which are written under new names.
class HostileTraining : public HostileRun {
 protected:
  void attack_training(const std::vector<Arguments>& commands) {
    const bool has_torch = MILLRACE_HAS_TORCH != 0;
    ASSERT_TRUE(succeeded(run(has_torch ? training("run", {"train.steps=5"}) : simulated("run"))));
    if (has_torch) {
      ASSERT_TRUE(succeeded(
          run({"eval", in("run").string(), "--predictions", in("run/predictions.csv").string()})));
    }
    write_file(in("run/quarantine.jsonl"), "");
    write_file(in("run/recipe.toml"), "seed = 3\n");
    attack("run", parts_of(in("run"), {}), commands);
  }
};

TEST_F(HostileTraining, NoPartBlocksAReport) { attack_training({{"report", the_run()}}); }

TEST_F(HostileTraining, NoPartBlocksALiveReport) {
  attack_training({{"report", "--live", the_run()}});
}

TEST_F(HostileTraining, NoPartBlocksAReportOnAFolder) {
  attack_training({{"report", in("runs").string()}});
}

TEST_F(HostileTraining, NoPartBlocksAnEvaluation) {
  MILLRACE_NEEDS_TORCH();
  attack_training({{"eval", the_run()}});
}

TEST_F(HostileTraining, NoPartBlocksResumptionOrLeadsItOut) {
  MILLRACE_NEEDS_TORCH();
  attack_training({{"train", "--resume", "--run", the_run(), "train.steps=7"}});
}

TEST_F(HostileRun, NoPartOfAProfileBlocksOrLeadsOut) {
  ASSERT_TRUE(
      succeeded(run({"profile", "mnist-lenet", "data.path=" + data(), "train.device=simulated",
                     "simulated.update_ms=0.1", "--run", in("run").string()})));
  std::set<fs::path> parts;
  std::set<std::string> names;  // the runs of a profile are alike
  for (const fs::path& part : parts_of(in("run"), {}))
    if (part.string().find("runs/0") != 0 || names.insert(part.filename().string()).second)
      parts.insert(part);
  attack("run", parts, {{"report", the_run()}, {"report", in("runs").string()}});
}

TEST_F(HostileRun, NoPartOfASweepBlocksOrLeadsOut) {
  ASSERT_TRUE(succeeded(run(sweep("run"))));
  std::set<fs::path> parts = parts_of(in("run"), {"002-update_ms=0.2-r1"});
  for (const std::string journal : {"index.sqlite-journal", "index.sqlite-wal"}) {
    write_file(in("run") / journal, "");
    parts.insert(journal);
  }
  attack("run", parts,
         {{"report", the_run()},
          {"report", in("runs").string()},
          {"sweep", "--resume", "--run", the_run()}});
}

class HostilePlan : public HostileRun {
 protected:
  void attack_plan(const Arguments& command) {
    ASSERT_TRUE(succeeded(run(sweep("run", {"--repeats", "2", "--plan"}))));
    ASSERT_TRUE(succeeded(run({"sweep", in("run").string(), "--block", "1"})));
    write_file(in("run/slurm.json"), "[]");
    std::set<fs::path> parts = parts_of(in("run"), {"002-update_ms=0.2-r1"});
    std::erase_if(parts, [](const fs::path& part) {  // runs are those of a sweep
      return std::distance(part.begin(), part.end()) > 5;
    });
    attack("run", parts, {command});
  }
};

TEST_F(HostilePlan, NoPartBlocksAReport) { attack_plan({"report", the_run()}); }

TEST_F(HostilePlan, NoPartBlocksItsStatus) { attack_plan({"sweep", "--status", the_run()}); }

TEST_F(HostilePlan, NoPartBlocksABlockOrLeadsItOut) {
  attack_plan({"sweep", the_run(), "--block", "2"});
}

TEST_F(HostilePlan, NoPartBlocksItsCollectionOrLeadsItOut) {
  attack_plan({"sweep", the_run(), "--collect"});
}

TEST_F(HostilePlan, NoPartBlocksItsResumptionOrLeadsItOut) {
  attack_plan({"sweep", "--resume", "--run", the_run()});
}

TEST_F(HostileRun, AWriterRefusesLinksThatLeadOut) {
  ASSERT_TRUE(succeeded(run(sweep("run"))));
  fs::rename(in("run/runs"), in("elsewhere"));
  fs::create_symlink(in("elsewhere"), in("run/runs"));
  EXPECT_TRUE(refused(run({"sweep", "--resume", "--run", in("run").string()}), 2,
                      {"run/runs is a link to " + in("elsewhere").string() + ", outside the run"}));
  ASSERT_TRUE(succeeded(run(simulated("one"))));
  write_file(in("other/step-5.tmp/file"), "kept");
  fs::create_symlink(in("other"), in("one/checkpoints"));
  EXPECT_TRUE(refused(run(simulated("one")), 2, {"one/checkpoints is a link to "}));
  EXPECT_TRUE(fs::exists(in("other/step-5.tmp/file"))) << "removed as a left-over";
}

TEST_F(HostileRun, LinksThatStayInsideAreFine) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(run(training("run", {"train.steps=5"}))));
  fs::create_directory_symlink(in("run"), in("link"));
  fs::rename(in("run/metrics.jsonl"), in("run/renamed"));
  EXPECT_TRUE(fs::is_symlink(in("run/checkpoints/last")));
  EXPECT_TRUE(succeeded(run({"train", "--resume", "--run", in("link").string(), "train.steps=7"})));
}

TEST_F(HostileRun, AFileWithAnotherNameIsNotCut) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(run(training("run", {"train.steps=5"}))));
  for (const char* name : {"steps.csv", "metrics.jsonl", "run.lock"}) {
    fs::create_hard_link(in("run") / name, in(name));
    const std::string before = read_file(in(name));
    EXPECT_TRUE(refused(run({"train", "--resume", "--run", in("run").string(), "train.steps=7"}), 2,
                        {std::string("run/") + name, "has 2 names"}));
    EXPECT_EQ(read_file(in(name)), before);
    fs::remove(in(name));
  }
}

TEST_F(HostileRun, ARecordNamesNoFilesElsewhere) {
  ASSERT_TRUE(succeeded(run(sweep("run", {"--repeats", "1", "--plan"}))));
  ASSERT_TRUE(succeeded(run({"sweep", in("run").string(), "--block", "1"})));
  write_file(in("victim"), "kept");
  const fs::path result = in("run/blocks/0001/2.json");
  Json entry = parse_json(read_file(result));
  ASSERT_EQ(entry["kind"], "result");
  const Json honest = entry;
  // The attempt has what the name leads to, so that it would be moved to where it leads from runs.
  write_file(in("run/blocks/0001/attempt-1/victim"), "stranger's");
  entry["runs"][0] = "../../victim";
  write_file(result, entry.dump());
  write_file(in("run/blocks/0001/victim"), "stranger's");
  EXPECT_TRUE(refused(run({"sweep", in("run").string(), "--collect"}), 3,
                      {"the result of block 1 is damaged", "../../victim is not a run"}));
  EXPECT_EQ(read_file(in("victim")), "kept");
  entry = honest;
  entry["attempt"] = -1;
  write_file(result, entry.dump());
  EXPECT_TRUE(refused(run({"sweep", "--status", in("run").string()}), 3, {"2.json is damaged"}));

  write_file(result, honest.dump());
  ASSERT_TRUE(succeeded(run({"sweep", in("run").string(), "--collect"})));
  Json table = parse_json(read_file(in("run/sweep.json")));
  table["cells"][0]["runs"][0]["run"] = "../../other";
  write_file(in("run/sweep.json"), table.dump());
  EXPECT_TRUE(refused(run({"report", in("run").string()}), 3, {"sweep.json is damaged"}));

  write_file(in("run/slurm.json"), R"(["--clusters=x"])");
  EXPECT_TRUE(refused(run({"sweep", "--status", in("run").string()}), 3,
                      {"slurm.json is damaged: it is not a list of Slurm's jobs"}));
}

TEST_F(HostileRun, ACheckpointNamesNoFilesElsewhere) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(run(training("run", {"train.steps=5"}))));
  const fs::path file = in("run/checkpoints/step-5/position.json");
  auto position = nlohmann::ordered_json::parse(read_file(file));
  position["files"]["../../../victim"] = base::checksum("kept");
  position.erase("checksum");
  position["checksum"] = base::checksum(position.dump());
  write_file(file, position.dump(2) + "\n");
  write_file(in("victim"), "kept");
  EXPECT_TRUE(refused(run({"train", "--resume", "--run", in("run").string(), "train.steps=7"}), 3,
                      {"position.json is damaged: it names files elsewhere"}));
}

/// Returns a journal that SQLite takes for one of a process that was killed, whose transaction
/// spanned several databases: SQLite removes the file that it names.
std::string hot_journal(const std::string& names) {
  const auto number = [](std::uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
    return bytes;
  };
  const std::string magic("\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", 8);
  std::string journal = magic + number(0) + number(1) + number(1) + number(512) + number(4096);
  journal.resize(512);
  std::uint32_t sum = 0;
  for (const char c : names) sum += static_cast<std::uint32_t>(c);
  return journal + number(0x40000000 / 4096 + 1) + names +
         number(static_cast<std::uint32_t>(names.size())) + number(sum) + magic;
}

TEST_F(HostileRun, TheIndexOfAStrangerIsNotOpened) {
  ASSERT_TRUE(succeeded(run(sweep("run"))));
  write_file(in("victim"), "kept");
  write_file(in("run/index.sqlite-journal"), hot_journal(in("victim").string()));
  ASSERT_TRUE(succeeded(run({"sweep", "--resume", "--run", in("run").string()})));
  EXPECT_TRUE(fs::exists(in("victim"))) << "removed as a journal's super-journal";
}

TEST_F(HostileRun, AReportWritesBelowTheRunOnly) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  fs::create_directory(in("other"));
  fs::create_symlink(in("other"), in("run/report"));
  EXPECT_TRUE(refused(run({"report", in("run").string(), "--csv"}), 2,
                      {"run/report is a link to " + in("other").string()}));
  EXPECT_TRUE(fs::is_empty(in("other")));
}

TEST_F(HostileRun, ItsRecipeIsNoFile) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  write_file(in("secret"), "password of the user");
  std::string config = read_file(in("run/config.toml"));
  const std::string name = "recipe = \"mnist-lenet\"";
  const std::size_t at = config.find(name);
  ASSERT_NE(at, std::string::npos);
  for (const std::string& other : {std::string("secret"), in("secret").string()}) {
    std::string changed = config;
    changed.replace(at, name.size(), "recipe = \"" + other + "\"");
    write_file(in("run/config.toml"), changed);
    RunOptions options;
    options.cwd = in("");
    const Result result = run({"report", in("run").string(), "--md"}, options);
    ASSERT_TRUE(succeeded(result));
    EXPECT_NE(result.out.find("no shipped recipe"), std::string::npos) << result.out;
  }
}

TEST_F(HostileRun, ItsCopyOfARecipeIsComparedOnly) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  // A plugin that is loaded and a set that is opened would both be missed.
  write_file(in("run/recipe.toml"),
             "[plugins]\npath = \"/no/such/plugin.so\"\n[data]\npath = \"http://127.0.0.1:1/x\"\n");
  const Result result = run({"report", in("run").string(), "--md"});
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("/no/such/plugin.so"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("http://127.0.0.1:1/x"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("no keys are compared"), std::string::npos) << result.out;
}

TEST_F(HostileRun, DoctorWritesToItsOwnFile) {
  fs::create_directory(in("run"));
  write_file(in("victim"), "kept");
  fs::create_symlink(in("victim"), in("run/.millrace-doctor.tmp"));
  ASSERT_TRUE(succeeded(run({"doctor", "--storage", in("run").string()})));
  EXPECT_EQ(fs::file_size(in("victim")), 4u);
}

}  // namespace
}  // namespace millrace::program_test
