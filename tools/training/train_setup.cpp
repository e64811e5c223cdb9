// Reads the keys of a training, and rejects settings that do not go together.
#include "tools/training/train_setup.h"

#include <fmt/format.h>

#include <algorithm>

#include "millrace/error.h"
#include "models/descriptions.h"
#include "tools/training/setup.h"

namespace millrace::tools {

train::TrainOptions train_options(const Recipe& recipe) {
  train::TrainOptions options;
  options.epochs = static_cast<std::uint64_t>(recipe.integer("train.epochs"));
  options.steps = static_cast<std::uint64_t>(recipe.integer("train.steps"));
  options.eval_every = static_cast<std::uint64_t>(recipe.integer("eval.every"));
  options.checkpoint_every = static_cast<std::uint64_t>(recipe.integer("train.checkpoint_every"));
  options.accumulate = static_cast<std::uint64_t>(recipe.integer("train.accumulate"));
  options.schedule = {.name = recipe.text("train.schedule"),
                      .lr = recipe.number("train.lr"),
                      .warmup = recipe.number("train.warmup"),
                      .step_epochs = recipe.number("train.step_epochs"),
                      .milestones = recipe.numbers("train.milestones"),
                      .gamma = recipe.number("train.gamma"),
                      .min_lr = recipe.number("train.min_lr")};
  options.stopping = {
      .metric = recipe.text("train.early_stopping.metric"),
      .patience = static_cast<std::uint64_t>(recipe.integer("train.early_stopping.patience")),
      .min_delta = recipe.number("train.early_stopping.min_delta")};
  options.delays = {recipe.number("debug.next_ms") * 1e-3, recipe.number("debug.forward_ms") * 1e-3,
                    recipe.number("debug.evaluate_ms") * 1e-3,
                    recipe.number("debug.log_ms") * 1e-3};
  return options;
}

void check_schedule(const train::TrainOptions& options, std::uint64_t samples) {
  const auto window = static_cast<std::uint64_t>(options.batch) * options.accumulate;
  const std::uint64_t updates = (samples + window - 1) / window;
  static_cast<void>(train::Schedule(options.schedule, options.epochs * updates, updates));
}

void check_labels(const Reader& reader) {
  if (reader.annotations() != nullptr)
    throw UsageError(fmt::format("data.reader={} marks objects, but training needs a class for "
                                 "each image",
                                 reader.info().reader),
                     "train a detector in Python: pymillrace.Loader hands out the boxes");
  if (reader.info().masks)
    throw UsageError("data.masks: training needs a class for each image, not masks",
                     "train in Python: pymillrace.Loader hands out the masks");
  if (!reader.info().members.empty())
    throw UsageError("data.members: training needs a class for each image, not members",
                     "leave it out, or train in Python: pymillrace.Loader hands them out");
}

void check_early_stopping(const Recipe& recipe) {
  const std::string& metric = recipe.text("train.early_stopping.metric");
  if (metric == "off") return;
  if (is_simulated(recipe))
    throw UsageError(
        fmt::format("train.early_stopping.metric={}: a simulated device has no model to evaluate",
                    metric),
        "set train.early_stopping.metric=off");
  if (!is_evaluated(recipe))
    throw UsageError(
        fmt::format("train.early_stopping.metric={}: with eval.split=none nothing is evaluated",
                    metric),
        "set eval.split=test");
  if (recipe.integer("eval.every") == 0)
    throw UsageError(
        fmt::format("train.early_stopping.metric={}: with eval.every=0 only the end of the run is "
                    "evaluated",
                    metric),
        "set eval.every=1");
}

void check_evaluation(const Reader& train, const Reader& eval, const SampleSpec& sample,
                      const SampleSpec& eval_sample, const std::string& model) {
  const auto& classes = train.info().classes;
  const auto& others = eval.info().classes;
  if (classes != others) {
    const auto [one, other] =
        std::mismatch(classes.begin(), classes.end(), others.begin(), others.end());
    throw DataError(
        fmt::format("{}: the {} and {} splits have different classes, first {} and {}",
                    train.info().path, train.info().split, eval.info().split,
                    one == classes.end() ? "none" : *one, other == others.end() ? "none" : *other),
        "labels are indices into the list of classes, so both splits need the same list");
  }
  if (sample.channels != eval_sample.channels)
    throw DataError(
        fmt::format("{}: the {} split has {} channels, and {} has {}", train.info().path,
                    train.info().split, sample.channels, eval.info().split, eval_sample.channels),
        "a model takes one number of channels");
  const auto* const description = train::describe_model(model);
  if (sample.size != eval_sample.size && description != nullptr && description->takes_one_size())
    throw UsageError(fmt::format("training sees samples of {}x{}, evaluation would see {}x{}, but "
                                 "model.name={} takes one size",
                                 sample.size.width, sample.size.height, eval_sample.size.width,
                                 eval_sample.size.height, model),
                     "end [[eval.augment]] in the same size, for example with "
                     "eval.augment+=random_crop{size=...}, or choose "
                     "a model that ends in global pooling, such as resnet18");
}

}  // namespace millrace::tools
