// A profile says one thing: bound, run's verdict, table, advice and worker count of thousands of
// generated runs, crossings and contradictory measurements included.
#include "study/analysis/conclusion.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "predict/rules.h"
#include "study/report/figures.h"
#include "study/report/profile_text.h"
#include "tests/generated_cases.h"

namespace millrace::study {
namespace {

/// Uniform numbers that are equal on every machine.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) {}
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  double between(double low, double high) { return low + (high - low) * uniform(); }
  /// Returns a number whose logarithm is uniform.
  double scaled(double low, double high) { return low * std::pow(high / low, uniform()); }
  int integer(int low, int high) { return low + static_cast<int>(uniform() * (high - low + 1)); }
  bool chance(double probability) { return uniform() < probability; }

 private:
  std::mt19937_64 engine_;
};

struct GeneratedRun {
  ProfileFacts facts;
  bool crossing = false;  ///< the device's rate was set beside another ceiling
};

/// Sets the device's rate within 4% of the lowest other ceiling.
void put_at_crossing(Draws& draws, predict::ReplayInput& in, const StageDemand& demand) {
  double other = std::numeric_limits<double>::infinity();
  for (const Ceiling& one : ceilings(in, demand))
    if (one.name == "loader" || one.name == "storage") other = std::min(other, one.images_per_s);
  in.update_s = static_cast<double>(in.batch) / (other * draws.between(0.96, 1.04));
}

/// Returns the verdict of a run whose load the replay predicts, off by some noise and assigned to
/// the resource that the ceilings name or, now and then, to any other.
BoundVerdict measured_verdict(Draws& draws, const predict::ReplayInput& in,
                              const predict::ReplayOutput& replayed) {
  BoundFigures figures;
  figures.update_s = 100 * replayed.update_s;
  figures.images = static_cast<std::uint64_t>(100 * in.batch);
  figures.workers = in.workers;
  figures.cores = in.cores;
  const double load = 100 * replayed.load_s * draws.scaled(0.5, 2);
  for (int i = 0; i < 3; ++i)
    figures.load[static_cast<std::size_t>(
        draws.integer(0, static_cast<int>(measure::kPartCount) - 1))] += load / 3;
  figures.read_s = draws.uniform();
  figures.decode_s = draws.uniform();
  figures.augment_s = draws.uniform();
  figures.busy_s = load * draws.uniform();
  figures.core_wait_s = figures.busy_s * draws.uniform() / 2;
  return classify(figures);
}

std::vector<ProfileFacts::Tried> changes_of(Draws& draws, const predict::ReplayInput& in,
                                            double inline_s) {
  std::vector<ProfileFacts::Tried> all;
  for (const int workers : {0, 1, 2, 4}) {
    if (workers == in.workers) continue;
    predict::ReplayInput with = in;
    with.workers = workers;
    if (workers == 0) with.sample_s = inline_s;
    all.push_back({{.overrides = {fmt::format("loader.workers={}", workers)}}, with});
  }
  predict::ReplayInput with = in;
  with.prefetch = 2 * in.prefetch;
  all.push_back({{.overrides = {fmt::format("loader.prefetch={}", with.prefetch)}}, with});
  if (in.storage.limited()) {
    with = in;
    with.storage.latency_s /= 4;
    all.push_back({{.overrides = {"data.storage.latency=1"}}, with});
  }
  with = in;
  with.sample_s *= draws.between(0.3, 1);
  all.push_back({{.overrides = {"augment.one.enabled=false"}}, with});
  with = in;
  with.cores *= 2;
  with.workers = with.cores;
  all.push_back({{.overrides = {fmt::format("loader.workers={}", with.workers)},
                  .cores = with.cores,
                  .assumed = {fmt::format("cores={}", with.cores)}},
                 with});
  return all;
}

GeneratedRun generate(std::uint64_t seed) {
  Draws draws(seed);
  GeneratedRun run;
  predict::ReplayInput& in = run.facts.input;
  StageDemand& demand = run.facts.demand;
  demand = {.read_s = draws.scaled(1e-6, 1e-4),
            .decode_s = draws.chance(0.2) ? 0 : draws.scaled(1e-5, 2e-3),
            .augment_s = draws.scaled(1e-6, 1e-3),
            .machinery_s = draws.scaled(1e-7, 1e-5)};
  if (draws.chance(0.1)) demand.augment_s = demand.decode_s * draws.between(0.97, 1.03);
  in.cores = draws.integer(1, 8);
  in.workers = draws.integer(0, 4);
  in.prefetch = draws.integer(1, 4);
  in.batch = draws.integer(2, 16);
  in.samples = 4096;
  in.grain = in.batch;
  in.read_s = demand.read_s;
  in.sample_s = demand.total() - demand.read_s;
  const double inline_s = in.sample_s * draws.between(0.9, 2);
  if (in.workers == 0) in.sample_s = inline_s;
  in.update_s = draws.scaled(1e-4, 3e-2);
  in.update_threads = draws.chance(0.5) ? draws.integer(1, in.cores) : 0;
  in.frees_early = in.update_threads == 0;
  in.crowding_stage = draws.between(1, 1.3);
  in.crowding_update = draws.between(1, 1.3);
  if (draws.chance(0.3)) {
    in.bytes = {1e5};
    in.storage.latency_s = draws.scaled(1e-4, 1e-2);
    in.io_threads = in.workers > 0 && draws.chance(0.5) ? draws.integer(1, 8) : 0;
  }
  in.warm_up = 4;
  in.steps = 24;
  run.crossing = draws.chance(0.4);
  if (run.crossing) put_at_crossing(draws, in, demand);

  const predict::ReplayOutput replayed = replay(in);
  const BoundVerdict verdict = measured_verdict(draws, in, replayed);
  run.facts.run_bound = name_of(verdict.bound);
  run.facts.run_verdict = verdict.sentence;
  run.facts.images_per_s = replayed.images_per_s * draws.between(0.9, 1.1);
  run.facts.others = draws.chance(0.2) ? draws.uniform() : 0.02;
  run.facts.demand_error = draws.chance(0.2) ? 0 : draws.scaled(1e-3, 0.3);
  run.facts.changes = changes_of(draws, in, inline_s);
  return run;
}

predict::ReplayInput scaled(predict::ReplayInput in, double fit) {
  in.read_s *= fit;
  in.sample_s *= fit;
  in.batch_s *= fit;
  return in;
}

/// Returns the words before the first colon.
std::string begin_of(const std::string& sentence) { return sentence.substr(0, sentence.find(':')); }

void expect_one_bound(const GeneratedRun& run, const Conclusion& all) {
  EXPECT_EQ(begin_of(all.sentence), begin_of(all.run_verdict));
  const LowestCeiling lowest = lowest_ceiling(scaled(run.facts.input, all.demand_fit), all.demand);
  if (all.bound == "other programs") {
    EXPECT_TRUE(run.facts.others > predict::kMaxOthers || run.facts.run_bound == "other programs");
    EXPECT_EQ(begin_of(all.sentence), "other programs");
  } else if (all.bound.starts_with("between ")) {
    EXPECT_EQ(begin_of(all.sentence), all.bound);
    EXPECT_NE(all.bound.find(lowest.name), std::string::npos);
    EXPECT_TRUE(!lowest.near.empty() || run.facts.run_bound != lowest.name);
    EXPECT_EQ(all.bound.find(lowest.name + " and " + lowest.name), std::string::npos);
  } else {
    EXPECT_EQ(begin_of(all.sentence), all.bound + "-bound");
    EXPECT_EQ(all.bound, lowest.name);
    EXPECT_EQ(all.bound, run.facts.run_bound) << "the waits name the same";
    EXPECT_TRUE(lowest.near.empty()) << "a crossing is named";
  }
}

void expect_advice_is_a_row(const Conclusion& all, double baseline) {
  double most = 0;
  for (const Outcome& one : all.outcomes) {
    EXPECT_LE(one.low, one.predicted);
    EXPECT_GE(one.high, one.predicted);
    if (can_be_given(one.change)) most = std::max(most, one.lower());
  }
  const std::string text = advice_text(all, baseline);
  const bool conditional = all.bound == "other programs";
  const std::string begin = conditional ? "advice, without the other programs: " : "advice: ";
  const Outcome* advised = all.advised();
  if (advised == nullptr) {
    EXPECT_LT(most, predict::kWorthwhile);
    EXPECT_TRUE(text.starts_with(begin + "none: ")) << text;
    return;
  }
  EXPECT_TRUE(can_be_given(advised->change));
  EXPECT_GE(advised->lower(), predict::kWorthwhile);
  EXPECT_GE(1.01 * advised->lower(), most) << "equal within 1%: the first";
  std::size_t rows = 0;
  for (const auto& row : change_rows(all.outcomes, baseline, false)) {
    if (row[0] != advised->change.text()) continue;
    ++rows;
    EXPECT_EQ(text, begin + row[0] + " gives " + row[1] + " images/s, " + row[2] +
                        " times the baseline (" + row[3] + ")");
  }
  EXPECT_EQ(rows, 1u);
}

void expect_workers_are_a_row(const Conclusion& all, int configured, double baseline) {
  const WorkerRows rows = all.enough_workers(configured);
  EXPECT_GE(rows.ratio, 0.95 * rows.best_ratio);
  const std::string text = workers_text(all, configured, baseline);
  EXPECT_EQ(text.starts_with("enough workers, without the other programs: "),
            all.bound == "other programs");
  const std::string rate = " gives " + with_thousands(rows.ratio * baseline) + " of at most ";
  EXPECT_NE(text.find(fmt::format("loader.workers={}{}", rows.workers, rate)), std::string::npos);
  if (!rows.enough) {
    EXPECT_EQ(rows.workers, configured);
    EXPECT_EQ(rows.ratio, 1);
    return;
  }
  const Outcome& row = all.outcomes[*rows.enough];
  EXPECT_EQ(row.change.text(), fmt::format("loader.workers={}", rows.workers));
  EXPECT_EQ(row.predicted, rows.ratio);
  if (all.advised() == nullptr) {
    EXPECT_LT(rows.workers, configured) << "nothing would be gained";
  }
}

TEST(Conclusion, SaysOneThingAboutThousandsOfRuns) {
  constexpr int kRuns = test::generated_cases(3000);
  std::array<int, 4> seen{};  // one bound, between two, other programs, advice
  int crossings = 0;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    const GeneratedRun run = generate(seed);
    const Conclusion all = conclude(run.facts);
    const double baseline = run.facts.images_per_s;
    SCOPED_TRACE(fmt::format("run {}: {} | {} | {}", seed, all.sentence, all.run_verdict,
                             advice_text(all, baseline)));
    expect_one_bound(run, all);
    expect_advice_is_a_row(all, baseline);
    expect_workers_are_a_row(all, run.facts.input.workers, baseline);
    crossings += run.crossing;
    ++seen[all.bound == "other programs" ? 2 : all.bound.starts_with("between ") ? 1 : 0];
    seen[3] += all.advised() != nullptr;
    if (HasFailure()) return;
  }
  EXPECT_GT(crossings, kRuns / 3);
  for (const int count : seen) EXPECT_GT(count, kRuns / 30) << "every kind was generated";
}

