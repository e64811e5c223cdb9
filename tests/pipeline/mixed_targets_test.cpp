// Tests how boxes, key points and masks follow images that ops put together or blend, through the
// loader.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "augment/plan/assemble.h"
#include "base/rng.h"
#include "millrace/error.h"
#include "pipeline/targets/object_mixing.h"
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

/// An object as a batch holds it.
struct Held {
  std::vector<float> numbers;  ///< what is known of it beside its mask
  std::vector<std::uint8_t> mask;
  bool operator==(const Held&) const = default;
};

Held held(const Objects& objects, std::size_t i) {
  Held one;
  one.numbers.assign(&objects.boxes[4 * i], &objects.boxes[4 * i] + 4);
  for (const auto* const list : {&objects.classes, &objects.origins, &objects.samples})
    one.numbers.push_back(static_cast<float>((*list)[i]));
  one.numbers.insert(one.numbers.end(), {objects.weights[i], objects.visibilities[i]});
  one.numbers.insert(one.numbers.end(), &objects.key_points[3 * i], &objects.key_points[3 * i] + 3);
  one.mask.assign(&objects.masks[i * objects.mask_bytes],
                  &objects.masks[i * objects.mask_bytes] + objects.mask_bytes);
  return one;
}

/// Counts of events that a test must have seen.
struct Met {
  int pasted = 0, cut = 0, covered = 0, hidden = 0, left_out = 0;
};

/// Takes away what is pasted over an object. Returns whether anything is left of it.
bool cover(Held& object, const std::vector<bool>& pasted, Met& met) {
  int all = 0, left = 0;
  float box[] = {64, 48, 0, 0};
  for (std::size_t at = 0; at < object.mask.size(); ++at) {
    if (object.mask[at] == 0) continue;
    ++all;
    if (pasted[at]) {
      object.mask[at] = 0;
      continue;
    }
    ++left;
    const auto x = static_cast<float>(at % 64), y = static_cast<float>(at / 64);
    box[0] = std::min(box[0], x);
    box[1] = std::min(box[1], y);
    box[2] = std::max(box[2], x + 1);
    box[3] = std::max(box[3], y + 1);
  }
  const auto point = object.numbers.end() - 3;
  if (point[2] == 2 &&
      pasted[static_cast<std::size_t>(point[1]) * 64 + static_cast<std::size_t>(point[0])]) {
    point[2] = 1;
    met.hidden += left > 0;
  }
  if (left == all) return true;
  std::copy_n(box, 4, object.numbers.begin());
  object.numbers[8] *= static_cast<float>(left) / static_cast<float>(all);
  ++(left > 0 ? met.cut : met.covered);
  return left > 0;
}

/// Compares a batch with the same one without copy_paste and its draws.
void compare_pasted(const Batch& plain, const Batch& mixed, std::uint64_t seed,
                    std::uint64_t position, double p, const TargetOptions& targets, Met& met) {
  const auto area = static_cast<std::size_t>(kCard.width * kCard.height);
  const auto count = static_cast<std::size_t>(plain.count());
  const Objects& before = plain.objects();
  const auto* const from = reinterpret_cast<const std::uint8_t*>(plain.data());
  const auto* const to = reinterpret_cast<const std::uint8_t*>(mixed.data());
  const auto objects_of = [](const Objects& objects, std::size_t sample) {
    std::vector<Held> all;
    for (auto i = objects.offsets[sample]; i < objects.offsets[sample + 1]; ++i)
      all.push_back(held(objects, static_cast<std::size_t>(i)));
    return all;
  };
  Draw draw{millrace_rng{}};
  for (std::size_t sample = 0; sample < count; ++sample) {
    const std::size_t other = sample ^ 1;
    if (sample % 2 == 0)
      draw = Draw(base::stream({seed, 0, position + sample}, base::op_id("copy_paste")));
    std::vector<bool> pasted(area);
    std::vector<Held> added, expected;
    if (other < count)
      for (const Held& object : objects_of(before, other)) {
        if (!draw.chance(p)) continue;
        for (std::size_t at = 0; at < area; ++at) pasted[at] = pasted[at] || object.mask[at] == 1;
        added.push_back(object);
        ++met.pasted;
      }
    for (Held object : objects_of(before, sample))
      if (cover(object, pasted, met)) expected.push_back(object);
    expected.insert(expected.end(), added.begin(), added.end());
    met.left_out += static_cast<int>(std::erase_if(expected, [&](const Held& object) {
      const std::vector<float>& n = object.numbers;
      return (n[2] - n[0]) * (n[3] - n[1]) < static_cast<float>(targets.min_area) ||
             n[8] < static_cast<float>(targets.min_visibility);
    }));
    EXPECT_EQ(objects_of(mixed.objects(), sample), expected) << "sample " << position + sample;
    for (std::size_t at = 0; at < area; ++at)
      ASSERT_EQ(to[sample * area + at], from[(pasted[at] ? other : sample) * area + at])
          << "sample " << position + sample << ", pixel " << at;
  }
}

