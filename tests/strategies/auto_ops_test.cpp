// model.ops=auto: the committed table, and the settings that it never overrides.
#include <gtest/gtest.h>

#include "models/descriptions.h"
#include "models/options.h"

namespace millrace::train {
namespace {

constexpr OpsQuestion kLeNet{.model = "lenet5", .samples = 64, .simd = base::Simd::avx2};

TEST(AutoOps, SmallConvolutionsAreNativeWithVectorsOfEightOrMore) {
  for (const char* model : {"lenet5", "lenet5_plain", "lenet5_cifar", "simple_conv"})
    for (const base::Simd level : {base::Simd::avx2, base::Simd::avx512}) {
      OpsQuestion question = kLeNet;
      question.model = model;
      question.simd = level;
      EXPECT_TRUE(prefers_native_ops(question)) << model << " " << base::name_of(level);
    }
}

TEST(AutoOps, LibTorchsWhereOursAreSlowerOrAreNotThere) {
  const auto changed = [](auto change) {
    OpsQuestion question = kLeNet;
    change(question);
    return prefers_native_ops(question);
  };
  EXPECT_FALSE(changed([](OpsQuestion& q) { q.simd = base::Simd::scalar; }));
  EXPECT_FALSE(changed([](OpsQuestion& q) { q.amp = "bf16"; }));
  EXPECT_FALSE(changed([](OpsQuestion& q) { q.amp = "f16"; }));
  EXPECT_FALSE(changed([](OpsQuestion& q) { q.channels_last = "on"; }));
  EXPECT_TRUE(changed([](OpsQuestion& q) { q.channels_last = "off"; }));
  EXPECT_FALSE(changed([](OpsQuestion& q) { q.device = "cuda:0"; }));
  EXPECT_FALSE(changed([](OpsQuestion& q) { q.device = "simulated"; }));
  for (const std::string& model : model_names()) {
    if (model.starts_with("lenet5") || model == "simple_conv") continue;
    EXPECT_FALSE(changed([&](OpsQuestion& q) { q.model = model; })) << model;
  }
}

TEST(AutoOps, FromTheTablesBatchOn) {
  for (const NativeFrom& row : kNativeFrom) {
    OpsQuestion question{.model = row.model, .samples = row.samples, .simd = row.simd};
    EXPECT_TRUE(prefers_native_ops(question)) << row.model;
    question.samples = 65536;
    EXPECT_TRUE(prefers_native_ops(question)) << row.model;
    question.samples = row.samples - 1;
    EXPECT_FALSE(prefers_native_ops(question)) << row.model;
  }
}

}  // namespace
}  // namespace millrace::train
