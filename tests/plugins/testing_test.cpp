// Tests millrace/testing.hpp: parameters as in recipes, calls of every kind, draws and errors.
#include <gtest/gtest.h>

#include <millrace/testing.hpp>

namespace {

using millrace::BadData;
using millrace::BadUse;
using millrace::testing::Picture;
using millrace::testing::Unit;

struct Everything {
  static constexpr const char* kName = "everything";
  static constexpr const char* kHelp = "keeps a parameter of each type";
  static constexpr millrace::Parameter kParams[] = {
      millrace::number("factor", "0.5", 0, 1, "a number"),
      millrace::integer("count", "3", 1, 9, "a whole number"),
      millrace::boolean("fast", "true", "a switch"),
      millrace::choice("way", "up", "up|down|left", "a choice"),
      millrace::text("name", "plain", "a text"),
      millrace::numbers("range", "[0.8, 1.2]", millrace::lengths(1, 2), 0, 2, "a list"),
      millrace::integers("sides", "[]", 0, -9, 9, "a list of any length")};

  explicit Everything(const millrace::Values& values)
      : factor(values.number("factor")),
        count(values.integer("count")),
        fast(values.boolean("fast")),
        way(values.text("way")),
        way_index(values.integer("way")),
        name(values.text("name")) {
    const auto range_given = values.numbers("range"), sides_given = values.numbers("sides");
    range.assign(range_given.at, range_given.at + range_given.count);
    sides.assign(sides_given.at, sides_given.at + sides_given.count);
    if (factor == 0.25 && count == 9) throw BadUse("factor and count do not fit", "change one");
  }
  void apply(millrace::Image, millrace::Call& call) const { call.report("draw", call.uniform()); }

