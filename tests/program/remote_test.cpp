// Remote data through the program, from a real nginx on 127.0.0.1.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tests/program/datasets.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNginx = "/usr/sbin/nginx";

/// A socket and an address of 127.0.0.1.
struct LocalSocket {
  explicit LocalSocket(int port) {
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  ~LocalSocket() { close(file); }
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;
  sockaddr* where() { return reinterpret_cast<sockaddr*>(&address); }

  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
};

/// Returns a port that the kernel chooses, or 0.
int free_port() {
  LocalSocket local(0);
  const bool done = bind(local.file, local.where(), local.size) == 0 &&
                    getsockname(local.file, local.where(), &local.size) == 0;
  return done ? ntohs(local.address.sin_port) : 0;
}

/// Returns the whole answer to a request for `path` at a port; empty if nobody answers.
std::string answer_at(int port, const std::string& path) {
  LocalSocket local(port);
  // A stranger at this port may never answer.
  const timeval most{5, 0};
  setsockopt(local.file, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  if (connect(local.file, local.where(), local.size) != 0) return {};
  const std::string request = fmt::format("GET {} HTTP/1.0\r\n\r\n", path);
  if (send(local.file, request.data(), request.size(), MSG_NOSIGNAL) != std::ssize(request))
    return {};
  std::string answer;
  char bytes[4096];
  constexpr std::size_t kMost = 1 << 16;
  while (answer.size() < kMost) {
    const ssize_t count = recv(local.file, bytes, sizeof bytes, 0);
    if (count <= 0) break;
    answer.append(bytes, static_cast<std::size_t>(count));
  }
  return answer;
}

/// An nginx that serves a folder at a port that the kernel has chosen, and ends with this process.
class Nginx {
 public:
  explicit Nginx(const fs::path& root) : folder_(root.string() + ".nginx") {
    fs::create_directories(folder_);
    // Another program may take the port before nginx does.
    for (int attempt = 0; attempt < 5; ++attempt)
      if (start(root)) return;
    throw std::runtime_error("nginx does not start: " + read_file(folder_ + "/errors"));
  }
  ~Nginx() { stop(); }
  Nginx(const Nginx&) = delete;
  Nginx& operator=(const Nginx&) = delete;

  std::string url() const { return fmt::format("http://127.0.0.1:{}/", port_); }
  /// Returns how many requests it has answered that contain `text`. Waits for `least` of them,
  /// because it writes its log behind the answers.
  std::size_t requests(const std::string& text, std::size_t least) const {
    for (int left = 3000;; --left) {
      const std::size_t count = count_of(read_file(folder_ + "/requests"), text);
      if (count >= least || left == 0) return count;
      sleep_ms(10);
    }
  }

 private:
  /// Starts nginx. Returns true once it serves the folder, false if it ends.
  bool start(const fs::path& root) {
    port_ = free_port();
    const std::string token = root.string();  // a unique folder
    write_file(root / "token", token);
    std::string temporary;
    for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
      temporary += fmt::format("  {0}_temp_path {1}/{0};\n", kind, folder_);
    const std::string conf = folder_ + "/conf", errors = folder_ + "/errors";
    write_file(conf,
               fmt::format("daemon off;\nmaster_process off;\npid {0}/pid;\nerror_log {0}/errors;\n"
                           "events {{ worker_connections 64; }}\nhttp {{\n  access_log "
                           "{0}/requests;\n{1}  server {{ listen 127.0.0.1:{2}; root {3}; }}\n}}\n",
                           folder_, temporary, port_, root.string()));
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      execl(kNginx, "nginx", "-c", conf.c_str(), "-e", errors.c_str(), nullptr);
      _exit(127);
    }
    spare(pid_);
    while (!answer_at(port_, "/token").ends_with(token)) {
      if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
        pid_ = -1;
        return false;
      }
      sleep_ms(10);
    }
    return true;
  }
  void stop() const {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  std::string folder_;
  int port_ = 0;
  pid_t pid_ = -1;
};

class RemoteProgram : public ProgramTest {
 protected:
  void SetUp() override {
    if (access(kNginx, X_OK) != 0) GTEST_SKIP() << "nginx is not installed (Debian: nginx-light)";
    write_photos(in("photos"), 9);
    const std::string shards = in("root/set").string();
    fs::create_directories(in("root"));
    ASSERT_TRUE(succeeded(
        run({"data", "pack", in("photos").string(), shards, "--shards", "3", "--quiet"})));
    server_ = std::make_unique<Nginx>(in("root"));
  }
  Arguments bench_of(const std::string& path, const Arguments& more = {}) {
    return Arguments{"bench",
                     "imagenet-rrc",
                     "data.reader=tar",
                     "data.path=" + path,
                     "augment.random_resized_crop.size=24",
                     "loader.batch=4",
                     "data.remote.cache=" + in("cache").string(),
                     "--hash",
                     "--json"} +
           more;
  }
  std::string hash(const std::string& path, const Arguments& more = {}) {
    const Result result = run(bench_of(path, more));
    EXPECT_TRUE(succeeded(result));
    const Json json = parse_json(result.out);
    return json.is_object() ? json["batch_hash"].get<std::string>() : "";
  }
  std::string url() const { return server_->url() + "set/"; }
  fs::path shard(int number) const { return in(fmt::format("root/set/train-{:06}.tar", number)); }

