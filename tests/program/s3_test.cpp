// S3 through the program, from real servers on 127.0.0.1: moto and rclone, which check signatures.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>

#include "tests/program/remote_set.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

const fs::path kPackages = MILLRACE_S3_PACKAGES;

struct S3Keys {
  std::string id, secret;
};

/// A server that serves each folder of `root` as a bucket, and ends with this process.
class S3Server {
 public:
  S3Server(const std::string& kind, const fs::path& root)
      : out_(root.string() + ".out"), err_(root.string() + ".err") {
    // The kernel chooses the port, which each server prints.
    write_file(out_, "");
    write_file(err_, "");
    if (kind == "moto") {
      start({"python3", MILLRACE_TESTS "/remote/moto_server.py", root.string()});
      const Json said = parse_json(wait_for(out_, "(\\{.*\\})\n"));
      port_ = said.value("port", 0);
      reader = {said["reader"][0], said["reader"][1]};
      stranger = {said["stranger"][0], said["stranger"][1]};
    } else {
      reader = {"rclone-key", "rclone-canary-secret"};
      start({kPackages / "bin/rclone", "serve", "s3", "--config", "/dev/null", "--addr",
             "127.0.0.1:0", "--auth-key", reader.id + "," + reader.secret, "--vfs-cache-mode",
             "off", "--dir-cache-time", "0", root.string()});
      port_ = std::stoi(wait_for(err_, "http://127\\.0\\.0\\.1:(\\d+)/"));
    }
  }
  ~S3Server() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(input_);
  }
  S3Server(const S3Server&) = delete;
  S3Server& operator=(const S3Server&) = delete;

  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  S3Keys reader;    ///< may read everything
  S3Keys stranger;  ///< may read nothing; moto only

 private:
  void start(const Arguments& arguments) {
    int input[2];
    if (pipe2(input, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::vector<char*> argv;
    for (const std::string& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
    argv.push_back(nullptr);
    const std::string path = kPackages.string();
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      setenv("PYTHONPATH", path.c_str(), 1);
      dup2(input[0], 0);
      dup2(open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
      dup2(open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    spare(pid_);
    close(input[0]);
    input_ = input[1];
  }
  /// Waits until a server has written what it says of itself, and returns the expression's group.
  std::string wait_for(const std::string& file, const std::string& expression) const {
    const std::regex wanted(expression);
    for (int left = 12'000; left > 0; --left) {
      const std::string text = read_file(file);
      std::smatch found;
      if (std::regex_search(text, found, wanted)) return found[1];
      if (waitpid(pid_, nullptr, WNOHANG) == pid_) break;
      sleep_ms(10);
    }
    throw std::runtime_error("the server does not start: " + read_file(err_));
  }

  std::string out_, err_;
  int port_ = 0;
  pid_t pid_ = -1;
  int input_ = -1;
};

/// Folder of the set in the bucket, with what an address must not hold as it is.
constexpr const char* kFolder = "my set/t=1+\xc3\xa9";

class S3Program : public RemoteSetTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (!fs::exists(kPackages / "bin/rclone") || !fs::exists(kPackages / "moto"))
      GTEST_SKIP() << "S3 SERVERS ARE NOT TESTED: tools/test installs moto and rclone in "
                   << kPackages;
    ASSERT_NO_FATAL_FAILURE(pack_photos(in("root/bucket") / kFolder));
    copy("holed", {"train-000000.tar", "train-000002.tar", "set.index"});
    copy("bare", {"train-000000.tar", "train-000001.tar", "train-000002.tar"});
    server_ = std::make_unique<S3Server>(GetParam(), in("root"));
    options_ = environment(server_->reader);
  }
  void copy(const std::string& folder, const Arguments& names) {
    fs::create_directories(in("root/bucket") / folder);
    for (const std::string& name : names)
      fs::copy_file(in("root/bucket") / kFolder / name, in("root/bucket") / folder / name);
  }
  /// Returns an environment in which nothing of this machine's own credentials is left.
  RunOptions environment(const S3Keys& keys) const {
    RunOptions options;
    options.env = {{"AWS_ACCESS_KEY_ID", keys.id},
                   {"AWS_SECRET_ACCESS_KEY", keys.secret},
                   {"AWS_SESSION_TOKEN", ""},
                   {"AWS_PROFILE", ""},
                   {"AWS_CONFIG_FILE", "/dev/null"},
                   {"AWS_SHARED_CREDENTIALS_FILE", "/dev/null"},
                   {"AWS_EC2_METADATA_DISABLED", "true"},
                   {"AWS_REGION", "us-east-1"},
                   {"AWS_ENDPOINT_URL", ""},
                   {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", ""},
                   {"MILLRACE_S3_ADDRESSING", ""},
                   {"MILLRACE_S3_ANONYMOUS", ""},
                   {"AWS_ENDPOINT_URL_S3", server_->url()},
                   {"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", server_->url()}};
    return options;
  }

  const std::string url_ = std::string("s3://bucket/") + kFolder + "/";
  std::unique_ptr<S3Server> server_;
};

INSTANTIATE_TEST_SUITE_P(Servers, S3Program, testing::Values("moto", "rclone"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(S3Program, TheHashIsThatOfTheFolderColdWarmAndByAList) {
  const std::string packed = (in("root/bucket") / kFolder).string();
  const std::string wanted = hash(packed);
  ASSERT_EQ(wanted.size(), 16u);
  EXPECT_EQ(hash(in("photos").string(), {"data.reader=folder"}), wanted);
  EXPECT_EQ(hash(packed, {"data.index=off"}), wanted);
  EXPECT_EQ(hash(url_, {"loader.workers=1"}), wanted);
  EXPECT_EQ(hash(url_, {"loader.workers=2"}), wanted);
  EXPECT_EQ(hash(url_, {"data.remote.fetch=ranges", "loader.workers=1"}), wanted);
  EXPECT_EQ(hash(url_ + "train-{000000..000002}.tar"), wanted);
  fs::remove_all(in("cache"));
  EXPECT_EQ(hash("s3://bucket/bare", {"loader.workers=2"}), wanted);
  EXPECT_EQ(hash("gs://bucket/bare/"), wanted);
  EXPECT_TRUE(no_temporaries(in("cache")));
}

TEST_P(S3Program, TwoRanksReadTheBatchesOfTwoRanksOnTheFolder) {
  const auto ranks = [&](const std::string& path, const Arguments& more) {
    std::vector<std::string> hashes;
    for (const char* rank : {"bench.rank=0", "bench.rank=1"}) {
      hashes.push_back(hash(path, more + Arguments{"bench.world=2", rank}));
    }
    return hashes;
  };
  const auto wanted = ranks((in("root/bucket") / kFolder).string(), {});
  EXPECT_NE(wanted[0], wanted[1]);
  EXPECT_EQ(ranks(url_, {}), wanted);
  EXPECT_EQ(ranks(url_, {"data.remote.fetch=ranges"}), wanted);
}

TEST_P(S3Program, BadInputsEndInOneClearLine) {
  const auto with = [&](const S3Keys& keys) { return environment(keys); };
  const S3Keys& good = server_->reader;
  EXPECT_TRUE(refused(run(bench_of(url_), with({good.id, "wrong"})), 3, {"s3://", "403"}));
  EXPECT_TRUE(refused(run(bench_of(url_), with({"AKIAUNKNOWN", "x"})), 3, {"s3://bucket/", "403"}));
  EXPECT_TRUE(refused(run(bench_of(url_), with({"", ""})), 2, {"no credentials"}));
  EXPECT_TRUE(refused(run(bench_of(url_), with({good.id, ""})), 2, {"AWS_SECRET_ACCESS_KEY"}));
  if (!server_->stranger.id.empty()) {
    EXPECT_TRUE(refused(run(bench_of(url_), with(server_->stranger)), 3, {"AccessDenied"}));
  }
  EXPECT_TRUE(refused(run(bench_of("s3://nobucket/set/"), options_), 3, {"NoSuchBucket"}));
  EXPECT_TRUE(refused(run(bench_of("s3://bucket/nofolder/"), options_), 3, {"no archives"}));
  EXPECT_TRUE(refused(run(bench_of("s3://bucket/a?sig=canary"), options_), 2, {"query"}));
  EXPECT_TRUE(refused(run(bench_of("s3://bucket/holed/"), options_), 1, {"train-000001.tar", "404"},
                      false));
  RunOptions little = options_;
  little.max_file_bytes = 4096;
  EXPECT_TRUE(refused(run(bench_of(url_), little), 1, {"data.remote.cache", "cannot be"}, false));
  RunOptions readonly = options_;
  readonly.obey_permissions = true;
  fs::create_directories(in("locked"));
  fs::permissions(in("locked"), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_TRUE(refused(run(bench_of(url_, {"data.remote.cache=" + in("locked").string()}), readonly),
                      1, {"locked", "cannot be"}, false));
}

TEST_P(S3Program, SecretsAppearNowhere) {
  // The keys are in a file, so that no child of the program needs them in its environment.
  const S3Keys keys = server_->reader;
  const std::string file = in("credentials").string();
  write_file(file, fmt::format("[lab]\naws_access_key_id = {}\naws_secret_access_key = {}\n"
                               "[wrong]\naws_access_key_id = {}\naws_secret_access_key = canary\n",
                               keys.id, keys.secret, keys.id));
  RunOptions options = environment({"", ""});
  options.env["AWS_SHARED_CREDENTIALS_FILE"] = file;
  options.env["AWS_PROFILE"] = "lab";
  std::string said;
  const auto keep = [&](const Result& result) {
    said += result.out + result.err;
    return result;
  };
  EXPECT_TRUE(succeeded(keep(
      run({"train", "imagenet-rrc", "data.reader=tar", "data.path=" + url_,
           "data.remote.cache=" + in("cache").string(), "loader.batch=9", "train.device=simulated",
           "simulated.update_ms=1", "train.epochs=1", "--verbose", "--run", in("run").string()},
          options))));
  EXPECT_TRUE(succeeded(keep(run({"report", in("run").string()}, options))));
  EXPECT_TRUE(succeeded(keep(run(bench_of(url_), options))));
  // Processes that the program starts: what the kernel shows of their arguments and environment.
  {
    Child sweep(
        {"sweep", "imagenet-rrc", "data.reader=tar", "data.path=" + url_,
         "data.remote.cache=" + in("cache").string(), "loader.batch=9", "train.device=simulated",
         "simulated.update_ms=20,40", "train.epochs=4", "--run", in("sweep").string()},
        options);
    std::string shown;
    for (; sweep.running(); sleep_ms(1))
      for (const pid_t child : children_of(sweep.pid()))
        for (const char* part : {"cmdline", "environ"}) {
          // Reading fails while the child ends: then there is nothing to see.
          std::ostringstream text;
          text << std::ifstream(fmt::format("/proc/{}/{}", child, part)).rdbuf();
          shown += text.str();
        }
    EXPECT_TRUE(succeeded(keep(sweep.wait())));
    EXPECT_NE(shown.find("simulated.update_ms=40"), std::string::npos) << "no child was seen";
    EXPECT_NE(shown.find("AWS_PROFILE=lab"), std::string::npos);
    said += shown;
  }
  options.env["AWS_PROFILE"] = "wrong";
  EXPECT_TRUE(refused(keep(run(bench_of(url_), options)), 3, {"s3://"}));
  options.env["AWS_PROFILE"] = "missing";
  EXPECT_TRUE(refused(keep(run(bench_of(url_), options)), 2, {"AWS_PROFILE=missing"}));
  for (const std::string& secret : {keys.secret, std::string("canary")}) {
    EXPECT_EQ(said.find(secret), std::string::npos);
    for (const char* folder : {"run", "sweep", "cache"})
      for (const auto& entry : fs::recursive_directory_iterator(in(folder))) {
        if (!entry.is_regular_file()) continue;
        EXPECT_EQ(read_file(entry.path()).find(secret), std::string::npos) << entry.path();
      }
  }
}

}  // namespace
}  // namespace millrace::program_test
