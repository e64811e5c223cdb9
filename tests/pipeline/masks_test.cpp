// Tests how masks follow the pixels of their images, through the loader.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "millrace/error.h"
#include "tests/pipeline/allocations.h"
#include "tests/pipeline/annotated.h"
#include "tests/pipeline/masked.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;

constexpr Size kScene{90, 70};
constexpr std::uint8_t kFill = 255;

/// Returns a mask of patches of 10 x 7 pixels.
Bytes patches(std::uint64_t seed) {
  Bytes ids;
  for (int y = 0; y < kScene.height; ++y)
    for (int x = 0; x < kScene.width; ++x)
      ids.push_back(static_cast<std::uint8_t>(
          (static_cast<std::uint64_t>(x / 10 * 3 + y / 7 * 5) + seed) % 11 + 1));
  return ids;
}

std::shared_ptr<Masked> masked_images(std::uint64_t count) {
  std::vector<Bytes> all;
  for (std::uint64_t i = 0; i < count; ++i) all.push_back(patches(i));
  return std::make_shared<Masked>(kScene, std::move(all));
}

struct Moved {
  Bytes image, mask;
  Size size;
};

/// Returns image and mask of the only sample of a set through a chain.
Moved moved_through(const std::vector<std::string>& ops, const LoaderOptions& asked = {}) {
  const auto reader = masked_images(1);
  LoaderOptions options = asked;
  options.workers = 0;
  options.batch = 1;
  Loader loader(reader, plan_for(*reader, ops), options);
  const Batch batch = loader.next();
  const auto* const pixels = reinterpret_cast<const std::uint8_t*>(batch.data());
  return {{pixels, pixels + batch.bytes()},
          {batch.masks().begin(), batch.masks().end()},
          loader.output().size};
}

/// Counts the pixels inside a margin in which a mask of kScene differs from patches(0).
std::size_t count_differing(const Bytes& mask, int margin) {
  const Bytes expected = patches(0);
  std::size_t count = 0;
  for (int y = margin; y < kScene.height - margin; ++y)
    for (int x = margin; x < kScene.width - margin; ++x) {
      const auto at = static_cast<std::size_t>(y * kScene.width + x);
      count += mask[at] != expected[at];
    }
  return count;
}

TEST(Masks, MovesOfWholePixelsTakeThemAlong) {
  for (const std::vector<std::string>& ops :
       {std::vector<std::string>{},
        {"hflip{p=1}"},
        {"vflip{p=1}", "random_crop{size=[40,50]}"},
        {"pad{padding=9,padding_mode=reflect}", "random_crop{size=[60,60]}", "hflip"},
        {"resize{size=[140,33],interpolation=nearest}", "hflip{p=1}"}}) {
    const Moved moved = moved_through(ops);
    EXPECT_EQ(moved.image, moved.mask) << (ops.empty() ? "" : ops[0]);
  }
}

TEST(Masks, PlacesOutsideOfTheImageHaveTheFill) {
  const Moved padded = moved_through({"pad{padding=2,fill=7}"});
  EXPECT_EQ(padded.image[0], 7);
  EXPECT_EQ(padded.mask[0], kFill);
  LoaderOptions options;
  options.targets.mask_fill = 0;
  EXPECT_EQ(moved_through({"random_rotation{degrees=[45,45]}"}, options).mask[0], 0);
  EXPECT_EQ(moved_through({"random_rotation{degrees=[45,45]}"}).mask[0], kFill);
  // A resized image has no outside, however it is rounded.
  for (const char* op : {"resize{size=[700,31]}", "resize{size=[1,2000]}"}) {
    const Moved resized = moved_through({op});
    EXPECT_EQ(std::count(resized.mask.begin(), resized.mask.end(), kFill), 0) << op;
  }
}

