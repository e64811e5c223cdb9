// millrace profile as a user runs it: its predictions, what it writes and when, what it rejects.
#include "tests/program/profile.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

/// Threads that keep a quarter of the cores and one more busy.
class OtherProgram {
 public:
  OtherProgram() {
    for (unsigned i = 0; i <= std::thread::hardware_concurrency() / 4; ++i)
      threads_.emplace_back([this] {
        while (!over_.load(std::memory_order_relaxed)) {
        }
      });
  }
  ~OtherProgram() {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  OtherProgram(const OtherProgram&) = delete;
  OtherProgram& operator=(const OtherProgram&) = delete;

 private:
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

TEST_F(Profile, AVerificationBesideAnotherProgramIsVoidAndItsRunsAreCounted) {
  Arguments arguments = slow_storage({"--verify", "--blocks", "1", "--seconds", "0.1", "--change",
                                      "data.storage.latency=2", "--change", "loader.io_threads=2"});
  arguments.erase(std::remove(arguments.begin(), arguments.end(), "-q"), arguments.end());
  Child child(arguments, patient(100));
  ASSERT_TRUE(child.says("verifying 2 changes in 1 blocks: 5 runs, about ", 100));
  Result result;
  {
    const OtherProgram other;
    result = child.wait();
  }
  ASSERT_TRUE(succeeded(result));
  const Json profile = parse_json(result.out);
  const Json& verification = profile["verification"];
  EXPECT_EQ(verification["void"], true);
  EXPECT_EQ(verification["most_others"], 0.1);
  for (const char* key : {"counted", "median_error", "worst_error", "skill"})
    EXPECT_TRUE(verification[key].is_null()) << key;
  ASSERT_EQ(verification["runs"].size(), 7u) << "five, and no more than half as many repeats";
  EXPECT_EQ(verification["void_runs"], 7);
  for (const Json& run : verification["runs"]) {
    EXPECT_EQ(run["void"], true);
    EXPECT_GT(run["others_busy"].get<double>(), 0.1);
    EXPECT_GT(run["images_per_s"].get<double>(), 0) << "published all the same";
  }
  for (const Json& one : profile["what_if"])
    EXPECT_TRUE(one["measured"].is_null() && one["error"].is_null());
}

TEST_F(Profile, WithoutVerifyingItOnlyPredicts) {
  Arguments arguments = slow_storage({"--change", "loader.io_threads=8", "--seconds", "0.2"});
  arguments.erase(std::remove(arguments.begin(), arguments.end(), "--given"), arguments.end());
  const Result result = run(arguments, patient(100));
  ASSERT_TRUE(succeeded(result));
  const Json profile = parse_json(result.out);
  int assumed = 0;
  for (const Json& one : profile["what_if"]) {
    EXPECT_TRUE(one["measured"].is_null() && one["error"].is_null());
    EXPECT_GT(one["predicted"].get<double>(), 0);
    assumed += !one["runs_here"].get<bool>();
  }
  EXPECT_GE(assumed, 4) << "more cores, ranks";
  EXPECT_NEAR(change_of(profile, "loader.io_threads=8")["predicted_ratio"].get<double>(), 2, 0.15);
  EXPECT_FALSE(profile.contains("verification"));
  EXPECT_TRUE(fs::exists(in("profile/predictions.json")));
  const std::string advised = profile["advice"]["change"][0];
  EXPECT_TRUE(advised == "loader.io_threads=16" || advised.starts_with("data.storage.latency="))
      << advised;
  EXPECT_GE(profile["advice"]["change_ratio"].get<double>(), 1.8);
  // A worker only waits for the disk, so one at most is needed.
  EXPECT_LE(profile["advice"]["workers"].get<int>(), 1);
  EXPECT_GE(profile["advice"]["images_per_s"].get<double>(),
            0.95 * profile["advice"]["best_images_per_s"].get<double>());
}

TEST_F(Profile, StorageThatIsNotTheLimitIsNotBlamed) {
  Arguments arguments = slow_storage({"--change", "loader.workers=1", "--seconds", "0.2"});
  for (std::string& word : arguments)
    if (word == "data.storage.latency=4") word = "data.storage.latency=1.4";  // 30% to spare
  const Result result = run(arguments, patient(100));
  ASSERT_TRUE(succeeded(result));
  EXPECT_EQ(parse_json(result.out)["bound"], "device");
}

TEST_F(Profile, AutoWorkersAreAsManyAsTheDeviceNeedsAndChangeNoBatch) {
  const Arguments common{"train.epochs=60", "simulated.update_ms=4"};
  const Result one =
      run(simulated("auto", common + Arguments{"loader.workers=auto", "--hash"}), patient(100));
  ASSERT_TRUE(succeeded(one));
  EXPECT_NE(one.err.find("loader.workers=auto: 1 "), std::string::npos) << one.err;
  const Json chosen = summary("auto");
  EXPECT_EQ(chosen["auto_workers"]["chosen"], 1) << "a core makes a batch in 0.1 ms";
  EXPECT_GE(chosen["auto_workers"]["after_steps"].get<int>(), 5);
  EXPECT_FALSE(chosen["auto_workers"]["why"].get<std::string>().empty());
  EXPECT_EQ(chosen["workers"], 1);
  ASSERT_TRUE(succeeded(
      run(simulated("fixed", common + Arguments{"loader.workers=2", "--hash"}), patient(100))));
  EXPECT_EQ(chosen["batch_hash"], summary("fixed")["batch_hash"]);
  EXPECT_NE(read_file(in("auto/config.toml")).find("workers = \"auto\""), std::string::npos);
}

TEST_F(Profile, RefusesWhatItCannotProfile) {
  EXPECT_TRUE(refused(run(slow_storage()), 2, {"--given", "--change"}));
  EXPECT_TRUE(refused(run(slow_storage({"--change", "loader.wrokers=1"})), 2, {"loader.wrokers"}));
  EXPECT_TRUE(refused(run(slow_storage({"--change", "a=1", "train.strategy=data_parallel"})), 2,
                      {"train.strategy=single"}));
  EXPECT_TRUE(refused(run(slow_storage({"--change", "loader.workers=1", "--trace", "x.txt"})), 2,
                      {"--trace x.txt"}));
}

}  // namespace
}  // namespace millrace::program_test
