// Exchanges arrivals, gradients and totals between the ranks.
#include "strategies/torch/ddp.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <sstream>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "millrace/error.h"
#include "models/layers.h"
#include "models/weights.h"
#include "strategies/torch/device.h"
#include "strategies/trainer/train_choices.h"
#include "strategies/trainer/trainer.h"

namespace millrace::train {
namespace {

/// Columns of the row that each rank sends on its arrival at a step.
enum Column : std::int64_t {
  kSamples,
  kGraph,  ///< 1: a graph can take this rank's samples
  kStop,
  kLoad,  ///< seconds of work since the last collective, by kind
  kUpdate,
  kOther,
  kToGradients,  ///< seconds of work from the previous arrival to the sum of the gradients
  kToLoss,       ///< and from there to the sum of the losses
  kColumns
};

/// PyTorch's sizes: a small first bucket, so that the first sum starts early, then 25 MiB.
constexpr std::int64_t kFirstBucket = c10d::kDefaultFirstBucketBytes;
constexpr std::int64_t kBucket = c10d::kDefaultBucketBytesCap;

/// Returns the buckets in the order in which backward fills them. They stay fixed: PyTorch
/// rearranges them after the first step, which would change the last bits of a resumed run's sums.
std::vector<std::vector<std::size_t>> buckets_of(const std::vector<torch::Tensor>& parameters) {
  const std::vector<torch::Tensor> reversed(parameters.rbegin(), parameters.rend());
  std::vector<std::int64_t> places(parameters.size());
  std::iota(places.rbegin(), places.rend(), 0);
  return std::get<0>(c10d::compute_bucket_assignment_by_size(
      reversed, {static_cast<std::size_t>(kFirstBucket), static_cast<std::size_t>(kBucket)}, {},
      places));
}

/// Sums a bucket. The Reducer's own mean rounds in one way at the first step (x * (1/N)) and in
/// another one later (x / N), which would change the last bits of a resumed run.
class SumHook final : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  /// `last` becomes the time of the last call.
  SumHook(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
          std::atomic<base::Clock::Ticks>& last)
      : CppCommHookInterface(group), last_(last) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    std::vector<torch::Tensor> tensors{bucket.getBufferRef()};
    last_.store(base::Clock::now(), std::memory_order_relaxed);
    return state_->allreduce(tensors)->getFuture();
  }

 private:
  std::atomic<base::Clock::Ticks>& last_;
};

class RankStatistics final : public StatisticsReducer {
 public:
  /// Adds to `ticks` the time that it takes.
  RankStatistics(const Peers& peers, base::Clock::Ticks& ticks) : peers_(peers), ticks_(ticks) {}
  void all_reduce(torch::Tensor& sums) override {
    const base::Clock::Ticks begin = base::Clock::now();
    peers_.sum(sums);
    ticks_ += base::Clock::now() - begin;
  }
  int rank() const override { return peers_.rank(); }
  int world() const override { return peers_.world(); }

 private:
  const Peers& peers_;
  base::Clock::Ticks& ticks_;
};

std::unique_ptr<ControlChannel> open_control(Peers& peers, const StrategyOptions& options) {
  const double timeout = options.recipe.number("train.timeout");
  ControlOptions control{.rank = peers.rank(),
                         .world = peers.world(),
                         .timeout_s = timeout,
                         .key = options.rank.key.value_or(0),
                         .interrupted = options.hooks.interrupted};
  control.on_failure = [leave = options.hooks.leave](const FailureReport& report) {
    const bool interrupted = report.kind == FailureKind::interrupted;
    leave(Error(interrupted ? Exit::interrupted : Exit::failed, report.text(), report.hint()));
  };
  // Without a key from the launcher, the store carries one. Anyone can read the store, so this key
  // only keeps runs apart.
  const bool store_carries_key = !options.rank.key;
  std::unique_ptr<ControlChannel> channel;
  if (peers.rank() == 0) {
    std::random_device random;
    if (store_carries_key) control.key = static_cast<std::uint64_t>(random()) << 32 | random();
    channel = ControlChannel::serve(
        control, options.rank.on_loopback() ? options.rank.master_addr : std::string());
    peers.tell(std::to_string(channel->port()) + " " +
               std::to_string(store_carries_key ? control.key : 0));
  } else {
    std::istringstream words(peers.tell({}));
    int port = 0;
    std::uint64_t key = 0;
    words >> port >> key;
    if (store_carries_key) control.key = key;
    channel = ControlChannel::connect(control, options.rank.master_addr, port, timeout);
  }
  options.hooks.watched();
  channel->wait_for_ranks(timeout);
  return channel;
}