TEST(Masks, NeighbouringWarpsAreOneNearestNeighbour) {
  const std::vector<std::string> back_and_forth{"affine{degrees=20}", "resize{size=[140,180]}",
                                                "affine{degrees=-20}", "resize{size=[70,90]}"};
  EXPECT_EQ(count_differing(moved_through(back_and_forth).mask, 20), 0u);
  // Rounded four times, edges fray.
  const auto reader = masked_images(1);
  Recipe recipe(op_declarations());
  for (const std::string& op : back_and_forth) recipe.set("augment+=" + op);
  const auto stepwise = std::make_shared<augment::Plan>(
      recipe.augment(), Source{kScene, 1}, OutputOptions{DType::u8, Layout::chw, {0}, {1}},
      Resample::stepwise, 0);
  LoaderOptions options;
  options.workers = 0;
  options.batch = 1;
  Loader loader(reader, stepwise, options);
  const Batch batch = loader.next();
  EXPECT_GT(count_differing({batch.masks().begin(), batch.masks().end()}, 20), 0u);
}

TEST(Masks, OpsThatCannotTakeThemAlongAreRefusedAtTheStart) {
  for (const std::string op : {"elastic", "cutmix", "random_apply{ops=\"hflip;elastic\"}"}) {
    const std::string name = op.substr(0, op.find('{'));
    try {
      moved_through({op});
      FAIL() << op;
    } catch (const UsageError& error) {
      EXPECT_EQ(error.what(),
                name + " moves pixels in a way that the masks of memory cannot follow");
      EXPECT_EQ(error.hint(), "leave it out: augment." + name + ".enabled=false");
    }
  }
}

TEST(Masks, OpsThatBlendImagesAreRefusedAtTheStart) {
  try {
    moved_through({"mixup"});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "mixup blends images, and the class ids in the masks of memory cannot be");
    EXPECT_EQ(error.hint(), "leave it out: augment.mixup.enabled=false");
  }
}

TEST(Masks, OneThatDoesNotFitIsAnErrorOfItsSample) {
  const auto reader = masked_images(6);
  reader->set_mask(1, test::label_png({70, 90}, patches(1)));
  reader->set_mask(3, test::cut(test::label_png(kScene, patches(3)), 100));
  reader->set_mask(4, {});
  for (const int workers : {0, 2}) {
    LoaderOptions options;
    options.workers = workers;
    options.batch = 6;
    options.shuffle = {Shuffle::Kind::none, 0};
    options.on_error = OnError::skip;
    std::vector<std::string> reasons;
    options.quarantine = [&](const Failure& failure) { reasons.push_back(failure.reason); };
    Loader loader(reader, plan_for(*reader, {}), options);
    const Batch batch = loader.next();
    EXPECT_EQ(reasons,
              (std::vector<std::string>{"its mask has 70x90 pixels, and the image 90x70",
                                        "its mask is cut short", "its mask is no PNG file"}));
    ASSERT_EQ(batch.count(), 3);
    Bytes expected = patches(0);
    for (const std::uint64_t index : {2, 5})
      for (const std::uint8_t id : patches(index)) expected.push_back(id);
    EXPECT_EQ(Bytes(batch.masks().begin(), batch.masks().end()), expected);
  }
}

/// Returns images and masks of two epochs, rank by rank within each batch, as one list.
Bytes masks_taken(int workers, int grain, int world, std::uint64_t first = 0, int io_threads = 0) {
  const auto reader = masked_images(50);
  const auto plan = plan_for(*reader, {"random_resized_crop{size=64}", "hflip",
                                       "random_affine{degrees=20,scale=[0.8,1.2]}"});
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < world; ++rank) {
    LoaderOptions options;
    options.workers = workers;
    options.io_threads = io_threads;
    options.grain = grain;
    options.batch = 12;
    options.epochs = 2;
    options.seed = 5;
    options.rank = rank;
    options.world = world;
    options.first_batch = first;
    loaders.push_back(std::make_unique<Loader>(reader, plan, options));
  }
  Bytes masks;
  for (std::uint64_t i = first; i < 2 * loaders[0]->batches_per_epoch(); ++i)
    for (const auto& loader : loaders) {
      Batch batch = loader->next();
      if (i % 2 == 1) batch.detach();
      masks.insert(masks.end(), batch.masks().begin(), batch.masks().end());
    }
  return masks;
}

