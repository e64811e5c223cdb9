// Tests how the masks of objects follow the pixels of their images, through the loader.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>

#include "millrace/error.h"
#include "pipeline/targets/object_list.h"
#include "tests/pipeline/allocations.h"
#include "tests/pipeline/annotated.h"

namespace millrace::pipeline {
namespace {

constexpr Size kField{90, 70};

/// Returns `count` images, of which the i-th has i modulo 4 objects, which fill their boxes.
Annotations filled_boxes(std::uint64_t count) {
  Annotations all;
  all.has_outlines = true;
  for (std::uint64_t i = 0; i < count; ++i) {
    for (std::uint64_t j = 0; j < i % 4; ++j) {
      const auto x = static_cast<float>(i % 29 + 15 * j), y = static_cast<float>(i % 13 + j);
      all.boxes.push_back({x, y, x + 20, y + 25});
      all.classes.push_back(static_cast<std::int64_t>(i % 10));
      all.outlines.points.insert(all.outlines.points.end(),
                                 {x, y, x + 20, y, x + 20, y + 25, x, y + 25});
      all.outlines.polygon_ends.push_back(all.outlines.points.size());
      all.outlines.ends.push_back({all.outlines.polygon_ends.size(), 0});
    }
    all.ends.push_back(all.boxes.size());
  }
  return all;
}

LoaderOptions in_order(int workers, std::int64_t batch) {
  LoaderOptions options;
  options.workers = workers;
  options.batch = batch;
  options.shuffle = {Shuffle::Kind::none, 0};
  return options;
}

TEST(InstanceMasks, FillTheirBoxesWhereverTheseMove) {
  const auto reader = std::make_shared<Annotated>(kField, filled_boxes(8));
  for (const std::vector<std::string>& ops : {std::vector<std::string>{},
                                              {"hflip{p=1}"},
                                              {"crop{top=3,left=7,height=40,width=50}"},
                                              {"resize{size=[140,180]}", "vflip{p=1}"},
                                              {"pad{padding=5}"}}) {
    LoaderOptions options = in_order(0, 8);
    options.targets.min_area = 200;
    Loader loader(reader, plan_for(*reader, ops), options);
    const Batch batch = loader.next();
    const Objects& objects = batch.objects();
    const Size size = loader.output().size;
    ASSERT_EQ(objects.mask_bytes, static_cast<std::size_t>(size.width * size.height));
    ASSERT_EQ(objects.masks.size(), objects.classes.size() * objects.mask_bytes);
    EXPECT_GT(objects.classes.size(), 6u);
    for (std::size_t i = 0; i < objects.classes.size(); ++i) {
      const float* const box = &objects.boxes[4 * i];
      for (int y = 0; y < size.height; ++y)
        for (int x = 0; x < size.width; ++x) {
          const bool inside = static_cast<float>(x) >= box[0] && static_cast<float>(x) < box[2] &&
                              static_cast<float>(y) >= box[1] && static_cast<float>(y) < box[3];
          const std::size_t at =
              i * objects.mask_bytes + static_cast<std::size_t>(y * size.width + x);
          ASSERT_EQ(objects.masks[at], inside) << i << ": " << x << ", " << y;
        }
    }
  }
}

/// Returns the masks of an epoch, rank by rank within each batch, as one list.
std::vector<std::uint8_t> instances_taken(int workers, int grain, int world) {
  const auto reader = std::make_shared<Annotated>(kField, filled_boxes(30));
  const auto plan = plan_for(*reader, {"random_resized_crop{size=32}", "hflip",
                                       "random_affine{degrees=20,scale=[0.8,1.2]}"});
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < world; ++rank) {
    LoaderOptions options = in_order(workers, 12);
    options.grain = grain;
    options.rank = rank;
    options.world = world;
    loaders.push_back(std::make_unique<Loader>(reader, plan, options));
  }
  std::vector<std::uint8_t> all;
  for (std::uint64_t i = 0; i < loaders[0]->batches_per_epoch(); ++i)
    for (const auto& loader : loaders) {
      Batch batch = loader->next();
      if (i % 2 == 1) batch.detach();
      const Objects& objects = batch.objects();
      all.insert(all.end(), objects.masks.begin(), objects.masks.end());
    }
  return all;
}

TEST(InstanceMasks, DoNotDependOnWorkersGrainOrRanks) {
  const std::vector<std::uint8_t> expected = instances_taken(0, 0, 1);
  EXPECT_GT(expected.size(), 20u * 32 * 32);
  for (const int workers : {1, 3})
    for (const int grain : {1, 5}) EXPECT_EQ(instances_taken(workers, grain, 1), expected);
  EXPECT_EQ(instances_taken(2, 2, 3), expected);
}

TEST(InstanceMasks, NothingIsAllocatedPerSample) {
  if (!counts_allocations()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const auto reader = std::make_shared<Annotated>(kField, filled_boxes(400));
  for (const int workers : {0, 2}) {
    LoaderOptions options;
    options.workers = workers;
    options.grain = 5;  // lists grow with the largest range, whose size follows the clock otherwise
    options.batch = 40;
    options.epochs = 80;
    Loader loader(reader, plan_for(*reader, {"random_resized_crop{size=32}", "hflip"}), options);
    for (int i = 0; i < 500; ++i) ASSERT_TRUE(loader.next());
    const std::uint64_t before = allocations();
    for (int i = 0; i < 300; ++i) ASSERT_TRUE(loader.next());
    EXPECT_LT(allocations() - before, 240u) << workers << " workers, 12000 samples";
  }
}

/// Interrupts the program with the first sample that it reads.
class Interrupting final : public Annotated {
 public:
  using Annotated::Annotated;
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    stop = true;
    return Annotated::read(index, scratch);
  }
  mutable std::atomic<bool> stop{false};
};

TEST(InstanceMasks, AnInterruptNeedNotWaitForThoseOfASample) {
  Annotations all = filled_boxes(2);
  all.ends.erase(all.ends.begin());  // leave one image, with one object
  const auto reader = std::make_shared<Interrupting>(kField, all);
  LoaderOptions options = in_order(0, 1);
  options.stop = &reader->stop;
  Loader loader(reader, plan_for(*reader, {}), options);
  EXPECT_FALSE(loader.next());
  EXPECT_TRUE(reader->stop);
}

TEST(InstanceMasks, ThoseOfASampleThatTakeTooMuchAreItsError) {
  Annotations all;
  all.has_outlines = true;
  for (int i = 0; i < 2'000; ++i) {
    all.boxes.push_back({0, 0, 90, 70});
    all.classes.push_back(0);
    all.outlines.ends.push_back({});
  }
  all.ends = {2'000, 2'000};
  const auto reader = std::make_shared<Annotated>(kField, all);
  LoaderOptions options = in_order(0, 2);
  options.on_error = OnError::skip;
  std::vector<std::string> reasons;
  options.quarantine = [&](const Failure& failure) { reasons.push_back(failure.reason); };
  const auto most_memory = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;  // KiB
  };
  const long before = most_memory();
  Loader loader(reader, plan_for(*reader, {"resize{size=[800,800]}"}), options);
  const Batch batch = loader.next();
  EXPECT_LT(most_memory() - before, 100'000) << "nor does the next sample make room for them";
  EXPECT_EQ(batch.count(), 1);
  EXPECT_TRUE(batch.objects().masks.empty());
  EXPECT_EQ(reasons, std::vector<std::string>{"the masks of its 2000 objects take 1280 MB, more "
                                              "than 268"});
}

TEST(InstanceMasks, MemoryThatFewSamplesNeedIsGivenBack) {
  Objects objects;
  objects.mask_bytes = 1 << 20;
  const auto fill = [&](std::size_t count) {
    objects.classes.resize(count);
    objects.masks.resize(count * objects.mask_bytes);
    end_sample(objects);
  };
  clear(objects);
  fill(40);
  for (int batch = 0; batch < 3; ++batch) {
    clear(objects);
    EXPECT_GE(objects.masks.capacity(), 40u << 20) << "batches like the last one find it";
    fill(20);
  }
  clear(objects);
  fill(5);
  clear(objects);
  EXPECT_EQ(objects.masks.capacity(), 0u);
  fill(5);
  clear(objects);
  fill(0);
  clear(objects);
  EXPECT_GE(objects.masks.capacity(), 5u << 20) << "little memory is kept";
}

TEST(InstanceMasks, CountInTheMemoryOfTheLargestImage) {
  const auto refused = [](const Annotations& annotations, bool masks, std::uint64_t bytes) {
    struct Encoded final : Annotated {
      Encoded(const Annotations& annotations, bool masks) : Annotated(kField, annotations) {
        info_.encoded = true;
        info_.masks = masks;
      }
    };
    LoaderOptions options = in_order(0, 1);
    options.max_pixels = 1000;
    options.max_bytes = bytes;
    try {
      check_batch(options, Encoded(annotations, masks));
      return false;
    } catch (const UsageError&) {
      return true;
    }
  };
  Annotations boxes = filled_boxes(2), outlines = boxes;
  boxes.has_outlines = false;
  EXPECT_FALSE(refused(boxes, false, 10'000));
  EXPECT_TRUE(refused(outlines, false, 10'999));
  EXPECT_FALSE(refused(outlines, false, 11'000));
  EXPECT_TRUE(refused(boxes, true, 11'999));
  EXPECT_FALSE(refused(boxes, true, 12'000));
}

}  // namespace
}  // namespace millrace::pipeline
