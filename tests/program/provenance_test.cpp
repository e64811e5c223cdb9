// A run directory is data. What a stranger's record names outside of its directory is neither read
// nor contacted, and the commands in it do not run, unless the command line repeats them.
#include "tools/training/provenance.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <set>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

/// Listens at a port of this host, and answers nobody.
class Listener {
 public:
  Listener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(socket_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::string address() const { return fmt::format("http://127.0.0.1:{}/set.tar", port_); }
  bool was_contacted() const {
    pollfd wait{socket_, POLLIN, 0};
    return poll(&wait, 1, 0) == 1;
  }

 private:
  int socket_;
  int port_ = 0;
};

/// Runs of one user, who keeps a key, and commands of another.
class ARunDirectoryIsData : public ProgramTest {
 protected:
  ARunDirectoryIsData() {
    owner_.env["XDG_STATE_HOME"] = in("owner").string();
    stranger_.env["XDG_STATE_HOME"] = in("stranger").string();
    stranger_.env["MILLRACE_REMOTE_AUTHORIZATION"] = "Bearer secret";
  }
  Result as_owner(const Arguments& arguments) { return run(arguments, owner_); }
  Result as_stranger(const Arguments& arguments) { return run(arguments, stranger_); }
  std::string word() { return fmt::format("data.path={}", data()); }
  /// Replaces the value of a key in a run's config.toml.
  void set(const std::string& run, const std::string& section, const std::string& key,
           const std::string& value) const {
    const fs::path file = in(run) / "config.toml";
    std::string text = read_file(file);
    const std::size_t at =
        text.find(fmt::format("\n{} = ", key), text.find(fmt::format("\n[{}]\n", section)));
    ASSERT_NE(at, std::string::npos) << key;
    const std::size_t from = at + key.size() + 4;
    text =
        fmt::format("{}\"{}\"{}", text.substr(0, from), value, text.substr(text.find('\n', from)));
    write_file(file, text);
  }
  /// Makes a sweep of a command that writes a line to in("ran"), and returns its words.
  Arguments sweep_of_command(const Arguments& more) {
    return Arguments{"sweep", "--command", command_, "a=1,2", "--run", in("sweep").string()} + more;
  }
  /// Returns the user's key, as MILLRACE_RUN_KEY takes it.
  std::string key_of_owner() const {
    return read_file(in("owner/millrace/run-key")).substr(0, 64);  // without its line's end
  }
  /// Runs a shell's command, in which `millrace` is this program, as in a container: without a
  /// home.
  static Result in_a_container(const std::string& command) {
    RunOptions shell;
    shell.program = "/bin/sh";
    return run({"-c",
                "unset HOME XDG_STATE_HOME XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME\n"
                "PATH=" MILLRACE_BUILD ":$PATH\n" +
                    command},
               shell);
  }
  /// Returns the command that a refusal tells the user to type.
  static std::string command_in(const Result& refusal) {
    const std::string begin = "repeat it: ", text = refusal.err;
    const std::size_t at = text.find(begin);
    EXPECT_NE(at, std::string::npos) << text;
    return at == std::string::npos ? "false" : text.substr(at + begin.size());
  }
  std::size_t commands_run() const {
    return fs::exists(in("ran")) ? lines_of(read_file(in("ran"))).size() : 0;
  }

