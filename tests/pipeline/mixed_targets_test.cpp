// Tests how boxes, key points and masks follow images that ops put together or blend, through the
// loader.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "millrace/error.h"
#include "tests/pipeline/allocations.h"
#include "tests/pipeline/annotated.h"
#include "tests/pipeline/masked.h"

namespace millrace::pipeline {
namespace {

constexpr Size kCard{64, 48};

/// Gray images with rectangles side by side, each of a level of its own.
class Cards final : public Reader {
 public:
  explicit Cards(std::uint64_t count) {
    info_.reader = "cards";
    info_.path = "memory";
    info_.split = "train";
    info_.count = count;
    info_.classes.resize(10);
    info_.size = kCard;
    info_.channels = 1;
    annotations_.points = 1;
    annotations_.has_outlines = true;
    annotations_.sizes.assign(count, kCard);
    for (std::uint64_t i = 0; i < count; ++i) draw(i);
  }
  Sample read(std::uint64_t index, Buffer&) const override {
    if (index == failing) throw DataError("cannot be read");
    return {{images_[index].data(), images_[index].size() - kTailSlack}, 0};
  }
  std::string name(std::uint64_t index) const override { return "card " + std::to_string(index); }
  const Annotations* annotations() const override { return &annotations_; }

  /// Returns the level of an object, which no other one of the next 60 images has.
  static std::uint8_t level_of(std::int64_t image, std::int64_t object) {
    return static_cast<std::uint8_t>(1 + image % 60 * 4 + object);
  }

  std::uint64_t failing = UINT64_MAX;

 private:
  void draw(std::uint64_t i) {
    std::vector<std::uint8_t> image(static_cast<std::size_t>(kCard.width * kCard.height) +
                                    kTailSlack);
    for (std::uint64_t j = 0; j < i % 5; ++j) {
      const auto x0 = static_cast<int>(16 * j + i % 3),
                 y0 = static_cast<int>((i * 7 + j * 11) % 30);
      const int x1 = x0 + 5 + static_cast<int>((i + j) % 9), y1 = y0 + 4 + static_cast<int>(i % 14);
      for (int y = y0; y < y1; ++y)
        std::fill_n(image.begin() + y * kCard.width + x0, x1 - x0,
                    level_of(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)));
      const Box box{static_cast<float>(x0), static_cast<float>(y0), static_cast<float>(x1),
                    static_cast<float>(y1)};
      annotations_.boxes.push_back(box);
      annotations_.classes.push_back(static_cast<std::int64_t>((i + j) % 10));
      annotations_.key_points.push_back({box.x0 + 0.5f, box.y0 + 0.5f, 2});
      Outlines& outlines = annotations_.outlines;
      outlines.points.insert(outlines.points.end(),
                             {box.x0, box.y0, box.x1, box.y0, box.x1, box.y1, box.x0, box.y1});
      outlines.polygon_ends.push_back(outlines.points.size());
      outlines.ends.push_back({outlines.polygon_ends.size(), 0});
    }
    annotations_.ends.push_back(annotations_.boxes.size());
    images_.push_back(std::move(image));
  }

