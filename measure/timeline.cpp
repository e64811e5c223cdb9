// Makes the tracks of a timeline.
#include "measure/timeline.h"

#include <algorithm>
#include <utility>

namespace millrace::measure {

LoaderTracks::LoaderTracks(std::string name, int workers, int io_threads, std::size_t capacity)
    : name_(std::move(name)), made_inline_(workers == 0), batches_(capacity) {
  for (int i = 0; i < std::max(1, workers); ++i)
    workers_.push_back(std::make_unique<Track<RangeRecord>>(capacity));
  for (int i = 0; i < io_threads; ++i)
    io_.push_back(std::make_unique<Track<FetchRecord>>(capacity));
}

Timeline::Timeline(base::Clock::Ticks ticks, std::int64_t ns, std::size_t capacity)
    : capacity_(capacity),
      origin_ticks_(ticks),
      origin_ns_(ns),
      trainer_(8 * capacity),  // some seven spans per step
      device_(capacity),
      storage_(std::make_shared<Track<RequestRecord>>(capacity)) {}

std::shared_ptr<LoaderTracks> Timeline::add_loader(std::string name, int workers, int io_threads) {
  loaders_.push_back(
      std::make_shared<LoaderTracks>(std::move(name), workers, io_threads, capacity_));
  return loaders_.back();
}

std::uint64_t Timeline::left_out() const {
  std::uint64_t sum = trainer_.left_out() + device_.left_out() + storage_->left_out();
  for (const auto& loader : loaders_) {
    sum += loader->batches().left_out();
    for (const auto& track : loader->workers()) sum += track->left_out();
    for (const auto& track : loader->io_threads()) sum += track->left_out();
  }
  return sum;
}

}  // namespace millrace::measure
