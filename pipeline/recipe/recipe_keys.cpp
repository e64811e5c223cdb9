// Declares every recipe key, each once.
#include <algorithm>
#include <limits>
#include <list>

#include "millrace/limits.h"
#include "millrace/recipe.h"
#include "pipeline/readers/labels.h"

namespace millrace::pipeline {
namespace {

/// Keeps every list ever made: a recipe goes on using the list that it was made with.
std::list<std::vector<Param>>& all_keys() {
  constexpr double kMax = std::numeric_limits<std::int32_t>::max();
  constexpr double kAny = std::numeric_limits<double>::infinity();
  static std::list<std::vector<Param>> keys{{
      Param::text("recipe", "custom", "name of the recipe this one came from"),
      Param::integer("seed", 0, 0, 0x1p53, "of shuffling, augmentation and initial weights"),
      Param::choice("resample", "once", {"once", "stepwise"},
                    "once: neighbouring geometric ops become one resampling; stepwise: one by one"),

      Param::text("plugins.path", "",
                  "folders of plugins, or plugins themselves, ':' between them"),

      Param::choice(
          "data.reader", "idx", {"idx", "cifar", "folder", "tar", "manifest", "synthetic"},
          "idx (MNIST's files), cifar (binary), folder (a class a folder), tar (WebDataset "
          "or a folder's files), manifest (CSV or JSONL), synthetic (made up); plugins.path adds "
          "those of plugins"),
      Param::text("data.path", "",
                  "folder of the data set; tar, manifest: or a file; tar: or shard-{000..003}.tar"),
      Param::choice("data.split", "train", {"train", "test"}, "what is trained on or benched"),
      Param::integer("data.max_pixels", static_cast<std::int64_t>(kMaxPixels), 1, kMax,
                     "a larger image is refused before it is decoded"),
      Param::choice(
          "data.cache", "os", {"os", "ram", "cold"},
          "os: the system's; ram: the set is kept in memory from its first read on; cold: "
          "every read comes from storage, checked"),
      Param::number("data.storage.bandwidth", 0, 0, 1e9,
                    "MB/s of an emulated disk; 0: as fast as it is"),
      Param::number("data.storage.latency", 0, 0, 1e6,
                    "ms a read of an emulated disk takes at least"),
      Param::number("data.storage.iops", 0, 0, 1e12,
                    "reads a second of an emulated disk; 0: as fast as it is"),
      Param::integer("data.synthetic.count", 60'000, 1, 0x1p40,
                     "images that reader synthetic makes"),
      Param::integer("data.synthetic.width", 32, 1, 16'384, "of each, in pixels"),
      Param::integer("data.synthetic.height", 32, 1, 16'384, "of each, in pixels"),
      Param::integer("data.synthetic.channels", 3, 1, 3, "of each: 1 (gray) or 3 (RGB)"),
      Param::integer("data.synthetic.classes", 10, 1, 1'000'000, "labels count through them"),

      Param::choice("decode.scale", "exact", {"exact", "dct"},
                    "dct: a JPEG that is shrunk anyway is decoded at 1/2, 1/4 or 1/8; approximate"),
      Param::choice("decode.region", "on", {"on", "off"},
                    "on: only what the first pass reads is decoded; the same pixels"),

      Param::choice(
          "loader.mode", "normal", {"normal", "synthetic", "cached"},
          "synthetic: batches of noise, no loading at all; cached: the first batches come "
          "again and again"),
      Param::integer("loader.workers", 2, 0, 256,
                     "worker threads; 0: on the trainer's thread; auto: as many as the run's first "
                     "steps show to be enough")
          .or_word("auto"),
      Param::integer("loader.batch", 64, 1, kMax, "samples a step, of all ranks together"),
      Param::integer("loader.batch_per_rank", 0, 0, kMax,
                     "samples a step and rank, in place of loader.batch; 0: loader.batch counts"),
      Param::integer("loader.prefetch", 4, 1, 4096, "batches made ahead, in total"),
      Param::text("loader.shuffle", "global", "global, window:N or none"),
      Param::boolean("loader.drop_last", false, "leave out an epoch's last, short batch"),
      Param::choice("loader.on_error", "fail", {"fail", "skip", "replace"},
                    "a sample that fails: stop, go on without it, or draw another one"),
      Param::integer("loader.io_threads", -1, -1, 256,
                     "threads that read ahead of the workers; 0: workers read; -1: 4 for a cold or "
                     "emulated storage, else 0"),
      Param::integer(
          "loader.max_bytes", static_cast<std::int64_t>(kMaxBytes), 1, 0x1p53,
          "memory of all workers for images that take over 16 MiB while they are decoded: "
          "one that does not fit beside the others waits"),
      Param::integer("loader.grain", 0, 0, kMax, "samples a work unit; 0: from measured cost"),

      Param::choice("output.dtype", "f32", {"f32", "u8", "f16", "bf16"},
                    "type of a batch's elements"),
      Param::choice("output.layout", "chw", {"chw", "hwc"}, "order of a sample's dimensions"),
      Param::numbers("output.mean", {0.0}, {1, 3}, -kAny, kAny,
                     "a channel, on the scale 0..1; f32 only"),
      Param::numbers("output.std", {1.0}, {1, 3}, 1e-12, kAny,
                     "a channel, on the scale 0..1; f32 only"),
      Param::choice("output.normalize", "loader", {"loader", "device"},
                    "device: batches travel as u8 levels, and the device makes f32 of them"),

      Param::choice(
          "model.name", "lenet5",
          {"lenet5", "lenet5_plain", "lenet5_cifar", "linear", "mlp", "simple_conv", "vgg16",
           "vgg16_bn", "vgg19", "vgg19_bn", "vgg_cifar", "resnet18", "resnet34", "resnet50"},
          "lenet5 (5x5 kernels), lenet5_plain (3x3), lenet5_cifar (3x3, padded); the "
          "VGGs and ResNets are torchvision's, vgg_cifar is vgg19_bn with a small head"),
      Param::choice("model.variant", "imagenet", {"imagenet", "cifar"},
                    "what a ResNet's stem or a VGG's head is made for"),
      Param::number("model.dropout", -1, -1, 1, "probability; -1: as the model's source has it"),
      Param::choice("model.init", "default", {"default", "kaiming", "xavier"},
                    "default: as the model's source has it; kaiming: normal over fan-in; xavier: "
                    "uniform"),
      Param::integer("model.classes", 0, 0, kMaxClasses,
                     "labels lie below this; 0: as the data says"),
      Param::text("model.weights", "", "safetensors file to start from"),
      Param::choice(
          "model.ops", "auto", {"auto", "torch", "native"},
          "whose convolutions and poolings: LibTorch's, our own (docs/reference/native-ops.md), or "
          "those that a table says are faster"),

      Param::choice("train.strategy", "single", {"single", "data_parallel", "ddp"},
                    "how devices share a step"),
      Param::integer("train.replicas", 2, 2, 1024, "data_parallel: of the model, in this process"),
      Param::boolean("train.sync_batchnorm", false,
                     "batch normalisation over all replicas or ranks"),
      Param::number("train.timeout", 300, 1, 1e6,
                    "ddp: seconds after which a rank that does not answer counts as lost"),
      Param::text("train.device", "cpu", "cpu, cuda, cuda:N or simulated"),
      Param::integer("train.epochs", 1, 1, kMax, "passes over the data"),
      Param::integer("train.steps", 0, 0, kMax, "end after this many steps; 0: after all epochs"),
      Param::integer("train.accumulate", 1, 1, kMax, "batches that share an optimiser step"),
      Param::choice("train.optimizer", "sgd", {"sgd", "adam", "adamw"}, "optimiser"),
      Param::number("train.lr", 0.01, 0, kAny, "learning rate, the highest of the schedule"),
      Param::number("train.momentum", 0.9, 0, 1, "of sgd"),
      Param::boolean("train.nesterov", false, "Nesterov momentum, of sgd"),
      Param::numbers("train.betas", {0.9, 0.999}, {2}, 0, 1, "decay of adam's two averages"),
      Param::number("train.eps", 1e-8, 0, 1, "added to adam's denominator"),
      Param::number("train.weight_decay", 0, 0, kAny, "L2 penalty; adamw: decay of the weights"),
      Param::choice("train.schedule", "constant",
                    {"constant", "step", "multistep", "cosine", "onecycle"},
                    "how the learning rate changes"),
      Param::number("train.warmup", 0, 0, kMax, "epochs of linear growth of the learning rate"),
      Param::number("train.step_epochs", 30, 1, kMax, "schedule=step: epochs between reductions"),
      Param::numbers("train.milestones", {}, {}, 0, kMax,
                     "schedule=multistep: epochs of the reductions"),
      Param::number("train.gamma", 0.1, 0, 1, "schedule=step, multistep: a reduction's factor"),
      Param::number("train.min_lr", 0, 0, kAny, "schedule=cosine: the last learning rate"),
      Param::number("train.label_smoothing", 0, 0, 1, "part of the target that all classes share"),
      Param::number("train.clip", 0, 0, kAny, "largest norm of all gradients together; 0: any"),
      Param::number("train.ema", 0, 0, 1,
                    "decay a step of the averaged weights, which are then evaluated; 0: none"),
      Param::choice("train.amp", "off", {"off", "bf16", "f16"}, "mixed precision"),
      Param::choice("train.tf32", "conv", {"off", "conv", "on"},
                    "CUDA: what may be computed in TF32: nothing, convolutions (as in PyTorch), "
                    "matrix products too"),
      Param::choice("train.channels_last", "auto", {"auto", "on", "off"},
                    "memory format of convolutions; auto: where it is faster"),
      Param::choice("train.clock", "sync", {"sync", "async"},
                    "sync: a step ends when the device is done; async: the device has a queue"),
      Param::integer("train.inflight", 2, 1, 64, "clock=async: steps that the device may have"),
      Param::choice("train.cuda_graphs", "off", {"off", "on"},
                    "CUDA, single: forward and backward of a full batch as one launch"),
      Param::integer("train.threads", 0, 0, 1024,
                     "of LibTorch; 0: the host's cores shared by its ranks and replicas, less "
                     "the workers"),
      Param::integer("train.checkpoint_every", 0, 0, kMax,
                     "steps between checkpoints; 0: one at the end of every epoch"),
      Param::integer("train.checkpoint_keep", 2, 1, kMax,
                     "newest checkpoints that stay, besides the best"),
      Param::integer("train.log_every", 100, 0, kMax, "steps between lines on the loss; 0: none"),
      Param::boolean("train.tensorboard", false,
                     "write the curves as TensorBoard's event files too, into the run's directory"),

      Param::number("simulated.update_ms", 5, 0, 1e6, "a step of the simulated device, in ms"),

      Param::choice("eval.split", "test", {"train", "test"}, "what is evaluated on"),
      Param::integer("eval.every", 1, 0, kMax, "epochs between evaluations; 0: only at the end"),
      Param::integer("eval.batch", 512, 1, kMax, "samples a batch of evaluation"),

      Param::integer("bench.epochs", 1, 1, kMax, "epochs to run"),
      Param::integer("bench.first_batch", 0, 0, 0x1p53, "batch to start at, over all epochs"),

      Param::number("sweep.margin", 0.03, 1e-6, 1,
                    "differences within it count as none: 0.03 is 3%"),
      Param::integer("sweep.most_repeats", 30, 5, 10'000, "what --repeats auto may come to"),

      Param::number("debug.next_ms", 0, 0, 1e6, "delay planted in every wait for a batch, in ms"),
      Param::number("debug.forward_ms", 0, 0, 1e6, "delay planted in every forward pass, in ms"),
      Param::number("debug.evaluate_ms", 0, 0, 1e6, "delay planted in every evaluation, in ms"),
      Param::number("debug.log_ms", 0, 0, 1e6, "delay planted in every step's log span, in ms"),
  }};
  return keys;
}

}  // namespace

void add_reader_keys(const std::string& reader, std::span<const Param> params) {
  std::vector<Param> all = all_keys().back();
  const auto choice = std::find_if(all.begin(), all.end(),
                                   [](const Param& param) { return param.name == "data.reader"; });
  choice->choices.push_back(reader);
  auto place = std::find_if(all.rbegin(), all.rend(), [](const Param& param) {
                 return param.name.starts_with("data.");
               }).base();
  for (Param param : params) {
    param.name = "data." + reader + "." + param.name;
    place = all.insert(place, std::move(param)) + 1;
  }
  all_keys().push_back(std::move(all));
}

}  // namespace millrace::pipeline

std::span<const millrace::Param> millrace::recipe_keys() { return pipeline::all_keys().back(); }