/// ResNet-18 on two cores of the CPU, whose worker takes little of them.
ProfileFacts resnet() {
  ProfileFacts facts;
  facts.demand = {.read_s = 20e-6, .decode_s = 1.5e-3, .augment_s = 300e-6};
  predict::ReplayInput& in = facts.input;
  in.cores = 2;
  in.workers = 1;
  in.batch = 32;
  in.samples = 3200;
  in.read_s = facts.demand.read_s;
  in.sample_s = facts.demand.total() - facts.demand.read_s;
  in.update_s = 0.5;
  in.update_threads = 2;
  in.frees_early = false;
  in.warm_up = 4;
  in.steps = 24;
  facts.images_per_s = replay(in).images_per_s;
  facts.run_bound = "device";
  facts.run_verdict = "device-bound: load is under 0.1% of the step";
  return facts;
}

TEST(Conclusion, NamesBothWhereCeilingsAndWaitsDiffer) {
  ProfileFacts facts = resnet();
  EXPECT_EQ(lowest_ceiling(facts.input, facts.demand).name, "cores");
  const Conclusion all = conclude(facts);
  EXPECT_EQ(all.bound, "between cores and device");
  EXPECT_TRUE(all.sentence.starts_with("between cores and device: the cores allow 60 images/s"))
      << all.sentence;
  EXPECT_NE(all.sentence.find("the device allows 64 images/s"), std::string::npos);
  EXPECT_EQ(all.run_verdict, "between cores and device: load is under 0.1% of the step");
  facts.others = 0.6;  // a machine that is not quiet explains what does not fit
  facts.run_bound = "decode";
  facts.run_verdict = "decode-bound: 70% of load";
  const Conclusion busy = conclude(facts);
  EXPECT_EQ(busy.bound, "other programs");
  EXPECT_TRUE(busy.sentence.starts_with(
      "other programs: they took 60% of the machine beside the measured run; without them "
      "cores-bound: "))
      << busy.sentence;
  EXPECT_EQ(busy.run_verdict, "other programs: 70% of load");
}

