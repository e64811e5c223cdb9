// Declares the recipe keys of training and evaluation. Independent of LibTorch.
#include "strategies/trainer/train_keys.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace millrace::train {
namespace {

constexpr double kMax = std::numeric_limits<std::int32_t>::max();
constexpr double kAny = std::numeric_limits<double>::infinity();

std::vector<Param> strategy_keys() {
  return {
      Param::choice("train.strategy", "single", {"single", "data_parallel", "ddp"},
                    "how a step is shared between devices"),
      Param::integer("train.replicas", 2, 1, 1024,
                     "data_parallel: number of model replicas in this process"),
      Param::integer("train.ranks", 0, 0, 1024,
                     "ddp: ranks to start on this host; 0: a launcher starts them"),
      Param::boolean("train.sync_batchnorm", false,
                     "synchronise batch normalisation over all replicas or ranks"),
      Param::number("train.timeout", 300, 1, 1e6,
                    "ddp: time after which a rank that does not respond counts as lost")
          .in("s"),
      Param::text("train.device", "cpu", "cpu, cuda, cuda:N or simulated"),
      Param::integer("train.epochs", 1, 1, kMax, "passes over the data").in("epochs"),
      Param::integer("train.steps", 0, 0, kMax, "stop after this many steps; 0: after all epochs")
          .in("steps"),
      Param::integer("train.accumulate", 1, 1, kMax,
                     "batches per optimizer step (gradient accumulation)")
          .in("batches"),
  };
}

std::vector<Param> optimizer_keys() {
  return {
      Param::choice("train.optimizer", "sgd", {"sgd", "adam", "adamw"}, "optimizer"),
      Param::number("train.lr", 0.01, 0, kAny, "learning rate: the peak of the schedule"),
      Param::number("train.momentum", 0.9, 0, 1, "sgd: momentum"),
      Param::boolean("train.nesterov", false, "sgd: Nesterov momentum"),
      Param::numbers("train.betas", {0.9, 0.999}, {2}, 0, 1,
                     "adam, adamw: decay rates of the two moment estimates"),
      Param::number("train.eps", 1e-8, 0, 1, "adam, adamw: added to the denominator for stability"),
      Param::number("train.weight_decay", 0, 0, kAny, "L2 penalty; adamw: decoupled weight decay"),
      Param::choice("train.schedule", "constant",
                    {"constant", "step", "multistep", "cosine", "onecycle"},
                    "schedule of the learning rate"),
      Param::number("train.warmup", 0, 0, kMax, "linear warm-up of the learning rate").in("epochs"),
      Param::number("train.step_epochs", 30, 1, kMax, "schedule=step: epochs between reductions")
          .in("epochs"),
      Param::numbers("train.milestones", {}, {}, 0, kMax,
                     "schedule=multistep: epochs at which the learning rate is reduced"),
      Param::number("train.gamma", 0.1, 0, 1, "schedule=step, multistep: factor per reduction"),
      Param::number("train.min_lr", 0, 0, kAny, "schedule=cosine: final learning rate"),
      Param::number("train.label_smoothing", 0, 0, 1,
                    "label smoothing: share of the target that is spread over all classes"),
      Param::number("train.clip", 0, 0, kAny,
                    "maximum norm of the gradients, over all parameters; 0: no clipping"),
      Param::number(
          "train.ema", 0, 0, 1,
          "decay per step of the moving average of the weights, which is evaluated; 0: none"),
  };
}

std::vector<Param> device_keys() {
  return {
      Param::choice("train.amp", "off", {"off", "bf16", "f16"}, "mixed precision"),
      Param::choice(
          "train.tf32", "conv", {"off", "conv", "on"},
          "CUDA: use TF32 for nothing, for convolutions (PyTorch's default), or for matrix "
          "products too"),
      Param::boolean("train.deterministic", false,
                     "CUDA: only algorithms that give the same bits in every run; others fail"),
      Param::boolean(
          "train.cudnn_benchmark", false,
          "CUDA: let cuDNN time its algorithms for every new shape and take the fastest"),
      Param::choice("train.channels_last", "auto", {"auto", "on", "off"},
                    "channels-last memory format for convolutions; auto: where it is faster"),
      Param::choice("train.clock", "sync", {"sync", "async"},
                    "sync: wait for the device at the end of each step; async: keep steps queued "
                    "on the device"),
      Param::integer("train.inflight", 2, 1, 64,
                     "clock=async: maximum number of steps queued on the device")
          .in("steps"),
      Param::boolean("train.device_parts", true,
                     "CUDA: time forward, backward and optimizer step on the device, by events"),
      Param::choice(
          "train.cuda_graphs", "off", {"off", "on", "step"},
          "CUDA: run a full batch as one CUDA graph; on: forward and backward (strategy single); "
          "step: the optimizer's step too (single, ddp)"),
      Param::integer("train.threads", 0, 0, 1024,
                     "intra-op threads of LibTorch; 0: the host's cores divided by its ranks and "
                     "replicas, less the workers")
          .in("threads"),
  };
}

std::vector<Param> early_stopping_keys() {
  return {
      Param::choice("train.early_stopping.metric", "off", {"off", "test_loss", "top1"},
                    "metric that stops the run when it no longer improves; off: no early stopping"),
      Param::integer("train.early_stopping.patience", 3, 1, kMax,
                     "evaluations in a row without improvement that end the run")
          .in("evaluations"),
      Param::number("train.early_stopping.min_delta", 0, 0, kAny,
                    "change that must be exceeded to count as an improvement; top1 is a fraction: "
                    "0.001 is 0.1%"),
  };
}

std::vector<Param> record_keys() {
  return {
      Param::boolean("train.checkpoints", true,
                     "write checkpoints; a run without any cannot be resumed or evaluated later"),
      Param::integer("train.checkpoint_every", 0, 0, kMax,
                     "steps between checkpoints, besides one after every epoch; 0: no others")
          .in("steps"),
      Param::integer("train.checkpoint_keep", 2, 1, kMax,
                     "number of newest checkpoints to keep, besides the best"),
      Param::integer("train.log_every", 100, 0, kMax, "steps between printed losses; 0: none")
          .in("steps"),
      Param::boolean("train.tensorboard", false,
                     "also write TensorBoard event files into the run directory"),
      Param::number("simulated.update_ms", 5, 0, 1e6,
                    "update time per step on the simulated device")
          .in("ms"),
      Param::choice("eval.split", "test", {"train", "test", "none"},
                    "split for evaluation; none: train without any"),
      Param::integer("eval.every", 1, 0, kMax, "epochs between evaluations; 0: only at the end")
          .in("epochs"),
      Param::integer("eval.batch", 512, 1, kMax, "evaluation batch size").in("samples"),
  };
}

}  // namespace

std::vector<Param> train_keys() {
  std::vector<Param> keys = strategy_keys();
  // A section's keys stand together, train.early_stopping's after those of train.
  for (std::vector<Param> more :
       {optimizer_keys(), device_keys(), record_keys(), early_stopping_keys()})
    std::ranges::move(more, std::back_inserter(keys));
  return keys;
}

std::vector<Param> debug_keys() {
  return {
      Param::number("debug.next_ms", 0, 0, 1e6, "artificial delay in every wait for a batch")
          .in("ms"),
      Param::number("debug.forward_ms", 0, 0, 1e6, "artificial delay in every forward pass")
          .in("ms"),
      Param::number("debug.evaluate_ms", 0, 0, 1e6, "artificial delay in every evaluation")
          .in("ms"),
      Param::number("debug.checkpoint_ms", 0, 0, 1e6,
                    "artificial delay in every write of a checkpoint")
          .in("ms"),
      Param::number("debug.log_ms", 0, 0, 1e6, "artificial delay in every step's log span")
          .in("ms"),
  };
}

}  // namespace millrace::train
