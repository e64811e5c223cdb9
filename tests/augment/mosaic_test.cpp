// Tests mosaic: where its pixels come from, for every type and layout, and its labels; and what the
// host does with parts of samples.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>

#include "augment/ops/builtin.h"
#include "augment/plan/plan.h"
#include "millrace/error.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"
#include "tests/augment/one_unit.h"

namespace millrace::augment {
namespace {

constexpr Size kCanvas{23, 14};
constexpr int kFour = 4;

std::shared_ptr<const Plan> mosaic_plan(const std::string& op, DType dtype, Layout layout,
                                        int classes) {
  Recipe recipe(op_declarations());
  recipe.set("augment+=" + op);
  return std::make_shared<Plan>(recipe.augment(), Source{kCanvas, 3},
                                OutputOptions{dtype, layout, {0}, {1}}, Resample::once, classes);
}

/// Returns where the byte `b` of pixel (x, y) in channel c lies.
std::size_t place_of(const SampleSpec& form, int x, int y, int c, std::size_t b) {
  const auto at = form.layout == Layout::chw ? (c * form.size.height + y) * form.size.width + x
                                             : (y * form.size.width + x) * form.channels + c;
  return static_cast<std::size_t>(at) * size_of(form.dtype) + b;
}

/// Compares sample `own` of a mosaic with the four that it was made of.
void compare(const Plan& plan, std::uint64_t group, std::size_t own) {
  const SampleSpec& form = plan.output();
  const std::size_t bytes = form.bytes();
  std::vector<std::byte> before(kFour * bytes);
  Draw draw(base::stream({group, 0, 0}, base::op_id("bytes")));
  for (std::byte& byte : before) byte = static_cast<std::byte>(draw.bits());
  std::vector<std::byte> after = before;
  std::vector<float> labels(kFour * kFour);
  for (std::size_t i = 0; i < kFour; ++i) labels[i * kFour + i] = 1;
  Trace trace;
  const auto scratch = plan.make_scratch();
  plan.mix({7, 0, group}, {after.data(), labels.data(), kFour}, *scratch, &trace, own);

  std::map<std::string, double> drawn;
  for (const Trace::Drawn& one : trace.drawn) drawn[one.name] = one.value;
  ASSERT_EQ(drawn.size(), 2u * kFour);
  const int meet_x = static_cast<int>(drawn["x" + std::to_string(own)]);
  const int meet_y = static_cast<int>(drawn["y" + std::to_string(own)]);
  EXPECT_GE(meet_x, kCanvas.width / 4 - 1);
  EXPECT_LE(meet_x, kCanvas.width * 3 / 4);
  double counted[kFour] = {};
  for (int y = 0; y < kCanvas.height; ++y)
    for (int x = 0; x < kCanvas.width; ++x) {
      const int turn = (x >= meet_x ? 1 : 0) + (y >= meet_y ? 2 : 0);
      const std::size_t from = (own + static_cast<std::size_t>(turn)) % kFour;
      counted[from] += 1;
      // The corner of each that lies where they meet is the one that faces the others.
      const int from_x = x >= meet_x ? x - meet_x : x - meet_x + kCanvas.width;
      const int from_y = y >= meet_y ? y - meet_y : y - meet_y + kCanvas.height;
      for (int c = 0; c < 3; ++c)
        for (std::size_t b = 0; b < size_of(form.dtype); ++b)
          ASSERT_EQ(after[own * bytes + place_of(form, x, y, c, b)],
                    before[from * bytes + place_of(form, from_x, from_y, c, b)])
              << x << ", " << y;
    }
  for (std::size_t i = 0; i < kFour; ++i)
    EXPECT_NEAR(labels[own * kFour + i], counted[i] / (kCanvas.width * kCanvas.height), 1e-6);
}

TEST(Mosaic, ShowsACornerOfEachOfFour) {
  for (const DType dtype : {DType::f32, DType::u8, DType::f16, DType::bf16})
    for (const Layout layout : {Layout::chw, Layout::hwc}) {
      const auto plan = mosaic_plan("mosaic", dtype, layout, kFour);
      EXPECT_EQ(plan->group(), kFour);
      for (std::uint64_t group = 0; group < 12; ++group) compare(*plan, group, group % kFour);
    }
}

TEST(Mosaic, IsDrawnForEachSample) {
  const auto plan = mosaic_plan("mosaic{p=0.3}", DType::u8, Layout::hwc, kFour);
  const std::size_t bytes = plan->output().bytes();
  const auto scratch = plan->make_scratch();
  int changed = 0;
  constexpr int kGroups = 500;
  for (std::uint64_t group = 0; group < kGroups; ++group) {
    std::vector<std::uint8_t> samples(kFour * bytes);
    std::vector<float> labels(kFour * kFour);
    for (std::size_t i = 0; i < kFour; ++i) {
      std::memset(samples.data() + i * bytes, static_cast<int>(i), bytes);
      labels[i * kFour + i] = 1;
    }
    plan->mix({1, 0, group}, {reinterpret_cast<std::byte*>(samples.data()), labels.data(), kFour},
              *scratch);
    for (std::size_t i = 0; i < kFour; ++i) changed += labels[i * kFour + i] < 1;
  }
  EXPECT_NEAR(changed, 0.3 * kFour * kGroups, 75) << "3.7 standard deviations";
}

TEST(Mosaic, RefusesAnEmptyRangeAndUnknownClasses) {
  EXPECT_THROW(mosaic_plan("mosaic{center=[0.6,0.4]}", DType::u8, Layout::hwc, kFour), UsageError);
  EXPECT_THROW(mosaic_plan("mosaic", DType::u8, Layout::hwc, 0), UsageError);
  EXPECT_EQ(mosaic_plan("mosaic", DType::u8, Layout::hwc, kUnmixedLabels)->soft_classes(), 0);
}

/// Writes the parts that a test has given it.
struct Scripted {
  static constexpr const char* kName = "scripted";
  static constexpr const char* kHelp = "writes parts";
  static constexpr int kGroup = 2;
  static inline std::vector<Part> script;
  void parts(const millrace_sample&, Parts& parts, Call&) const {
    for (const Part& part : script) parts.add(part);
  }
};

/// Returns what the host says of parts of two samples of 8x6 pixels, or "" if they are fine.
std::string said_of(std::vector<Part> script) {
  Scripted::script = std::move(script);
  const plugins::Unit unit(kUnit<Scripted>,
                           Params(plugins::to_declaration(kUnit<Scripted>).params));
  plugins::CallContext context;
  const millrace_sample sample{sizeof sample, {8, 6}, 1, MILLRACE_U8, MILLRACE_HWC, 0};
  std::vector<millrace_part> parts(2 * MILLRACE_MOST_PARTS);
  try {
    EXPECT_EQ(plugins::write_parts(unit, sample, 2, parts, context.call), Scripted::script.size());
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Parts, ThatBreakTheRulesAreErrorsOfTheirPlugin) {
  const Part whole{0, 1, {0, 0, 8, 6}, 0, 0, 1};
  const auto with = [&](auto member, auto value) {
    Part part = whole;
    part.*member = value;
    return part;
  };
  EXPECT_EQ(said_of({}), "");
  EXPECT_EQ(said_of({whole, {0, 0, {2, 1, 8, 6}, 2, 1, 1}, {1, 0, {0, 0, 0, 0}, 0, 0, 1}}), "");
  EXPECT_EQ(said_of({with(&Part::to, 2)}), "scripted: its parts() shows sample 1 in 2 of 2");
  EXPECT_EQ(said_of({with(&Part::from, -1)}), "scripted: its parts() shows sample -1 in 0 of 2");
  EXPECT_EQ(said_of({with(&Part::to, 1), whole}), "scripted: its parts() names sample 0 behind 1");
  const std::string outside = "scripted: its parts() has a part that lies outside of its sample";
  EXPECT_EQ(said_of({with(&Part::dx, 1)}), outside);
  EXPECT_EQ(said_of({with(&Part::dy, -1)}), outside);
  EXPECT_EQ(said_of({with(&Part::dx, INT32_MIN)}), outside);
  EXPECT_EQ(said_of({with(&Part::window, Rect{0, 0, 9, 6})}), outside);
  EXPECT_EQ(said_of({with(&Part::window, Rect{-1, 0, 4, 6})}), outside);
  EXPECT_EQ(said_of({with(&Part::window, Rect{5, 0, 4, 6})}), outside);
  EXPECT_EQ(said_of({with(&Part::weight, 0.5)}),
            "scripted: its parts() gives a part the weight 0.5, which only pair() or mix() can do");
  EXPECT_EQ(said_of({with(&Part::weight, 1.5)}),
            "scripted: its parts() gives a part the weight 1.5");
  EXPECT_EQ(said_of({with(&Part::weight, std::nan(""))}),
            "scripted: its parts() gives a part the weight nan");
  EXPECT_EQ(said_of(std::vector<Part>(2 * MILLRACE_MOST_PARTS, whole)), "");
  EXPECT_EQ(said_of(std::vector<Part>(2 * MILLRACE_MOST_PARTS + 1, whole)),
            "scripted: more parts than a group may have");
}

TEST(Parts, TablesOfEarlierInterfacesHaveNone) {
  millrace_batch table = *kUnit<Scripted>.batch;
  EXPECT_NE(plugins::parts_of(table), nullptr);
  table.struct_size = offsetof(millrace_batch, parts);  // 1.1
  EXPECT_EQ(plugins::parts_of(table), nullptr);
}

}  // namespace
}  // namespace millrace::augment
