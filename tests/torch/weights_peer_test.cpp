// Weights move between torchvision and millrace by name, in both directions, and give the same
// logits. Needs a Python with torch and torchvision: MILLRACE_PYTHON (a command), else python3.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "models/registry.h"
#include "models/safetensors.h"
#include "models/weights.h"
#include "tests/torch/temp_folder.h"

namespace millrace::train {
namespace {

using test::TempFolder;

const std::string& python() {
  static const std::string command = [] {
    const char* const set = std::getenv("MILLRACE_PYTHON");
    return std::string(set != nullptr ? set : "python3") + " " MILLRACE_SOURCE_DIR
                                                           "/tests/torch/weights_peer.py ";
  }();
  return command;
}

bool succeeds(const std::string& command) { return std::system(command.c_str()) == 0; }

torch::Tensor tensor_of(const safetensors::File& file, const std::string& name) {
  for (const auto& tensor : file.tensors()) {
    if (tensor.name != name) continue;
    torch::Tensor value = torch::empty(tensor.shape);
    std::memcpy(value.mutable_data_ptr(), tensor.bytes.data(), tensor.bytes.size());
    return value;
  }
  throw std::runtime_error("no tensor called " + name);
}

safetensors::Tensor entry(const char* name, const torch::Tensor& value) {
  return {.name = name,
          .dtype = "F32",
          .shape = value.sizes().vec(),
          .bytes = {static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()}};
}

class WeightsPeer : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    static const bool available = succeeds(python() + "check 2>/dev/null");
    if (!available)
      GTEST_SKIP() << "NOT CHECKED against torchvision: no Python with torch and torchvision; set "
                      "MILLRACE_PYTHON to one";
  }
  std::string arguments() const {
    return std::string(GetParam()) + " " + (folder_ / "weights").string() + " " +
           (folder_ / "case").string();
  }
  std::shared_ptr<Classifier> make() const {
    auto model = make_model(GetParam(), {3, {64, 64}, 1000});
    model->eval();
    return model;
  }

  TempFolder folder_;
  torch::NoGradGuard no_grad_;
};

TEST_P(WeightsPeer, TorchvisionsLoadHere) {
  ASSERT_TRUE(succeeds(python() + "write " + arguments()));
  const auto model = make();
  load_weights(*model, folder_ / "weights");
  const auto file = safetensors::File::read(folder_ / "case");
  const torch::Tensor expected = tensor_of(file, "logits");
  const torch::Tensor logits = model->forward(tensor_of(file, "images"));
  EXPECT_LE((logits - expected).abs().max().item<double>(),
            1e-4 * expected.abs().max().item<double>());
}

TEST_P(WeightsPeer, OursLoadInPython) {
  torch::manual_seed(12);
  const auto model = make();
  const torch::Tensor images = torch::randn({2, 3, 64, 64});
  model->train();
  model->forward(images);  // changes the running statistics
  model->eval();
  const torch::Tensor logits = model->forward(images);
  save_weights(*model, folder_ / "weights");
  safetensors::write(folder_ / "case", {entry("images", images), entry("logits", logits)});
  EXPECT_TRUE(succeeds(python() + "read " + arguments()));
}

INSTANTIATE_TEST_SUITE_P(Models, WeightsPeer, ::testing::Values("resnet50", "vgg19"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace millrace::train
