#include "python/ext/watch/steps.h"

#include <algorithm>

namespace millrace::watch {
namespace {

constexpr std::size_t kChunk = 256;  // steps between two flushes
constexpr std::int64_t kChunkNs = 1'000'000'000;
constexpr std::int64_t kReadingNs = 4000;  // cost of the readings of one receipt
constexpr std::int64_t kCost = 1000;       // one part in this many of the time may be spent on them

}  // namespace

void Receipts::begin() {
  batch = kUnknown;
  received_ = rebuilt_ = 0;
}

void Receipts::reads() {
  measures_ = wall_ns() - measured_at_ >= kCost * kReadingNs;
  if (measures_) read_cpu_ = clock_->cpu();
}

void Receipts::received() {
  if (!measures_) {
    received_ = wall_ns();
    return;
  }
  begin_ = clock_->read();
  received_ = begin_.wall;
  read_cpu_ = begin_.cpu - read_cpu_;
}

void Receipts::rebuilt(std::int64_t number) {
  batch = number;
  if (received_ == 0) return;
  if (!measures_) {
    rebuilt_ = wall_ns();
    const auto wall = static_cast<double>(rebuilt_ - received_);
    cpu_ = static_cast<std::int64_t>(of_cpu_ * wall);
    delay_ = any_delay_ ? static_cast<std::int64_t>(of_delay_ * wall) : kUnknown;
    return;
  }
  const Reading end = clock_->read();
  rebuilt_ = measured_at_ = end.wall;
  cpu_ = end.cpu - begin_.cpu;
  any_delay_ = begin_.delay != kUnknown && end.delay != kUnknown;
  delay_ = any_delay_ ? end.delay - begin_.delay : kUnknown;
  const auto wall = static_cast<double>(std::max<std::int64_t>(1, end.wall - begin_.wall));
  of_cpu_ = static_cast<double>(cpu_) / wall;
  of_delay_ = any_delay_ ? static_cast<double>(delay_) / wall : 0;
}

void Receipts::tell(Wait& wait) const {
  if (pinned) {
    wait.received = kUnknown;
    return;
  }
  if (batch != wait.batch) return;
  wait.received = received_;
  wait.rebuilt = rebuilt_;
  wait.rebuild_cpu = cpu_;
  wait.rebuild_delay = delay_;
  wait.read_cpu = read_cpu_;
}

void Steps::next_begins(std::int64_t now, Receipts* receipts) {
  if (receipts != nullptr) receipts->begin();
  asked_ = now;
  timeline_->next_begins(table_, now);
}

void Steps::next_ended(std::int64_t now, std::int64_t batch, std::int64_t images,
                       const Receipts* receipts) {
  timeline_->next_ended(*table_, now, images);
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

Due Steps::due(std::int64_t now) const {
  if (first || waits_.size() >= kChunk || now - flushed_ > kChunkNs) return Due::flush;
  return measures ? Due::nothing : Due::measure;
}

/// Reads the batch that a batch's worker made next. Returns false if it is not there yet.
bool Steps::read_next(const Record& record, Record& next) {
  constexpr std::int64_t kMostWorkers = 64;  // beyond it, nobody is found
  for (std::int64_t ahead = 1; ahead <= kMostWorkers; ++ahead)
    if (records->read(record.generation, record.batch + ahead, next, next_parts_) &&
        next.worker == record.worker)
      return true;
  return false;
}

std::string Steps::flush() {
  Record read, next;
  Parts parts;
  for (const Entry& entry : waits_) {
    const Wait& wait = entry.wait;
    const Record* record = entry.inlined ? &entry.record : nullptr;
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
  flushed_ = wall_ns();
  return table_->take_rows();
}

Steps::Usage Steps::used_in_next(std::int64_t since) const {
  Usage used{0, 0};
  for (auto at = static_cast<std::size_t>(since); at < waits_.size(); ++at) {
    const Entry& entry = waits_[at];
    const Record& record = entry.record;
    if (!entry.inlined) {
      used.first += entry.wait.rebuild_cpu + entry.wait.read_cpu;
      used.second += std::max<std::int64_t>(0, entry.wait.rebuild_delay);
    } else if (record.collate != kUnknown) {
      used.first += record.dataset_cpu + record.collate_cpu;
      used.second += std::max<std::int64_t>(0, record.dataset_delay) +
                     std::max<std::int64_t>(0, record.collate_delay);
    }
  }
  return used;
}

}  // namespace millrace::watch