  const std::string command_ = fmt::format("echo {{a}} >> {}", in("ran").string());
  RunOptions owner_, stranger_;
};

TEST_F(ARunDirectoryIsData, EveryKeyOfFreeTextIsInOneOfTheTables) {
  std::set<std::string> reaching;
  std::set<std::string> inert(tools::kInertTexts.begin(), tools::kInertTexts.end());
  for (const auto& key : tools::kReachingKeys) reaching.insert(std::string(key.name));
  const Json all = parse_json(run({"keys", "--json"}).out);
  for (const Json& key : all["keys"]) {
    const std::string name = key["key"];
    if (key["type"] != "text" || name.starts_with("augment.")) continue;  // texts of ops name ops
    EXPECT_EQ(reaching.erase(name) + inert.erase(name), 1u)
        << name << ": does its value reach outside of a run's directory?";
  }
  EXPECT_TRUE(reaching.empty()) << *reaching.begin() << " is no key of free text";
  EXPECT_TRUE(inert.empty()) << *inert.begin() << " is no key of free text";
}

TEST_F(ARunDirectoryIsData, ReportContactsNoServer) {
  ASSERT_TRUE(succeeded(as_owner(simulated("run", {"train.steps=4"}))));
  const Listener server;
  set("run", "data", "path", server.address());
  set("run", "data", "reader", "tar");
  write_file(in("cache/thesis-backup.tar"), "mine");
  for (const char* cache : {"cache", "empty"}) {  // a cache refuses foreign files by itself
    set("run", "data.remote", "cache", in(cache).string());
    fs::create_directories(in(cache));
    fs::permissions(in(cache), fs::perms::owner_all);  // no cache is open to others
    for (RunOptions* user : {&owner_, &stranger_}) {
      user->timeout_s = 20;
      const Result result = run({"report", in("run").string(), "--md"}, *user);
      EXPECT_TRUE(succeeded(result));
      EXPECT_NE(result.out.find("opens none over a network"), std::string::npos) << result.out;
    }
  }
  EXPECT_FALSE(server.was_contacted());
  EXPECT_TRUE(fs::is_empty(in("empty")));
  EXPECT_EQ(read_file(in("cache/thesis-backup.tar")), "mine");
}

TEST_F(ARunDirectoryIsData, ReportOpensALocalSetThatIsBesideOrNamedOrOwn) {
  ASSERT_TRUE(succeeded(as_owner(simulated("far/run", {"train.steps=4"}))));
  const std::string page = in("far/run").string();
  const auto pictures = [&](const Result& result) {
    EXPECT_TRUE(succeeded(result));
    return parse_json(result.out)["images"].size();
  };
  EXPECT_EQ(pictures(as_owner({"report", page, "--json"})), 1u) << "signed";
  const Result other = as_stranger({"report", page, "--json"});
  EXPECT_EQ(pictures(other), 0u);
  EXPECT_NE(other.out.find(fmt::format("add {}", word())), std::string::npos) << other.out;
  EXPECT_EQ(pictures(as_stranger({"report", page, word(), "--json"})), 1u) << "named";
  fs::rename(in("far/run"), in("run"));
  EXPECT_EQ(pictures(as_stranger({"report", in("run").string(), "--json"})), 1u) << "beside";
}

TEST_F(ARunDirectoryIsData, ResumeAndEvalReadElsewhereOnlyWhatTheCommandLineRepeats) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(as_owner(training("run", {"train.steps=4"}))));
  const std::string path = in("run").string();
  const Arguments resume{"train", "--resume", "--run", path, "train.steps=6"};
  EXPECT_TRUE(refused(as_stranger(resume), 2, {"not signed with your key", "data.path", word()}));
  EXPECT_TRUE(refused(as_stranger({"eval", path}), 2, {"not signed", word()}));
  ASSERT_TRUE(succeeded(as_owner({"eval", path}))) << "its owner adds no word";
  ASSERT_TRUE(succeeded(as_stranger({"eval", path, word()})));
  RunOptions homeless;  // as in a container
  homeless.env = {{"XDG_STATE_HOME", ""}, {"HOME", ""}};
  EXPECT_TRUE(refused(run(resume, homeless), 2, {word()}));
  ASSERT_TRUE(succeeded(run(resume + Arguments{word()}, homeless)));
}