  Annotations annotations_;
  std::vector<std::vector<std::uint8_t>> images_;
};

LoaderOptions in_order(std::int64_t batch) {
  LoaderOptions options;
  options.workers = 0;
  options.batch = batch;
  options.shuffle = {Shuffle::Kind::none, 0};
  return options;
}

/// Compares the objects of a sample with the rectangles that its pixels show; returns their number.
std::size_t compare(const Batch& batch, std::size_t sample, std::set<std::int64_t>& images) {
  const Objects& objects = batch.objects();
  const auto area = static_cast<std::size_t>(kCard.width * kCard.height);
  const auto* const pixels = reinterpret_cast<const std::uint8_t*>(batch.data()) + sample * area;
  std::set<int> levels(pixels, pixels + area);
  levels.erase(0);
  const auto begin = static_cast<std::size_t>(objects.offsets[sample]);
  const auto end = static_cast<std::size_t>(objects.offsets[sample + 1]);
  EXPECT_EQ(levels.size(), end - begin) << "objects that are seen";
  for (std::size_t i = begin; i < end; ++i) {
    const std::uint8_t level = Cards::level_of(objects.samples[i], objects.origins[i]);
    images.insert(objects.samples[i]);
    Rect shown{kCard.width, kCard.height, 0, 0};
    bool mask_is_right = true;
    for (int y = 0; y < kCard.height; ++y)
      for (int x = 0; x < kCard.width; ++x) {
        const auto at = static_cast<std::size_t>(y * kCard.width + x);
        mask_is_right &= (pixels[at] == level) == (objects.masks[i * area + at] == 1);
        if (pixels[at] != level) continue;
        shown = {std::min(shown.x0, x), std::min(shown.y0, y), std::max(shown.x1, x + 1),
                 std::max(shown.y1, y + 1)};
      }
    const float* const box = &objects.boxes[4 * i];
    EXPECT_EQ(box[0], static_cast<float>(shown.x0));
    EXPECT_EQ(box[1], static_cast<float>(shown.y0));
    EXPECT_EQ(box[2], static_cast<float>(shown.x1));
    EXPECT_EQ(box[3], static_cast<float>(shown.y1));
    EXPECT_TRUE(mask_is_right) << "level " << int{level};
    EXPECT_EQ(objects.weights[i], 1);
    const float* const point = &objects.key_points[3 * i];
    if (point[2] > 0) {
      EXPECT_EQ(point[0], box[0] + 0.5f) << "it marks the upper left pixel";
      EXPECT_EQ(point[1], box[1] + 0.5f);
    }
  }
  return end - begin;
}

TEST(MixedTargets, BoxesPointsAndMasksAreWhereMosaicPutsTheirPixels) {
  const auto reader = std::make_shared<Cards>(20);
  for (const char* op : {"mosaic", "mosaic{p=0.5,center=[0,1]}"}) {
    std::size_t seen = 0, mixed = 0;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      LoaderOptions options = in_order(10);
      options.seed = seed;
      Loader loader(reader, plan_for(*reader, {op}), options);
      while (const Batch batch = loader.next())
        for (std::size_t sample = 0; sample < 10; ++sample) {
          std::set<std::int64_t> images;
          seen += compare(batch, sample, images);
          mixed += images.size() > 1;
        }
    }
    EXPECT_GT(seen, 400u);
    EXPECT_GT(mixed, 30u);
  }
}

/// Returns the only batch's objects.
Objects mixed_through(const std::string& op, const TargetOptions& targets) {
  const auto reader = std::make_shared<Cards>(20);
  LoaderOptions options = in_order(20);
  options.targets = targets;
  Loader loader(reader, plan_for(*reader, {"hflip", op}), options);
  return loader.next().objects();
}

