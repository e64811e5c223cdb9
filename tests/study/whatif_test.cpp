// Ceilings, the bound, the list of changes, the score and the advice, by arithmetic on a replay.
#include "study/analysis/whatif.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "millrace/error.h"
#include "predict/interval.h"
#include "predict/score.h"
#include "study/analysis/bound.h"

namespace millrace::study {
namespace {

const StageDemand kPhotos{
    .read_s = 20e-6, .decode_s = 700e-6, .augment_s = 200e-6, .machinery_s = 10e-6};

/// Photos of 110 kB: 930 µs each on two workers, a device of 1,600 images per second.
predict::ReplayInput photos() {
  predict::ReplayInput in;
  in.cores = 2;
  in.workers = 2;
  in.batch = 32;
  in.samples = 3200;
  in.sample_s = 910e-6;
  in.read_s = 20e-6;
  in.update_s = 20e-3;
  in.bytes = {60e3, 160e3};
  return in;
}

double rate_of(const std::vector<Ceiling>& all, const std::string& name) {
  for (const Ceiling& one : all)
    if (one.name == name) return one.images_per_s;
  return 0;
}

TEST(Ceilings, AreWhatEachResourceWouldAllow) {
  predict::ReplayInput in = photos();
  in.io_threads = 4;
  in.storage = {.bytes_per_s = 55e6, .latency_s = 4e-3};
  const auto all = ceilings(in, kPhotos);
  EXPECT_NEAR(rate_of(all, "device"), 1600, 1e-6);
  EXPECT_NEAR(rate_of(all, "storage"), 500, 1e-6);
  EXPECT_NEAR(rate_of(all, "decode"), 2 / 700e-6, 1e-6);
  EXPECT_NEAR(rate_of(all, "augment"), 2 / 200e-6, 1e-6);
  EXPECT_NEAR(rate_of(all, "loader"), 2 / 910e-6, 1e-6);
  EXPECT_NEAR(rate_of(all, "cores"), 2 / 930e-6, 1e-6);
  in.storage.latency_s = 38e-3;  // for four threads
  EXPECT_NEAR(rate_of(ceilings(in, kPhotos), "storage"), 4 / (38e-3 + 2e-3 + 20e-6), 1e-6);
  in.storage = {};
  EXPECT_EQ(rate_of(ceilings(in, kPhotos), "storage"), 0) << "no limit, so no line";
  EXPECT_NEAR(workers_needed(in, kPhotos), 1600 * 930e-6, 1e-9);
}

/// Tests the bound's name when `resource` is `factor` times the next lowest ceiling.
TEST(Bound, IsRightOnBothSidesOfACrossing) {
  const double loader = 2 / 930e-6;
  for (const double factor : {0.7, 0.9, 1.1, 1.3}) {
    predict::ReplayInput in = photos();
    in.update_s = 32 / (factor * loader);
    EXPECT_EQ(lowest_ceiling(in, kPhotos).name, factor < 1 ? "device" : "decode") << factor;

    in.update_s = 32 / (2 * loader);
    in.io_threads = 64;
    in.storage.bytes_per_s = factor * 2 / 910e-6 * 110e3;
    EXPECT_EQ(lowest_ceiling(in, kPhotos).name, factor < 1 ? "storage" : "decode") << factor;

    in.update_s = 64e-3;
    in.storage.bytes_per_s = factor * 500 * 110e3;
    EXPECT_EQ(lowest_ceiling(in, kPhotos).name, factor < 1 ? "storage" : "device") << factor;
  }
}

TEST(Bound, NamesTheStageAndWhatItWouldTake) {
  predict::ReplayInput in = photos();
  in.workers = 1;
  in.update_s = 10e-3;
  const LowestCeiling bound = lowest_ceiling(in, kPhotos);
  EXPECT_EQ(bound.name, "decode");
  EXPECT_NE(bound.sentence.find("75% of a sample's loading"), std::string::npos) << bound.sentence;
  EXPECT_NE(bound.sentence.find("3.0 workers needed, you have 1"), std::string::npos)
      << bound.sentence;
  EXPECT_EQ(lowest_ceiling(in, {.augment_s = 1e-3}).name, "augment");
  EXPECT_EQ(lowest_ceiling(in, {.augment_s = 1e-4, .machinery_s = 1e-3}).name, "overhead");
  in.workers = 2;  // two cores for two workers and an update that occupies one
  in.update_threads = 1;
  in.update_s = 16e-3;
  EXPECT_EQ(lowest_ceiling(in, kPhotos).name, "cores");
}

TEST(Changes, AreThoseThatTheRunCanBeGiven) {
  ChangeFacts facts{.cores = 2,
                    .workers = 2,
                    .batch = 32,
                    .samples = 40,
                    .simulated = true,
                    .update_ms = 8,
                    .encoded = true,
                    .bandwidth = 50,
                    .without_op = {"augment.hflip.enabled=false"}};
  const auto list = list_changes(facts);
  const auto has = [&list](const std::string& text) {
    return std::any_of(list.begin(), list.end(),
                       [&](const Change& one) { return one.text() == text; });
  };
  for (const char* there :
       {"loader.workers=0", "loader.workers=4", "loader.prefetch=1", "augment.hflip.enabled=false",
        "data.storage.bandwidth=100", "simulated.update_ms=2", "loader.batch=16",
        "loader.io_threads=16", "decode=free", "loader.workers=4 cores=4"})
    EXPECT_TRUE(has(there)) << there;
  for (const char* absent : {"loader.workers=2", "loader.workers=8", "loader.prefetch=4",
                             "data.storage.latency=0", "loader.batch=64"})
    EXPECT_FALSE(has(absent)) << absent;
  for (const Change& one : list)
    EXPECT_EQ(one.runnable(), one.cores == 0 && !one.decode_free) << one.text();
  facts.simulated = false;
  for (const Change& one : list_changes(facts))
    EXPECT_TRUE(one.device_speed == 1 || !one.runnable()) << "a real device is not made faster";
}

TEST(Changes, ARemoteSetIsFetchedOnlyIfThatWasAskedFor) {
  const auto list = list_changes(
      {.cores = 2, .workers = 1, .io_threads = 4, .requested = true, .without_op = {}});
  const auto found =
      std::find_if(list.begin(), list.end(), [](const Change& one) { return one.cached; });
  ASSERT_NE(found, list.end());
  EXPECT_EQ(found->text(), "data.remote.fetch=shards cache=warm");
  EXPECT_FALSE(found->runnable());
  EXPECT_TRUE(cached_set(true).runnable());
  EXPECT_EQ(cached_set(true).text(), found->text());
  const Outcome outcomes[] = {{*found, 3.0, {}}};
  EXPECT_EQ(most_helpful(outcomes), outcomes) << "a run can be given it all the same";
}

TEST(Score, CountsWhatHadAnEffect) {
  const auto outcome = [](double predicted, std::optional<double> measured) {
    return Outcome{{}, predicted, measured};
  };
  const Outcome all[] = {outcome(2.1, 2.0), outcome(0.5, 0.5), outcome(1.4, 1.25),
                         outcome(1.15, 1.1),  // too small an effect
                         outcome(3, std::nullopt)};
  const predict::Score score = score_of(all);
  EXPECT_EQ(score.counted, 3);
  EXPECT_NEAR(score.median_error, 0.05, 1e-12);
  EXPECT_NEAR(score.worst_error, 0.12, 1e-12);
  EXPECT_NEAR(score.skill, 1 - (0.05 + 0 + 0.12) / (0.5 + 1 + 0.2), 1e-12);
  EXPECT_EQ(score_of({}).counted, 0);
  EXPECT_TRUE(std::isnan(predict::median({})));
  EXPECT_EQ(predict::median({3, 1, 2, 9}), 2.5);
}

TEST(Score, CountsAPredictedEffectThatWasNotMeasured) {
  const Outcome missed[] = {{{}, 4.05, 1.10}, {{}, 1.00, 1.24}, {{}, 1.1, 1.0}};
  const predict::Score score = score_of(missed);
  EXPECT_EQ(score.counted, 2);
  EXPECT_NEAR(score.worst_error, 4.05 / 1.10 - 1, 1e-12);
  EXPECT_LT(score.skill, 0) << "worse than predicting no change";
}

TEST(Score, ArithmeticOnASimulatedDeviceDoesNotCount) {
  const auto outcome = [](const char* change, double predicted, double measured) {
    return Outcome{{.overrides = {change}}, predicted, measured, 0.9 * predicted, 1.1 * predicted};
  };
  const Outcome all[] = {outcome("simulated.update_ms=40", 0.5, 0.5),
                         outcome("loader.batch=128", 2, 2), outcome("loader.workers=0", 0.83, 0.5),
                         outcome("loader.prefetch=1", 1, 1.05)};
  const predict::Score score = score_of(all, /*simulated=*/true);
  EXPECT_EQ(score.counted, 1) << "the one that asks the model something";
  EXPECT_NEAR(score.worst_error, 0.66, 1e-9);
  EXPECT_EQ(score.arithmetic, 2);
  EXPECT_EQ(score.with_interval, 4);
  EXPECT_EQ(score.held, 3) << "0.5 is below 0.747";
  EXPECT_EQ(score_of(all, false).counted, 3) << "a real update grows with the batch";
  EXPECT_FALSE(is_arithmetic({.overrides = {"data.storage.bandwidth=40"}}, true));
}

/// Predicts every change of a run from storage; `with` applies a change's settings.
std::vector<Outcome> predicted(const predict::ReplayInput& in) {
  const ChangeFacts facts{.cores = 2,
                          .workers = 2,
                          .io_threads = in.io_threads,
                          .batch = 32,
                          .samples = 3200,
                          .encoded = true,
                          .packable = true,
                          .bandwidth = in.storage.bytes_per_s / 1e6,
                          .latency = in.storage.latency_s * 1e3,
                          .without_op = {}};
  const double base = replay(in).images_per_s;
  std::vector<Outcome> all;
  for (const Change& change : list_changes(facts)) {
    predict::ReplayInput with = in;
    if (change.cores > 0) with.cores = change.cores;
    if (change.packed) with.read_s = 0;
    if (change.decode_free) with.sample_s -= kPhotos.decode_s;
    with.update_s /= change.device_speed;
    for (const std::string& one : change.overrides) {
      const auto equals = one.find('=');
      const std::string key = one.substr(0, equals);
      const double value = std::stod(one.substr(equals + 1));
      if (key == "loader.workers") with.workers = static_cast<int>(value);
      if (key == "loader.prefetch") with.prefetch = static_cast<int>(value);
      if (key == "loader.io_threads") with.io_threads = static_cast<int>(value);
      if (key == "loader.batch") with.batch = static_cast<std::int64_t>(value);
      if (key == "data.storage.bandwidth") with.storage.bytes_per_s = value * 1e6;
      if (key == "data.storage.latency") with.storage.latency_s = value * 1e-3;
    }
    all.push_back({change, replay(with).images_per_s / base, std::nullopt});
  }
  return all;
}

TEST(MostHelpful, NamesWhichLimitOfTheStorageToRaise) {
  predict::ReplayInput in = photos();
  in.io_threads = 4;
  in.storage = {.bytes_per_s = 40e6, .latency_s = 1e-3};  // 364 images/s of 110 kB
  auto outcomes = predicted(in);
  const Outcome* best = most_helpful(outcomes);
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->change.text(), "data.storage.bandwidth=160");
  EXPECT_GT(best->predicted, 3);
  const auto alone = storage_changes(outcomes);
  ASSERT_EQ(alone.size(), 4u);
  EXPECT_EQ(alone[0], best);
  EXPECT_EQ(alone[1]->change.text(), "data.storage.latency=0.5") << "a quarter is no better";
  EXPECT_NEAR(alone[1]->predicted, 1, 0.03);
  EXPECT_TRUE(alone[2]->change.text().starts_with("loader.io_threads="));
  EXPECT_NEAR(alone[2]->predicted, 1, 0.03);
  EXPECT_EQ(alone[3]->change.text(), "data=packed");
  EXPECT_NEAR(alone[3]->predicted, 1, 0.03) << "as many reads as before";

