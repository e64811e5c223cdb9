// Fetching archives through the program while processes are killed, disks are full and locks are
// missing: no broken archive is ever in the cache, and a later run completes with the same hash.
#include <csignal>
#include <set>

#include "tests/program/datasets.h"
#include "tests/program/program.h"
#include "tests/program/small_disk.h"
#include "tests/remote/fault_server.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class RemoteFaults : public ProgramTest {
 protected:
  /// Serves a set of three archives. Call it after MILLRACE_NEEDS_SMALL_DISK().
  void serve() {
    write_photos(in("photos"), 9);
    ASSERT_TRUE(succeeded(run(
        {"data", "pack", in("photos").string(), in("set").string(), "--shards", "3", "--quiet"})));
    server_ = std::make_unique<test::FaultServer>();
    for (const auto& entry : fs::directory_iterator(in("set"))) {
      const std::string content = read_file(entry.path());
      server_->put("/set/" + entry.path().filename().string(), content);
      if (entry.path().extension() == ".tar") archives_.insert(content);
    }
    ASSERT_EQ(archives_.size(), 3u);
    wanted_ = hash(in("set").string());
    ASSERT_EQ(wanted_.size(), 16u);
  }
  Arguments remote_bench(const std::string& path) const {
    return {"bench",
            "imagenet-rrc",
            "data.reader=tar",
            "data.path=" + path,
            "augment.random_resized_crop.size=24",
            "loader.batch=4",
            "loader.workers=1",
            "data.remote.cache=" + cache().string(),
            "--hash",
            "--json"};
  }
  Arguments remote_bench() const { return remote_bench(server_->url() + "/set/"); }
  std::string hash(const std::string& path, const RunOptions& options = {}) const {
    const Result result = run(remote_bench(path), options);
    EXPECT_TRUE(succeeded(result));
    const Json json = parse_json(result.out);
    return json.is_object() ? json["batch_hash"].get<std::string>() : "";
  }
  std::string hash(const RunOptions& options = {}) const {
    return hash(server_->url() + "/set/", options);
  }
  fs::path cache() const { return in("disk/cache"); }
  /// Returns the files of the cache that end so.
  std::vector<fs::path> cached(const std::string& ending) const {
    std::vector<fs::path> files;
    if (!fs::exists(cache())) return files;
    for (const auto& entry : fs::directory_iterator(cache()))
      if (entry.path().extension() == ending) files.push_back(entry.path());
    return files;
  }
  /// Expects every archive that has its final name to be one of the set's.
  void expect_sound() const {
    for (const fs::path& file : cached(".tar"))
      EXPECT_TRUE(archives_.contains(read_file(file))) << file << " is a broken archive";
  }
  std::size_t archives_asked_for() const {
    std::size_t count = 0;
    for (const std::string& request : server_->requests()) count += count_of(request, ".tar HTTP");
    return count;
  }
  std::uint64_t size_of_archives() const {
    std::uint64_t bytes = 0;
    for (const std::string& one : archives_) bytes += one.size();
    return bytes;
  }

  std::unique_ptr<test::FaultServer> server_;
  std::set<std::string> archives_;  ///< contents
  std::string wanted_;              ///< hash of the local set
};

TEST_F(RemoteFaults, KilledAtTwentyMomentsOfAFetchTheNextOneCompletes) {
  serve();
  constexpr int kMoments = 20;
  const std::uint64_t total = size_of_archives(), index = fs::file_size(in("set/set.index"));
  server_->drip(total / 3 / 100);  // some 0.1 s for the archives, which come at the same time
  int in_the_middle = 0;
  for (int moment = 0; moment < kMoments; ++moment) {
    for (const fs::path& file : cached(".tar")) fs::remove(file);  // what a kill leaves stays
    const std::uint64_t before = server_->sent() + index;
    Child child(remote_bench());
    const std::uint64_t enough = before + total * static_cast<std::uint64_t>(moment) / kMoments;
    while (server_->sent() <= enough && child.running()) sleep_ms(1);
    child.send(SIGKILL);
    if (child.wait().signal == SIGKILL && cached(".tar").size() < 3) ++in_the_middle;
    expect_sound();
  }
  EXPECT_GE(in_the_middle, kMoments / 2) << "the fetches were over before they were killed";
  server_->drip(0);
  EXPECT_EQ(hash(), wanted_);
  expect_sound();
  EXPECT_EQ(cached(".tar").size(), 3u);
  EXPECT_TRUE(cached(".part").empty());
}

