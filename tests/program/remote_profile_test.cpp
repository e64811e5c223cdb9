// The predictions of a profile of a remote set, beside measurements. Runs alone, because a
// verification beside other programs is void.
#include <chrono>

#include "tests/program/datasets.h"
#include "tests/program/profile.h"
#include "tests/remote/fault_server.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

constexpr int kRemoteVerifications = 3;  ///< of which the first that is not void counts

/// Changes, and ratios that follow by arithmetic from an answer within 20 ms: 4 connections read
/// 200 images/s, and the device takes 800.
const std::pair<const char*, double> kRemoteRatios[] = {
    {"loader.io_threads=8", 2}, {"loader.io_threads=2", 0.5}, {"data.remote.fetch=shards", 4}};

TEST_F(Profile, PredictionsOfARemoteSetComeTrue) {
  write_photos(in("photos"), 32);
  ASSERT_TRUE(succeeded(run(
      {"data", "pack", in("photos").string(), in("set").string(), "--shards", "2", "--quiet"})));
  test::FaultServer server;
  for (const auto& entry : fs::directory_iterator(in("set")))
    server.put("/set/" + entry.path().filename().string(), read_file(entry.path()));
  server.delay(std::chrono::milliseconds(20));
  Arguments arguments{"profile",
                      "imagenet-rrc",
                      "data.reader=tar",
                      "data.path=" + server.url() + "/set/",
                      "data.remote.fetch=ranges",
                      "data.remote.cache=" + in("cache").string(),
                      "augment.random_resized_crop.size=24",
                      "loader.batch=8",
                      "loader.workers=1",
                      "train.device=simulated",
                      "simulated.update_ms=10",
                      "--run",
                      in("profile").string(),
                      "--given",
                      "--verify",
                      "--blocks",
                      "1",
                      "--seconds",
                      "0.4",
                      "--json",
                      "-q"};
  for (const auto& [change, ratio] : kRemoteRatios)
    arguments = arguments + Arguments{"--change", change};
  for (int i = 0; i < kRemoteVerifications; ++i) {
    fs::remove_all(in("profile"));
    fs::remove_all(in("cache"));
    const Result result = run(arguments, patient(200));
    ASSERT_TRUE(succeeded(result));
    const Json profile = parse_json(result.out);
    EXPECT_EQ(profile["bound"], "storage") << profile["verdict"];
    if (profile["verification"]["void"] != false) continue;
    // A sleep of 20 ms may last longer, and the request itself takes time.
    EXPECT_GE(profile["ceilings"]["storage"].get<double>(), 150);
    EXPECT_LE(profile["ceilings"]["storage"].get<double>(), 205);
    for (const auto& [change, ratio] : kRemoteRatios)
      EXPECT_NEAR(change_of(profile, change)["predicted_ratio"].get<double>(), ratio, 0.15 * ratio)
          << change;
    for (const auto& [change, ratio] : kRemoteRatios)
      EXPECT_NEAR(change_of(profile, change)["error"].get<double>(), 0, 0.25) << change;
    return;
  }
  GTEST_SKIP() << "NOTHING WAS VERIFIED: other programs used more than 10% of the machine in each "
                  "of "
               << kRemoteVerifications << " verifications. Repeat the test on a quiet machine.";
}

}  // namespace
}  // namespace millrace::program_test
