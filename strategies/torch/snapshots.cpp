// Copies the state for checkpoints, and restores it.
#include <utility>

#include "models/weights.h"
#include "strategies/torch/torch_errors.h"
#include "strategies/torch/torch_strategy.h"

namespace millrace::train {
namespace {

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kAverages = "ema.safetensors";
constexpr const char* kState = "training.safetensors";

}  // namespace

NamedTensors TorchStrategy::training_state() {
  NamedTensors all = optimizer_->state();
  for (auto& named : scaler_.state()) all.push_back(std::move(named));
  for (auto& named : ema_.count()) all.push_back(std::move(named));
  all.emplace_back("train_loss", train_loss_);
  return all;
}

Strategy::Snapshot TorchStrategy::snapshot() {
  share_buffers();
  // Ranks that write their records meet here: none of them is at the next checkpoint, or waits in
  // the store for a text, while the first one still waits for their records of the last.
  torch::Tensor arrivals = torch::zeros({1});
  add_up(arrivals);
  if (rank() != 0) return {};
  shorten_torch_errors("copy of the state for a checkpoint", [this] {
    if (copy_ == nullptr || copy_.use_count() > 1) copy_ = std::make_shared<State>();
    copy_->weights.take(state_of(*model_));
    copy_->training.take(training_state());
    if (ema_) copy_->averages.take(ema_.state());
  });
  return [state = std::shared_ptr<const State>(copy_),
          averaged = static_cast<bool>(ema_)](const std::filesystem::path& folder) {
    state->weights.save(folder / kWeights);
    state->training.save(folder / kState);
    if (averaged) state->averages.save(folder / kAverages);
  };
}

void TorchStrategy::restore(const std::filesystem::path& folder) {
  const char* const hint = "resume with the keys that the run was started with";
  load_weights(*model_, folder / kWeights);
  load_tensors(training_state(), folder / kState, "the run", hint);
  if (ema_) load_tensors(ema_.state(), folder / kAverages, "the run", hint);
}

std::string TorchStrategy::parameters_hash() {
  share_buffers();
  return hash_weights(*model_);
}

}  // namespace millrace::train
