#include "measure/data_loader/breakdown.h"

#include <algorithm>
#include <iterator>

namespace millrace::measure {
namespace {

constexpr std::size_t kDemands = 256;
constexpr std::size_t kKept = 64;  // records per worker; no wait reaches back over more

double sum(const Kinds& kinds) { return kinds[0] + kinds[1] + kinds[2] + kinds[3]; }

void add_to(Kinds& row, const Kinds& one) {
  for (std::size_t i = 0; i < row.size(); ++i) row[i] += one[i];
}

template <class T>
void keep(std::deque<T>& latest, const T& one, std::size_t most) {
  latest.push_back(one);
  if (latest.size() > most) latest.pop_front();
}

Kinds unknown_of(const WorkerRecord& record) {
  return {0, 0, 0, static_cast<double>(record.end - record.begin)};
}

Kinds collate_of(const WorkerRecord& record) {
  return kinds_of(record.end - record.collate, record.collate_cpu, record.collate_delay);
}

Kinds sending_of(const WorkerRecord& record) {
  return kinds_of(record.send_end - record.send_begin, record.send_cpu, record.send_delay);
}

/// Returns what sending a batch took. Waiting until the trainer's process has read others is no
/// part of it.
Shares send_work(const WorkerRecord& record) {
  const Kinds all = sending_of(record);
  const auto most = static_cast<double>(record.send_waited);
  const double blocked = std::min(all[1], most);
  const double unknown = std::min(all[3], most);
  Shares shares;
  shares.add(kTransfer, {all[0], all[1] - blocked, all[2], all[3] - unknown});
  shares.add(kHandover, {0, blocked, 0, unknown});
  return shares;
}

/// Returns the first of the latest records whose `field` lies after a moment. Each thread's times
/// ascend.
auto first_after(const std::deque<WorkerRecord>& records, std::int64_t since,
                 std::int64_t WorkerRecord::*field) {
  auto at = records.end();
  while (at != records.begin() && (*std::prev(at)).*field > since) --at;
  return at;
}

}  // namespace

void DataLoaderBreakdown::add_wait(Place place, double ns) {
  steady[place] += ns;
  waits[place][3] += ns;
}

void DataLoaderBreakdown::add_wait(Place place, double ns, const Kinds& of) {
  const double whole = sum(of);
  if (whole <= 0) {
    add_wait(place, ns);
    return;
  }
  steady[place] += ns;
  const double scale = ns / whole;
  for (std::size_t i = 0; i < of.size(); ++i) waits[place][i] += scale * of[i];
}

void DataLoaderBreakdown::set_transforms(std::size_t count) {
  rows.assign(count, {});
  sampled_batches = sampled_samples = 0;
}

void DataLoaderBreakdown::add(const BatchWait& wait, const WorkerRecord* record, const Parts& parts,
                              std::int64_t started, bool in_order, const WorkerRecord* next) {
  ++batches;
  if (record == nullptr) {
    ++missing;
    add_wait(kNowhere, static_cast<double>(wait.got - wait.asked));
    return;
  }
  if (wait.generation != generation_) {
    generation_ = wait.generation;
    if (started != 0)
      for (auto& [_, worker] : workers_) {
        worker.fetched.clear();
        worker.fed.clear();
      }
  }
  const Shares shares = remember(*record, parts, started);
  std::int64_t at = wait.asked;
  if (started == 0 && at <= record->begin) {  // the wait holds the whole batch
    for (const Share& share : shares) {
      add_to(waits[share.place], share.ns);
      steady[share.place] += sum(share.ns);
    }
    const auto own = static_cast<double>(wait.got - at - (record->end - record->begin));
    add_wait(kHandover, own);
    handed += own;
    ++hands;
    return;
  }
  const Worker& worker = workers_[record->worker];
  if (record->end > at) {
    fetch_stretches(worker, at);
    at = walk(stretches_, at, std::min(record->end, wait.got), in_order ? kHandover : kNowhere);
  }
  if (started == 0) {
    add_wait(kHandover, static_cast<double>(wait.got - at));
    return;
  }
  const std::int64_t arrived =
      0 < wait.received && wait.received < wait.got ? wait.received : wait.got;
  main_stretches(worker, *record, next, at);
  if (!record->sent()) {
    add_if(kTransfer, arrived - at);
  } else {
    if (record->send_end > at) {
      feed_stretches(worker, at);
      at = walk(stretches_, at, std::min(record->send_end, arrived), kHandover);
    }
    // The thread that pins memory also rebuilds the batch.
    add_if(wait.received == kUnknown ? kTransfer : kHandover, arrived - at);
  }
  at = std::max(at, arrived);
  if (wait.received > 0 && wait.rebuilt > at) {
    const Kinds rebuild =
        kinds_of(wait.rebuilt - wait.received, wait.rebuild_cpu, wait.rebuild_delay);
    stretches_.assign(1, {wait.received, wait.rebuilt, {}});
    stretches_[0].shares = transfer_shares(stretches_[0], rebuild, kTransfer);
    walk(stretches_, at, wait.rebuilt, kTransfer);
    add_to(rebuilt, rebuild);
    rebuilt[0] += static_cast<double>(wait.read_cpu);
    handed += static_cast<double>(wait.got - wait.rebuilt);
    ++rebuilds;
    ++hands;
    at = wait.rebuilt;
  }
  add_if(kHandover, wait.got - at);
}

/// Splits [begin, end) along a thread's stretches; the time between them counts for `gap`. Returns
/// its end.
std::int64_t DataLoaderBreakdown::walk(const std::vector<Stretch>& stretches, std::int64_t begin,
                                       std::int64_t end, Place gap) {
  std::int64_t at = begin;
  for (const Stretch& one : stretches) {
    if (one.end <= at) continue;
    if (one.begin >= end) break;
    if (one.begin > at) {
      add_wait(gap, static_cast<double>(one.begin - at));
      at = one.begin;
    }
    const std::int64_t until = std::min(one.end, end);
    const auto ns = static_cast<double>(until - at);
    double whole = 0;
    for (const Share& share : one.shares) whole += sum(share.ns);
    for (const Share& share : one.shares)
      add_wait(share.place,
               whole > 0 ? ns * sum(share.ns) / whole : ns / static_cast<double>(one.shares.count),
               share.ns);
    at = until;
  }
  add_if(gap, end - at);
  return std::max(at, end);
}

/// Lists what a worker's main thread did after a moment.
void DataLoaderBreakdown::fetch_stretches(const Worker& worker, std::int64_t since) {
  stretches_.clear();
  if (worker.start.end > since) stretches_.push_back(worker.start);
  for (auto at = first_after(worker.fetched, since, &WorkerRecord::end); at != worker.fetched.end();
       ++at) {
    Shares shares;
    if (at->collate == kUnknown) {
      shares.add(kNowhere, unknown_of(*at));
      stretches_.push_back({at->begin, at->end, shares});
      continue;
    }
    add_dataset(worker, *at, shares);
    stretches_.push_back({at->begin, at->collate, shares});
    Shares collate;
    collate.add(kCollate, collate_of(*at));
    stretches_.push_back({at->collate, at->end, collate});
  }
}

/// Lists what a worker's main thread did after a moment, the batch that it made next included.
void DataLoaderBreakdown::main_stretches(const Worker& worker, const WorkerRecord& record,
                                         const WorkerRecord* next, std::int64_t since) {
  fetch_stretches(worker, since);
  main_.swap(stretches_);
  if (next == nullptr || next->collate == kUnknown || next->begin < record.end) return;
  Shares dataset, collate;
  add_dataset(worker, *next, dataset);
  collate.add(kCollate, collate_of(*next));
  main_.push_back({next->begin, next->collate, dataset});
  main_.push_back({next->collate, next->end, collate});
}

/// Lists what a worker's feeder thread did after a moment. Needs main_stretches().
void DataLoaderBreakdown::feed_stretches(const Worker& worker, std::int64_t since) {
  stretches_.clear();
  for (auto at = first_after(worker.fed, since, &WorkerRecord::send_end); at != worker.fed.end();
       ++at) {
    const std::int64_t idle_since =
        stretches_.empty() ? at->end : std::max(at->end, stretches_.back().end);
    if (idle_since < at->send_begin) {
      const Stretch waking{idle_since, at->send_begin, {}};
      const auto ns = static_cast<double>(waking.end - waking.begin);
      stretches_.push_back(
          {waking.begin, waking.end, transfer_shares(waking, {0, 0, 0, ns}, kHandover)});
    }
    const Stretch sending{at->send_begin, at->send_end, {}};
    stretches_.push_back(
        {sending.begin, sending.end, transfer_shares(sending, sending_of(*at), kTransfer)});
  }
}

/// Splits a stretch of handing a batch over. The worker sends it, and gives the trainer its shared
/// memory, in threads beside the one that makes the next batch. If that computes in Python, it
/// holds the interpreter's lock, which they need in turns of 5 ms. So of the time without work, as
/// much as the main thread computed meanwhile, or waited for a core to do so, counts for its
/// places.
Shares DataLoaderBreakdown::transfer_shares(const Stretch& stretch, const Kinds& kinds,
                                            Place place) const {
  constexpr std::array kOwn{kDataset, kTransform, kCollate};
  PlaceTable busy{};
  double all = 0;
  for (const Stretch& one : main_) {
    const std::int64_t common = std::min(one.end, stretch.end) - std::max(one.begin, stretch.begin);
    if (common <= 0) continue;
    const double part = static_cast<double>(common) / static_cast<double>(one.end - one.begin);
    for (const Share& share : one.shares) {
      if (std::find(kOwn.begin(), kOwn.end(), share.place) == kOwn.end()) continue;
      add_to(busy[share.place], {part * share.ns[0], 0, part * share.ns[2], 0});
      all += part * (share.ns[0] + share.ns[2]);
    }
  }
  const double idle = kinds[1] + kinds[3];
  const double held = std::min(idle, all);
  Shares shares;
  if (held <= 0) {
    shares.add(place, kinds);
    return shares;
  }
  const double rest = 1 - held / idle, scale = held / all;
  shares.add(place, {kinds[0], rest * kinds[1], kinds[2], rest * kinds[3]});
  for (const Place own : kOwn)
    if (sum(busy[own]) > 0) shares.add(own, {scale * busy[own][0], 0, scale * busy[own][2], 0});
  return shares;
}

/// Adds a record to the work. Returns what the worker's main thread did for it.
Shares DataLoaderBreakdown::remember(const WorkerRecord& record, const Parts& parts,
                                     std::int64_t started) {
  Worker& worker = workers_[record.worker];
  if (started != 0) {
    if (worker.start.begin != started) {
      Shares shares;
      shares.add(kStartup, kinds_of(record.begin - started, record.start_cpu, record.start_delay));
      worker.start = {started, record.begin, shares};
      add_work(shares);
    }
    if (record.sent()) {
      keep(worker.fed, record, kKept);
      add_work(send_work(record));
    }
  }
  keep(worker.fetched, record, kKept);
  Shares shares;
  if (record.collate == kUnknown) {
    shares.add(kNowhere, unknown_of(record));
  } else {
    if (record.transform != kUnknown) sample(worker, record, parts);
    add_dataset(worker, record, shares);
    shares.add(kCollate, collate_of(record));
    Demand demand{0, 0};
    for (const Share& share : shares) {
      demand.first += share.ns[0];
      demand.second += share.ns[1] + share.ns[3];
    }
    keep(demands, demand, kDemands);
  }
  add_work(shares);
  return shares;
}

void DataLoaderBreakdown::add_work(const Shares& shares) {
  for (const Share& share : shares) add_to(work[share.place], share.ns);
}

/// Splits the time in the data set into its transforms and the rest, as the latest sampled batch
/// measured.
void DataLoaderBreakdown::add_dataset(const Worker& worker, const WorkerRecord& record,
                                      Shares& shares) const {
  const Kinds all =
      kinds_of(record.collate - record.begin, record.dataset_cpu, record.dataset_delay);
  if (!worker.any_ratio) {
    shares.add(kDataset, all);
    return;
  }
  const Kinds in = {worker.of_cpu * all[0], worker.of_rest * all[1], worker.of_rest * all[2],
                    worker.of_rest * all[3]};
  shares.add(kDataset, {all[0] - in[0], all[1] - in[1], all[2] - in[2], all[3] - in[3]});
  shares.add(kTransform, in);
}

void DataLoaderBreakdown::sample(Worker& worker, const WorkerRecord& record, const Parts& parts) {
  ++sampled_batches;
  sampled_samples += record.samples;
  for (std::size_t i = 0; i < rows.size() && 2 * i + 1 < parts.size(); ++i) {
    rows[i].first += parts[2 * i];
    rows[i].second += parts[2 * i + 1];
  }
  const auto wall = static_cast<double>(record.collate - record.begin);
  const double cpu = std::min(static_cast<double>(record.dataset_cpu), wall);
  const double rest = wall - cpu;
  const auto in_cpu = static_cast<double>(record.transform_cpu);
  const double in_rest = std::max(0.0, static_cast<double>(record.transform) - in_cpu);
  worker.any_ratio = true;
  worker.of_cpu = cpu > 0 ? std::min(1.0, in_cpu / cpu) : 0;
  worker.of_rest = rest > 0 ? std::min(1.0, in_rest / rest) : 0;
}

}  // namespace millrace::measure