TEST(Conclusion, ExplainsWhyTheLargestRowIsNoAdvice) {
  ProfileFacts facts = resnet();
  predict::ReplayInput with = facts.input;
  with.cores = 4;
  facts.changes = {{{.overrides = {"loader.prefetch=8"}}, facts.input},
                   {{.overrides = {}, .cores = 4, .assumed = {"cores=4"}}, with}};
  const Conclusion all = conclude(facts);
  EXPECT_EQ(all.advised(), nullptr);
  EXPECT_EQ(advice_text(all, 60),
            "advice: none: of the changes possible on this machine, loader.prefetch=8 gains most, "
            "1.000 times the baseline (0.971 to 1.030); cores=4 (1.058) needs another machine, or "
            "changes what is trained");
}

TEST(Conclusion, IntervalsFollowFromDemandsAndTheReplaysError) {
  ProfileFacts facts = resnet();
  facts.input.update_s = 16e-3;  // the worker makes 550 images/s, the device takes 2000
  facts.input.update_threads = 0;
  predict::ReplayInput with = facts.input;
  with.workers = 2;
  facts.images_per_s = replay(facts.input).images_per_s;
  facts.changes = {{{.overrides = {"loader.workers=2"}}, with}};
  Outcome one = conclude(facts).outcomes[0];
  EXPECT_NEAR(one.low, one.predicted / (1 + kModelError), 1e-5);
  EXPECT_NEAR(one.high, one.predicted * (1 + kModelError), 1e-5);
  facts.rate_error = 0.2;
  one = conclude(facts).outcomes[0];
  EXPECT_NEAR(one.low, one.predicted / (1 + std::hypot(kModelError, 0.2)), 1e-5)
      << "runs of the same recipe differ by as much";
  facts.rate_error = 0;
  const double replayed = facts.images_per_s;
  facts.images_per_s =
      0.3 * replayed;  // more than demands explain: the rest may be in predictions too
  one = conclude(facts).outcomes[0];
  EXPECT_LT(one.low, one.predicted / 1.5);
  EXPECT_GT(one.high, one.predicted * 1.5);
  facts.images_per_s = replayed;
  facts.input.update_s = with.update_s = 32 * 1.82e-3 / 1.9;  // two workers are barely enough
  facts.changes[0].input = with;
  facts.demand_error = 0.2;
  one = conclude(facts).outcomes[0];
  EXPECT_LT(one.low, one.predicted / (1 + kModelError) - 0.01) << "or not quite enough";
}

