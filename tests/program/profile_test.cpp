// millrace profile as a user runs it: its predictions, what it writes and when, what it rejects.
#include "tests/program/profile.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include "tests/program/datasets.h"
#include "tests/program/other_program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

TEST_F(Profile, AVerificationBesideAnotherProgramIsVoidAndItsRunsAreCounted) {
  Arguments arguments = slow_storage({"--verify", "--blocks", "1", "--seconds", "0.1", "--change",
                                      "data.storage.latency=2", "--change", "loader.io_threads=2"});
  arguments.erase(std::remove(arguments.begin(), arguments.end(), "-q"), arguments.end());
  Child child(arguments, patient(100));
  ASSERT_TRUE(child.says(" probes of the loader, 5 runs, then 5 runs of --verify", 100));
  ASSERT_TRUE(child.says("verifying 2 changes in 1 block: up to 5 runs, about ", 100));
  Result result;
  {
    const OtherProgram other;
    result = child.wait();
  }
  ASSERT_TRUE(succeeded(result));
  const Json profile = parse_json(result.out);
  const Json& verification = profile["verification"];
  EXPECT_EQ(verification["void"], true);
  EXPECT_EQ(verification["stopped"], true);
  EXPECT_EQ(verification["most_others"], 0.1);
  for (const char* key : {"counted", "median_error", "worst_error", "skill"})
    EXPECT_TRUE(verification[key].is_null()) << key;
  ASSERT_EQ(verification["runs"].size(), 5u) << "nothing is repeated before a run was valid";
  EXPECT_EQ(verification["void_runs"], 5);
  for (const Json& run : verification["runs"]) {
    EXPECT_EQ(run["void"], true);
    EXPECT_GT(run["others_busy"].get<double>(), 0.1);
    EXPECT_GT(run["images_per_s"].get<double>(), 0) << "published all the same";
  }
  for (const Json& one : profile["what_if"])
    EXPECT_TRUE(one["measured"].is_null() && one["error"].is_null() &&
                one["disturbed_ratio"].is_number())
        << "shown, and not scored";
}

/// Checks the line that says how long a profile takes: its place, its counts, and an estimate that
/// follows from them. `seconds`: measured per run.
void expect_announced(const std::string& said, std::size_t runs, double seconds) {
  std::smatch match;
  const std::regex line(
      R"((\d+) changes; about (\d+) (s|min): (\d+) probes of the loader, (\d+) runs\n)");
  ASSERT_TRUE(std::regex_search(said, match, line)) << said;
  EXPECT_LT(static_cast<std::size_t>(match.position()), said.find("probing the loader alone"));
  EXPECT_LT(static_cast<std::size_t>(match.position()), said.find("the baseline"));
  const double probes = std::stod(match[4]);
  EXPECT_GE(probes, 10) << "five rounds of one loader, on a worker and without";
  EXPECT_EQ(std::stoul(match[5]), runs);
  const double measured = probes * 0.3 + static_cast<double>(runs) * seconds;
  const double unit = match[3] == "min" ? 60 : 1;
  EXPECT_GE(std::stod(match[2]) * unit, measured - unit / 2) << "rounded";
  EXPECT_LE(std::stod(match[2]) * unit, measured + 600) << "and the programs' starts";
}

