// Walks back along a batch's history from the moment the trainer got it.
#include "measure/wait_breakdown.h"

#include <algorithm>
#include <numeric>

namespace millrace::measure {
namespace {

using Ticks = base::Clock::Ticks;

/// One wait, walked from its end to its beginning.
class Walk {
 public:
  explicit Walk(const BatchHistory& batch)
      : idle_(batch.made_inline || batch.units.empty() ? Part::handover
              : batch.first                            ? Part::startup
              : batch.index == 0                       ? Part::epoch_boundary
                                                       : Part::queue),
        begin_(batch.asked),
        now_(batch.got) {}

  bool over() const { return now_ <= begin_; }
  Ticks now() const { return now_; }
  const PartTicks& parts() const { return parts_; }

  /// Moves back to `to` and charges the stretch to `part`.
  void back(Ticks to, Part part) { parts_[static_cast<std::size_t>(part)] += step(to); }
  /// Nobody worked on the samples. Just before a worker took the next unit it may have lacked a
  /// core.
  void idle(Ticks to) {
    const Ticks cores = std::min(core_wait_, now_ - std::clamp(to, begin_, std::max(begin_, now_)));
    core_wait_ -= std::max<Ticks>(0, cores);
    back(to, Part::cores, cores, idle_);
  }
  /// Charges the stretch to I/O threads that were reading the samples.
  void fetch(const RangeHistory& unit, Ticks to) {
    core_wait_ = 0;
    const double off = std::clamp(1.0 - unit.fetch_on_core, 0.0, 1.0);
    back(to, Part::cores,
         static_cast<Ticks>(off *
                            static_cast<double>(std::max<Ticks>(0, now_ - std::max(to, begin_)))),
         Part::storage);
  }
  /// Moves back to `to`: charges at most `most` to `part` and the rest to `rest`.
  void back(Ticks to, Part part, Ticks most, Part rest) {
    const Ticks length = step(to);
    const Ticks share = std::clamp<Ticks>(most, 0, length);
    parts_[static_cast<std::size_t>(part)] += share;
    parts_[static_cast<std::size_t>(rest)] += length - share;
  }
  /// Moves back through a unit's work to `to`. Its samples took turns, so any stretch has the
  /// unit's own mixture of stages.
  void work(const RangeHistory& unit, Ticks to) {
    const Ticks length = step(to);
    const auto stage = [&](Stage one) {
      return static_cast<double>(unit.stages[static_cast<std::size_t>(one)]);
    };
    const double reading = stage(Stage::read);
    const double decoding = stage(Stage::decode);
    const double augmenting = stage(Stage::augment);
    const double all = std::max(1.0, reading + decoding + augmenting);
    // A missing core stalls every stage alike; missing pages stall only the stages that touch them.
    const double cores = std::min(static_cast<double>(unit.core_wait), all);
    const double on_core = 1 - cores / all;
    const double pixels = (decoding + augmenting) * on_core;
    const double faults = std::min(static_cast<double>(unit.fault_wait), pixels);
    const double looking = pixels > 0 ? 1 - faults / pixels : 0;
    const double scale = static_cast<double>(length) / all;
    Ticks left = length;
    const auto give = [&](Part part, double ticks) {
      const Ticks share = std::min(left, static_cast<Ticks>(ticks * scale));
      parts_[static_cast<std::size_t>(part)] += share;
      left -= share;
    };
    give(Part::cores, cores);
    give(Part::storage, reading * on_core + faults);
    give(Part::decode, decoding * on_core * looking);
    parts_[static_cast<std::size_t>(Part::augment)] += left;
    core_wait_ = unit.begin_wait;
  }

 private:
  Ticks step(Ticks to) {
    const Ticks next = std::clamp(to, begin_, std::max(begin_, now_));
    const Ticks length = std::max<Ticks>(0, now_ - next);
    now_ = next;
    return length;
  }