  in.storage = {.bytes_per_s = 2000e6, .latency_s = 20e-3};  // 200 images/s on four threads
  outcomes = predicted(in);
  best = most_helpful(outcomes);
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->change.text(), "loader.io_threads=16") << "as good as another disk";
}

TEST(MostHelpful, IsNothingThatTheMachineCannotGiveOrThatGivesNothing) {
  predict::ReplayInput in =
      photos();  // the device takes 1,600 images/s, and the workers make 2,150
  std::vector<Outcome> outcomes = predicted(in);
  const auto largest =
      std::max_element(outcomes.begin(), outcomes.end(),
                       [](const auto& a, const auto& b) { return a.predicted < b.predicted; });
  EXPECT_GT(largest->predicted, 1.3) << "a faster device or a larger batch would help";
  EXPECT_EQ(most_helpful(outcomes), nullptr);
  EXPECT_EQ(most_helpful({}), nullptr);
  outcomes = {{{.overrides = {"loader.workers=4"}}, 1.02, {}},
              {{.overrides = {"loader.workers=8"}, .cores = 8, .assumed = {"cores=8"}}, 3, {}},
              {{.overrides = {"loader.batch=128"}}, 2, {}},
              {{.overrides = {"augment.hflip.enabled=false"}}, 2, {}}};
  EXPECT_EQ(most_helpful(outcomes), nullptr);
  outcomes.push_back({{.overrides = {"loader.prefetch=8"}}, 1.06, {}});
  EXPECT_EQ(most_helpful(outcomes), &outcomes.back());
}