  double factor;
  std::int64_t count;
  bool fast;
  std::string way;
  std::int64_t way_index;
  std::string name;
  std::vector<double> range, sides;
};

TEST(PluginTesting, ParametersAreWrittenAsInARecipe) {
  const Unit<Everything> defaults;
  EXPECT_EQ(defaults->factor, 0.5);
  EXPECT_EQ(defaults->count, 3);
  EXPECT_TRUE(defaults->fast);
  EXPECT_EQ(defaults->way, "up");
  EXPECT_EQ(defaults->name, "plain");
  EXPECT_EQ(defaults->range, (std::vector<double>{0.8, 1.2}));
  EXPECT_TRUE(defaults->sides.empty());

  const Unit<Everything> given("range=1.5,sides=[-3, 2,9],way=left,fast=false,count=7,name=a b");
  EXPECT_EQ(given->factor, 0.5);
  EXPECT_EQ(given->count, 7);
  EXPECT_FALSE(given->fast);
  EXPECT_EQ(given->way, "left");
  EXPECT_EQ(given->way_index, 2);
  EXPECT_EQ(given->name, "a b");
  EXPECT_EQ(given->range, (std::vector<double>{1.5}));
  EXPECT_EQ(given->sides, (std::vector<double>{-3, 2, 9}));
}

TEST(PluginTesting, ParametersThatTheHostRefusesAreRefused) {
  for (const char* text : {"facto=1", "factor", "factor=2", "factor=much", "factor=[0.1,0.2]",
                           "count=2.5", "count=", "fast=yes", "way=right", "range=[1,1,1]",
                           "range=[]", "range=[1,3]", "factor=0.25,count=9"})
    EXPECT_THROW(Unit<Everything> unit(text), BadUse) << text;
}

TEST(PluginTesting, ErrorsKeepTheirHint) {
  try {
    const Unit<Everything> unit("factor=0.25,count=9");
    ADD_FAILURE() << "accepted";
  } catch (const BadUse& error) {
    EXPECT_STREQ(error.what(), "factor and count do not fit");
    EXPECT_EQ(error.hint, "change one");
  }
}

TEST(PluginTesting, DrawsDependOnTheSampleAlone) {
  Unit<Everything> unit;
  const auto draw = [&](std::uint64_t sample) {
    unit.apply(Picture({1, 1}, 1), sample);
    return unit.drawn("draw");
  };
  const double first = draw(0), second = draw(1);
  EXPECT_NE(first, second);
  EXPECT_NE(draw(std::uint64_t{1} << 32), first);
  EXPECT_EQ(draw(0), first);
  EXPECT_EQ(draw(1), second);
  EXPECT_THROW(unit.drawn("nothing"), BadUse);
}

struct Invert {
  static constexpr const char* kName = "invert_it";
  static constexpr const char* kHelp = "a table";
  void levels(millrace::Levels levels) const {
    for (int c = 0; c < levels.channels; ++c)
      for (int i = 0; i < 256; ++i) levels.table[c][i] = static_cast<std::uint8_t>(255 - i - c);
  }
};

TEST(PluginTesting, TablesAreAppliedPerChannel) {
  Unit<Invert> unit;
  EXPECT_EQ(unit.apply({{2, 1}, 3, {0, 0, 0, 100, 101, 102}}),
            Picture({2, 1}, 3, {255, 254, 253, 155, 153, 151}));
  EXPECT_THROW(Picture({2, 1}, 3, {1, 2}), BadUse);
}

struct Halve {
  static constexpr const char* kName = "halve";
  static constexpr const char* kHelp = "every second column, by way of the scratch";
  millrace::Size output(millrace::Size input) const { return {input.width / 2, input.height}; }
  std::size_t scratch(millrace::Size size, int channels) const {
    return static_cast<std::size_t>(size.width * channels);
  }
  void apply(millrace::ConstImage from, millrace::Image to, millrace::Call& call) const {
    if (from.height > 2) throw BadData("too high", "crop it");
    std::uint8_t* row = call.scratch();
    for (int y = 0; y < from.height; ++y) {
      std::memcpy(row, from.data + y * from.row,
                  static_cast<std::size_t>(from.width * from.channels));
      for (int x = 0; x < to.width; ++x)
        std::memcpy(to.data + y * to.row + x * to.channels, row + 2 * x * from.channels,
                    static_cast<std::size_t>(to.channels));
    }
  }
};

TEST(PluginTesting, FiltersChooseTheirSizeAndGetScratch) {
  Unit<Halve> unit;
  EXPECT_EQ(unit.apply({{4, 2}, 1, {1, 2, 3, 4, 5, 6, 7, 8}}), Picture({2, 2}, 1, {1, 3, 5, 7}));
  try {
    unit.apply(Picture({2, 3}, 1));
    ADD_FAILURE() << "accepted";
  } catch (const BadData& error) {
    EXPECT_STREQ(error.what(), "too high");
    EXPECT_EQ(error.hint, "crop it");
  }
}

struct Shift {
  static constexpr const char* kName = "shift";
  static constexpr const char* kHelp = "gives each of three samples the pixels of the next";
  static constexpr int kGroup = 3;
  void mix(const millrace::Group& group, millrace::Call& call) const {
    call.report("draw", call.uniform());
    auto* const* samples = reinterpret_cast<float* const*>(group.samples);
    const float first = samples[0][0];
    for (std::size_t i = 0; i + 1 < group.count; ++i) samples[i][0] = samples[i + 1][0];
    samples[group.count - 1][0] = first;
    group.labels[0][0] = static_cast<float>(group.count);
  }
};

TEST(PluginTesting, SaysHowParametersAreSeparated) {
  try {
    const Unit<Everything> unit("factor=0.5,count");
    FAIL() << "a name without a value is accepted";
  } catch (const BadUse& error) {
    EXPECT_NE(error.hint.find("with commas"), std::string::npos) << error.hint;
  }
}

TEST(PluginTesting, WholeGroupsAreMixedAndTheRestIsNot) {
  Unit<Shift> shift;
  millrace::testing::BatchSamples batch{
      {1, 1}, 1, {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}, std::vector<std::vector<float>>(8, {0})};
  shift.mix(batch);
  std::vector<float> seen;
  for (const auto& sample : batch.samples) seen.push_back(sample[0]);
  EXPECT_EQ(seen, (std::vector<float>{1, 2, 0, 4, 5, 3, 6, 7}));
  EXPECT_EQ(batch.labels[3][0], 3);
  EXPECT_EQ(batch.labels[6][0], 0);
  const double last = shift.drawn("draw");
  shift.mix(batch, 3);
  EXPECT_NE(shift.drawn("draw"), last) << "other samples, other draws";
  batch.labels.pop_back();
  EXPECT_THROW(shift.mix(batch), BadUse);
}

}  // namespace
