// Proposes recipe keys.
#include "recipe/key_hints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.h"

namespace millrace::recipe {
namespace {

constexpr std::string_view kRanks =
    "start N ranks on this host with: train.strategy=ddp train.ranks=N";
constexpr std::string_view kHosts =
    "start ranks on several hosts with srun, mpirun or torchrun, and train.strategy=ddp";
constexpr std::string_view kResume = "continue a run with: millrace train --resume --run DIR";
constexpr std::string_view kRunFolder = "name the run's directory with: --run DIR";
constexpr std::string_view kChain = "the chain of augmentations sets it: 'augment+=resize{size=N}'";

/// Names of PyTorch's classes, Lightning's Trainer, timm's and torchvision's train.py, and
/// torchrun.
constexpr std::array kFamiliar{
    FamiliarName{"num_workers", "loader.workers"},
    FamiliarName{"nworkers", "loader.workers"},
    FamiliarName{"j", "loader.workers"},
    FamiliarName{"workers", "loader.workers"},
    FamiliarName{"threads", "train.threads"},
    FamiliarName{"batch_size", "loader.batch"},
    FamiliarName{"bs", "loader.batch"},
    FamiliarName{"batch", "loader.batch"},
    FamiliarName{"per_device_train_batch_size", "loader.batch_per_rank"},
    FamiliarName{"batch_size_per_gpu", "loader.batch_per_rank"},
    FamiliarName{"prefetch_factor", "loader.prefetch"},
    FamiliarName{"prefetch", "loader.prefetch"},
    FamiliarName{"shuffle", "loader.shuffle"},
    FamiliarName{"sampler", "sampler.kind"},
    FamiliarName{"num_samples", "sampler.samples"},
    FamiliarName{"replacement", "sampler.replacement"},
    FamiliarName{"fold", "data.fold"},
    FamiliarName{"subset", "data.subset"},
    FamiliarName{"drop_last", "loader.drop_last"},
    FamiliarName{"pin_memory",
                 "leave it out: the loader chooses the memory that the device reads best"},
    FamiliarName{"persistent_workers", "leave it out: workers live as long as the training"},
    FamiliarName{"lr", "train.lr"},
    FamiliarName{"learning_rate", "train.lr"},
    FamiliarName{"base_lr", "train.lr"},
    FamiliarName{"epochs", "train.epochs"},
    FamiliarName{"num_epochs", "train.epochs"},
    FamiliarName{"max_epochs", "train.epochs"},
    FamiliarName{"num_train_epochs", "train.epochs"},
    FamiliarName{"steps", "train.steps"},
    FamiliarName{"max_steps", "train.steps"},
    FamiliarName{"num_steps", "train.steps"},
    FamiliarName{"iterations", "train.steps"},
    FamiliarName{"optimizer", "train.optimizer"},
    FamiliarName{"optim", "train.optimizer"},
    FamiliarName{"opt", "train.optimizer"},
    FamiliarName{"momentum", "train.momentum"},
    FamiliarName{"weight_decay", "train.weight_decay"},
    FamiliarName{"wd", "train.weight_decay"},
    FamiliarName{"scheduler", "train.schedule"},
    FamiliarName{"sched", "train.schedule"},
    FamiliarName{"lr_scheduler", "train.schedule"},
    FamiliarName{"lr_schedule", "train.schedule"},
    FamiliarName{"warmup_epochs", "train.warmup"},
    FamiliarName{"lr_warmup_epochs", "train.warmup"},
    FamiliarName{"lr_step_size", "train.step_epochs"},
    FamiliarName{"lr_gamma", "train.gamma"},
    FamiliarName{"min_lr", "train.min_lr"},
    FamiliarName{"smoothing", "train.label_smoothing"},
    FamiliarName{"label_smoothing", "train.label_smoothing"},
    FamiliarName{"clip_grad", "train.clip"},
    FamiliarName{"clip_grad_norm", "train.clip"},
    FamiliarName{"max_grad_norm", "train.clip"},
    FamiliarName{"gradient_clip_val", "train.clip"},
    FamiliarName{"accumulate_grad_batches", "train.accumulate"},
    FamiliarName{"gradient_accumulation_steps", "train.accumulate"},
    FamiliarName{"grad_accum_steps", "train.accumulate"},
    FamiliarName{"model_ema_decay", "train.ema"},
    FamiliarName{"ema_decay", "train.ema"},
    FamiliarName{"amp", "train.amp"},
    FamiliarName{"fp16", "train.amp"},
    FamiliarName{"bf16", "train.amp"},
    FamiliarName{"precision", "train.amp"},
    FamiliarName{"mixed_precision", "train.amp"},
    FamiliarName{"sync_bn", "train.sync_batchnorm"},
    FamiliarName{"device", "train.device"},
    FamiliarName{"gpu", "train.device"},
    FamiliarName{"gpus", "train.device"},
    FamiliarName{"cuda", "train.device"},
    FamiliarName{"accelerator", "train.device"},
    FamiliarName{"devices", "train.replicas"},
    FamiliarName{"log_interval", "train.log_every"},
    FamiliarName{"log_every_n_steps", "train.log_every"},
    FamiliarName{"print_freq", "train.log_every"},
    FamiliarName{"tensorboard", "train.tensorboard"},
    FamiliarName{"model", "model.name"},
    FamiliarName{"arch", "model.name"},
    FamiliarName{"net", "model.name"},
    FamiliarName{"num_classes", "model.classes"},
    FamiliarName{"pretrained", "model.weights"},
    FamiliarName{"weights", "model.weights"},
    FamiliarName{"checkpoint", "model.weights"},
    FamiliarName{"drop", "model.dropout"},
    FamiliarName{"data", "data.path"},
    FamiliarName{"data_dir", "data.path"},
    FamiliarName{"data_path", "data.path"},
    FamiliarName{"dataset_path", "data.path"},
    FamiliarName{"root", "data.path"},
    FamiliarName{"path", "data.path"},
    FamiliarName{"dataset", "data.reader"},
    FamiliarName{"split", "data.split"},
    FamiliarName{"random_seed", "seed"},
    FamiliarName{"manual_seed", "seed"},
    FamiliarName{"mean", "output.mean"},
    FamiliarName{"std", "output.std"},
    FamiliarName{"img_size", kChain},
    FamiliarName{"image_size", kChain},
    FamiliarName{"input_size", kChain},
    FamiliarName{"val_batch_size", "eval.batch"},
    FamiliarName{"validation_batch_size", "eval.batch"},
    FamiliarName{"test_batch_size", "eval.batch"},
    FamiliarName{"resume", kResume},
    FamiliarName{"resume_from_checkpoint", kResume},
    FamiliarName{"ckpt_path", kResume},
    FamiliarName{"output", kRunFolder},
    FamiliarName{"output_dir", kRunFolder},
    FamiliarName{"save_dir", kRunFolder},
    FamiliarName{"log_dir", kRunFolder},
    FamiliarName{"nproc_per_node", kRanks},
    FamiliarName{"world_size", kRanks},
    FamiliarName{"num_nodes", kHosts},
    FamiliarName{"distributed", kRanks},
};

std::string normalised(std::string_view name) {
  while (name.starts_with('-')) name.remove_prefix(1);
  std::string result;
  for (const char c : name.substr(0, 64))
    result += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

}  // namespace

std::span<const FamiliarName> familiar_names() { return kFamiliar; }

std::string_view answer_to_familiar(std::string_view name) {
  const std::string wanted = normalised(name);
  for (const FamiliarName& familiar : kFamiliar)
    if (familiar.name == wanted) return familiar.answer;
  return {};
}

bool is_key(std::string_view answer) {
  return !answer.empty() && answer.find(' ') == std::string_view::npos;
}

std::vector<std::string> near_keys(std::string_view key, std::span<const std::string> names) {
  constexpr std::size_t kLongestName = 256;  // anything longer is not a typing error
  key = key.substr(0, kLongestName);
  const bool dotted = key.find('.') != std::string_view::npos;
  std::vector<std::string> same;  // another section's key of that name
  for (const std::string& name : names)
    if (last_part(name) == last_part(key)) same.push_back(name);
  if (dotted && !same.empty()) return {base::nearest(key, same)};
  if (!same.empty()) return same;

  std::string best;
  std::size_t least = std::string::npos;
  for (const std::string& name : names) {
    std::size_t distance = base::edit_distance(key, name);
    if (!dotted) distance = std::min(distance, base::edit_distance(key, last_part(name)));
    if (distance >= least) continue;
    least = distance;
    best = name;
  }
  return best.empty() ? std::vector<std::string>{} : std::vector<std::string>{best};
}

std::string hint_for_key(std::string_view key, std::span<const std::string> names) {
  constexpr std::size_t kTypingError = 2;
  const std::vector<std::string> near = near_keys(key, names);
  std::string guess = fmt::format("did you mean {}?", fmt::join(near, " or "));
  if (near.size() == 1 && base::edit_distance(key.substr(0, 256), near[0]) <= kTypingError)
    return guess;
  const std::string_view answer = answer_to_familiar(last_part(key));
  if (answer.empty()) return guess;
  if (!is_key(answer)) return std::string(answer);
  const bool known = std::find(names.begin(), names.end(), answer) != names.end();
  return known ? fmt::format("did you mean {}?", answer) : guess;
}

}  // namespace millrace::recipe