  std::unique_ptr<Nginx> server_;
};

TEST_F(RemoteProgram, TheHashIsThatOfTheLocalSetColdWarmAndByBraces) {
  const std::string local = hash(in("root/set"));
  ASSERT_EQ(local.size(), 16u);
  EXPECT_EQ(hash(url()), local);
  EXPECT_EQ(server_->requests(".tar ", 3), 3u);
  EXPECT_EQ(hash(url(), {"loader.workers=1"}), local);
  EXPECT_EQ(hash(url(), {"loader.workers=0"}), local);
  EXPECT_EQ(server_->requests(".tar ", 3), 3u) << "a warm cache fetches no archive";
  fs::remove_all(in("cache"));
  EXPECT_EQ(hash(url(), {"loader.workers=2"}), local);
  EXPECT_EQ(hash(url() + "train-{000000..000002}.tar"), local);
  EXPECT_TRUE(no_temporaries(in("cache")));
  EXPECT_TRUE(succeeded(run({"data", "verify", url()})));
}

TEST_F(RemoteProgram, WaitsForStorageAreDivided) {
  const auto remote_of = [&](const std::string& path) {
    const Result result = run(bench_of(path, {"loader.workers=1"}));
    EXPECT_TRUE(succeeded(result));
    return parse_json(result.out);
  };
  const Json cold = remote_of(url()), warm = remote_of(url());
  EXPECT_EQ(cold["remote"]["requests"], 4);  // set.index and three archives
  EXPECT_EQ(cold["remote"]["repeated"], 0);
  EXPECT_EQ(warm["remote"]["requests"], 1);
  std::uint64_t bytes = fs::file_size(in("root/set/set.index"));
  EXPECT_EQ(warm["remote"]["bytes"], bytes);
  for (int i = 0; i < 3; ++i) bytes += fs::file_size(shard(i));
  EXPECT_EQ(cold["remote"]["bytes"], bytes);
  for (const Json& one : {cold, warm}) {
    double sum = 0;
    for (const auto& [part, seconds] : one["remote"]["storage"].items()) {
      EXPECT_GE(seconds.get<double>(), 0) << part;
      sum += seconds.get<double>();
    }
    EXPECT_NEAR(sum, one["blame"]["storage"].get<double>(), 1e-9);
  }
  EXPECT_EQ(warm["remote"]["storage"]["transfer"], 0);
  EXPECT_FALSE(remote_of(in("root/set").string()).contains("remote"));
}

TEST_F(RemoteProgram, BadInputsEndInOneClearLine) {
  EXPECT_TRUE(refused(run(bench_of(server_->url() + "none/")), 3, {"none/set.index", "404"}));
  EXPECT_TRUE(refused(run(bench_of(url(), {"data.reader=folder"})), 2, {"folder", "local"}));
  EXPECT_TRUE(refused(run(bench_of(url(), {"data.cache=cold"})), 2, {"data.cache=cold"}));
  EXPECT_TRUE(refused(run(bench_of(url(), {"data.remote.cache_bytes=1000"})), 2,
                      {"data.remote.cache_bytes=1000", "loader.shuffle"}));
  write_file(in("file"), "x");
  EXPECT_TRUE(refused(run(bench_of(url(), {"data.remote.cache=" + in("file").string()})), 1,
                      {"not a folder"}));
  fs::remove(shard(1));
  EXPECT_TRUE(refused(run(bench_of(url(), {"loader.on_error=skip"})), 1, {"000001.tar", "404"}));
  write_file(in("root/set/set.index"), "garbage");
  EXPECT_TRUE(refused(run(bench_of(url())), 3, {"set.index", "not an index"}));
}

TEST_F(RemoteProgram, AnArchiveOfAnotherContentIsRefusedByName) {
  std::string bytes = read_file(shard(2));
  bytes[bytes.size() / 2] ^= 1;
  write_file(shard(2), bytes);
  EXPECT_TRUE(refused(run(bench_of(url())), 1, {"train-000002.tar", "SHA-256"}, false));
  // A thread that was fetching it again when the run ended leaves a .part, as a kill does.
  for (const auto& entry : fs::directory_iterator(in("cache"))) {
    if (entry.path().extension() != ".tar") continue;
    EXPECT_TRUE(read_file(entry.path()) != bytes) << "a wrong archive is in the cache";
  }
}

TEST_F(RemoteProgram, AResumeOnOtherArchivesIsRefusedByName) {
  const auto flip = [&] {
    std::string bytes = read_file(shard(1));
    bytes[bytes.size() / 2] ^= 1;
    write_file(shard(1), bytes);
  };
  const auto reindex = [&] {
    ASSERT_TRUE(succeeded(run({"data", "index", in("root/set").string()})));
  };
  int count = 0;
  for (const std::string& path : {in("root/set").string(), url()}) {
    const std::string name = "run" + std::to_string(count++);
    ASSERT_TRUE(succeeded(run({"train", "imagenet-rrc", "data.reader=tar", "data.path=" + path,
                               "data.remote.cache=" + in("cache").string(), "loader.batch=9",
                               "train.device=simulated", "simulated.update_ms=1", "train.epochs=1",
                               "--run", in(name).string()})));
    const Json archives = parse_json(read_file(in(name) / "archives.json"));
    ASSERT_EQ(archives["train"].size(), 3u);
    EXPECT_EQ(archives["train"][1]["name"], "train-000001.tar");
    EXPECT_EQ(archives["train"][1]["sha256"].get<std::string>().size(), 64u);
    const Arguments resume{"train", "--resume", "--run", in(name).string(), "train.epochs=2"};
    flip();
    // The archive's own index is stale, so that its content is read. On a server, set.index rules.
    if (count == 1) {
      EXPECT_TRUE(refused(run(resume), 2, {"train-000001.tar", "SHA-256"}, false));
    }
    reindex();
    EXPECT_TRUE(refused(run(resume), 2, {"train-000001.tar", "SHA-256", "archives.json"}, false));
    fs::rename(shard(2), in("away"));
    reindex();
    EXPECT_TRUE(refused(run(resume), 2, {"train-000001.tar"}, false));
    fs::rename(in("away"), shard(2));
    flip();
    reindex();
    EXPECT_TRUE(succeeded(run(resume)));
  }
}

TEST_F(RemoteProgram, TwoRanksFetchEachArchiveOnceAndTrainAsOnLocalOnes) {
  MILLRACE_NEEDS_TORCH();
  RunOptions options;
  options.timeout_s = 140;
  const auto trained = [&](const std::string& name, const std::string& path) {
    const Result result = run({"launch",
                               "-n",
                               "2",
                               "--",
                               "train",
                               "imagenet-rrc",
                               "train.strategy=ddp",
                               "train.timeout=120",
                               "train.threads=1",
                               "data.reader=tar",
                               "data.path=" + path,
                               "data.remote.cache=" + in("cache").string(),
                               "eval.split=train",
                               "loader.batch=9",
                               "loader.workers=1",
                               "augment.random_resized_crop.size=32",
                               "eval.augment.resize.size=32",
                               "eval.augment.center_crop.size=32",
                               "train.epochs=1",
                               "--run",
                               in(name).string()},
                              options);
    EXPECT_TRUE(succeeded(result));
    return summary(name)["parameters_hash"];
  };
  EXPECT_EQ(trained("remote", url()), trained("local", in("root/set").string()));
  EXPECT_EQ(server_->requests(".tar ", 3), 3u);
}

TEST_F(RemoteProgram, SecretsAppearNowhere) {
  RunOptions options;
  options.env["MILLRACE_REMOTE_AUTHORIZATION"] = "Bearer canary";
  Result result = run(bench_of(url(), {"--verbose"}), options);
  EXPECT_TRUE(succeeded(result));
  EXPECT_EQ((result.out + result.err).find("canary"), std::string::npos);
  for (const auto& entry : fs::recursive_directory_iterator(in("cache"))) {
    if (!entry.is_regular_file()) continue;
    EXPECT_EQ(read_file(entry.path()).find("canary"), std::string::npos) << entry.path();
  }
  const std::string host = server_->url().substr(7);
  for (const std::string& path : {"http://me:canary@" + host + "set/", url() + "?sig=canary"}) {
    result = run(bench_of(path));
    EXPECT_TRUE(refused(result, 2, {"data.path", "***"}));
    EXPECT_EQ((result.out + result.err).find("canary"), std::string::npos);
  }
}

}  // namespace
}  // namespace millrace::program_test