TEST_F(RemoteFaults, AFullDiskEndsTheRunAndALaterOneGoesOn) {
  MILLRACE_NEEDS_SMALL_DISK();
  serve();
  const std::uint64_t one = size_of_archives() / 3;
  RunOptions options;
  // With and without space that is reserved before an archive is fetched.
  for (const bool reserves : {true, false}) {
    options.no_fallocate = !reserves;
    SmallDisk disk(in("disk"), "size=" + std::to_string(one + one / 2));
    EXPECT_TRUE(
        refused(run(remote_bench(), options), 1, {"data.remote.cache", "No space left"}, false));
    expect_sound();
    EXPECT_LT(cached(".tar").size(), 2u);
    disk.change("size=100m");
    const std::size_t kept = cached(".tar").size(), before = archives_asked_for();
    EXPECT_EQ(hash(options), wanted_);
    EXPECT_EQ(archives_asked_for() - before, 3 - kept) << "what was complete is not fetched again";
    EXPECT_TRUE(cached(".part").empty());
  }
}

TEST_F(RemoteFaults, AReadOnlyCacheServesWhatItHas) {
  MILLRACE_NEEDS_SMALL_DISK();
  serve();
  SmallDisk disk(in("disk"), "size=100m");
  EXPECT_EQ(hash(), wanted_);
  disk.change("size=100m", /*read_only=*/true);
  const std::size_t before = archives_asked_for();
  EXPECT_EQ(hash(), wanted_);
  EXPECT_EQ(archives_asked_for(), before);
  disk.change("size=100m");
  fs::remove(cached(".tar").front());
  disk.change("size=100m", /*read_only=*/true);
  EXPECT_TRUE(
      refused(run(remote_bench()), 1, {"data.remote.cache", "Read-only file system"}, false));
  EXPECT_EQ(cached(".tar").size(), 2u);
}

TEST_F(RemoteFaults, WithoutLocksProcessesFetchForThemselvesAndSaySo) {
  serve();
  RunOptions without;
  without.no_locks = without.no_fallocate = true;  // as NFS without a lock daemon
  {
    server_->drip(size_of_archives() / 3 / 100);  // so that they meet
    Child one(remote_bench(), without), two(remote_bench(), without);
    for (Child* child : {&one, &two}) {
      const Result result = child->wait();
      ASSERT_TRUE(succeeded(result));
      EXPECT_EQ(parse_json(result.out)["batch_hash"], wanted_);
      EXPECT_EQ(count_of(result.err, "the file system has no locks"), 1u) << result.err;
    }
  }
  expect_sound();
  EXPECT_TRUE(cached(".part").empty());
  const std::size_t before = archives_asked_for();
  EXPECT_GE(before, 3u);
  EXPECT_EQ(hash(without), wanted_);
  EXPECT_EQ(archives_asked_for(), before) << "complete archives serve later processes";
}

TEST_F(RemoteFaults, AServerThatIsAwayHoldsUpNoSignal) {
  for (const Arguments& words :
       {Arguments{"inspect", "--plan"}, Arguments{"bench"},
        Arguments{"train", "train.accumulate=2"}, Arguments{"train", "train.strategy=ddp"}}) {
    Arguments all{words[0], "imagenet-rrc", "data.reader=tar", "data.path=http://127.0.0.1:1/set/"};
    all.insert(all.end(), words.begin() + 1, words.end());
    if (words.back() != "train.strategy=ddp") all.push_back("loader.workers=1");
    RunOptions rank;
    rank.env = {
        {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
    Child child(all, rank);
    ASSERT_TRUE(child.says("such requests are repeated")) << words.back();
    child.send(SIGTERM);
    const Result result = child.wait();
    EXPECT_EQ(result.exit_code, 130) << words.back();
    EXPECT_EQ(count_of(result.err, "millrace: interrupted"), 1u) << result.err;
    EXPECT_LT(result.wall_s, 30) << words.back();  // data.remote.deadline is 120
  }
}

}  // namespace
}  // namespace millrace::program_test
