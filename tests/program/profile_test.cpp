// millrace profile as a user runs it: its predictions, what it writes and when, what it rejects.
// Sleeps limit the speed (an emulated disk, a simulated device), so that a busy machine changes
// little.
#include <algorithm>
#include <cmath>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

RunOptions patient(double seconds) {
  RunOptions options;
  options.timeout_s = seconds;
  return options;
}

class Profile : public ProgramTest {
 protected:
  /// Reads of 4 ms on 4 threads: 1,000 images/s. The device takes a batch of 20 in 10 ms: 2,000
  /// images/s.
  Arguments slow_storage(const Arguments& more = {}) {
    return Arguments{"profile",
                     "mnist-lenet",
                     "data.path=" + data(),
                     "train.device=simulated",
                     "simulated.update_ms=10",
                     "loader.batch=20",
                     "data.storage.latency=4",
                     "--run",
                     in("profile").string(),
                     "--given",
                     "--json",
                     "-q"} +
           more;
  }
};

const Json& change_of(const Json& profile, const std::string& first) {
  for (const Json& one : profile["what_if"])
    if (one["change"][0] == first) return one;
  ADD_FAILURE() << first << " is not in the table";
  return profile["what_if"][0];
}

TEST_F(Profile, PredictionsOfASlowStorageComeTrue) {
  const Result result = run(slow_storage({"--verify", "--blocks", "1", "--seconds", "0.4",  //
                                          "--change", "data.storage.latency=2",             //
                                          "--change", "data.storage.latency=8",             //
                                          "--change", "loader.io_threads=2",                //
                                          "--change", "loader.workers=0",                   //
                                          "--change", "simulated.update_ms=40",             //
                                          "--change", "simulated.update_ms=5"}),
                            patient(200));
  ASSERT_TRUE(succeeded(result));
  const Json profile = parse_json(result.out);
  EXPECT_EQ(profile["command"], "profile");
  EXPECT_EQ(profile["bound"], "storage") << profile["verdict"];
  EXPECT_NE(profile["verdict"].get<std::string>().find("storage-bound"), std::string::npos);
  EXPECT_NEAR(profile["ceilings"]["storage"].get<double>(), 1000, 50);
  EXPECT_NEAR(profile["ceilings"]["device"].get<double>(), 2000, 1);
  EXPECT_GT(profile["blame"]["storage"].get<double>(), 0);
  EXPECT_TRUE(profile.contains("images_per_s") && profile.contains("spans"));
  // Ratios that follow by arithmetic, because limits by sleeping are exact.
  const std::pair<const char*, double> ratios[] = {
      {"data.storage.latency=2", 2},   {"data.storage.latency=8", 0.5},
      {"loader.io_threads=2", 0.5},    {"loader.workers=0", 1 / (4 + 0.5)},
      {"simulated.update_ms=40", 0.5}, {"simulated.update_ms=5", 1}};
  for (const auto& [change, ratio] : ratios) {
    const Json& one = change_of(profile, change);
    EXPECT_NEAR(one["predicted_ratio"].get<double>(), ratio, 0.06 * ratio) << change;
    EXPECT_NEAR(one["measured_ratio"].get<double>(), ratio, 0.25 * ratio) << change;
    EXPECT_NEAR(one["error"].get<double>(),
                one["predicted"].get<double>() / one["measured"].get<double>() - 1, 1e-9);
  }
  const Json& score = profile["verification"];
  EXPECT_GE(score["counted"].get<int>(), 4);
  EXPECT_GE(score["skill"].get<double>(), 0.7);
  EXPECT_LE(score["median_error"].get<double>(), 0.15);

  // The predictions were written before anything was verified, and are the same as afterwards.
  const fs::path file = in("profile/predictions.json");
  const Json before = parse_json(read_file(file));
  fs::file_time_type first_verified = fs::file_time_type::max();
  int runs = 0;
  for (const auto& entry : fs::directory_iterator(in("profile/runs"))) {
    if (!entry.is_directory()) continue;
    ++runs;
    if (entry.path().filename().string().substr(0, 3) > "003")  // after the first baselines
      first_verified = std::min(first_verified, fs::last_write_time(entry.path() / "config.toml"));
  }
  EXPECT_EQ(runs, 3 + 1 + 6);
  EXPECT_LE(fs::last_write_time(file), first_verified);
  for (const Json& one : before["what_if"]) {
    EXPECT_TRUE(one["measured"].is_null());
    EXPECT_EQ(one["predicted_ratio"],
              change_of(profile, one["change"][0].get<std::string>())["predicted_ratio"]);
  }
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
  // A worker only waits for the disk, so one at most is advised.
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
