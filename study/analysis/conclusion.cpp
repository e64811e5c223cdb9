// Compares ceilings with a run's waits, and replays changes with their intervals.

#include "study/analysis/conclusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "predict/ratio_interval.h"
#include "predict/rules.h"

namespace millrace::study {
namespace {

constexpr double kMaxFit = 2;  ///< by which factor demands are scaled at most, either way

predict::ReplayInput with_demand(predict::ReplayInput in, double factor) {
  in.sample_s *= factor;
  in.read_s *= factor;
  in.batch_s *= factor;
  return in;
}

/// Returns by what all demands of loading have to be scaled for the replay to give the measured
/// rate. Returns 1 where the rate says nothing about them: if other programs took part of the
/// machine, or if it changes by less than half of what the demands do.
double demand_fit(const ProfileFacts& facts) {
  if (!(facts.images_per_s > 0) || facts.others > predict::kMaxOthers) return 1;
  const auto rate = [&](double factor) {
    return replay(with_demand(facts.input, factor)).images_per_s;
  };
  constexpr double kStep = 1.1;
  if (!(rate(1 / kStep) >= kStep * rate(kStep))) return 1;
  double low = 1 / kMaxFit;
  double high = kMaxFit;
  for (int i = 0; i < 20; ++i) {
    const double middle = std::sqrt(low * high);
    (rate(middle) > facts.images_per_s ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

/// Returns the facts with demands of loading that explain the measured rate.
ProfileFacts fitted(ProfileFacts facts, double fit) {
  facts.input = with_demand(std::move(facts.input), fit);
  for (double* const stage : {&facts.demand.read_s, &facts.demand.decode_s, &facts.demand.augment_s,
                              &facts.demand.machinery_s})
    *stage *= fit;
  for (ProfileFacts::Tried& one : facts.changes) one.input = with_demand(std::move(one.input), fit);
  return facts;
}

/// `probed` scales the facts' demands back to what the probes had measured.
std::vector<Outcome> outcomes_of(const ProfileFacts& facts, double probed,
                                 const predict::ReplayOutput& replayed) {
  const double factors[] = {std::min(1.0, probed) / (1 + facts.demand_error),
                            std::max(1.0, probed) * (1 + facts.demand_error)};
  double bases[2] = {};
  for (std::size_t i = 0; i < 2; ++i)
    bases[i] = replay(with_demand(facts.input, factors[i])).images_per_s;
  const double unexplained = predict::unexplained(std::hypot(kModelError, facts.rate_error),
                                                  replayed.images_per_s, facts.images_per_s);
  std::vector<Outcome> all;
  for (const ProfileFacts::Tried& one : facts.changes) {
    const double ratio = replay(one.input).images_per_s / replayed.images_per_s;
    predict::RatioInterval interval(ratio);
    for (std::size_t i = 0; i < 2; ++i)
      interval.include(replay(with_demand(one.input, factors[i])).images_per_s / bases[i]);
    interval = interval.widened(unexplained);
    all.push_back({one.change, ratio, std::nullopt, interval.low(), interval.high()});
  }
  return all;
}

/// Returns "the device allows 1562 images/s".
std::string allowance(const Ceiling& ceiling) {
  const std::string rate = fmt::format("{:.0f} images/s", ceiling.images_per_s);
  if (ceiling.name == "device") return "the device allows " + rate;
  if (ceiling.name == "storage") return "storage allows " + rate;
  if (ceiling.name == "cores") return "the cores allow " + rate + " for loader and device together";
  return "the loader allows " + rate;
}

/// Returns the ceiling under a resource's name; a stage's is the loader's.
const Ceiling* ceiling_of(const std::vector<Ceiling>& all, const std::string& resource) {
  const bool known = resource == "device" || resource == "storage" || resource == "cores";
  for (const Ceiling& one : all)
    if (one.name == (known ? resource : "loader")) return &one;
  return nullptr;
}

/// Returns a sentence without its first words: what follows "decode-bound: ".
std::string without_bound(const std::string& sentence) {
  const std::size_t colon = sentence.find(": ");
  return colon == std::string::npos ? sentence : sentence.substr(colon + 2);
}

void name_others(const ProfileFacts& facts, const LowestCeiling& lowest, Conclusion& all) {
  all.bound = name_of(Bottleneck::others);
  all.sentence = all.bound + ": ";
  if (facts.others > 0)
    all.sentence += fmt::format("they took {:.0f}% of the machine beside the measured run; ",
                                100 * facts.others);
  all.sentence += "without them " + lowest.sentence;
}

void name_two(const ProfileFacts& facts, const LowestCeiling& lowest, const std::string& other,
              Conclusion& all) {
  const Ceiling* first = ceiling_of(all.ceilings, lowest.name);
  const Ceiling* second = ceiling_of(all.ceilings, other);
  all.bound = fmt::format("between {} and {}", lowest.name, other);
  all.sentence = all.bound + ": " + allowance({lowest.name, lowest.images_per_s});
  const bool near = std::any_of(lowest.near.begin(), lowest.near.end(),
                                [&](const Ceiling& one) { return one.name == other; });
  if (second != nullptr && second != first && other != "overhead")
    all.sentence += ", " + allowance({other, second->images_per_s});
  else if (near)
    all.sentence += fmt::format(", and a sample's {} costs as much as its {}", other, lowest.name);
  if (!facts.run_bound.empty() && facts.run_bound != lowest.name)
    all.sentence += fmt::format("; by its waits the run is {}-bound", facts.run_bound);
}

void name_bound(const ProfileFacts& facts, Conclusion& all) {
  const LowestCeiling lowest = lowest_ceiling(facts.input, facts.demand);
  const std::string run =
      facts.run_bound == name_of(Bottleneck::too_short) ? std::string() : facts.run_bound;
  const bool near = std::any_of(lowest.near.begin(), lowest.near.end(),
                                [&](const Ceiling& one) { return one.name == run; });
  const bool fits = run.empty() || run == lowest.name || near;
  if (run == name_of(Bottleneck::others) || (!fits && facts.others > predict::kMaxOthers)) {
    name_others(facts, lowest, all);
  } else if (!fits || near) {
    name_two(facts, lowest, run, all);
  } else if (!lowest.near.empty()) {
    name_two(facts, lowest, lowest.near.front().name, all);
  } else {
    all.bound = lowest.name;
    all.sentence = lowest.sentence;
  }
  if (facts.run_verdict.empty()) return;
  const std::string begin = all.sentence.substr(0, all.sentence.find(": "));
  all.run_verdict = begin + ": " + without_bound(facts.run_verdict);
}

/// Returns the number of workers if the change affects nothing else.
std::optional<int> only_workers(const Change& change) {
  constexpr std::string_view kKey = "loader.workers=";
  if (!change.assumed.empty() || change.cores > 0 || change.overrides.size() != 1 ||
      !change.overrides[0].starts_with(kKey))
    return std::nullopt;
  const std::string& word = change.overrides[0];
  int workers = 0;
  const auto [end, error] =
      std::from_chars(word.data() + kKey.size(), word.data() + word.size(), workers);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return workers;
}

}  // namespace

WorkerRows Conclusion::enough_workers(int configured) const {
  WorkerRows rows{.enough = {}, .workers = configured};
  const auto rate = [](const Outcome& one) { return one.measured.value_or(one.predicted); };
  const auto workers_of = [&](const Outcome& one) -> std::optional<int> {
    const auto workers = only_workers(one.change);
    return workers && (*workers < configured || one.lower() >= predict::kWorthwhile) ? workers
                                                                                     : std::nullopt;
  };
  for (const Outcome& one : outcomes)
    if (workers_of(one)) rows.best_ratio = std::max(rows.best_ratio, rate(one));
  bool found = rows.ratio >= predict::kEnough * rows.best_ratio;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const auto workers = workers_of(outcomes[i]);
    if (!workers || rate(outcomes[i]) < predict::kEnough * rows.best_ratio) continue;
    if (found && *workers >= rows.workers) continue;
    rows.enough = i;
    rows.workers = *workers;
    rows.ratio = rate(outcomes[i]);
    found = true;
  }
  return rows;
}

Conclusion conclude(const ProfileFacts& measured) {
  Conclusion all;
  all.demand_fit = demand_fit(measured);
  const ProfileFacts facts = fitted(measured, all.demand_fit);
  all.demand = facts.demand;
  all.replayed = replay(facts.input);
  all.ceilings = ceilings(facts.input, facts.demand);
  all.outcomes = outcomes_of(facts, 1 / all.demand_fit, all.replayed);
  name_bound(facts, all);
  return all;
}

}  // namespace millrace::study