TEST(Conclusion, DemandsExplainTheMeasuredRate) {
  // Two workers decode 2,714 images/s by their probes, and the device takes 10,011. Measured were
  // 3,595, so eight workers are more than the device needs.
  ProfileFacts facts;
  facts.demand = {.read_s = 20e-6, .decode_s = 600e-6, .augment_s = 117e-6};
  predict::ReplayInput& in = facts.input;
  in.cores = 16;
  in.workers = 2;
  in.batch = 64;
  in.samples = 6400;
  in.read_s = facts.demand.read_s;
  in.sample_s = facts.demand.total() - facts.demand.read_s;
  in.update_s = 64 / 10'011.0;
  in.warm_up = 8;
  in.steps = 60;
  predict::ReplayInput with = in;
  with.workers = 8;
  facts.changes = {{{.overrides = {"loader.workers=8"}}, with}};
  facts.images_per_s = 3595;
  const Conclusion all = conclude(facts);
  EXPECT_NEAR(all.demand_fit, 2714.0 / 3595, 0.02);
  EXPECT_NEAR(all.demand.total(), all.demand_fit * facts.demand.total(), 1e-12);
  EXPECT_NEAR(all.replayed.images_per_s, 3595, 10);
  EXPECT_NEAR(all.outcomes[0].predicted * 3595, 10'011, 60);
  EXPECT_GT(all.outcomes[0].high * 3595, 13'000) << "by the probes' demands it would gain more";

  facts.others = 0.3;  // which a slow run is no evidence against
  EXPECT_EQ(conclude(facts).demand_fit, 1);
  facts.others = 0;
  facts.input.workers = 8;  // the device binds: its rate says nothing about the loader
  EXPECT_EQ(conclude(facts).demand_fit, 1);
}

}  // namespace
}  // namespace millrace::study