TEST_F(ARunDirectoryIsData, RanksInheritTheKey) {
  MILLRACE_NEEDS_TORCH();
  const Arguments ddp{"train.strategy=ddp", "train.timeout=20", "train.steps=4"};
  const Arguments launch{"launch", "-n", "2", "--"};
  ASSERT_TRUE(succeeded(as_owner(launch + training("launched", ddp))));
  ASSERT_TRUE(succeeded(as_owner(training("started", ddp + Arguments{"train.ranks=2"}))));
  RunOptions pod;  // has the key in its environment only
  pod.env = {{"XDG_STATE_HOME", ""}, {"HOME", ""}, {"MILLRACE_RUN_KEY", key_of_owner()}};
  const auto resume = [&](const Arguments& how, const std::string& name, const RunOptions& user) {
    return run(how + Arguments{"train", "--resume", "--run", in(name).string(), "train.steps=6"},
               user);
  };
  for (const auto& [name, how] :
       std::map<std::string, Arguments>{{"launched", launch}, {"started", {}}}) {
    const Result refusal = resume(how, name, stranger_);
    EXPECT_EQ(refusal.exit_code, 2) << refusal.err;
    EXPECT_NE(refusal.err.find("not signed with your key"), std::string::npos) << refusal.err;
    ASSERT_TRUE(succeeded(resume(how, name, name == "launched" ? owner_ : pod)));
    EXPECT_EQ(summary(name)["steps"], 6);
    EXPECT_EQ(summary(name)["world_size"], 2);
  }
}

TEST_F(ARunDirectoryIsData, ResumeAndEvalContactNoServer) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(as_owner(training("run", {"train.steps=4"}))));
  const Listener server;
  set("run", "data", "path", server.address());
  set("run", "data", "reader", "tar");
  const std::string path = in("run").string(),
                    address = fmt::format("data.path={}", server.address());
  for (RunOptions* user : {&owner_, &stranger_}) {  // the owner's file has been changed
    EXPECT_TRUE(refused(run({"eval", path}, *user), 2, {address}));
    EXPECT_TRUE(refused(run({"train", "--resume", "--run", path}, *user), 2, {address}));
  }
  EXPECT_FALSE(server.was_contacted());
}

TEST_F(ARunDirectoryIsData, ARecipeFileThatIsNamedCountsAsTyped) {
  ASSERT_TRUE(succeeded(as_owner(simulated("run", {"train.steps=4"}))));
  ASSERT_TRUE(succeeded(
      as_stranger({"train", in("run/config.toml").string(), "--run", in("again").string()})));
}

TEST_F(ARunDirectoryIsData, AKilledRunGoesOnWithoutFurtherWords) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(as_owner(training("run", {"train.steps=4"}))));
  // As a process killed between writing the signature of a changed config.toml and the file.
  const std::string before = read_file(in("run/config.toml"));
  ASSERT_TRUE(
      succeeded(as_owner({"train", "--resume", "--run", in("run").string(), "train.steps=6"})));
  ASSERT_NE(read_file(in("run/config.toml")), before);
  write_file(in("run/config.toml"), before);
  EXPECT_TRUE(succeeded(as_owner({"eval", in("run").string()})));
}

TEST_F(ARunDirectoryIsData, AStrangersSweepRunsNoCommand) {
  ASSERT_TRUE(succeeded(as_owner(sweep_of_command({}))));
  ASSERT_EQ(commands_run(), 2u);
  fs::remove_all(in("sweep/runs"));
  const Arguments resume{"sweep", "--resume", "--run", in("sweep").string()};
  const Result result = as_stranger(resume);
  EXPECT_TRUE(
      refused(result, 2, {"design.json is not signed with your key", "--command", "a=1,2"}));
  EXPECT_TRUE(refused(as_stranger(resume + Arguments{"a=1,2"}), 2, {"not signed"}));
  EXPECT_EQ(commands_run(), 2u);

  ASSERT_TRUE(succeeded(as_stranger(resume + Arguments{"--command", command_, "a=1,2"})));
  EXPECT_EQ(commands_run(), 4u);
  fs::remove_all(in("sweep/runs"));
  ASSERT_TRUE(succeeded(as_stranger(resume))) << "signed by now";
  EXPECT_EQ(commands_run(), 6u);
}