TEST_F(Profile, PacksASampleAfterItHasPredicted) {
  write_photos(in("photos"), 12);
  fs::create_directories(in("tmp"));
  RunOptions options = patient(200);
  options.env["TMPDIR"] = in("tmp").string();
  const Arguments arguments{"profile",
                            "data.reader=folder",
                            "data.path=" + in("photos").string(),
                            "train.device=simulated",
                            "simulated.update_ms=1",
                            "loader.batch=6",
                            "augment+=random_resized_crop{size=16}",
                            "--run",
                            in("profile").string(),
                            "--given",
                            "--json",
                            "-q",
                            "--seconds",
                            "0.05"};
  const Result bad = run(arguments + Arguments{"--change", "pack=raw,short-side=0"}, options);
  EXPECT_TRUE(refused(bad, 2, {"pack=raw,short-side=0", "not a way to pack"}));
  const Result result =
      run(arguments + Arguments{"--verify", "--blocks", "1", "--change", "pack=short-side=24",
                                "--change", "pack=raw", "--change", "pack=raw,short-side=24",
                                "--change", "pack=short-side=400"},
          options);
  ASSERT_TRUE(succeeded(result));
  const Json profile = parse_json(result.out);
  ASSERT_EQ(profile["what_if"].size(), 3u) << "a short side of 400 leaves all images as they are";
  for (const Json& one : profile["what_if"]) {
    EXPECT_TRUE(one["runs_here"].get<bool>());
    EXPECT_GT(one["predicted"].get<double>(), 0);
  }
  const Json& jpeg = change_of(profile, "pack=short-side=24");
  EXPECT_LT(jpeg["bytes_ratio"].get<double>(), 1);
  EXPECT_EQ(jpeg["lossy"], true);
  const Json& raw = change_of(profile, "pack=raw");
  EXPECT_GT(raw["bytes_ratio"].get<double>(), 1);
  EXPECT_EQ(raw["lossy"], false);
  EXPECT_NEAR(change_of(profile, "pack=raw,short-side=24")["bytes_ratio"].get<double>(),
              raw["bytes_ratio"].get<double>() / 4, raw["bytes_ratio"].get<double>() / 10)
      << "a quarter of the pixels, of 48x48";
  // The predictions were written before anything was measured, and are the ones that are reported.
  const Json written = parse_json(read_file(in("profile/predictions.json")));
  ASSERT_EQ(written["what_if"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(written["what_if"][i]["measured"].is_null());
    EXPECT_EQ(written["what_if"][i]["predicted_ratio"], profile["what_if"][i]["predicted_ratio"]);
  }
  std::set<std::string> ran;
  for (const Json& one : profile["verification"]["runs"])
    if (!one["change"].empty()) ran.insert(one["change"][0].get<std::string>());
  EXPECT_EQ(ran.size(), 3u) << "each way was run";
  EXPECT_TRUE(fs::is_empty(in("tmp"))) << "the packed samples are removed";
}

TEST_F(Profile, MeasuresTheDeviceForEachShapeThatItPredicts) {
  write_photos(in("photos"), 12);
  const Result result =
      run({"profile", "data.reader=folder", "data.path=" + in("photos").string(),
           "train.device=cpu", "train.threads=1", "model.name=simple_conv", "loader.batch=6",
           "augment+=random_resized_crop{size=32}", "--run", in("profile").string(), "--given",
           "--seconds", "0.05", "--change", "augment.random_resized_crop.size=64 loader.workers=0",
           "--change", "loader.workers=0", "--change", "train.optimizer=adamw"},
          patient(200));
  ASSERT_TRUE(succeeded(result));
  for (const char* settings : {"as it is", "augment.random_resized_crop.size=64 loader.workers=0",
                               "train.optimizer=adamw"})
    EXPECT_NE(result.err.find(std::string("the device alone, ") + settings + "\n"),
              std::string::npos)
        << settings;
  EXPECT_EQ(result.err.find("the device alone, loader.workers"), std::string::npos)
      << "workers do not change the device";
}

TEST_F(Profile, WithoutVerifyingItOnlyPredicts) {
  Arguments arguments = slow_storage({"--change", "loader.io_threads=8", "--seconds", "0.2"});
  for (const char* dropped : {"--given", "-q"}) std::erase(arguments, dropped);
  const Result result = run(arguments, patient(100));
  ASSERT_TRUE(succeeded(result));
  const fs::directory_iterator runs(in("profile/runs"));
  expect_announced(result.err,
                   static_cast<std::size_t>(std::count_if(
                       begin(runs), end(runs), [](const auto& one) { return one.is_directory(); })),
                   0.2);
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
  const std::string bound = parse_json(result.out)["bound"];
  EXPECT_TRUE(bound == "device" || bound == "other programs") << bound;
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
  EXPECT_TRUE(refused(run(slow_storage({"--change", "loader.workers=1", "--accept-noise"})), 2,
                      {"--accept-noise", "--verify"}));
  EXPECT_TRUE(refused(run(slow_storage({"--change", "loader.wrokers=1"})), 2, {"loader.wrokers"}));
  EXPECT_TRUE(refused(run(slow_storage({"--change", "a=1", "train.strategy=data_parallel"})), 2,
                      {"train.strategy=single"}));
  EXPECT_TRUE(refused(run(slow_storage({"--change", "loader.workers=1", "--trace", "x.txt"})), 2,
                      {"--trace x.txt"}));
}

}  // namespace
}  // namespace millrace::program_test
