// Models: their sizes, names and initial weights are PyTorch's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "millrace/error.h"
#include "millrace/recipe.h"
#include "models/descriptions.h"
#include "models/layers.h"
#include "models/registry.h"

namespace millrace::train {
namespace {

std::int64_t parameters_of(Classifier& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

struct Known {
  std::string name;
  ModelShape shape;
  std::int64_t parameters;  ///< as counted by PyTorch
  std::string variant = "imagenet";
};

std::string text_of(const Known& known) {
  return known.name + "_" + std::to_string(known.shape.channels) + "x" +
         std::to_string(known.shape.input.height) + "x" + std::to_string(known.shape.input.width) +
         "_" + std::to_string(known.shape.classes) + (known.variant == "cifar" ? "_cifar" : "");
}
void PrintTo(const Known& known, std::ostream* out) { *out << text_of(known); }

class KnownModel : public ::testing::TestWithParam<Known> {};

TEST_P(KnownModel, HasItsParametersAndOneLogitAClass) {
  const auto& [name, shape, parameters, variant] = GetParam();
  const auto model = make_model(name, shape, {.variant = variant});
  EXPECT_EQ(parameters_of(*model), parameters);
  const auto logits =
      model->forward(torch::zeros({3, shape.channels, shape.input.height, shape.input.width}));
  EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{3, shape.classes}));
}

INSTANTIATE_TEST_SUITE_P(
    Models, KnownModel,
    ::testing::Values(
        Known{"lenet5", {1, {28, 28}, 10}, 61'706}, Known{"lenet5", {3, {28, 28}, 10}, 62'006},
        Known{"lenet5", {1, {12, 12}, 10}, 15'626}, Known{"lenet5", {1, {40, 20}, 3}, 59'191},
        Known{"lenet5_plain", {1, {28, 28}, 10}, 60'074},
        Known{"lenet5_plain", {3, {32, 32}, 10}, 81'302},
        Known{"lenet5_cifar", {3, {32, 32}, 10}, 135'062},
        Known{"lenet5_cifar", {1, {28, 28}, 100}, 113'804},
        Known{"linear", {1, {28, 28}, 10}, 7'850}, Known{"mlp", {1, {28, 28}, 10}, 101'770},
        Known{"simple_conv", {1, {28, 28}, 10}, 603'590},
        Known{"vgg_cifar", {3, {32, 32}, 10}, 20'200'906},
        Known{"vgg19_bn", {3, {32, 32}, 10}, 20'040'522, "cifar"},
        Known{"vgg16", {3, {40, 70}, 1000}, 138'357'544},
        Known{"resnet18", {3, {32, 32}, 10}, 11'173'962, "cifar"},
        Known{"resnet18", {1, {1, 1}, 7}, 11'173'831},
        Known{"resnet34", {3, {33, 65}, 1000}, 21'797'672},
        Known{"resnet50", {3, {32, 32}, 1000}, 25'557'032}),
    [](const auto& known) { return text_of(known.param); });

TEST(Models, TheRecipeTakesThoseThatAreDescribed) {
  const auto keys = recipe_keys();
  const auto key = std::ranges::find(keys, "model.name", &Param::name);
  ASSERT_NE(key, keys.end());
  EXPECT_EQ(key->choices, model_names());
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

TEST(Models, WithoutConvolutionsNativeOpsChangeNoBit) {
  for (const char* name : {"linear", "mlp"}) {
    const auto logits = [&](bool native_ops) {
      torch::manual_seed(0);
      const auto model = make_model(name, {1, {28, 28}, 10}, {.native_ops = native_ops});
      return model->forward(torch::linspace(-1, 1, 5 * 784).view({5, 1, 28, 28}));
    };
    EXPECT_TRUE(torch::equal(logits(true), logits(false))) << name;
  }
}

/// Returns the standard deviation of a model's tensor over the expected one.
double deviation(Classifier& model, const std::string& name, double expected) {
  return model.named_parameters()[name].to(torch::kDouble).std().item<double>() / expected;
}

TEST(Models, TorchvisionsInitialisationHasItsDeviations) {
  torch::manual_seed(0);
  const auto vgg = make_model("vgg16_bn", {3, {32, 32}, 10});
  EXPECT_NEAR(deviation(*vgg, "features.37.weight", std::sqrt(2. / (512 * 9))), 1, 0.01);
  EXPECT_NEAR(deviation(*vgg, "classifier.3.weight", 0.01), 1, 0.01);
  EXPECT_EQ(vgg->named_parameters()["features.0.bias"].abs().max().item<float>(), 0);
  EXPECT_EQ(vgg->named_parameters()["classifier.0.bias"].abs().max().item<float>(), 0);
  const auto resnet = make_model("resnet50", {3, {32, 32}, 10}, {.variant = "cifar"});
  EXPECT_NEAR(deviation(*resnet, "layer4.0.downsample.0.weight", std::sqrt(2. / 2048)), 1, 0.01);
  EXPECT_NEAR(deviation(*resnet, "fc.weight", 1 / std::sqrt(3. * 2048)), 1, 0.02);
  EXPECT_EQ(resnet->named_parameters()["layer1.0.bn3.weight"].min().item<float>(), 1);
}

TEST(Models, InitCanBeChosen) {
  const ModelShape shape{1, {28, 28}, 10};
  torch::manual_seed(0);
  const auto kaiming = make_model("mlp", shape, {.init = "kaiming"});
  EXPECT_NEAR(deviation(*kaiming, "fc1.weight", std::sqrt(2. / 784)), 1, 0.02);
  EXPECT_EQ(kaiming->named_parameters()["fc1.bias"].abs().max().item<float>(), 0);
  const auto xavier = make_model("lenet5", shape, {.init = "xavier"});
  const double bound = std::sqrt(6. / (400 + 120));
  EXPECT_NEAR(deviation(*xavier, "fc1.weight", bound / std::sqrt(3.)), 1, 0.02);
  EXPECT_LE(xavier->named_parameters()["fc1.weight"].abs().max().item<double>(), bound);
  EXPECT_EQ(xavier->named_parameters()["conv2.bias"].abs().max().item<float>(), 0);
}

TEST(Models, DropoutFollowsItsSeedAndTheKey) {
  const ModelShape shape{3, {32, 32}, 10};
  const torch::Tensor images = torch::ones({2, 3, 32, 32});
  const auto logits = [&](Classifier& model, std::uint64_t seed) {
    const torch::NoGradGuard no_grad;
    seed_dropout(model, seed);
    return model.forward(images);
  };
  const auto with = make_model("vgg_cifar", shape);
  EXPECT_TRUE(torch::equal(logits(*with, 1), logits(*with, 1)));
  EXPECT_FALSE(torch::equal(logits(*with, 1), logits(*with, 2)));
  with->eval();
  EXPECT_TRUE(torch::equal(logits(*with, 1), logits(*with, 2)));
  const auto without = make_model("vgg_cifar", shape, {.dropout = 0});
  EXPECT_TRUE(torch::equal(logits(*without, 1), logits(*without, 2)));
}

/// Returns the message for a model that cannot be made.
std::string refusal(const std::string& name, const ModelShape& shape, const ModelOptions& options) {
  try {
    make_model(name, shape, options);
    return "not refused";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Models, OptionsThatAModelDoesNotHaveAreRefused) {
  const ModelShape small{3, {32, 32}, 10};
  EXPECT_EQ(refusal("lenet5", small, {.variant = "cifar"}),
            "model.variant=cifar: lenet5 has one form only");
  EXPECT_EQ(refusal("vgg16", small, {.variant = "mnist"}), "model.variant=mnist: unknown variant");
  EXPECT_EQ(refusal("vgg16", small, {.variant = "cifar", .dropout = 0.5}),
            "model.dropout=0.5: vgg16 for cifar has no dropout");
  EXPECT_EQ(refusal("mlp", small, {.dropout = 0.25}), "model.dropout=0.25: mlp has no dropout");
  EXPECT_EQ(refusal("mlp", small, {.dropout = 0}), "not refused");
  EXPECT_EQ(refusal("vgg_cifar", small, {.dropout = 1.5}),
            "model.dropout=1.5 is not a probability");
  EXPECT_EQ(refusal("mlp", small, {.init = "zero"}), "model.init=zero: unknown initialisation");
  EXPECT_EQ(refusal("resnet18", small, {.native_ops = true}),
            "model.ops=native: resnet18 is built of LibTorch's ops only");
  for (const char* model : {"lenet5_cifar", "linear", "mlp", "simple_conv"})
    EXPECT_EQ(refusal(model, small, {.native_ops = true}), "not refused") << model;
  EXPECT_EQ(refusal("vgg_cifar", {3, {31, 32}, 10}, {}),
            "model.name=vgg_cifar takes images of at least 32x32 pixels, these are 31x32");
  EXPECT_EQ(refusal("linear", {3, {0, 4}, 10}, {}),
            "model.name=linear takes images of at least 1x1 pixels, these are 0x4");
}

TEST(Models, UnknownNameIsRefusedWithTheNearest) {
  try {
    make_model("lenet", {});
    FAIL() << "made a model called lenet";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "model.name=lenet: unknown model");
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
}  // namespace millrace::train
