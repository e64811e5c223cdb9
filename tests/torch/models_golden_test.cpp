// Models agree with torchvision's: names, shapes, initial weights, logits, loss, gradients and
// running statistics, from weights that both languages compute from the names.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "models/registry.h"
#include "tests/torch/golden.h"
#include "tests/torch/model_formula.h"

namespace millrace::train {
namespace {

using nlohmann::json;
using test::fill_by_name;
using test::formula_tensor;

const json& golden() {
  static const json all = test::read_golden("models.json");
  return all;
}

std::map<std::string, torch::Tensor> state_of(const torch::nn::Module& model) {
  std::map<std::string, torch::Tensor> all;
  for (const auto& parameter : model.named_parameters()) all[parameter.key()] = parameter.value();
  for (const auto& buffer : model.named_buffers()) all[buffer.key()] = buffer.value();
  return all;
}

/// Returns the 64-bit FNV-1a hash of "name:side,side;" for every tensor in the order of the names.
std::string digest_of(const torch::nn::Module& model) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  };
  for (const auto& [name, value] : state_of(model)) {
    add(name);
    add(":");
    for (std::int64_t i = 0; i < value.dim(); ++i) {
      add(i == 0 ? "" : ",");
      add(std::to_string(value.size(i)));
    }
    add(";");
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

/// Expects all logits within one ten-thousandth of the largest.
void expect_logits(const torch::Tensor& logits, const json& expected) {
  const auto wanted = expected.get<std::vector<float>>();
  ASSERT_EQ(logits.numel(), static_cast<std::int64_t>(wanted.size()));
  const torch::Tensor reference = torch::tensor(wanted).view(logits.sizes());
  const double worst = (logits - reference).abs().max().item<double>();
  EXPECT_LE(worst, 1e-4 * reference.abs().max().item<double>());
}

constexpr double kDoubleTolerance = 1e-7;  ///< for results computed in double

void expect_norms(const std::map<std::string, torch::Tensor>& tensors, const json& expected) {
  for (const auto& [name, norm] : expected.items()) {
    ASSERT_TRUE(tensors.contains(name)) << name;
    const torch::Tensor& tensor = tensors.at(name);
    ASSERT_TRUE(tensor.defined()) << name;
    const double wanted = norm.get<double>();
    EXPECT_NEAR(tensor.norm().item<double>(), wanted, kDoubleTolerance * wanted) << name;
  }
}

class GoldenModel : public ::testing::TestWithParam<std::size_t> {
 protected:
  const json& expected() const { return golden()["cases"][GetParam()]; }
  /// Returns the case's model with the seed's weights.
  std::shared_ptr<Classifier> make() const {
    torch::manual_seed(golden()["seed"].get<std::uint64_t>());
    return make_model(expected()["model"],
                      {3, {expected()["side"], expected()["side"]}, golden()["classes"]},
                      {.variant = expected()["variant"], .dropout = 0, .init = "default"});
  }
};

TEST_P(GoldenModel, ComputesWhatTorchvisionsDoes) {
  const auto model = make();
  EXPECT_EQ(digest_of(*model), expected()["names"]);
  auto state = state_of(*model);
  if (expected().contains("initial")) {
    for (const auto& [name, ends] : expected()["initial"].items()) {
      const torch::Tensor flat = state.at(name).flatten();
      EXPECT_FLOAT_EQ(flat[0].item<float>(), ends[0].get<float>()) << name;
      EXPECT_FLOAT_EQ(flat[-1].item<float>(), ends[1].get<float>()) << name;
    }
  }

  fill_by_name(*model);
  const std::int64_t count = golden()["images"];
  const std::int64_t side = expected()["side"];
  const torch::Tensor images = formula_tensor({count, 3, side, side}, "images", 2);
  model->eval();
  {
    const torch::NoGradGuard no_grad;
    expect_logits(model->forward(images), expected()["logits"]);
    test::to_channels_last(*model);
    expect_logits(model->forward(images), expected()["logits"]);
  }

  model->to(torch::kDouble);  // batch norm over few values magnifies f32's rounding
  model->train();
  const torch::Tensor labels = torch::arange(count) * 7 % golden()["classes"].get<std::int64_t>();
  const torch::Tensor loss =
      at::cross_entropy_loss(model->forward(images.to(torch::kDouble)), labels);
  loss.backward();
  const double wanted = expected()["loss"];
  EXPECT_NEAR(loss.item<double>(), wanted, kDoubleTolerance * wanted);
  std::map<std::string, torch::Tensor> gradients;
  for (const auto& parameter : model->named_parameters())
    gradients[parameter.key()] = parameter.value().grad();
  expect_norms(gradients, expected()["gradients"]);
  expect_norms(state_of(*model), expected()["buffers"]);
}

std::string name_of_case(const ::testing::TestParamInfo<std::size_t>& info) {
  const json& one = golden()["cases"][info.param];
  return one["model"].get<std::string>() + "_" + one["variant"].get<std::string>();
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenModel,
                         ::testing::Range(std::size_t{0}, golden()["cases"].size()), name_of_case);

}  // namespace
}  // namespace millrace::train
