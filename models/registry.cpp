// Makes models of their descriptions.
#include "models/registry.h"

#include <variant>

#include "base/text.h"
#include "millrace/error.h"
#include "millrace/param.h"
#include "models/architectures.h"
#include "models/descriptions.h"
#include "models/layers.h"

namespace millrace::train {
namespace {

bool for_cifar(const ModelOptions& options) { return options.variant == "cifar"; }

/// Makes the model of a description.
struct Maker {
  const ModelDescription& model;
  const ModelShape& shape;
  const ModelOptions& options;

  std::shared_ptr<Classifier> operator()(const SequentialLayers& layers) const {
    return std::make_shared<Sequential>(model.name, layers, shape, options.native_ops);
  }
  std::shared_ptr<Classifier> operator()(const VggLayers& layers) const {
    const VggHead head = layers.has_study_head ? VggHead::study
                         : for_cifar(options)  ? VggHead::cifar
                                               : VggHead::imagenet;
    return std::make_shared<Vgg>(model.name, layers, head, shape, options.dropout);
  }
  std::shared_ptr<Classifier> operator()(const ResNetLayers& layers) const {
    const ResNetStem stem = for_cifar(options) ? ResNetStem::cifar : ResNetStem::imagenet;
    return std::make_shared<ResNet>(layers, stem, shape);
  }
};

bool has_dropout(const Classifier& model) {
  for (const auto& module : model.modules(/*include_self=*/false))
    if (module->as<DropoutImpl>() != nullptr) return true;
  return false;
}

/// Throws for options that the model would ignore.
void check_variant(const ModelDescription& model, const ModelOptions& options) {
  const std::string name(model.name);
  if (options.variant != "imagenet" && !for_cifar(options))
    throw UsageError("model.variant=" + options.variant + ": unknown variant",
                     "use imagenet or cifar");
  if (for_cifar(options) && !model.has_cifar_variant())
    throw UsageError("model.variant=cifar: " + name + " has one form only",
                     "leave model.variant out; VGGs and ResNets have variants");
  if (options.native_ops && model.sequential() == nullptr)
    throw UsageError(
        "model.ops=native: " + name + " is built of LibTorch's ops only",
        "leave model.ops out; the LeNets and the small models of study S4 have native ones");
}

}  // namespace

ModelOptions model_options(const Recipe& recipe) {
  return {.variant = recipe.text("model.variant"),
          .dropout = recipe.number("model.dropout"),
          .init = recipe.text("model.init"),
          .native_ops = recipe.text("model.ops") == "native"};
}

std::shared_ptr<Classifier> make_model(const std::string& name, const ModelShape& shape,
                                       const ModelOptions& options) {
  const ModelDescription* const description = describe_model(name);
  if (description == nullptr)
    throw UsageError("model.name=" + name + ": unknown model",
                     "did you mean " + base::nearest(name, model_names()) + "?");
  if (shape.channels < 1 || shape.classes < 1)
    throw UsageError("model.name=" + name + " takes at least 1 channel and 1 class, not " +
                     std::to_string(shape.channels) + " and " + std::to_string(shape.classes));
  require_side(name, shape.input, 1);
  check_variant(*description, options);
  if (options.dropout > 1)
    throw UsageError("model.dropout=" + to_toml(options.dropout) + " is not a probability",
                     "use 0 to 1, or -1 for the model's own");
  std::shared_ptr<Classifier> model =
      std::visit(Maker{*description, shape, options}, description->layers);
  if (options.dropout > 0 && !has_dropout(*model))
    throw UsageError("model.dropout=" + to_toml(options.dropout) + ": " + name +
                         (for_cifar(options) ? " for cifar" : "") + " has no dropout",
                     "leave model.dropout out");
  initialise(*model, options.init);
  return model;
}

void Classifier::count_together() {
  counters_.clear();
  for (const auto& module : modules())
    if (auto* norm = module->as<BatchNorm>()) {
      norm->stop_counting();
      counters_.push_back(norm->num_batches_tracked);
    }
}

void Classifier::count_batch() {
  const torch::NoGradGuard no_grad;
  if (!counters_.empty()) at::_foreach_add_(counters_, 1);
}

}  // namespace millrace::train
