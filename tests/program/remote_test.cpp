// Remote data through the program, from a real nginx on 127.0.0.1.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "tests/program/nginx.h"
#include "tests/program/remote_set.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class RemoteProgram : public RemoteSetTest {
 protected:
  void SetUp() override {
    if (!Nginx::is_installed()) GTEST_SKIP() << "nginx is not installed (Debian: nginx-light)";
    ASSERT_NO_FATAL_FAILURE(pack_photos(in("root/set")));
    server_ = std::make_unique<Nginx>(in("root"));
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

TEST_F(RemoteProgram, RangesGiveTheHashOfTheLocalSetAndKeepNothing) {
  const std::string local = hash(in("root/set"));
  ASSERT_EQ(local.size(), 16u);
  const Arguments ranges{"data.remote.fetch=ranges"};
  for (const char* workers : {"loader.workers=0", "loader.workers=1", "loader.workers=2"})
    EXPECT_EQ(hash(url(), ranges + Arguments{workers}), local);
  // The archives' indexes and 27 samples, each time.
  EXPECT_EQ(server_->requests(".tar.index HTTP/1.1\" 200", 9), 9u);
  EXPECT_GE(server_->requests(".tar HTTP/1.1\" 206", 81), 81u);
  EXPECT_EQ(server_->requests(".tar HTTP/1.1\" 200", 0), 0u);
  for (const auto& entry : fs::directory_iterator(in("cache")))
    EXPECT_NE(entry.path().extension(), ".tar");
  // A cache that the global order overruns.
  EXPECT_EQ(hash(url(), {"data.remote.cache_bytes=1000", "loader.workers=2"}), local);
  EXPECT_GE(server_->requests(".tar HTTP/1.1\" 206", 108), 108u);
  EXPECT_EQ(server_->requests(".tar HTTP/1.1\" 200", 0), 0u);
  const std::string window = "loader.shuffle=window:4";
  EXPECT_EQ(hash(url(), ranges + Arguments{window}), hash(in("root/set"), {window}));
}

TEST_F(RemoteProgram, ARangeOfAnotherArchiveEndsTheRun) {
  const Arguments ranges{"data.remote.fetch=ranges", "loader.on_error=skip"};
  fs::copy_file(shard(0).string() + ".index", shard(1).string() + ".index",
                fs::copy_options::overwrite_existing);
  EXPECT_TRUE(refused(run(bench_of(url(), ranges)), 1, {"train-000001.tar.index"}, false));
  fs::remove(shard(1).string() + ".index");
  EXPECT_TRUE(refused(run(bench_of(url(), ranges)), 1, {"train-000001.tar.index", "404"}, false));
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
  EXPECT_TRUE(
      refused(run(bench_of(url(), {"data.remote.cache_bytes=1000", "data.remote.fetch=shards"})), 2,
              {"data.remote.cache_bytes=1000", "loader.shuffle"}));
  EXPECT_TRUE(
      refused(run(bench_of(url(), {"data.remote.cache_bytes=1000", "loader.shuffle=window:3"})), 2,
              {"data.remote.cache_bytes=1000", "loader.shuffle"}));
  EXPECT_TRUE(
      refused(run(bench_of(url() + "train-{000000..000002}.tar", {"data.remote.fetch=ranges"})), 2,
              {"data.remote.fetch=ranges", "indexes"}));
  EXPECT_TRUE(
      refused(run({"profile", "imagenet-rrc", "data.reader=tar", "data.path=" + url(),
                   "data.remote.cache=" + in("cache").string(), "loader.batch=9",
                   "data.remote.cache_bytes=1000", "data.remote.fetch=ranges",
                   "train.device=simulated", "simulated.update_ms=1", "--run",
                   in("profile").string(), "--given", "--change", "data.remote.fetch=shards"}),
              2, {"data.remote.cache_bytes=1000", "loader.shuffle"}, false));
  write_file(in("file"), "x");
  EXPECT_TRUE(refused(run(bench_of(url(), {"data.remote.cache=" + in("file").string()})), 1,
                      {"not a folder"}));
  fs::create_directories(in("theses"));
  fs::permissions(in("theses"), fs::perms::owner_all);
  write_file(in("theses/thesis-backup.tar"), "x");
  EXPECT_TRUE(refused(run(bench_of(url(), {"data.remote.cache=" + in("theses").string()})), 2,
                      {in("theses").string(), "thesis-backup.tar"}));
  EXPECT_EQ(std::distance(fs::directory_iterator(in("theses")), {}), 1);
  fs::remove(shard(1));
  EXPECT_TRUE(refused(run(bench_of(url(), {"loader.on_error=skip"})), 1, {"000001.tar", "404"}));
  write_file(in("root/set/set.index"), "garbage");
  EXPECT_TRUE(refused(run(bench_of(url())), 3, {"set.index", "not an index"}));
}

TEST_F(RemoteProgram, AResumeSeesAnotherETagWhereThereIsNoIndex) {
  const std::string path = url() + "train-{000000..000002}.tar";
  ASSERT_TRUE(succeeded(
      run({"train", "imagenet-rrc", "data.reader=tar", "data.path=" + path, "eval.every=0",
           "data.remote.cache=" + in("cache").string(), "loader.batch=9", "train.device=simulated",
           "simulated.update_ms=1", "train.epochs=1", "--run", in("run").string()})));
  const Json archives = parse_json(read_file(in("run/archives.json")));
  EXPECT_TRUE(archives["train"][1].value("version", "").starts_with("etag")) << archives;
  const Arguments resume{"train", "--resume", "--run", in("run").string()};
  EXPECT_TRUE(succeeded(run(resume + Arguments{"train.epochs=2"})));
  // Pixels change, but neither names nor sizes.
  std::string bytes = read_file(shard(1));
  bytes[bytes.size() / 2] ^= 1;
  write_file(shard(1), bytes);
  fs::last_write_time(shard(1), fs::last_write_time(shard(1)) + std::chrono::seconds(2));
  EXPECT_TRUE(
      refused(run(resume + Arguments{"train.epochs=3"}), 2, {"train-000001.tar", "ETag"}, false));
}

TEST_F(RemoteProgram, HttpsUsesHttp2AndNeverFallsBackToHttp) {
  const std::string tls = in("tls").string();
  fs::create_directories(tls);
  const std::string make =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 "
      "-nodes -days 2 -subj /CN=127.0.0.1 -addext "
      "subjectAltName=IP:127.0.0.1 -keyout " +
      tls + "/key.pem -out " + tls + "/cert.pem >" + tls + "/log 2>&1";
  ASSERT_EQ(std::system(make.c_str()), 0) << read_file(tls + "/log");
  server_.reset();
  server_ = std::make_unique<Nginx>(in("root"), tls);
  const std::string secure = server_->secure_url() + "set/";
  RunOptions trusting;
  trusting.env = {{"SSL_CERT_FILE", tls + "/cert.pem"}, {"CURL_CA_BUNDLE", ""}};
  const auto secure_hash = [&](const Arguments& more) {
    const Result result = run(bench_of(secure, more), trusting);
    EXPECT_TRUE(succeeded(result));
    const Json json = parse_json(result.out);
    return json.is_object() ? json["batch_hash"].get<std::string>() : "";
  };
  const std::string local = hash(in("root/set"));
  EXPECT_EQ(secure_hash({"data.remote.fetch=ranges"}), local);
  EXPECT_EQ(secure_hash({"loader.workers=1"}), local);
  EXPECT_GE(server_->requests(".tar HTTP/2.0\" 206", 27), 27u);
  EXPECT_EQ(server_->requests(".tar HTTP/2.0\" 200", 3), 3u);

  const auto denied = [&](const std::string& path, const std::string& authorities, int code,
                          const std::string& part) {
    RunOptions options;
    options.env = {{"SSL_CERT_FILE", authorities}, {"CURL_CA_BUNDLE", ""}};
    EXPECT_TRUE(
        refused(run(bench_of(path, {"data.remote.deadline=1"}), options), code, {part}, false));
  };
  denied(secure, "", 3, "set.index");  // a certificate that nobody trusts
  denied(secure, in("nofile").string(), 3, "set.index");
  denied(server_->secure_url() + "moved/", tls + "/cert.pem", 3, "redirects from https to http");
  // A server that speaks plain HTTP at an https address.
  denied("https" + url().substr(4), tls + "/cert.pem", 1, "data.remote.deadline");
  EXPECT_EQ(server_->requests("set.index HTTP/2.0\" 200", 2), 2u);
  EXPECT_EQ(server_->requests("set.index HTTP/1.", 0), 0u) << "asked without TLS";
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
  Result result = run(bench_of(url()), options);
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
