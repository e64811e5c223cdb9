#include "measure/data_loader/steps.h"

#include <algorithm>
#include <utility>

namespace millrace::measure {
namespace {

constexpr std::size_t kChunk = 256;  // steps between two flushes
constexpr std::int64_t kChunkNs = 1'000'000'000;

}  // namespace

void Receipts::begin() {
  batch = kUnknown;
  begin_ = end_ = {};
}

void Receipts::reads() { reads_ = clock_->cpu(); }

void Receipts::received() { begin_ = clock_->read(); }

void Receipts::rebuilt(std::int64_t number) {
  batch = number;
  if (begin_.wall != 0) end_ = clock_->read();
}

void Receipts::tell(BatchWait& wait, Estimates& estimates) const {
  if (batch != wait.batch || begin_.wall == 0) return;  // received in an earlier call
  const Usage usage = estimates.rebuilding.measured(begin_, end_);
  wait.received = begin_.wall;
  wait.rebuilt = end_.wall;
  wait.rebuild_cpu = usage.cpu;
  wait.rebuild_delay = usage.delay;
  wait.read_cpu = begin_.cpu - reads_;
  estimates.since_received.learn(wait.got - wait.asked, wait.got - wait.received);
  estimates.rebuild.learn(wait.got - wait.received, wait.rebuilt - wait.received);
  estimates.read_cpu = wait.read_cpu;
}

void Receipts::estimate(BatchWait& wait, const Estimates& estimates) {
  const std::int64_t whole = wait.got - wait.asked, since = estimates.since_received.of(whole);
  if (since == kUnknown || since >= whole) return;  // the call was too short to receive it
  wait.received = wait.got - since;
  wait.rebuilt = wait.received + estimates.rebuild.of(since);
  const Usage usage = estimates.rebuilding.estimated(wait.rebuilt - wait.received);
  wait.rebuild_cpu = usage.cpu;
  wait.rebuild_delay = usage.delay;
  wait.read_cpu = estimates.read_cpu;
}

void LoopSteps::set_probe(std::shared_ptr<FetchProbe> probe) {
  probe_ = std::move(probe);
  if (probe_ == nullptr) return;
  if (known_probe_ != nullptr) probe_->learn_from(*known_probe_);
  known_probe_ = probe_;
}

Depth LoopSteps::next_begins(std::int64_t now, Receipts* receipts) {
  in_detail_ = sampler_.due(now) || !in_order || (probe_ != nullptr && probe_->times_next());
  if (receipts != nullptr) receipts->begin();
  asked_ = now;
  waiting->begin(now, table_->steps);
  timeline_->next_begins(table_, now);
  const LoopSpans& row = table_->row.ns;
  if (row[kEvaluate] + row[kBetween] + row[kSetup] > 0) others.drop();  // not the body alone
  others.next_begins(now);
  return in_detail_ ? Depth::detail : Depth::outline;
}

void LoopSteps::next_ended(std::int64_t now, std::int64_t batch, std::int64_t images,
                           const Receipts* receipts) {
  waiting->end();
  timeline_->next_ended(*table_, now, images);
  others.next_ended(now);
  Entry& entry = waits_.emplace_back();
  entry.wait.generation = generation;
  entry.wait.batch = batch;
  entry.wait.asked = asked_;
  entry.wait.got = now;
  entry.images = images;
  if (probe_ != nullptr && in_detail_) {
    probe_->learn(asked_, now);
    if (probe_->latest() == nullptr) return;
    entry.made = made_.size();
    Made& made = made_.emplace_back(Made{*probe_->latest(), {}});
    if (made.record.transform != kUnknown) made.parts = probe_->parts();
  } else if (probe_ != nullptr) {
    probe_->skip();
    entry.estimates = true;
  } else if (receipts != nullptr && receipts->pinned) {
    entry.wait.received = kUnknown;
  } else if (receipts != nullptr && in_detail_) {
    receipts->tell(entry.wait, receipt_estimates_);
  } else {
    entry.estimates = receipts != nullptr;
  }
}

/// Estimates how the batches of steps in outline came about.
void LoopSteps::estimate() {
  for (; estimated_ < waits_.size(); ++estimated_) {
    Entry& entry = waits_[estimated_];
    if (!entry.estimates) continue;
    if (probe_ == nullptr) {
      Receipts::estimate(entry.wait, receipt_estimates_);
    } else if (const auto record =
                   probe_->estimated(entry.wait.asked, entry.wait.got, entry.images)) {
      entry.made = made_.size();
      made_.emplace_back(Made{*record, {}});
    }
  }
}

void LoopSteps::go_on(std::shared_ptr<LoopTimeline> timeline, std::int64_t now) {
  timeline_->forget(*table_, now);
  timeline_ = std::move(timeline);
  timeline_->take(table_, now);
  others.follow({});
}

Due LoopSteps::due(std::int64_t now) const {
  if (first || waits_.size() >= kChunk || now - flushed_ > kChunkNs) return Due::flush;
  return measures ? Due::nothing : Due::measure;
}

/// Reads the batch that a batch's worker made next. Returns false if it is not there yet.
bool LoopSteps::read_next(const WorkerRecord& record, WorkerRecord& next) {
  constexpr std::int64_t kMaxWorkers = 64;  // beyond it, no worker is looked for
  for (std::int64_t ahead = 1; ahead <= kMaxWorkers; ++ahead)
    if (records->read(record.generation, record.batch + ahead, next, next_parts_) &&
        next.worker == record.worker)
      return true;
  return false;
}

std::string LoopSteps::flush() {
  estimate();
  WorkerRecord read, next;
  Parts parts;
  for (const Entry& entry : waits_) {
    const BatchWait& wait = entry.wait;
    const Made* const made = entry.made != kNotMade ? &made_[entry.made] : nullptr;
    const WorkerRecord* record = made != nullptr ? &made->record : nullptr;
    const Parts* of = made != nullptr ? &made->parts : &parts;
    if (record == nullptr && records != nullptr && wait.batch != kUnknown) {
      if (records->read(wait.generation, wait.batch, read, parts)) {
        record = &read;
      } else if (records->holds_later(wait.generation, wait.batch)) {
        ++breakdown_->overruns;
      }
    }
    const bool is_behind = record == &read && read_next(read, next);
    breakdown_->add(wait, record, *of, started, in_order, is_behind ? &next : nullptr);
    if (first) {
      first = false;
      breakdown_->end_first_wait();
    }
  }
  waits_.clear();
  made_.clear();
  estimated_ = 0;
  others.drop();
  flushed_ = wall_ns();
  return table_->take_rows();
}

Usage LoopSteps::used_in_next(std::int64_t since) {
  estimate();
  const auto known = [](std::int64_t ns) { return std::max<std::int64_t>(0, ns); };
  Usage used{0, 0};
  for (auto at = static_cast<std::size_t>(since); at < waits_.size(); ++at) {
    const Entry& entry = waits_[at];
    if (entry.made == kNotMade) {
      used.cpu += known(entry.wait.rebuild_cpu) + entry.wait.read_cpu;
      used.delay += known(entry.wait.rebuild_delay);
      continue;
    }
    const WorkerRecord& record = made_[entry.made].record;
    if (record.collate != kUnknown) {
      used.cpu += record.dataset_cpu + record.collate_cpu;
      used.delay += known(record.dataset_delay) + known(record.collate_delay);
    }
  }
  return used;
}

}  // namespace millrace::measure