TEST(MixedTargets, CopyPasteDoesWhatItsDrawsSayPixelByPixel) {
  const auto reader = std::make_shared<Cards>(60);
  Met met;
  for (const double p : {0.5, 1.0})
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
      LoaderOptions options = in_order(9);  // the last one has no neighbour
      options.seed = seed;
      options.drop_last = false;
      options.targets.min_area = 30;
      options.targets.min_visibility = 0.4;
      std::vector<std::string> chain{"hflip", "random_affine{scale=[0.6,2],translate=[0.2,0.2]}"};
      Loader plain(reader, plan_for(*reader, chain), options);
      chain.push_back(fmt::format("copy_paste{{p={}}}", p));
      Loader mixed(reader, plan_for(*reader, chain), options);
      std::uint64_t position = 0;
      while (const Batch before = plain.next()) {
        const Batch after = mixed.next();
        compare_pasted(before, after, seed, position, p, options.targets, met);
        position += static_cast<std::uint64_t>(before.count());
      }
      EXPECT_EQ(position, 60u);
    }
  EXPECT_GT(met.pasted, 300);
  EXPECT_GT(met.cut, 100);
  EXPECT_GT(met.covered, 5);
  EXPECT_GT(met.hidden, 10);
  EXPECT_GT(met.left_out, 10);
}

TEST(MixedTargets, CopyPasteReportsHowManyItPicks) {
  const auto reader = std::make_shared<Cards>(60);
  const auto plan = plan_for(*reader, {"copy_paste{p=1}"});
  Loader loader(reader, plan_for(*reader, {}), in_order(4));
  const Batch batch = loader.next();  // the i-th image has i objects
  const auto* const begin = reinterpret_cast<const std::byte*>(batch.data());
  std::vector<std::byte> pixels(begin, begin + batch.bytes());
  Objects objects[2] = {batch.objects(), {}};
  Buffer cutout;
  ObjectMixer mixer(kCard, objects, cutout);
  augment::Trace trace;
  plan->mix({}, {.samples = pixels.data(), .count = 4, .observer = &mixer}, *plan->make_scratch(),
            &trace, 3);
  ASSERT_EQ(trace.drawn.size(), 2u);
  EXPECT_EQ(trace.drawn[0].op + " " + trace.drawn[0].name, "copy_paste onto0");
  EXPECT_EQ(trace.drawn[0].value, 3);
  EXPECT_EQ(trace.drawn[1].name, "onto1");
  EXPECT_EQ(trace.drawn[1].value, 2);
}

TEST(MixedTargets, CopyPasteNeedsMasksOfObjects) {
  const auto refusal = [](std::shared_ptr<const Reader> reader) -> std::string {
    try {
      Loader(reader, plan_for(*reader, {"copy_paste"}), in_order(2));
    } catch (const UsageError& error) {
      return error.what() + (" | " + error.hint());
    }
    return "";
  };
  Annotations boxes;
  boxes.boxes = {{1, 1, 5, 5}};
  boxes.classes = {0};
  boxes.ends = {1, 1};
  const std::string expected =
      "copy_paste pastes objects by their masks, and memory has none | set "
      "data.instance_masks=true with data.reader=coco, or leave it out: "
      "augment.copy_paste.enabled=false";
  EXPECT_EQ(refusal(std::make_shared<Annotated>(kCard, boxes)), expected);
  EXPECT_EQ(refusal(std::make_shared<Masked>(kCard, std::vector(2, test::Bytes(64 * 48)))),
            expected);
}