/// Throws UsageError on every rank if model.ops=auto chose different ops because the hosts have
/// different SIMD levels.
void require_same_ops(Peers& peers, const StrategyOptions& options) {
  const std::string mine = ops_of(options.recipe) == ModelOps::native ? "native" : "torch";
  const std::vector<std::string> all = peers.gather(mine);
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& o) { return o != mine; });
  if (other == all.end()) return;
  throw UsageError("model.ops=auto is " + mine + " on rank " + std::to_string(peers.rank()) + ", " +
                       *other + " on rank " + std::to_string(other - all.begin()) +
                       ": their processors have different SIMD levels",
                   "set model.ops=torch or model.ops=native");
}

}  // namespace

Ddp::Ddp(const StrategyOptions& options, std::unique_ptr<DeviceStreams> device_streams,
         std::unique_ptr<DeviceGraph> graph)
    : TorchStrategy(options, std::move(device_streams)),
      peers_(options.rank, cuda() ? &*cuda() : nullptr,
             std::chrono::seconds(std::llround(options.recipe.number("train.timeout")))),
      control_((require_same_ops(peers_, options), open_control(peers_, options))),
      arrives_ahead_(this->streams() != nullptr && options.graph_samples == 0),
      arrivals_(torch::zeros({peers_.world(), kColumns}, torch::kDouble)),
      waits_(static_cast<std::size_t>(peers_.world())) {
  std::vector<torch::Tensor> all;
  for (const auto& [name, tensor] : state_of(model())) all.push_back(tensor.detach());
  peers_.broadcast(all);
  if (options.recipe.boolean("train.sync_batchnorm") && peers_.world() > 1)
    set_statistics_reducer(model(), std::make_shared<RankStatistics>(peers_, statistics_ticks_));
  std::vector<torch::Tensor> parameters;
  std::unordered_map<std::size_t, std::string> names;
  for (const auto& parameter : model().named_parameters()) {
    if (!parameter.value().requires_grad()) continue;
    names[parameters.size()] = parameter.key();
    parameters.push_back(parameter.value());
  }
  constexpr bool kFindUnused = false;
  constexpr bool kGradientsAreViews = true;
  const auto make_reducer = [&] {
    reducer_ = std::make_unique<c10d::Reducer>(
        parameters, buckets_of(parameters), peers_.group(),
        std::vector<bool>(parameters.size(), false), kBucket, kFindUnused, kGradientsAreViews,
        names, kFirstBucket, /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
        std::vector<std::int64_t>{});
  };
  if (options.graph_samples > 0) {
    graph_ = graph ? std::move(graph) : cuda().value().make_graph();
    // Autograd adds gradients up on the stream on which the reducer was made, which must be that of
    // the capture.
    streams()->on_side_stream(make_reducer);
  } else {
    make_reducer();
  }
  reducer_->register_comm_hook(std::make_unique<SumHook>(peers_.group(), last_bucket_));
}

Ddp::~Ddp() = default;

void Ddp::end(const std::string& reason) {
  if (!reason.empty()) return control_->fail(reason);
  torch::Tensor last = torch::zeros({1});
  sum(last);  // rank 0's goodbye ends the watch, so it waits until the others are done
  control_->goodbye();
}