TEST_F(ARunDirectoryIsData, AStrangersSweepChoosesNeitherShellNorFolder) {
  ASSERT_TRUE(succeeded(as_owner(sweep_of_command({"--shell", "bash"}))));
  fs::create_directories(in("else"));
  stranger_.cwd = in("else");
  const Result result = as_stranger({"sweep", "--resume", "--run", in("sweep").string()});
  EXPECT_TRUE(refused(result, 2, {"cd ", " && millrace sweep", "--shell bash"}));
}

TEST_F(ARunDirectoryIsData, AStrangersBlocksRunOnlyWhatIsRepeated) {
  ASSERT_TRUE(succeeded(as_owner(sweep_of_command({"--repeats", "2", "--plan"}))));
  const std::string path = in("sweep").string();
  for (const Arguments& deed : {Arguments{"--block", "1"}, Arguments{"--collect"}})
    EXPECT_TRUE(refused(as_stranger(Arguments{"sweep", path} + deed), 2,
                        {"not signed", fmt::format("--run {} {}", path, deed[0]), "--command"}));
  EXPECT_TRUE(refused(as_stranger({"sweep", "--resume", "--run", path}), 2, {"not signed"}));
  EXPECT_TRUE(refused(as_stranger({"sweep", path, "--plan", "--repeats", "3"}), 2,
                      {"--plan --repeats 3", "--command"}));
  ASSERT_TRUE(succeeded(as_stranger({"sweep", path, "--status"}))) << "only reads";
  EXPECT_EQ(commands_run(), 0u);

  const Arguments words{"--command", command_, "a=1,2"};
  ASSERT_TRUE(succeeded(as_stranger(Arguments{"sweep", "--run", path, "--block", "1"} + words)));
  EXPECT_EQ(commands_run(), 2u);
  EXPECT_TRUE(refused(as_stranger({"sweep", "--run", path, "--block", "2", "--command",
                                   "echo {a} elsewhere", "a=1,2"}),
                      2, {"no longer what was planned"}));
  ASSERT_TRUE(succeeded(as_owner({"sweep", path, "--block", "2"})));
  EXPECT_EQ(commands_run(), 4u);
  ASSERT_TRUE(succeeded(as_stranger(Arguments{"sweep", "--run", path, "--collect"} + words)));
}

TEST_F(ARunDirectoryIsData, AJobWithTheKeyInItsEnvironmentAddsNoWords) {
  ASSERT_TRUE(succeeded(as_owner(sweep_of_command({"--repeats", "2", "--plan"}))));
  stranger_.env["MILLRACE_RUN_KEY"] = key_of_owner();  // as sbatch passes it on
  ASSERT_TRUE(succeeded(as_stranger({"sweep", in("sweep").string(), "--block", "1"})));
  EXPECT_EQ(commands_run(), 2u);
}

TEST_F(ARunDirectoryIsData, ABlockWithoutAHomeRunsByTheWordsOfTheMessage) {
  const auto deed = [&](const std::string& words) {
    const std::string command = "millrace sweep " + in("sweep").string() + " " + words;
    const Result refusal = in_a_container(command);
    EXPECT_TRUE(refused(refusal, 2, {"not signed with your key"})) << command;
    return in_a_container(command_in(refusal));
  };
  ASSERT_TRUE(succeeded(as_owner(sweep_of_command({"--repeats", "2", "--plan"}))));
  ASSERT_TRUE(succeeded(deed("--block 1")));
  EXPECT_EQ(commands_run(), 2u);
  ASSERT_TRUE(succeeded(deed("--plan --repeats 3")));
  EXPECT_EQ(commands_run(), 2u);
  ASSERT_TRUE(succeeded(deed("--block 3")));
  EXPECT_EQ(commands_run(), 4u);
  ASSERT_TRUE(succeeded(deed("--collect")));

  fs::remove_all(in("sweep"));
  ASSERT_TRUE(
      succeeded(as_owner({"sweep", "mnist-lenet", "data.path=" + data(), "train.device=simulated",
                          "simulated.update_ms=0.1,0.2", "train.steps=2", "--repeats", "1",
                          "--plan", "--run", in("sweep").string()})));
  ASSERT_TRUE(succeeded(deed("--block 1")));
  ASSERT_TRUE(succeeded(deed("--collect")));
  EXPECT_EQ(parse_json(read_file(in("sweep/sweep.json")))["repeats"], 1);
}

