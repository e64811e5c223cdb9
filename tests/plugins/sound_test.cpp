// Tests that `plugins check` finds nothing wrong in the shipped plugins and in the templates of
// `plugins new`.
#include <gtest/gtest.h>

#include "millrace/error.h"
#include "probe/probe.h"
#include "tests/plugins/support.h"
#include "tools/plugins/plugins.h"

namespace millrace::plugins {
namespace {

using namespace plugin_test;

void expect_sound(const tools::CheckOptions& options, std::size_t least,
                  std::size_t max_skipped = 0) {
  const tools::CheckReport report = tools::check_plugin(options);
  std::size_t skipped = 0;
  for (const probe::CheckLine& line : report.lines) {
    EXPECT_NE(line.state, probe::CheckLine::State::failed)
        << options.file << ": " << line.unit << ": " << line.check << ": " << line.detail;
    skipped += line.state == probe::CheckLine::State::skipped;
  }
  EXPECT_GE(report.lines.size(), least);
  EXPECT_EQ(skipped, max_skipped) << options.file;
  if (skipped == 0) {
    ASSERT_FALSE(report.costs.empty());
    EXPECT_GT(report.costs.front().ns, 0);
  }
}

tools::CheckOptions of(const std::string& file) {
  tools::CheckOptions options;
  options.file = file;
  options.timeout_s = 60;  // sanitizers are slow
  return options;
}

TEST(Sound, TemplatesOfAugmentations) {
  for (const char* kind : {"geometric", "pixel", "filter", "choice", "batch", "group"})
    expect_sound(of(test_plugin(std::string("template_") + kind)), 7);
}

TEST(Sound, TemplateOfADecoder) {
  const Folder folder;
  const std::string pgm = "P5 3 2 255 abcdef";
  tools::CheckOptions options = of(test_plugin("template_decoder"));
  options.sample = folder.write("a.pgm", Bytes(pgm.begin(), pgm.end()));
  expect_sound(options, 9);
}

TEST(Sound, TemplateOfAReader) {
  const Folder folder;
  Bytes records(3 * (1 + 28 * 28), 5);
  folder.write("train.bin", records);
  tools::CheckOptions options = of(test_plugin("template_reader"));
  options.path = folder.path();
  expect_sound(options, 7);
  options.path += "/nowhere";
  EXPECT_GT(tools::check_plugin(options).failed(), 0u);
}

TEST(Sound, Examples) {
  for (const char* name : {"random_zoom_out", "vignette", "quarters"})
    expect_sound(of(example_plugin(name)), 7);
  const Folder folder;
  tools::CheckOptions qoi = of(example_plugin("qoi"));
  expect_sound(qoi, 5, 2);
  qoi.sample = folder.write("a.qoi", qoi_file());
  expect_sound(qoi, 9);
  qoi.sample = folder.write("a.txt", {'h', 'i'});
  expect_sound(qoi, 9, 6);
  qoi.sample = folder.path() + "/nowhere";
  EXPECT_THROW(tools::check_plugin(qoi), DataError);

  folder.write("test_images.npy", npy_file("|u1", "5, 2, 2", Bytes(20, 3)));
  folder.write("test_labels.npy", npy_file("|u1", "5,", {0, 1, 2, 1, 0}));
  tools::CheckOptions npy = of(example_plugin("npy"));
  npy.path = folder.path();
  npy.split = "test";
  expect_sound(npy, 7);
}

TEST(Sound, BuiltInPixelUnitsKeepTheirReach) {
  std::size_t checked = 0;
  for (const OpDeclaration& op : op_declarations()) {
    const millrace_unit& unit = augmentation(op.name);
    if (unit.pixel == nullptr) continue;
    EXPECT_NO_THROW(probe::try_reach(unit)) << op.name;
    ++checked;
  }
  EXPECT_GT(checked, 10u);
  EXPECT_NE(probe::try_reach(augmentation("sharpness")).find("farthest dependence 1"),
            std::string::npos);
}

std::string found_in_group(const std::string& plugin, probe::CheckLine::State state) {
  for (const probe::CheckLine& line : tools::check_plugin(of(plugin)).lines)
    if ((line.check == "group" || line.check == "load") && line.state == state &&
        (line.check == "group" || state == probe::CheckLine::State::failed))
      return line.check + ": " + line.detail;
  return "nothing";
}

TEST(Sound, GroupsAreWhatABatchUnitDeclares) {
  using State = probe::CheckLine::State;
  EXPECT_EQ(found_in_group(example_plugin("quarters"), State::ok),
            "group: declared groups of 4; samples met across all of 4");
  EXPECT_EQ(found_in_group(test_plugin("group_whole"), State::ok),
            "group: declared whole batches; samples met across all of 12");
  EXPECT_EQ(found_in_group(test_plugin("group_old"), State::ok),
            "group: declared groups of 2; samples met across all of 2");
  EXPECT_EQ(found_in_group(test_plugin("group_too_large"), State::failed),
            "group: it declares groups of 4, but samples meet only within groups of 2: set kGroup "
            "to 2, so that ranks may divide a batch there");
  const std::string one = found_in_group(test_plugin("group_of_one"), State::failed);
  EXPECT_NE(one.find("batch 'of_one' declares groups of 1"), std::string::npos) << one;
}

TEST(Sound, AGroupLargerThanDeclaredIsFoundOut) {
  std::string found;
  for (const probe::CheckLine& line : tools::check_plugin(of(test_plugin("group_overrun"))).lines)
    if (line.state == probe::CheckLine::State::failed && found.empty()) found = line.detail;
  EXPECT_NE(found.find("past the list of samples"), std::string::npos) << found;
}

TEST(Sound, AReaderThatCopiesAndMisbehavesIsFoundOut) {
  tools::CheckOptions options = of(test_plugin("odd_units"));
  options.path = "somewhere";
  std::string found;
  for (const probe::CheckLine& line : tools::check_plugin(options).lines) {
    if (line.unit == "lent_numbers") {
      EXPECT_EQ(line.state, probe::CheckLine::State::ok) << line.check << ": " << line.detail;
    }
    if (line.unit == "copied_numbers" && line.check == "data") found = line.detail;
  }
  EXPECT_EQ(found, "sample 2: label 9 of 2 classes");
}

}  // namespace
}  // namespace millrace::plugins