/// Waits for the other ranks, and lets the control channel know.
void Ddp::sum(torch::Tensor& values) const {
  control_->progress(step_, /*in_collective=*/true);
  peers_.sum(values);
  control_->progress(step_, /*in_collective=*/false);
}

bool Ddp::stopping(bool) const { return stop_agreed_; }

std::vector<std::string> Ddp::gather(const std::string& mine) { return peers_.gather(mine); }

std::string Ddp::device() const {
  return std::to_string(peers_.world()) + " ranks, each " + TorchStrategy::device();
}

void Ddp::leave(Collective which, base::Clock::Ticks entered, const measure::SpanClock& spans) {
  const base::Clock::Ticks now = base::Clock::now();
  // Batch norm's collectives come before that of the gradients, and hide in the work before it.
  const double hidden = base::Clock::seconds(std::exchange(statistics_ticks_, 0));
  work_[which] = since_ == 0 ? 0 : base::Clock::seconds(entered - since_) - hidden;
  waited_[which] = base::Clock::seconds(now - entered) + hidden;
  count_work_from(now, spans);
}

void Ddp::count_work_from(base::Clock::Ticks now, const measure::SpanClock& spans) {
  since_ = now;
  ticks_since_ = spans.ticks();
  ticks_since_[static_cast<std::size_t>(spans.current())] += now - spans.since();
}

void Ddp::arrive(const Batch& batch, bool stop, measure::SpanClock& spans) {
  spans.enter(measure::Span::peer_wait);
  is_first_arrival_ = since_ == 0;
  measure::SpanTicks since = difference(spans.ticks(), ticks_since_);
  since[static_cast<std::size_t>(measure::Span::peer_wait)] = 0;
  const measure::SpanSeconds mine(is_first_arrival_ ? measure::SpanTicks{} : since);
  arrivals_.zero_();
  auto row = arrivals_.accessor<double, 2>()[peers_.rank()];
  row[kSamples] = static_cast<double>(batch.count());
  row[kGraph] = could_replay(batch) ? 1 : 0;
  row[kStop] = stop ? 1 : 0;
  row[kLoad] = mine.load;
  row[kUpdate] = mine.update;
  row[kOther] = mine.other;
  row[kToGradients] = work_[kGradients];
  row[kToLoss] = work_[kLoss];
  arriving_ = peers_.begin_sum(arrivals_);
  if (arrives_ahead_) count_work_from(base::Clock::now(), spans);
}

void Ddp::await_arrivals(measure::SpanClock& spans) {
  spans.enter(measure::Span::peer_wait);
  control_->progress(step_, /*in_collective=*/true);
  std::exchange(arriving_, {})->wait();
  control_->progress(step_, /*in_collective=*/false);
  if (arrives_ahead_)
    waited_[kArrival] = base::Clock::seconds(base::Clock::now() - spans.since());
  else
    leave(kArrival, spans.since(), spans);
  samples_ = 0;
  all_could_replay_ = true;
  const auto cell = arrivals_.accessor<double, 2>();
  for (std::int64_t rank = 0; rank < peers_.world(); ++rank) {
    samples_ += cell[rank][kSamples];
    all_could_replay_ = all_could_replay_ && cell[rank][kGraph] > 0;
    stop_agreed_ = stop_agreed_ || cell[rank][kStop] > 0;
  }
  if (!is_first_arrival_) attribute_waits();  // ranks start one after another
  work_ = {};
  waited_ = {};
}

void Ddp::attribute_waits() {
  const auto cell = arrivals_.accessor<double, 2>();
  std::vector<RankWork> work(static_cast<std::size_t>(peers_.world()));
  const auto add = [&](Collective which, const auto& work_of) {
    for (std::int64_t rank = 0; rank < peers_.world(); ++rank)
      work[static_cast<std::size_t>(rank)] = work_of(cell[rank]);
    waits_.add(work, static_cast<std::size_t>(peers_.rank()), waited_[which]);
  };
  const auto update = [](double seconds) { return RankWork{seconds, {.update = seconds}}; };
  add(kGradients, [&](const auto& row) { return update(row[kToGradients]); });
  add(kLoss, [&](const auto& row) { return update(row[kToLoss]); });
  add(kArrival, [](const auto& row) {
    const PeerWait kinds{row[kLoad], row[kUpdate], row[kOther]};
    return RankWork{kinds.total(), kinds};
  });
}