TEST(MixedTargets, AreChosenAndWrittenAfterTheLastOp) {
  const Objects all = mixed_through("mosaic", {});
  TargetOptions options;
  options.min_visibility = 0.6;
  options.min_area = 40;
  options.format = BoxFormat::cxcywh;
  options.relative = true;
  const Objects chosen = mixed_through("mosaic", options);
  EXPECT_EQ(chosen.offsets.size(), all.offsets.size());
  std::size_t at = 0, cut = 0;
  for (std::size_t i = 0; i < all.classes.size(); ++i) {
    const float* const b = &all.boxes[4 * i];
    cut += all.visibilities[i] < 1;
    if ((b[2] - b[0]) * (b[3] - b[1]) < 40 || all.visibilities[i] < 0.6f) continue;
    ASSERT_LT(at, chosen.classes.size());
    const float* const written = &chosen.boxes[4 * at];
    EXPECT_NEAR(written[0], (b[0] + b[2]) / 2 / 64, 1e-6);
    EXPECT_NEAR(written[1], (b[1] + b[3]) / 2 / 48, 1e-6);
    EXPECT_NEAR(written[2], (b[2] - b[0]) / 64, 1e-6);
    EXPECT_NEAR(written[3], (b[3] - b[1]) / 48, 1e-6);
    EXPECT_NEAR(chosen.key_points[3 * at], all.key_points[3 * i] / 64, 1e-6);
    EXPECT_EQ(chosen.origins[at], all.origins[i]);
    EXPECT_EQ(chosen.samples[at], all.samples[i]);
    EXPECT_EQ(chosen.visibilities[at], all.visibilities[i]);
    ++at;
  }
  EXPECT_EQ(at, chosen.classes.size());
  EXPECT_EQ(chosen.masks.size(), at * chosen.mask_bytes);
  EXPECT_GT(cut, 5u) << "mosaic cuts some";
  EXPECT_LT(at, all.classes.size());
}

TEST(MixedTargets, MixupHandsOutThoseOfBothWithTheirWeights) {
  const Objects objects = mixed_through("mixup", {});
  for (std::size_t pair = 0; pair < 20; pair += 2) {
    const auto count = [](std::size_t image) { return static_cast<std::int64_t>(image % 5); };
    for (const std::size_t sample : {pair, pair + 1}) {
      const std::size_t other = sample ^ 1;
      EXPECT_EQ(objects.offsets[sample + 1] - objects.offsets[sample],
                count(sample) + count(other));
      float own_weight = -1, other_weight = -1;
      for (auto i = static_cast<std::size_t>(objects.offsets[sample]);
           i < static_cast<std::size_t>(objects.offsets[sample + 1]); ++i) {
        const bool own = objects.samples[i] == static_cast<std::int64_t>(sample);
        EXPECT_TRUE(own || objects.samples[i] == static_cast<std::int64_t>(other));
        float& weight = own ? own_weight : other_weight;
        if (weight < 0) weight = objects.weights[i];
        EXPECT_EQ(objects.weights[i], weight);
        EXPECT_GT(weight, 0);
      }
      if (own_weight >= 0 && other_weight >= 0) {
        EXPECT_NEAR(own_weight + other_weight, 1, 1e-6);
      }
    }
  }
}

/// The weights are those of the pixels: two constant images.
TEST(MixedTargets, MixupsWeightsAreThoseOfItsPixels) {
  const auto reader = std::make_shared<Cards>(2);  // image 0 is empty; image 1 has one object
  Loader loader(reader, plan_for(*reader, {"mixup"}), in_order(2));
  const Batch batch = loader.next();
  const Objects& objects = batch.objects();
  ASSERT_EQ(objects.weights.size(), 2u);
  const auto area = static_cast<std::size_t>(kCard.width * kCard.height);
  for (std::size_t sample = 0; sample < 2; ++sample) {
    const float* const box = &objects.boxes[4 * sample];
    const auto at = static_cast<std::size_t>(box[1]) * 64 + static_cast<std::size_t>(box[0]);
    const auto* const pixels = reinterpret_cast<const std::uint8_t*>(batch.data()) + sample * area;
    EXPECT_NEAR(pixels[at], objects.weights[sample] * Cards::level_of(1, 0), 0.5001);
  }
}

