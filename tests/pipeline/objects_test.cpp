// Tests how boxes and key points follow the pixels of their images, through the loader.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "millrace/error.h"
#include "pipeline/targets/flip_pairs.h"
#include "tests/pipeline/allocations.h"
#include "tests/pipeline/annotated.h"

namespace millrace::pipeline {
namespace {

constexpr Size kSize{90, 70};

/// Returns `count` images, of which the i-th has i modulo 4 objects of two key points.
Annotations many(std::uint64_t count) {
  Annotations all;
  all.points = 2;
  for (std::uint64_t i = 0; i < count; ++i) {
    for (std::uint64_t j = 0; j < i % 4; ++j) {
      const auto at = static_cast<float>(i % 29 + 7 * j);
      all.boxes.push_back({at, at / 2, at + 30, at / 2 + 25});
      all.classes.push_back(static_cast<std::int64_t>(i % 10));
      all.key_points.push_back({at + 2, at / 2 + 3, 2});
      all.key_points.push_back({at + 20, at / 2 + 21, 1});
    }
    all.ends.push_back(all.boxes.size());
  }
  return all;
}

/// Returns one image with one object of two key points.
Annotations one(const Box& box) {
  Annotations all;
  all.points = 2;
  all.boxes = {box};
  all.classes = {7};
  all.key_points = {{box.x0 + 1, box.y0 + 1, 2}, {box.x1 - 1, box.y1 - 1, 1}};
  all.ends = {1};
  return all;
}

/// Returns the objects of the only batch of `annotations` through a chain.
Objects through(const Annotations& annotations, const std::vector<std::string>& ops,
                const TargetOptions& targets = {}) {
  const auto reader = std::make_shared<Annotated>(kSize, annotations);
  LoaderOptions options;
  options.workers = 0;
  options.batch = static_cast<std::int64_t>(reader->info().count);
  options.shuffle = {Shuffle::Kind::none, 0};
  options.targets = targets;
  Loader loader(reader, plan_for(*reader, ops), options);
  return loader.next().objects();
}

TEST(Objects, FormatsAndUnits) {
  const Annotations box = one({10, 20, 40, 60});
  using Numbers = std::vector<float>;
  EXPECT_EQ(through(box, {}).boxes, (Numbers{10, 20, 40, 60}));
  EXPECT_EQ(through(box, {}, {.format = BoxFormat::xywh}).boxes, (Numbers{10, 20, 30, 40}));
  EXPECT_EQ(through(box, {}, {.format = BoxFormat::cxcywh}).boxes, (Numbers{25, 40, 30, 40}));
  const Objects relative = through(box, {"resize{size=[140,180]}"}, {.relative = true});
  EXPECT_EQ(relative.boxes, (Numbers{10 / 90.f, 20 / 70.f, 40 / 90.f, 60 / 70.f}));
  EXPECT_EQ(relative.key_points[0], 11 / 90.f);
  EXPECT_EQ(relative.classes, std::vector<std::int64_t>{7});
}

TEST(Objects, RelativeAnnotationsAreScaledByTheirImage) {
  Annotations box = one({0.25f, 0.5f, 0.5f, 1});
  box.relative = true;
  EXPECT_EQ(through(box, {}).boxes, (std::vector<float>{22.5, 35, 45, 70}));
}

TEST(Objects, BoxesAreClippedAndFilteredByAreaAndVisibility) {
  const Annotations box = one({0, 0, 20, 10});
  const std::vector<std::string> crop{"crop{top=0,left=15,height=50,width=50}"};
  EXPECT_EQ(through(box, crop).boxes, (std::vector<float>{0, 0, 5, 10}));
  EXPECT_EQ(through(box, crop, {.min_area = 50}).boxes.size(), 4u);
  EXPECT_EQ(through(box, crop, {.min_area = 50.1}).boxes.size(), 0u);
  EXPECT_EQ(through(box, crop, {.min_visibility = 0.25}).boxes.size(), 4u);
  EXPECT_EQ(through(box, crop, {.min_visibility = 0.26}).boxes.size(), 0u);
  // A part that was cut off stays cut off, even if the canvas grows again.
  EXPECT_EQ(through(box, {crop[0], "pad{padding=10}"}).boxes, (std::vector<float>{10, 10, 15, 20}));
  EXPECT_EQ(through(box, {"crop{top=30,left=0,height=20,width=20}"}, {.min_area = 0}).boxes.size(),
            0u);
}

TEST(Objects, KeyPointsOutsideAreNotKnown) {
  const Objects objects =
      through(one({0, 0, 20, 10}), {"crop{top=0,left=15,height=50,width=50}", "pad{padding=20}"});
  EXPECT_EQ(objects.key_points, (std::vector<float>{0, 0, 0, 24, 29, 1}));
}

TEST(Objects, KeyPointsExchangePartnersInMirroredImages) {
  const TargetOptions pairs{.flip_pairs = {{0, 1}}};
  const Annotations box = one({10, 20, 40, 60});
  const std::vector<float> left{11, 21, 2}, right{39, 59, 1};
  const auto points = [&](const std::vector<std::string>& ops) {
    return through(box, ops, pairs).key_points;
  };
  EXPECT_EQ(points({}), (std::vector<float>{11, 21, 2, 39, 59, 1}));
  EXPECT_EQ(points({"hflip{p=1}"}), (std::vector<float>{51, 59, 1, 79, 21, 2}));
  Annotations own = box;
  own.flip_pairs = {{0, 1}};
  EXPECT_EQ(through(own, {"hflip{p=1}"}, {}).key_points,
            (std::vector<float>{51, 59, 1, 79, 21, 2}));
  // Two flips are a turn by 180 degrees, which mirrors nothing.
  EXPECT_EQ(points({"hflip{p=1}", "vflip{p=1}"}), (std::vector<float>{79, 49, 2, 51, 11, 1}));
}

TEST(Objects, OpsThatCannotTakeThemAlongAreRefusedAtTheStart) {
  const auto refused = [](const std::string& op, const std::string& name) {
    try {
      through(many(4), {op});
      FAIL() << op;
    } catch (const UsageError& error) {
      EXPECT_EQ(error.what(),
                name + " moves pixels in a way that the boxes of memory cannot follow");
      EXPECT_NE(error.hint().find("augment." + name + ".enabled=false"), std::string::npos);
    }
  };
  refused("elastic", "elastic");
  refused("cutmix", "cutmix");
  refused("random_apply{ops=\"hflip;elastic\"}", "random_apply");
}

TEST(Objects, AnnotationsOfAnotherSizeAreAnErrorOfTheirSample) {
  /// Says that image 1 has other sides.
  class Wrong final : public Reader {
   public:
    Wrong() : inner_(kSize, many(4)), annotations_(*inner_.annotations()) {
      info_ = inner_.info();
      annotations_.sizes[1] = {70, 90};
    }
    Sample read(std::uint64_t i, Buffer& scratch) const override { return inner_.read(i, scratch); }
    std::string name(std::uint64_t index) const override { return inner_.name(index); }
    const Annotations* annotations() const override { return &annotations_; }

   private:
    Annotated inner_;
    Annotations annotations_;
  };
  const auto reader = std::make_shared<Wrong>();
  for (const int workers : {0, 2}) {
    LoaderOptions options;
    options.workers = workers;
    options.batch = 4;
    options.shuffle = {Shuffle::Kind::none, 0};
    options.on_error = OnError::skip;
    std::vector<Failure> failures;
    options.quarantine = [&](const Failure& failure) { failures.push_back(failure); };
    Loader loader(reader, plan_for(*reader, {}), options);
    const Batch batch = loader.next();
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_EQ(failures[0].reason,
              "its annotations are for an image of 70x90, and it has 90x70 pixels");
    EXPECT_EQ(batch.count(), 3);
    EXPECT_EQ(batch.objects().offsets, (std::vector<std::int64_t>{0, 0, 2, 5}));
    EXPECT_EQ(batch.objects().classes, (std::vector<std::int64_t>{2, 2, 3, 3, 3}));
  }
}

/// Returns all objects of two epochs, rank by rank within each batch, as one list.
std::vector<float> taken(int workers, int grain, int world, std::uint64_t first = 0) {
  const auto reader = std::make_shared<Annotated>(kSize, many(50));
  const auto plan = plan_for(*reader, {"random_resized_crop{size=64}", "hflip",
                                       "random_affine{degrees=20,scale=[0.8,1.2]}"});
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < world; ++rank) {
    LoaderOptions options;
    options.workers = workers;
    options.grain = grain;
    options.batch = 12;
    options.epochs = 2;
    options.seed = 5;
    options.rank = rank;
    options.world = world;
    options.first_batch = first;
    options.warps = true;
    loaders.push_back(std::make_unique<Loader>(reader, plan, options));
  }
  std::vector<float> all;
  for (std::uint64_t i = first; i < 2 * loaders[0]->batches_per_epoch(); ++i)
    for (const auto& loader : loaders) {
      Batch batch = loader->next();
      if (i % 2 == 1) batch.detach();
      const Objects& objects = batch.objects();
      const auto count = static_cast<std::size_t>(batch.count());
      for (std::size_t k = 0; k < count; ++k) {
        all.push_back(static_cast<float>(objects.offsets[k + 1] - objects.offsets[k]));
        all.insert(all.end(), batch.warps() + 9 * k, batch.warps() + 9 * (k + 1));
      }
      all.insert(all.end(), objects.boxes.begin(), objects.boxes.end());
      all.insert(all.end(), objects.classes.begin(), objects.classes.end());
      all.insert(all.end(), objects.key_points.begin(), objects.key_points.end());
    }
  return all;
}

TEST(Objects, DoNotDependOnWorkersGrainOrTheFirstBatch) {
  const std::vector<float> expected = taken(0, 0, 1);
  EXPECT_GT(expected.size(), 1000u);
  for (const int workers : {1, 3})
    for (const int grain : {1, 5}) EXPECT_EQ(taken(workers, grain, 1), expected);
  const std::vector<float> rest = taken(2, 3, 1, 4);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), expected.end() - std::ssize(rest)));
}

