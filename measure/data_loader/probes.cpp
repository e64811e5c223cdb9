#include "measure/data_loader/probes.h"

#include <utility>

namespace millrace::measure {
namespace {

std::int64_t between(std::int64_t begin, std::int64_t end) {
  return begin == kUnknown || end == kUnknown ? kUnknown : end - begin;
}

}  // namespace

bool FetchProbe::begin() {
  batch_ = next_batch++;
  collate_.reset();
  begin_ = clock_->read();
  if (!start_) start_ = begin_;
  return unsampled != kUnknown && unsampled-- == 0;
}

std::int64_t FetchProbe::end() {
  end_ = clock_->read();
  return end_.wall - begin_.wall;
}

void FetchProbe::keep(std::int64_t samples, std::int64_t transform, std::int64_t transform_cpu,
                      Parts parts) {
  if (batch_ < 0) return;  // its number is not known
  record_.generation = generation;
  record_.batch = batch_;
  record_.begin = begin_.wall;
  record_.end = end_.wall;
  record_.collate = record_.dataset_cpu = record_.dataset_delay = kUnknown;
  record_.collate_cpu = record_.collate_delay = kUnknown;
  if (collate_) {  // else the fetcher does not use the collate function that it was given
    record_.collate = collate_->wall;
    record_.dataset_cpu = collate_->cpu - begin_.cpu;
    record_.dataset_delay = between(begin_.delay, collate_->delay);
    record_.collate_cpu = end_.cpu - collate_->cpu;
    record_.collate_delay = between(collate_->delay, end_.delay);
  }
  record_.samples = samples;
  record_.transform = transform;
  record_.transform_cpu = transform_cpu;
  record_.start_cpu = start_->cpu;
  record_.start_delay = start_->delay;
  // A batch made in the trainer's own thread is not sent.
  record_.send_key = batch_ + 1;
  record_.send_begin = record_.send_end = record_.end;
  record_.send_cpu = record_.send_delay = record_.send_waited = 0;
  parts_ = std::move(parts);
  any_ = true;
  if (file_ != nullptr) file_->write(record_, parts_);
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