TEST_F(ARunDirectoryIsData, AStrangersJobsOfSlurmRunNothing) {
  owner_.cwd = stranger_.cwd = in("");  // where a command's relative paths begin
  ASSERT_TRUE(succeeded(as_owner(sweep_of_command({"--repeats", "2", "--plan"}))));
  ASSERT_TRUE(succeeded(as_owner({"sweep", in("sweep").string(), "--block", "1"})));
  for (const char* program : {"sbatch", "squeue"}) {  // stand-ins, which tell how they were called
    write_file(in("bin") / program,
               "#!/bin/sh\necho " + std::string(program) + " \"$@\" >> " + in("called").string());
    fs::permissions(in("bin") / program, fs::perms::owner_all);
  }
  stranger_.env["PATH"] = in("bin").string() + ":" + std::getenv("PATH");
  stranger_.timeout_s = 30;
  write_file(in("secret"), "password of the user");
  const std::string path = in("sweep").string();
  const fs::path jobs = in("sweep/slurm.json");
  std::vector<std::function<void()>> forms{[&] { mkfifo(jobs.c_str(), 0600); },
                                           [&] { fs::create_directory(jobs); },
                                           [&] { fs::create_symlink(in("secret"), jobs); }};
  for (const char* ids :
       {R"_(["$(touch planted)"])_", R"(["1; touch planted"])", R"(["1`touch planted`"])",
        R"(["1\ntouch planted"])", R"(["../../secret"])", R"(["/bin/sh"])", R"(["--help"])",
        R"(["1", ""])", R"([1])", R"([["1"]])", R"({"1": "2"})", R"("1")", "[\"1\""})
    forms.emplace_back([&jobs, ids] { write_file(jobs, ids); });
  const Arguments words{"--command", command_, "a=1,2"};
  const auto status = [&] { return as_stranger({"sweep", "--status", path}); };
  for (const bool trusted : {false, true}) {
    for (const auto& form : forms) {
      fs::remove_all(jobs);
      form();
      const Result shown = status();
      SCOPED_TRACE(shown.err);
      EXPECT_TRUE(refused(shown, 3, {"slurm.json"}));
      EXPECT_EQ(shown.err.find("password"), std::string::npos);
      if (trusted) {  // the list of jobs is no part of what is signed
        const Result submitted = as_stranger({"sweep", path, "--on", "slurm"});
        EXPECT_TRUE(submitted.exit_code == 2 || submitted.exit_code == 3) << submitted.err;
        EXPECT_LE(lines_of(submitted.err).size(), 2u) << submitted.err;
        continue;
      }
      for (const Arguments& deed : {Arguments{"sweep", path, "--collect"},
                                    {"sweep", "--resume", "--run", path},
                                    {"sweep", path, "--on", "slurm"}})
        EXPECT_TRUE(refused(as_stranger(deed), 2, {path}));
    }
    fs::remove_all(jobs);
    if (!trusted) {
      ASSERT_TRUE(succeeded(as_stranger(Arguments{"sweep", "--run", path, "--plan"} + words)));
      ASSERT_TRUE(succeeded(as_stranger(Arguments{"sweep", path, "--collect"})));
    }
  }
  EXPECT_FALSE(fs::exists(in("called"))) << read_file(in("called"));
  EXPECT_FALSE(fs::exists(in("planted")));
  EXPECT_EQ(commands_run(), 2u);

  write_file(jobs, R"(["7"])");
  ASSERT_TRUE(succeeded(status()));
  EXPECT_EQ(read_file(in("called")), "squeue --me --all --noheader --array --format=%i %T\n")
      << "no word of the record";
}