TEST(MixedTargets, SemanticMasksFollowMosaic) {
  std::vector<test::Bytes> images;
  for (int i = 0; i < 11; ++i) {
    test::Bytes image;
    for (int at = 0; at < kCard.width * kCard.height; ++at)
      image.push_back(static_cast<std::uint8_t>(at * 7 / (i + 3) % 97 + i * 13));
    images.push_back(std::move(image));
  }
  const auto reader = std::make_shared<Masked>(kCard, images);
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    LoaderOptions options = in_order(11);
    options.seed = seed;
    Loader loader(reader, plan_for(*reader, {"hflip", "mosaic{p=0.8}"}), options);
    const Batch batch = loader.next();
    const auto* const pixels = reinterpret_cast<const std::uint8_t*>(batch.data());
    EXPECT_TRUE(std::equal(batch.masks().begin(), batch.masks().end(), pixels));
    EXPECT_FALSE(std::equal(images[0].begin(), images[0].end() - kTailSlack, pixels));
    EXPECT_EQ(batch.classes(), 0) << "labels stay";
  }
}

/// Returns what an epoch's batches hold, position by position over all ranks.
std::vector<std::vector<float>> positions_of(int workers, int grain, int world,
                                             std::uint64_t failing) {
  const auto reader = std::make_shared<Cards>(50);
  reader->failing = failing;
  const auto plan = plan_for(*reader, {"hflip", "mosaic{p=0.7}", "mixup"});
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < world; ++rank) {
    LoaderOptions options;
    options.workers = workers;
    options.grain = grain;
    options.batch = 24;
    options.epochs = 2;
    options.seed = 3;
    options.rank = rank;
    options.world = world;
    options.on_error = OnError::skip;
    loaders.push_back(std::make_unique<Loader>(reader, plan, options));
  }
  std::vector<std::vector<float>> all;
  for (std::uint64_t i = 0; i < 2 * loaders[0]->batches_per_epoch(); ++i)
    for (const auto& loader : loaders) {
      Batch batch = loader->next();
      if (i % 2 == 1) batch.detach();
      const Objects& objects = batch.objects();
      const auto area = static_cast<std::size_t>(kCard.width * kCard.height);
      for (std::size_t k = 0; k < static_cast<std::size_t>(batch.count()); ++k) {
        std::vector<float>& one = all.emplace_back();
        const auto* const pixels = reinterpret_cast<const std::uint8_t*>(batch.data()) + k * area;
        one.insert(one.end(), pixels, pixels + area);
        for (auto o = static_cast<std::size_t>(objects.offsets[k]);
             o < static_cast<std::size_t>(objects.offsets[k + 1]); ++o) {
          one.insert(one.end(), &objects.boxes[4 * o], &objects.boxes[4 * o] + 4);
          one.insert(one.end(), &objects.key_points[3 * o], &objects.key_points[3 * o] + 3);
          one.push_back(static_cast<float>(objects.samples[o]));
          one.push_back(objects.weights[o]);
          one.insert(one.end(), &objects.masks[o * area], &objects.masks[o * area] + area);
        }
      }
    }
  return all;
}

TEST(MixedTargets, DoNotDependOnWorkersGrainOrRanks) {
  for (const std::uint64_t failing : {UINT64_MAX, std::uint64_t{7}}) {
    const auto expected = positions_of(0, 0, 1, failing);
    EXPECT_EQ(expected.size(), failing == UINT64_MAX ? 100u : 98u);
    for (const auto& [workers, grain, world] :
         {std::array{1, 1, 1}, {3, 5, 1}, {2, 0, 2}, {1, 3, 3}})
      EXPECT_EQ(positions_of(workers, grain, world, failing), expected)
          << workers << " workers, " << world << " ranks";
  }
}

TEST(MixedTargets, NothingIsAllocatedPerSample) {
  if (!counts_allocations()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const auto reader = std::make_shared<Cards>(400);
  for (const int workers : {0, 2}) {
    LoaderOptions options;
    options.workers = workers;
    options.batch = 40;
    options.epochs = 20;
    Loader loader(reader, plan_for(*reader, {"hflip", "mosaic", "mixup"}), options);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(loader.next());
    const std::uint64_t before = allocations();
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(loader.next());
    EXPECT_LT(allocations() - before, 240u) << workers << " workers, 2400 samples";
  }
}

}  // namespace
}  // namespace millrace::pipeline
