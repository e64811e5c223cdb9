// The table of models.
#include "models/registry.h"

#include <functional>
#include <map>

#include "models/lenet.h"
#include "models/names.h"
#include "pipeline/error.h"
#include "pipeline/suggest.h"

namespace millrace {
namespace {

using Maker = std::function<std::shared_ptr<Classifier>(const ModelShape&)>;

Maker lenet(std::string_view name, const LeNetVariant& variant) {
  return [=](const ModelShape& shape) { return std::make_shared<LeNet>(name, variant, shape); };
}

const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> table{
      {"lenet5", lenet("lenet5", kLeNet5)},
      {"lenet5_plain", lenet("lenet5_plain", kLeNet5Plain)},
      {"lenet5_cifar", lenet("lenet5_cifar", kLeNet5Cifar)},
  };
  return table;
}

}  // namespace

std::vector<std::string> registered_models() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : makers()) names.push_back(name);
  return names;
}

std::shared_ptr<Classifier> make_model(const std::string& name, const ModelShape& shape) {
  const auto maker = makers().find(name);
  if (maker == makers().end())
    throw UsageError("model.name=" + name + ": there is no such model",
                     "did you mean " + nearest(name, kModelNames) + "?");
  if (shape.channels < 1 || shape.classes < 1)
    throw UsageError("model.name=" + name + " takes at least 1 channel and 1 class, not " +
                     std::to_string(shape.channels) + " and " + std::to_string(shape.classes));
  return maker->second(shape);
}

}  // namespace millrace
