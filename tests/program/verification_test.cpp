// The predictions of a profile beside measurements. Runs alone, because a verification beside
// other programs is void.
#include <cmath>

#include "tests/program/profile.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

constexpr int kVerifications = 3;  ///< of which the first that is not void counts

/// Changes, and ratios that follow by arithmetic, because limits by sleeping are exact.
const std::pair<const char*, double> kRatios[] = {
    {"data.storage.latency=2", 2},   {"data.storage.latency=8", 0.5},
    {"loader.io_threads=2", 0.5},    {"loader.workers=0", 1 / (4 + 0.5)},
    {"simulated.update_ms=40", 0.5}, {"simulated.update_ms=5", 1}};

void expect_predictions(const Json& profile) {
  EXPECT_EQ(profile["command"], "profile");
  EXPECT_EQ(profile["bound"], "storage") << profile["verdict"];
  EXPECT_NE(profile["verdict"].get<std::string>().find("storage-bound"), std::string::npos);
  EXPECT_NEAR(profile["ceilings"]["storage"].get<double>(), 1000, 50);
  EXPECT_NEAR(profile["ceilings"]["device"].get<double>(), 2000, 1);
  EXPECT_GT(profile["blame"]["storage"].get<double>(), 0);
  EXPECT_TRUE(profile.contains("images_per_s") && profile.contains("spans"));
  EXPECT_EQ(profile["advice"]["change"], Json::array({"data.storage.latency=2"}));
  for (const auto& [change, ratio] : kRatios)
    EXPECT_NEAR(change_of(profile, change)["predicted_ratio"].get<double>(), ratio, 0.06 * ratio)
        << change;
}

void expect_measurements(const Json& profile) {
  for (const auto& [change, ratio] : kRatios) {
    const Json& one = change_of(profile, change);
    EXPECT_NEAR(one["measured_ratio"].get<double>(), ratio, 0.25 * ratio) << change;
    EXPECT_NEAR(one["error"].get<double>(),
                one["predicted"].get<double>() / one["measured"].get<double>() - 1, 1e-9);
  }
  const Json& score = profile["verification"];
  EXPECT_GE(score["counted"].get<int>(), 4);
  EXPECT_GE(score["skill"].get<double>(), 0.7);
  EXPECT_LE(score["median_error"].get<double>(), 0.15);
}

/// Expects that the predictions and the order of the runs were written before anything was
/// verified, and are the same as afterwards.
void expect_written_first(const fs::path& folder, const Json& profile) {
  const fs::path file = folder / "predictions.json";
  const Json before = parse_json(read_file(file));
  fs::file_time_type first_verified = fs::file_time_type::max();
  std::size_t runs = 0;
  for (const auto& entry : fs::directory_iterator(folder / "runs")) {
    if (!entry.is_directory()) continue;
    ++runs;
    if (entry.path().filename().string().substr(0, 3) > "005")  // after the first baselines
      first_verified = std::min(first_verified, fs::last_write_time(entry.path() / "config.toml"));
  }
  EXPECT_EQ(runs, 5 + profile["verification"]["runs"].size());
  EXPECT_LE(fs::last_write_time(file), first_verified);
  for (const Json& one : before["what_if"]) {
    EXPECT_TRUE(one["measured"].is_null());
    EXPECT_EQ(one["predicted_ratio"],
              change_of(profile, one["change"][0].get<std::string>())["predicted_ratio"]);
  }
  EXPECT_EQ(before["verification"]["most_others"], 0.1);
  Json ran = Json::array();
  for (const Json& run : profile["verification"]["runs"])
    if (!run["change"].empty() && (ran.empty() || ran.back() != run["change"]))
      ran.push_back(run["change"]);
  EXPECT_EQ(before["verification"]["order"], Json::array({ran})) << "void runs come twice";
}

TEST_F(Profile, PredictionsOfASlowStorageComeTrue) {
  Arguments arguments = slow_storage({"--verify", "--blocks", "1", "--seconds", "0.4"});
  for (const auto& [change, ratio] : kRatios) arguments = arguments + Arguments{"--change", change};
  std::string counts;
  for (int i = 0; i < kVerifications; ++i) {
    fs::remove_all(in("profile"));
    const Result result = run(arguments, patient(200));
    ASSERT_TRUE(succeeded(result));
    const Json profile = parse_json(result.out);
    expect_predictions(profile);
    expect_written_first(in("profile"), profile);
    const Json& verification = profile["verification"];
    if (verification["void"] == false) return expect_measurements(profile);
    counts += " " + verification["void_runs"].dump() + " of " +
              std::to_string(verification["runs"].size());
  }
  GTEST_SKIP() << "NOTHING WAS VERIFIED: other programs used more than 10% of the machine in each "
                  "of "
               << kVerifications << " verifications; void runs:" << counts
               << ". Repeat the test on a quiet machine.";
}

}  // namespace
}  // namespace millrace::program_test
