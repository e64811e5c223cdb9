#include "strategies/data_parallel.h"

#include <barrier>

#include "models/batch_norm.h"
#include "pipeline/error.h"
#include "pipeline/rank_slice.h"
#include "strategies/batch_tensors.h"

namespace millrace {
namespace {

const StrategyOptions& checked(const StrategyOptions& options) {
  if (options.replicas < 2)
    throw UsageError("train.strategy=data_parallel with train.replicas=" +
                         std::to_string(options.replicas) + ": there is nothing to share",
                     "set train.replicas=2 or more, or train.strategy=single");
  if (options.device != "cpu")
    throw UsageError("train.strategy=data_parallel on " + options.device + " is not built in",
                     "use train.device=cpu, or train.strategy=ddp with a process a GPU");
  return options;
}

}  // namespace

class DataParallel::Meeting {
 public:
  explicit Meeting(int count) : sums_(static_cast<std::size_t>(count)), barrier_(count) {}

  void all_reduce(int replica, torch::Tensor& sums) {
    sums_[static_cast<std::size_t>(replica)] = sums.clone();
    barrier_.arrive_and_wait();
    sums.zero_();
    for (const torch::Tensor& other : sums_)
      if (other.defined()) sums.add_(other);
    barrier_.arrive_and_wait();
  }
  /// For a replica that cannot go on: the others must not wait for it.
  void leave(int replica) {
    sums_[static_cast<std::size_t>(replica)].reset();
    barrier_.arrive_and_drop();
  }

 private:
  std::vector<torch::Tensor> sums_;
  std::barrier<> barrier_;
};

class DataParallel::Statistics final : public StatisticsReducer {
 public:
  Statistics(std::shared_ptr<Meeting> meeting, int replica)
      : meeting_(std::move(meeting)), replica_(replica) {}
  void all_reduce(torch::Tensor& sums) override { meeting_->all_reduce(replica_, sums); }

 private:
  std::shared_ptr<Meeting> meeting_;
  int replica_;
};

DataParallel::DataParallel(const StrategyOptions& options)
    : TorchStrategy(checked(options)), threads_(options.replicas) {
  const auto parameters = model().parameters();
  for (int replica = 1; replica < options.replicas; ++replica) {
    replicas_.push_back(make_replica());
    const auto own = replicas_.back()->parameters();
    for (std::size_t i = 0; i < own.size(); ++i)
      torch::Tensor(own[i]).set_data(parameters[i].detach());
  }
  if (options.sync_batchnorm) {
    meeting_ = std::make_shared<Meeting>(threads_.count());
    for (int replica = 0; replica < threads_.count(); ++replica)
      set_statistics_reducer(replica_of(replica), std::make_shared<Statistics>(meeting_, replica));
  }
  const int threads = options.threads;
  threads_.run(
      [threads](int replica) {
        if (replica > 0) torch::set_num_threads(threads);
      },
      {});
}

DataParallel::~DataParallel() = default;

Classifier& DataParallel::replica_of(int replica) {
  return replica == 0 ? model() : *replicas_[static_cast<std::size_t>(replica - 1)];
}

std::string DataParallel::device() const {
  return std::to_string(threads_.count()) + " replicas, each " + TorchStrategy::device();
}

TorchStrategy::Loss DataParallel::gradients(Batch& batch, const StepPlace& place,
                                            SpanClock& spans) {
  if (batch.count() == 0) return {};
  const int count = threads_.count();
  std::vector<Loss> losses(static_cast<std::size_t>(count));
  threads_.run(
      [&](int replica) {
        // Mixed samples are so already: cuts need not lie at even places.
        const Slice slice = rank_slice(batch.count(), replica, count, /*pairs=*/false);
        try {
          losses[static_cast<std::size_t>(replica)] =
              learn(replica_of(replica), images_of(batch, slice, options()),
                    targets_of(batch, slice), place, replica, replica == 0 ? &spans : nullptr);
        } catch (...) {
          if (meeting_) meeting_->leave(replica);
          throw;
        }
      },
      [&] { spans.enter(Span::peer_wait); });

  spans.enter(Span::backward);
  const torch::NoGradGuard no_grad;
  const auto sums = model().parameters();
  double loss = losses[0].value.item<double>() * losses[0].divisor;
  std::int64_t samples = losses[0].samples;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    const auto own = replicas_[i]->parameters();
    std::vector<torch::Tensor> to, from;
    for (std::size_t k = 0; k < own.size(); ++k) {
      if (!own[k].requires_grad()) continue;
      to.push_back(sums[k].grad());
      from.push_back(own[k].grad());
    }
    at::_foreach_add_(to, from);
    for (const torch::Tensor& parameter : own) torch::Tensor(parameter).mutable_grad().reset();
    loss += losses[i + 1].value.item<double>() * losses[i + 1].divisor;
    samples += losses[i + 1].samples;
  }
  return {torch::tensor(loss, torch::kDouble), 1, samples};
}

}  // namespace millrace
