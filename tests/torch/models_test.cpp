// The models: their sizes, names and initial weights are PyTorch's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/names.h"
#include "models/registry.h"
#include "pipeline/error.h"

namespace millrace {
namespace {

std::int64_t parameters_of(Classifier& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

struct Known {
  std::string name;
  ModelShape shape;
  std::int64_t parameters;  ///< as PyTorch counts them
};

std::string text_of(const Known& known) {
  return known.name + "_" + std::to_string(known.shape.channels) + "x" +
         std::to_string(known.shape.input.height) + "x" + std::to_string(known.shape.input.width) +
         "_" + std::to_string(known.shape.classes);
}
void PrintTo(const Known& known, std::ostream* out) { *out << text_of(known); }

class KnownModel : public ::testing::TestWithParam<Known> {};

TEST_P(KnownModel, HasItsParametersAndOneLogitAClass) {
  const auto& [name, shape, parameters] = GetParam();
  const auto model = make_model(name, shape);
  EXPECT_EQ(parameters_of(*model), parameters);
  const auto logits =
      model->forward(torch::zeros({3, shape.channels, shape.input.height, shape.input.width}));
  EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{3, shape.classes}));
}

INSTANTIATE_TEST_SUITE_P(Models, KnownModel,
                         ::testing::Values(Known{"lenet5", {1, {28, 28}, 10}, 61'706},
                                           Known{"lenet5", {3, {28, 28}, 10}, 62'006},
                                           Known{"lenet5", {1, {12, 12}, 10}, 15'626},
                                           Known{"lenet5", {1, {40, 20}, 3}, 59'191},
                                           Known{"lenet5_plain", {1, {28, 28}, 10}, 60'074},
                                           Known{"lenet5_plain", {3, {32, 32}, 10}, 81'302},
                                           Known{"lenet5_cifar", {3, {32, 32}, 10}, 135'062},
                                           Known{"lenet5_cifar", {1, {28, 28}, 100}, 113'804}),
                         [](const auto& known) { return text_of(known.param); });

TEST(Models, NamesForTheRecipeAreTheRegistrys) {
  std::vector<std::string> names(kModelNames.begin(), kModelNames.end());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, registered_models());
}

TEST(Models, ParametersHaveTorchvisionsNames) {
  const auto model = make_model("lenet5", {1, {28, 28}, 10});
  std::vector<std::string> names;
  for (const auto& parameter : model->named_parameters()) names.push_back(parameter.key());
  EXPECT_EQ(names, (std::vector<std::string>{"conv1.weight", "conv1.bias", "conv2.weight",
                                             "conv2.bias", "fc1.weight", "fc1.bias", "fc2.weight",
                                             "fc2.bias", "fc3.weight", "fc3.bias"}));
}

TEST(Models, InitialWeightsAreUniformWithinOneOverTheRootOfFanIn) {
  torch::manual_seed(0);
  const auto model = make_model("lenet5", {1, {28, 28}, 10});
  const auto parameters = model->named_parameters();
  for (const auto& [name, fan_in] : {std::pair("conv2", 150), std::pair("fc1", 400)}) {
    const float bound = 1 / std::sqrt(static_cast<float>(fan_in));
    for (const char* part : {".weight", ".bias"})
      EXPECT_LE(parameters[name + std::string(part)].abs().max().item<float>(), bound);
    const auto& weight = parameters[name + std::string(".weight")];
    EXPECT_NEAR(weight.std().item<float>(), bound / std::sqrt(3.f), 0.05f * bound);
  }
}

TEST(Models, UnknownNameIsRefusedWithTheNearest) {
  try {
    make_model("lenet", {});
    FAIL() << "made a model called lenet";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "model.name=lenet: there is no such model");
    EXPECT_EQ(error.hint(), "did you mean lenet5?");
  }
}

TEST(Models, TooSmallImagesAreRefusedWithTheSmallest) {
  try {
    make_model("lenet5", {1, {28, 11}, 10});
    FAIL() << "made a model for 28x11";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "model.name=lenet5 takes images of at least 12x12 pixels, these are 28x11");
  }
}

}  // namespace
}  // namespace millrace
