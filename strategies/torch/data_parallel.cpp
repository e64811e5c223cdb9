// Packs gradients into buckets and sums them.
#include "strategies/torch/data_parallel.h"

#include <barrier>
#include <utility>

#include "millrace/error.h"
#include "models/layers.h"
#include "pipeline/loader/slice.h"
#include "strategies/torch/device.h"

namespace millrace::train {
namespace {

/// Returns a dense tensor's elements in memory order, whatever its strides.
torch::Tensor in_memory(const torch::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1});
}

std::int64_t bytes_of(const torch::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

/// Calls `work` with the begin and the end of each run of tensors that have at most so many bytes
/// together, unless one alone has more.
template <class Work>
void for_each_bucket(const std::vector<torch::Tensor>& tensors, std::int64_t bytes,
                     const Work& work) {
  for (std::size_t begin = 0; begin < tensors.size();) {
    std::size_t end = begin + 1;
    std::int64_t taken = bytes_of(tensors[begin]);
    while (end < tensors.size() && taken + bytes_of(tensors[end]) <= bytes)
      taken += bytes_of(tensors[end++]);
    work(begin, end);
    begin = end;
  }
}

std::vector<torch::Tensor> in_memory(const std::vector<torch::Tensor>& tensors, std::size_t begin,
                                     std::size_t end) {
  std::vector<torch::Tensor> parts;
  for (std::size_t i = begin; i < end; ++i) parts.push_back(in_memory(tensors[i]));
  return parts;
}

/// Copies one vector to the tensors that it consists of.
void unpack(std::vector<torch::Tensor>& parts, const torch::Tensor& vector) {
  std::vector<std::int64_t> lengths;
  for (const torch::Tensor& part : parts) lengths.push_back(part.numel());
  at::_foreach_copy_(parts, vector.split_with_sizes(lengths));
}

}  // namespace

void sum_gradients(const std::vector<std::vector<torch::Tensor>>& gradients, DeviceGroup& group,
                   std::int64_t bytes) {
  const torch::NoGradGuard no_grad;
  for_each_bucket(gradients.front(), bytes, [&](std::size_t begin, std::size_t end) {
    std::vector<torch::Tensor> vectors, firsts;
    for (const std::vector<torch::Tensor>& own : gradients) {
      std::vector<torch::Tensor> parts = in_memory(own, begin, end);
      vectors.push_back(parts.size() == 1 ? parts[0] : torch::cat(parts));
      if (firsts.empty()) firsts = std::move(parts);
    }
    group.sum(vectors);
    if (firsts.size() > 1) unpack(firsts, vectors.front());  // one alone is summed in place
  });
}

void send_weights(const std::vector<std::vector<torch::Tensor>>& weights, DeviceGroup& group,
                  std::int64_t bytes) {
  const torch::NoGradGuard no_grad;
  for_each_bucket(weights.front(), bytes, [&](std::size_t begin, std::size_t end) {
    std::vector<torch::Tensor> vectors;
    std::vector<std::vector<torch::Tensor>> parts;
    for (const std::vector<torch::Tensor>& own : weights) {
      parts.push_back(in_memory(own, begin, end));
      const std::vector<torch::Tensor>& mine = parts.back();
      if (mine.size() == 1)
        vectors.push_back(mine[0]);
      else if (vectors.empty())
        vectors.push_back(torch::cat(mine));
      else
        vectors.push_back(torch::empty(vectors.front().sizes(), mine[0].options()));
    }
    group.broadcast(vectors);
    for (std::size_t i = 1; i < parts.size(); ++i)
      if (parts[i].size() > 1) unpack(parts[i], vectors[i]);
  });
}

// Runs replicas on threads, scatters batches and adds gradients.
namespace {

const StrategyOptions& checked(const StrategyOptions& options) {
  if (options.device != "cpu" && options.device != "cuda")
    throw UsageError("train.strategy=data_parallel with train.device=" + options.device +
                         ": replicas take a device each, from the first one on",
                     "use train.device=cuda, or CUDA_VISIBLE_DEVICES to choose devices");
  return options;
}

}  // namespace

class DataParallel::ReplicaBarrier {
 public:
  explicit ReplicaBarrier(int count)
      : count_(count), sums_(static_cast<std::size_t>(count)), barrier_(count) {}

  void all_reduce(int replica, torch::Tensor& sums) {
    sums_[static_cast<std::size_t>(replica)] = sums.clone();
    barrier_.arrive_and_wait();
    sums.zero_();
    for (const torch::Tensor& other : sums_)
      if (other.defined()) sums.add_(other.to(sums.device()));
    barrier_.arrive_and_wait();
  }
  /// Lets the others continue without a replica that has failed.
  void leave(int replica) {
    sums_[static_cast<std::size_t>(replica)].reset();
    barrier_.arrive_and_drop();
  }
  int count() const { return count_; }

 private:
  int count_;
  std::vector<torch::Tensor> sums_;
  std::barrier<> barrier_;
};

class DataParallel::Statistics final : public StatisticsReducer {
 public:
  Statistics(std::shared_ptr<ReplicaBarrier> barrier, int replica)
      : replica_barrier_(std::move(barrier)), replica_(replica) {}
  void all_reduce(torch::Tensor& sums) override { replica_barrier_->all_reduce(replica_, sums); }
  int rank() const override { return replica_; }
  int world() const override { return replica_barrier_->count(); }

 private:
  std::shared_ptr<ReplicaBarrier> replica_barrier_;
  int replica_;
};

