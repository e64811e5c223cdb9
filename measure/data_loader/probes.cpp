#include "measure/data_loader/probes.h"

#include <utility>

namespace millrace::measure {
namespace {

void set_parts(WorkerRecord& record, const Usage& dataset, const Usage& collate) {
  record.dataset_cpu = dataset.cpu;
  record.dataset_delay = dataset.delay;
  record.collate_cpu = collate.cpu;
  record.collate_delay = collate.delay;
}

}  // namespace

Depth FetchProbe::begin() {
  batch_ = next_batch++;
  collate_.reset();
  const bool timed = unsampled != kUnknown && unsampled-- == 0;
  measures_ = file_ == nullptr || sampler_.due(wall_ns()) || timed || !start_;
  begin_ = read();
  if (!start_) start_ = begin_;
  if (timed) return Depth::transforms;
  return measures_ ? Depth::detail : Depth::outline;
}

std::int64_t FetchProbe::end() {
  end_ = read();
  return end_.wall - begin_.wall;
}

void FetchProbe::keep(std::int64_t samples, std::int64_t transform, std::int64_t transform_cpu,
                      Parts parts) {
  if (batch_ < 0) return;  // its number is not known
  record_.generation = generation;
  record_.batch = batch_;
  record_.begin = begin_.wall;
  record_.end = end_.wall;
  if (!measures_) {
    estimate_parts(record_);
  } else if (collate_) {
    record_.collate = collate_->wall;
    estimates_.collate.learn(end_.wall - begin_.wall, end_.wall - collate_->wall);
    set_parts(record_, estimates_.in_dataset.measured(begin_, *collate_),
              estimates_.in_collate.measured(*collate_, end_));
  } else {  // the fetcher does not use the collate function that it was given
    record_.collate = kUnknown;
    set_parts(record_, {}, {});
  }
  record_.samples = samples;
  record_.transform = transform;
  record_.transform_cpu = transform_cpu;
  const Reading start = start_.value_or(Reading{});  // none where the first batch is estimated
  record_.start_cpu = start.cpu;
  record_.start_delay = start.delay;
  // A batch made in the trainer's own thread is not sent.
  record_.send_key = batch_ + 1;
  record_.send_begin = record_.send_end = record_.end;
  record_.send_cpu = record_.send_delay = record_.send_waited = 0;
  parts_ = std::move(parts);
  any_ = true;
  if (file_ != nullptr) file_->write(record_, parts_);
}

void FetchProbe::learn(std::int64_t asked, std::int64_t got) {
  if (!any_ || record_.begin < asked) return;  // it was fetched before
  const std::int64_t fetch = record_.end - record_.begin;
  estimates_.fetch.learn(got - asked, fetch);
  estimates_.since_fetched.learn(got - asked - fetch, got - record_.end);
}

std::optional<WorkerRecord> FetchProbe::estimated(std::int64_t asked, std::int64_t got,
                                                  std::int64_t samples) const {
  const std::int64_t fetch = estimates_.fetch.of(got - asked);
  if (fetch == kUnknown) return std::nullopt;
  WorkerRecord record = record_;
  record.end = got - estimates_.since_fetched.of(got - asked - fetch);
  record.begin = record.end - fetch;
  estimate_parts(record);
  record.samples = samples;
  record.transform = record.transform_cpu = kUnknown;
  return record;
}

/// Splits the fetch of a record.
void FetchProbe::estimate_parts(WorkerRecord& record) const {
  const std::int64_t whole = record.end - record.begin, part = estimates_.collate.of(whole);
  record.collate = part == kUnknown ? kUnknown : record.end - part;
  if (part == kUnknown) {
    set_parts(record, {}, {});
  } else {
    set_parts(record, estimates_.in_dataset.estimated(whole - part),
              estimates_.in_collate.estimated(part));
  }
}

void SendProbe::begin(std::int64_t batch) {
  batch_ = batch;
  if (batch_ == kUnknown) return;
  if (!clock_) clock_.emplace(schedstat_);
  measures_ = sampler_.due(wall_ns());
  begin_ = read();
}

void SendProbe::pickled() {
  if (batch_ != kUnknown) pickled_ = read();
}

void SendProbe::sent() {
  if (batch_ == kUnknown) return;
  const Reading end = read();
  const std::int64_t since = end.wall - pickled_.wall;
  const Usage pickling = measures_ ? pickling_.measured(begin_, pickled_)
                                   : pickling_.estimated(pickled_.wall - begin_.wall);
  const Usage sending = measures_ ? sending_.measured(pickled_, end) : sending_.estimated(since);
  // Since it was pickled, the thread has waited for other workers' turns and for room in the pipe.
  const Kinds kinds = kinds_of(since, sending.cpu, sending.delay);
  file_->write_sending(batch_, begin_.wall, end.wall, pickling + sending,
                       static_cast<std::int64_t>(kinds[1] + kinds[3]));
  batch_ = kUnknown;
}

}  // namespace millrace::measure
