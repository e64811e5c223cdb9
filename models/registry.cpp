// Table of models.
#include "models/registry.h"

#include <functional>
#include <map>

#include "base/text.h"
#include "millrace/error.h"
#include "millrace/param.h"
#include "models/architectures.h"
#include "models/layers.h"
#include "models/options.h"

namespace millrace::train {
namespace {

using Maker = std::function<std::shared_ptr<Classifier>(const ModelShape&, const ModelOptions&)>;

struct Entry {
  Maker make;
  bool has_cifar_variant = false;
  bool has_native_ops = false;
};

bool for_cifar(const ModelOptions& options) { return options.variant == "cifar"; }

Entry sequential(std::string_view name) {
  return {.make =
              [=](const ModelShape& shape, const ModelOptions& options) {
                return std::make_shared<Sequential>(name, shape, options.native_ops);
              },
          .has_native_ops = true};
}

Entry vgg(std::string_view name, int depth, bool batch_norm) {
  return {[=](const ModelShape& shape, const ModelOptions& options) {
            const VggHead head = for_cifar(options) ? VggHead::cifar : VggHead::imagenet;
            return std::make_shared<Vgg>(name, VggVariant{depth, batch_norm, head}, shape,
                                         options.dropout);
          },
          /*has_cifar_variant=*/true};
}

Entry vgg_cifar(std::string_view name) {
  return {[=](const ModelShape& shape, const ModelOptions& options) {
    return std::make_shared<Vgg>(name, VggVariant{4, true, VggHead::study}, shape, options.dropout);
  }};
}

Entry resnet(const ResNetVariant& variant) {
  return {[=](const ModelShape& shape, const ModelOptions& options) {
            const ResNetStem stem = for_cifar(options) ? ResNetStem::cifar : ResNetStem::imagenet;
            return std::make_shared<ResNet>(variant, stem, shape);
          },
          /*has_cifar_variant=*/true};
}

const std::map<std::string, Entry>& entries() {
  static const std::map<std::string, Entry> table{
      {"lenet5", sequential("lenet5")},
      {"lenet5_plain", sequential("lenet5_plain")},
      {"lenet5_cifar", sequential("lenet5_cifar")},
      {"linear", sequential("linear")},
      {"mlp", sequential("mlp")},
      {"simple_conv", sequential("simple_conv")},
      {"vgg16", vgg("vgg16", 3, false)},
      {"vgg16_bn", vgg("vgg16_bn", 3, true)},
      {"vgg19", vgg("vgg19", 4, false)},
      {"vgg19_bn", vgg("vgg19_bn", 4, true)},
      {"vgg_cifar", vgg_cifar("vgg_cifar")},
      {"resnet18", resnet(kResNet18)},
      {"resnet34", resnet(kResNet34)},
      {"resnet50", resnet(kResNet50)},
  };
  return table;
}

bool has_dropout(const Classifier& model) {
  for (const auto& module : model.modules(/*include_self=*/false))
    if (module->as<DropoutImpl>() != nullptr) return true;
  return false;
}

/// Throws for options that the model would ignore.
void check_variant(const std::string& name, const Entry& entry, const ModelOptions& options) {
  if (options.variant != "imagenet" && !for_cifar(options))
    throw UsageError("model.variant=" + options.variant + ": unknown variant",
                     "use imagenet or cifar");
  if (for_cifar(options) && !entry.has_cifar_variant)
    throw UsageError("model.variant=cifar: " + name + " has one form only",
                     "leave model.variant out; VGGs and ResNets have variants");
  if (options.native_ops && !entry.has_native_ops)
    throw UsageError(
        "model.ops=native: " + name + " is built of LibTorch's ops only",
        "leave model.ops out; the LeNets and the small models of study S4 have native ones");
}

}  // namespace

std::vector<std::string> registered_models() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries()) names.push_back(name);
  return names;
}

std::shared_ptr<Classifier> make_model(const std::string& name, const ModelShape& shape,
                                       const ModelOptions& options) {
  const auto found = entries().find(name);
  if (found == entries().end())
    throw UsageError("model.name=" + name + ": unknown model",
                     "did you mean " + base::nearest(name, kModelNames) + "?");
  if (shape.channels < 1 || shape.classes < 1)
    throw UsageError("model.name=" + name + " takes at least 1 channel and 1 class, not " +
                     std::to_string(shape.channels) + " and " + std::to_string(shape.classes));
  require_side(name, shape.input, 1);
  check_variant(name, found->second, options);
  if (options.dropout > 1)
    throw UsageError("model.dropout=" + to_toml(options.dropout) + " is not a probability",
                     "use 0 to 1, or -1 for the model's own");
  std::shared_ptr<Classifier> model = found->second.make(shape, options);
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