TEST(Masks, DoNotDependOnWorkersGrainRanksOrTheFirstBatch) {
  const Bytes expected = masks_taken(0, 0, 1);
  EXPECT_EQ(expected.size(), 100u * 64 * 64);
  for (const int workers : {1, 3})
    for (const int grain : {1, 5}) EXPECT_EQ(masks_taken(workers, grain, 1), expected);
  EXPECT_EQ(masks_taken(2, 2, 3), expected);
  EXPECT_EQ(masks_taken(2, 0, 1, 0, 2), expected);
  const Bytes rest = masks_taken(2, 3, 1, 4);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), expected.end() - std::ssize(rest)));
}

std::shared_ptr<const augment::Plan> cropped_to(const Reader& reader, int side) {
  return plan_for(reader, {fmt::format("random_resized_crop{{size={}}}", side), "hflip"});
}

/// Returns a plan whose samples have 64 pixels a side in even epochs, and 40 in odd ones.
std::shared_ptr<const augment::Plan> resized_each_epoch(const Reader& reader,
                                                        std::uint32_t epochs) {
  const auto plan = std::const_pointer_cast<augment::Plan>(cropped_to(reader, 64));
  for (std::uint32_t epoch = 0; epoch < epochs; ++epoch)
    plan->add_stage(epoch, cropped_to(reader, epoch % 2 == 0 ? 64 : 40));
  return plan;
}

TEST(Masks, NothingIsAllocatedPerSample) {
  if (!counts_allocations()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const auto reader = masked_images(400);
  for (const auto& plan : {cropped_to(*reader, 64), resized_each_epoch(*reader, 20)})
    for (const int workers : {0, 2}) {
      LoaderOptions options;
      options.workers = workers;
      options.batch = 40;
      options.epochs = 20;
      Loader loader(reader, plan, options);
      for (int i = 0; i < 100; ++i) ASSERT_TRUE(loader.next());
      const std::uint64_t before = allocations();
      for (int i = 0; i < 60; ++i) ASSERT_TRUE(loader.next());
      EXPECT_LT(allocations() - before, 120u) << workers << " workers, 2400 samples";
    }
}

TEST(Masks, HaveTheSizeOfTheirEpoch) {
  const auto reader = masked_images(20);
  for (const int workers : {0, 3}) {
    LoaderOptions options;
    options.workers = workers;
    options.batch = 8;
    options.epochs = 4;
    Loader resized(reader, resized_each_epoch(*reader, 4), options);
    Loader fixed[] = {{reader, cropped_to(*reader, 64), options},
                      {reader, cropped_to(*reader, 40), options}};
    for (std::uint32_t i = 0; i < 12; ++i) {
      const Batch batch = resized.next();
      const Batch both[] = {fixed[0].next(), fixed[1].next()};
      const Batch& expected = both[i / 3 % 2];
      ASSERT_EQ(batch.size(), expected.size());
      ASSERT_EQ(batch.bytes(), expected.bytes());
      EXPECT_EQ(std::memcmp(batch.data(), expected.data(), batch.bytes()), 0) << i;
      EXPECT_TRUE(std::ranges::equal(batch.masks(), expected.masks())) << i;
    }
  }
}

TEST(Masks, CachedBatchesKeepThem) {
  const auto reader = masked_images(8);
  LoaderOptions options;
  options.workers = 1;
  options.batch = 2;
  options.prefetch = 1;
  options.epochs = 3;
  options.mode = LoaderMode::cached;
  Loader loader(reader, plan_for(*reader, {"hflip"}), options);
  std::vector<Bytes> first, again;
  for (std::uint64_t i = 0; i < 12; ++i) {
    Batch batch = loader.next();
    if (i % 3 == 0) batch.detach();
    (i < loader.slots() ? first : again).emplace_back(batch.masks().begin(), batch.masks().end());
  }
  ASSERT_EQ(first.size(), 2u);
  EXPECT_NE(first[0], first[1]);
  for (std::size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i], first[i % 2]);
}

TEST(Masks, AreZerosInBatchesOfNoise) {
  LoaderOptions options;
  options.mode = LoaderMode::synthetic;
  const Bytes mask = moved_through({}, options).mask;
  EXPECT_EQ(mask, Bytes(mask.size(), 0));
  EXPECT_EQ(std::ssize(mask), kScene.width * kScene.height);
}

}  // namespace
}  // namespace millrace::pipeline