/// Each byte of a sample tells where it comes from, for every type and layout.
TEST(MixedTargets, PastedPixelsAreExchangedForEveryTypeAndLayout) {
  constexpr Size kSize{13, 7};
  constexpr std::size_t kArea = 13 * 7;
  std::vector<std::uint8_t> onto[2];
  Draw draw(base::stream({1, 0, 0}, 1));
  for (std::vector<std::uint8_t>& mask : onto)
    for (std::size_t at = 0; at < kArea; ++at) mask.push_back(draw.chance(0.6) ? 1 : 0);
  for (const DType dtype : {DType::f32, DType::u8, DType::f16, DType::bf16})
    for (const Layout layout : {Layout::chw, Layout::hwc}) {
      const SampleSpec form{kSize, 3, dtype, layout};
      std::vector<std::uint8_t> before[2], after[2];
      for (int i = 0; i < 2; ++i) {
        for (std::size_t at = 0; at < form.bytes(); ++at)
          before[i].push_back(static_cast<std::uint8_t>(draw.bits()));
        after[i] = before[i];
      }
      augment::paste(form, after[0].data(), after[1].data(), onto[0].data(), onto[1].data());
      for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t at = 0; at < form.bytes(); ++at) {
          const std::size_t element = at / size_of(dtype);
          const std::size_t pixel = layout == Layout::chw ? element % kArea : element / 3;
          ASSERT_EQ(after[i][at], before[onto[i][pixel] != 0 ? 1 - i : i][at]);
        }
    }
}

/// Returns what an epoch's batches hold, position by position over all ranks.
std::vector<std::vector<float>> positions_of(const std::vector<std::string>& chain, int workers,
                                             int grain, int world, std::uint64_t failing) {
  const auto reader = std::make_shared<Cards>(50);
  reader->failing = failing;
  const auto plan = plan_for(*reader, chain);
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
  for (const std::vector<std::string>& chain :
       {std::vector<std::string>{"hflip", "mosaic{p=0.7}", "mixup"},
        {"hflip", "copy_paste", "mosaic{p=0.7}"}})
    for (const std::uint64_t failing : {UINT64_MAX, std::uint64_t{7}}) {
      const auto expected = positions_of(chain, 0, 0, 1, failing);
      EXPECT_EQ(expected.size(), failing == UINT64_MAX ? 100u : 98u);
      for (const auto& [workers, grain, world] :
           {std::array{1, 1, 1}, {3, 5, 1}, {2, 0, 2}, {1, 3, 3}})
        EXPECT_EQ(positions_of(chain, workers, grain, world, failing), expected)
            << workers << " workers, " << world << " ranks";
    }
}

TEST(MixedTargets, NothingIsAllocatedPerSample) {
  if (!counts_allocations()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const auto reader = std::make_shared<Cards>(400);
  for (const int workers : {0, 2}) {
    LoaderOptions options;
    options.workers = workers;
    options.grain = 5;  // see InstanceMasks.NothingIsAllocatedPerSample
    options.batch = 40;
    options.epochs = 80;
    Loader loader(reader, plan_for(*reader, {"hflip", "copy_paste", "mosaic", "mixup"}), options);
    for (int i = 0; i < 500; ++i) ASSERT_TRUE(loader.next());
    const std::uint64_t before = allocations();
    for (int i = 0; i < 300; ++i) ASSERT_TRUE(loader.next());
    EXPECT_LT(allocations() - before, 240u) << workers << " workers, 12000 samples";
  }
}

}  // namespace
}  // namespace millrace::pipeline
