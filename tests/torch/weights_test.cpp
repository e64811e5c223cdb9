// Weights of a model: saved, loaded and hashed.
#include "models/weights.h"

#include <gtest/gtest.h>

#include "millrace/error.h"
#include "models/registry.h"
#include "models/safetensors.h"
#include "tests/torch/temp_folder.h"

namespace millrace::train {
namespace {

using test::TempFolder;

std::shared_ptr<Classifier> lenet(std::uint64_t seed, int classes = 10) {
  torch::manual_seed(seed);
  return make_model("lenet5", {1, {28, 28}, classes});
}

TEST(Weights, ComeBackFromAFile) {
  const TempFolder folder;
  const auto saved = lenet(1);
  const auto loaded = lenet(2);
  ASSERT_NE(hash_weights(*saved), hash_weights(*loaded));
  save_weights(*saved, folder / "w.safetensors");
  load_weights(*loaded, folder / "w.safetensors");
  EXPECT_EQ(hash_weights(*saved), hash_weights(*loaded));
}

TEST(Weights, MemoryFormatIsNotPartOfThem) {
  const TempFolder folder;
  const auto model = lenet(1);
  const std::string hash = hash_weights(*model);
  EXPECT_EQ(hash.size(), 16u);
  for (auto& parameter : model->parameters())
    if (parameter.dim() == 4)
      parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_EQ(hash_weights(*model), hash);
  save_weights(*model, folder / "w.safetensors");
  const auto loaded = lenet(2);
  load_weights(*loaded, folder / "w.safetensors");
  EXPECT_EQ(hash_weights(*loaded), hash);
}

TEST(Weights, FileHoldsTheModelsNamesAndShapes) {
  const TempFolder folder;
  save_weights(*lenet(1), folder / "w.safetensors");
  const auto file = safetensors::File::read(folder / "w.safetensors");
  ASSERT_EQ(file.tensors().size(), 10u);
  EXPECT_EQ(file.tensors()[1].name, "conv1.weight");
  EXPECT_EQ(file.tensors()[1].shape, (std::vector<std::int64_t>{6, 1, 5, 5}));
}

TEST(Weights, OfAnotherModelAreRefusedWithAllDifferencesAndChangeNothing) {
  const TempFolder folder;
  std::vector<float> zeros(7 * 84);
  const auto bytes = std::as_bytes(std::span(zeros));
  safetensors::write(folder / "w.safetensors",
                     {{"conv1.weight", "F32", {6, 1, 5, 5}, bytes.first(600)},
                      {"fc3.weight", "F32", {7, 84}, bytes},
                      {"head", "F32", {1}, bytes.first(4)}});
  const auto model = lenet(1);
  const std::string before = hash_weights(*model);
  try {
    load_weights(*model, folder / "w.safetensors");
    FAIL() << "took another model's weights";
  } catch (const DataError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("fc3.weight is F32 [7, 84], the model's is F32 [10, 84]"),
              std::string::npos)
        << what;
    EXPECT_NE(what.find("conv1.bias is missing"), std::string::npos) << what;
    EXPECT_NE(what.find("fc1.weight is missing"), std::string::npos) << what;
    EXPECT_NE(what.find("head is not in the model"), std::string::npos) << what;
    EXPECT_EQ(what.find("conv1.weight"), std::string::npos) << what;
  }
  EXPECT_EQ(hash_weights(*model), before);
}

}  // namespace
}  // namespace millrace::train