  const Part idle_;
  const Ticks begin_;
  Ticks now_;
  Ticks core_wait_ = 0;  ///< core wait of the unit just left that is still to be charged
  PartTicks parts_{};
};

PartSeconds to_seconds(const PartTicks& ticks) {
  PartSeconds seconds{};
  for (std::size_t i = 0; i < kPartCount; ++i) seconds[i] = base::Clock::seconds(ticks[i]);
  return seconds;
}

}  // namespace

PartTicks WaitSplitter::split(const BatchHistory& batch) {
  Walk walk(batch);
  walk.back(batch.ready, Part::cores, batch.core_wait, Part::handover);
  if (walk.over() || batch.units.empty()) {
    walk.idle(batch.asked);
    return walk.parts();
  }
  const RangeHistory* last = &batch.units[0];
  Ticks first_fetch = last->fetch_begin;
  for (const RangeHistory& unit : batch.units) {
    if (unit.end > last->end) last = &unit;
    first_fetch = std::min(first_fetch, unit.fetch_begin);
  }
  walk.back(last->end, Part::augment);  // batch-wide ops
  walk.work(*last, last->begin);

  // The unit waited for a worker. Find which of its batch's other units had one, from late to
  // early.
  const Ticks there = last->fetch_end != 0 ? last->fetch_end : batch.opened;
  if (walk.now() > there && !walk.over()) {
    by_end_.clear();
    for (const RangeHistory& unit : batch.units)
      if (&unit != last && unit.end > there) by_end_.emplace_back(unit.end, &unit);
    std::sort(by_end_.begin(), by_end_.end());
    // Any unit at work at that moment will do: the walk continues from its beginning.
    for (auto one = by_end_.rbegin(); one != by_end_.rend() && walk.now() > there; ++one) {
      const RangeHistory& unit = *one->second;
      if (unit.begin >= walk.now()) continue;
      walk.idle(std::max(unit.end, there));
      walk.work(unit, std::max(unit.begin, there));
    }
    walk.idle(there);
  }
  if (last->fetch_end != 0) {
    walk.fetch(*last, last->fetch_begin);
    walk.fetch(*last, std::max(first_fetch, batch.opened));  // reads follow the batch's order
  }
  walk.idle(batch.asked);
  return walk.parts();
}

void WaitBreakdown::add(const BatchHistory& batch, Ticks load) {
  PartTicks parts = splitter_.split(batch);
  parts[static_cast<std::size_t>(Part::handover)] +=
      load - std::accumulate(parts.begin(), parts.end(), Ticks{0});
  for (std::size_t i = 0; i < kPartCount; ++i) {
    ticks_[i] += parts[i];
    if (batch.first) first_[i] += parts[i];
    if (parts[i] != 0) step_[i].add(base::Clock::seconds(parts[i]));
  }
  load_.add(base::Clock::seconds(load));
  ++steps_;
}

double WaitBreakdown::quantile(Part part, double q) const {
  const Quantiles& all = step_[static_cast<std::size_t>(part)];
  return all.at(q, steps_ - all.count());
}

void WaitBreakdown::complete(Ticks load) {
  ticks_[static_cast<std::size_t>(Part::handover)] +=
      load - std::accumulate(ticks_.begin(), ticks_.end(), Ticks{0});
}

PartSeconds WaitBreakdown::seconds() const { return to_seconds(ticks_); }

PartSeconds WaitBreakdown::steady_seconds() const {
  PartTicks steady = ticks_;
  for (std::size_t i = 0; i < kPartCount; ++i) steady[i] -= first_[i];
  return to_seconds(steady);
}

PartSeconds seconds_since(const WaitBreakdown& blame, const PartTicks& before) {
  PartTicks ticks = blame.ticks();
  for (std::size_t i = 0; i < kPartCount; ++i) ticks[i] -= before[i];
  return to_seconds(ticks);
}

}  // namespace millrace::measure