TEST_F(ARunDirectoryIsData, APlanEntersNoFolderOfAStranger) {
  ASSERT_TRUE(succeeded(as_owner(sweep_of_command({"--repeats", "1", "--plan"}))));
  Json plan = parse_json(read_file(in("sweep/plan.json")));
  plan["folder"] = in("owner").string();
  write_file(in("sweep/plan.json"), plan.dump());
  const Arguments words{"--command", command_, "a=1,2"};
  ASSERT_TRUE(succeeded(as_owner({"sweep", in("sweep").string(), "--block", "1"})))
      << "the design is signed; the folder of the plan is not entered";
  EXPECT_EQ(commands_run(), 2u);
}

TEST_F(ARunDirectoryIsData, AStrangersDesignOfAnyFormEndsInOneLine) {
  ASSERT_TRUE(succeeded(as_owner(sweep_of_command({}))));
  const Json design = parse_json(read_file(in("sweep/design.json")));
  const std::vector<Json> values{nullptr,   true,          -1,         1e300, "",
                                 "\x1b[2J", Json::array(), {"--json"}, {1},   Json::object()};
  for (const char* key :
       {"recipe", "cells", "design", "repeats", "metric", "metrics", "command", "shell",
        "timeout_s", "folder", "study", "study_file", "short", "data", "ops"})
    for (const Json& value : values) {
      Json changed = design;
      changed[key] = value;
      write_file(in("sweep/design.json"), changed.dump());
      SCOPED_TRACE(changed.dump());
      const Result resumed = as_stranger({"sweep", "--resume", "--run", in("sweep").string()});
      EXPECT_TRUE(resumed.exit_code == 2 || resumed.exit_code == 3) << resumed.err;
      EXPECT_EQ(resumed.err.find("json.exception"), std::string::npos) << resumed.err;
      EXPECT_LE(lines_of(resumed.err).size(), 2u) << resumed.err;
      const Result report = as_stranger({"report", in("sweep").string(), "--md"});
      EXPECT_TRUE(report.exit_code == 0 || report.exit_code == 3)
          << report.exit_code << ", signal " << report.signal << "\n"
          << report.err;
    }
  EXPECT_EQ(commands_run(), 2u);
}

TEST_F(ARunDirectoryIsData, PicturesOfMistakesStayInTheRun) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(as_owner(training("run", {"train.lr=0.002"}))));
  const std::string path = in("run").string();
  ASSERT_TRUE(
      succeeded(as_owner({"eval", path, "--predictions", in("run/predictions.csv").string()})));
  const std::size_t pictures = parse_json(read_file(in("run/mistakes.json")))["pictures"].size();
  ASSERT_GE(pictures, 3u) << "a model that has barely learnt";
  fs::rename(fs::path(data()), in("gone"));
  ASSERT_TRUE(succeeded(as_stranger({"report", path})));
  EXPECT_EQ(count_of(read_file(in("run/report.html")), "data:image/jpeg;base64,/9j/"), pictures);

  // Pictures that are not ours are left out.
  Json kept = parse_json(read_file(in("run/mistakes.json")));
  for (Json& picture : kept["pictures"]) picture = "\"><script>planted</script>";
  write_file(in("run/mistakes.json"), kept.dump());
  ASSERT_TRUE(succeeded(as_stranger({"report", path})));
  EXPECT_EQ(read_file(in("run/report.html")).find("planted"), std::string::npos);
}

}  // namespace
}  // namespace millrace::program_test