TorchStrategy::Loss Ddp::gradients(Batch& batch, const StepContext& place,
                                   measure::SpanClock& spans) {
  step_ = place.step + 1;
  arrive(batch, place.stop, spans);
  if (!arrives_ahead_) await_arrivals(spans);
  spans.enter(measure::Span::h2d);
  if (all_could_replay_ && samples_ == static_cast<double>(options().graph_samples) &&
      place.window_samples == options().graph_samples)
    return whole_step(batch, place, spans);
  const Samples samples = take(batch);
  if (place.updates) prepare_sums();  // otherwise the gradients stay on this rank for now
  // A rank without samples takes part in the sum too.
  control_->progress(step_, /*in_collective=*/place.updates);
  Loss loss = learn(model(), samples.images, samples.targets, place, rank(), &counter(), &spans);
  if (streams() == nullptr) {
    if (place.updates) leave(kGradients, last_bucket_.load(std::memory_order_relaxed), spans);
    return loss;
  }
  // Computed on the device: nothing waits for it before the optimizer's step.
  torch::Tensor sum = loss.value * loss.divisor;
  peers_.sum(sum);
  return {sum, 1, loss.samples};
}

void Ddp::prepare_sums() {
  reducer_->prepare_for_forward();
  reducer_->prepare_for_backward({});
}

bool Ddp::could_replay(const Batch& batch) {
  if (batch.count() == 0 || !is_settled()) return false;
  return graph_ != nullptr || (graphs_ && graphs_->takes(batch));
}

// All ranks are here, or none: a sum that is captured may take another way through NCCL than one
// that is not. Both have the same sums in the same order.
TorchStrategy::Loss Ddp::whole_step(Batch& batch, const StepContext& place,
                                    measure::SpanClock& spans) {
  const std::int64_t samples = batch.count();
  if (!graphs_) {
    graphs_.emplace(std::move(graph_), *streams(), torch_device(), samples);
    graphs_->takes(batch);  // determines the form
  }
  const double divisor = loss_of({}, samples, place).divisor;
  const auto step = [this, window = place.window_samples, divisor](const Samples& there,
                                                                   measure::SpanClock* clock) {
    prepare_sums();
    torch::Tensor sum =
        pass_and_update(normalized(there.images), there.targets, window, clock) * divisor;
    peers_.sum(sum);
    return sum;
  };
  control_->progress(step_, /*in_collective=*/true);
  return {run_graphed(*graphs_, batch, place, spans, step), 1, samples, /*updated=*/true};
}

void Ddp::add_up(Totals& totals, measure::SpanClock& spans) {
  if (arrives_ahead_) await_arrivals(spans);
  totals.samples = samples_;
  if (streams() != nullptr) return;
  spans.enter(measure::Span::peer_wait);
  torch::Tensor loss = torch::full({1}, totals.loss, torch::kDouble);
  sum(loss);
  leave(kLoss, spans.since(), spans);
  totals.loss = loss.item<double>();
}

void Ddp::add_up(torch::Tensor& sums) { sum(sums); }

void Ddp::alive() { control_->progress(step_, /*in_collective=*/false); }

void Ddp::share_buffers() {
  std::vector<torch::Tensor> buffers;
  for (const torch::Tensor& buffer : model().buffers()) buffers.push_back(buffer);
  control_->progress(step_, /*in_collective=*/true);
  peers_.broadcast(buffers);
  control_->progress(step_, /*in_collective=*/false);
}

void Ddp::clear_gradients() {
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : model().parameters())
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  at::_foreach_zero_(gradients);  // views of the reducer's buckets, which must not be freed
}

}  // namespace millrace::train