DataParallel::DataParallel(const StrategyOptions& options, bool separate,
                           std::unique_ptr<DeviceGroup> group)
    : TorchStrategy(checked(options)),
      separate_(separate || !torch_device().is_cpu()),
      threads_(static_cast<int>(options.recipe.integer("train.replicas"))),
      given_(static_cast<std::size_t>(threads_.count())),
      group_(std::move(group)) {
  const int replicas = threads_.count();
  if (group_ == nullptr && cuda() && replicas > 1) group_ = cuda()->make_group(replicas);
  const auto parameters = model().parameters();
  for (int replica = 1; replica < replicas; ++replica) {
    torch::Device device = torch_device();
    if (!device.is_cpu()) device.set_index(static_cast<c10::DeviceIndex>(replica));
    others_.push_back({device, make_replica(device), make_device_streams(device),
                       Normalization(options.recipe, form(), device), add_replica(device)});
    if (separate_) continue;
    const auto own = others_.back().model->parameters();
    for (std::size_t i = 0; i < own.size(); ++i)
      torch::Tensor(own[i]).set_data(parameters[i].detach());
  }
  if (options.recipe.boolean("train.sync_batchnorm")) {
    replica_barrier_ = std::make_shared<ReplicaBarrier>(replicas);
    for (int replica = 0; replica < replicas; ++replica)
      set_statistics_reducer(replica_of(replica),
                             std::make_shared<Statistics>(replica_barrier_, replica));
  }
  const int threads = options.threads;
  threads_.run(
      [this, threads](int replica) {
        if (replica == 0) return;
        torch::set_num_threads(threads);
        if (cuda()) cuda()->use(replica);
      },
      {});
}

DataParallel::~DataParallel() = default;

Classifier& DataParallel::replica_of(int replica) {
  return replica == 0 ? model() : *others_[static_cast<std::size_t>(replica - 1)].model;
}

std::string DataParallel::device() const {
  return std::to_string(threads_.count()) + " replicas, each " + TorchStrategy::device();
}

void DataParallel::send_weights() {
  std::vector<std::vector<torch::Tensor>> weights{model().parameters()};
  for (const Replica& other : others_) weights.push_back(other.model->parameters());
  if (group_ != nullptr) return train::send_weights(weights, *group_);
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 1; i < weights.size(); ++i) at::_foreach_copy_(weights[i], weights[0]);
}

std::vector<Samples> DataParallel::scatter(Batch& batch) {
  std::vector<Samples> parts;
  std::vector<OwnedMark> copied;
  for (int replica = 0; replica < threads_.count(); ++replica) {
    // Samples are already mixed, so a slice may begin at an odd index.
    const pipeline::Slice slice =
        pipeline::rank_slice(batch.count(), replica, threads_.count(), /*group=*/1);
    given_[static_cast<std::size_t>(replica)] += static_cast<std::uint64_t>(slice.count);
    Samples part{images_of(batch, slice, form()), targets_of(batch, slice)};
    DeviceStreams* const streams =
        replica == 0 ? this->streams()
                     : others_[static_cast<std::size_t>(replica - 1)].streams.get();
    if (streams != nullptr) {
      part = {streams->copy(part.images), streams->copy(part.targets)};
      copied.push_back(streams->join());
    }
    parts.push_back(part);
  }
  if (!copied.empty()) hold(std::move(batch), std::move(copied));
  return parts;
}

void DataParallel::add_gradients() {
  const auto gradients_of = [](Classifier& replica) {
    std::vector<torch::Tensor> gradients;
    for (const torch::Tensor& parameter : replica.parameters())
      if (parameter.requires_grad()) gradients.push_back(parameter.grad());
    return gradients;
  };
  std::vector<std::vector<torch::Tensor>> all;
  for (int replica = 0; replica < threads_.count(); ++replica)
    all.push_back(gradients_of(replica_of(replica)));
  if (group_ != nullptr)
    sum_gradients(all, *group_);
  else
    for (std::size_t i = 1; i < all.size(); ++i) at::_foreach_add_(all[0], all[i]);
  for (const Replica& other : others_)
    for (torch::Tensor& parameter : other.model->parameters()) parameter.mutable_grad().reset();
}

TorchStrategy::Loss DataParallel::gradients(Batch& batch, const StepContext& place,
                                            measure::SpanClock& spans) {
  if (batch.count() == 0) return {};
  spans.enter(measure::Span::h2d);
  if (separate_ && place.opens) send_weights();
  const std::vector<Samples> parts = scatter(batch);
  std::vector<Loss> losses(parts.size());
  threads_.run(
      [&](int replica) {
        const auto i = static_cast<std::size_t>(replica);
        try {
          const torch::Tensor images = replica == 0 ? normalized(parts[i].images)
                                                    : others_[i - 1].normalize(parts[i].images);
          losses[i] = learn(replica_of(replica), images, parts[i].targets, place, replica,
                            replica == 0 ? &counter() : &others_[i - 1].counter,
                            replica == 0 ? &spans : nullptr);
        } catch (...) {
          if (replica_barrier_) replica_barrier_->leave(replica);
          throw;
        }
      },
      [&] { spans.enter(measure::Span::peer_wait); });

  spans.enter(measure::Span::backward);
  const torch::NoGradGuard no_grad;
  // Sums in double, as the single strategy does on the CPU.
  const auto sum_of = [&](const Loss& loss) {
    return loss.value.to(torch_device(), torch::kDouble) * loss.divisor;
  };
  torch::Tensor sum = sum_of(losses[0]);
  std::int64_t samples = losses[0].samples;
  add_gradients();
  for (std::size_t i = 0; i < others_.size(); ++i) {
    sum += sum_of(losses[i + 1]);
    samples += losses[i + 1].samples;
  }
  return {sum, 1, samples};
}

}  // namespace millrace::train
