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
  received_ = rebuilt_ = 0;
}

void Receipts::reads() {
  measures_ = sampler_.due(wall_ns());
  if (measures_) reads_ = clock_->cpu();
}

void Receipts::received() {
  if (!measures_) {
    received_ = wall_ns();
    return;
  }
  begin_ = clock_->read();
  received_ = begin_.wall;
  read_cpu_ = begin_.cpu - reads_;
}

void Receipts::rebuilt(std::int64_t number) {
  batch = number;
  if (received_ == 0) return;
  if (!measures_) {
    rebuilt_ = wall_ns();
    usage_ = rebuilding_.estimated(rebuilt_ - received_);
    return;
  }
  const Reading end = clock_->read();
  rebuilt_ = end.wall;
  usage_ = rebuilding_.measured(begin_, end);
}

void Receipts::tell(BatchWait& wait) const {
  if (pinned) {
    wait.received = kUnknown;
    return;
  }
  if (batch != wait.batch) return;
  wait.received = received_;
  wait.rebuilt = rebuilt_;
  wait.rebuild_cpu = usage_.cpu;
  wait.rebuild_delay = usage_.delay;
  wait.read_cpu = read_cpu_;
}

void LoopSteps::next_begins(std::int64_t now, Receipts* receipts) {
  if (receipts != nullptr) receipts->begin();
  asked_ = now;
  waiting->begin(now, table_->steps);
  timeline_->next_begins(table_, now);
  const LoopSpans& row = table_->row.ns;
  if (row[kEvaluate] + row[kBetween] + row[kSetup] > 0) others.drop();  // not the body alone
  others.next_begins(now);
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
  if (receipts != nullptr) receipts->tell(entry.wait);
  if (probe == nullptr || probe->latest() == nullptr) return;
  entry.inlined = true;
  entry.record = *probe->latest();
  if (entry.record.transform != kUnknown) entry.parts = probe->parts();
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
  WorkerRecord read, next;
  Parts parts;
  for (const Entry& entry : waits_) {
    const BatchWait& wait = entry.wait;
    const WorkerRecord* record = entry.inlined ? &entry.record : nullptr;
    const Parts* of = &entry.parts;
    if (record == nullptr && records != nullptr && wait.batch != kUnknown) {
      if (records->read(wait.generation, wait.batch, read, parts)) {
        record = &read;
        of = &parts;
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
  others.drop();
  flushed_ = wall_ns();
  return table_->take_rows();
}

Usage LoopSteps::used_in_next(std::int64_t since) const {
  const auto known = [](std::int64_t ns) { return std::max<std::int64_t>(0, ns); };
  Usage used{0, 0};
  for (auto at = static_cast<std::size_t>(since); at < waits_.size(); ++at) {
    const Entry& entry = waits_[at];
    const WorkerRecord& record = entry.record;
    if (!entry.inlined) {
      used.cpu += known(entry.wait.rebuild_cpu) + entry.wait.read_cpu;
      used.delay += known(entry.wait.rebuild_delay);
    } else if (record.collate != kUnknown) {
      used.cpu += record.dataset_cpu + record.collate_cpu;
      used.delay += known(record.dataset_delay) + known(record.collate_delay);
    }
  }
  return used;
}

}  // namespace millrace::measure