TEST(Advise, TakesTheFewestWorkersAndTheLeastPrefetch) {
  predict::ReplayInput in = photos();
  in.cores = 8;
  in.update_s = 32 / (2.5 / 930e-6);  // 2.5 workers' worth
  const Advice advice = advise(in, 16, 910e-6);
  EXPECT_EQ(advice.workers, 3);
  EXPECT_LE(advice.prefetch, 4);
  EXPECT_GE(advice.images_per_s, 0.95 * advice.best_images_per_s);
  in.update_s = 1;  // load is 3% of a step: one worker is more than enough
  EXPECT_EQ(advise(in, 16, 910e-6).workers, 0);
}

TEST(WhatIf, WaysToPackAreWordsOfTheCommandLine) {
  for (const Packing& way : list_packings(224)) {
    const auto parsed = parse_packing(way.text());
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->text(), way.text());
    EXPECT_EQ(parsed->lossy(), way.short_side > 0);
  }
  EXPECT_EQ(list_packings(224).front().text(), "pack=short-side=256");
  EXPECT_EQ(list_packings(28).front().short_side, 32);
  EXPECT_FALSE(parse_packing("loader.workers=2"));
  for (const char* text : {"pack=", "pack=jpeg", "pack=raw,", "pack=short-side=x",
                           "pack=short-side=-1", "pack=short-side=70000", "pack=raw,raw"})
    EXPECT_THROW(parse_packing(text), UsageError) << text;
  Change change;
  change.packing = Packing{.raw = true};
  change.assumed = {change.packing->text()};
  EXPECT_TRUE(change.runnable());
  EXPECT_EQ(change.text(), "pack=raw");
  const Outcome outcomes[] = {{change, 3.0, {}}};
  EXPECT_EQ(most_helpful(outcomes), nullptr) << "nobody is told to change the set by the way";
}

}  // namespace
}  // namespace millrace::study