TEST(Objects, RanksTogetherHaveThoseOfOne) {
  auto sorted = [](std::vector<float> values) {
    std::sort(values.begin(), values.end());
    return values;
  };
  EXPECT_EQ(sorted(taken(2, 2, 3)), sorted(taken(0, 0, 1)));
}

TEST(Objects, NothingIsAllocatedPerSample) {
  if (!counts_allocations()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const auto reader = std::make_shared<Annotated>(kSize, many(400));
  for (const int workers : {0, 2}) {
    LoaderOptions options;
    options.workers = workers;
    options.batch = 40;
    options.epochs = 20;
    Loader loader(reader, plan_for(*reader, {"random_resized_crop{size=64}", "hflip"}), options);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(loader.next());
    const std::uint64_t before = allocations();
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(loader.next());
    EXPECT_LT(allocations() - before, 120u) << workers << " workers, 2400 samples";
  }
}

TEST(FlipPairs, ParsedAndChecked) {
  EXPECT_EQ(parse_flip_pairs(""), FlipPairs{});
  EXPECT_EQ(parse_flip_pairs("1-2,3-4"), (FlipPairs{{1, 2}, {3, 4}}));
  for (const char* text : {"1", "1-", "-1", "1-2;3-4", "a-b", "1-2-3", "1-2,,3-4", "99999999999-1"})
    EXPECT_THROW(parse_flip_pairs(text), UsageError) << text;
  EXPECT_NO_THROW(check_flip_pairs({{0, 1}, {2, 3}}, 4));
  EXPECT_THROW(check_flip_pairs({{0, 4}}, 4), UsageError);
  EXPECT_THROW(check_flip_pairs({{0, 1}, {1, 2}}, 4), UsageError);
}

}  // namespace
}  // namespace millrace::pipeline
