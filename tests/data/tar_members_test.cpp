// Tests the other members of an archive's samples: data.members.
#include "pipeline/readers/tar_members.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "millrace/error.h"
#include "pipeline/readers/tar.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"
#include "tools/data/data.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::TarBuilder;
using test::TempFolder;

using Texts = std::vector<std::optional<std::string>>;

DataOptions asking_for(const std::string& path, const std::string& members) {
  DataOptions options{"tar", path};
  options.members = parse_members(members);
  return options;
}

Texts members_of(const Reader& reader, std::uint64_t index) {
  Buffer scratch;
  Texts texts;
  for (const Member& member : reader.read(index, scratch).members)
    texts.push_back(member ? std::optional(std::string(member->begin(), member->end()))
                           : std::nullopt);
  return texts;
}

std::string failure_of(const Reader& reader, std::uint64_t index) {
  try {
    members_of(reader, index);
    return "none";
  } catch (const DataError& error) {
    return error.what();
  }
}

/// Samples with members before and behind their images, and without.
TarBuilder captioned() {
  TarBuilder tar;
  tar.add("notes.txt", "of no sample");
  tar.add("a/000.cls", "1").add("a/000.JPG", Bytes{1, 2, 3}).add("a/000.txt", "first");
  tar.add("a/000.seg.png", Bytes{'S'});
  tar.pax("path", "a/" + std::string(120, 'n') + ".txt").add("cut", "second");
  tar.pax("path", "a/" + std::string(120, 'n') + ".jpg").add("cut", Bytes{4});
  tar.pax("path", "a/" + std::string(120, 'n') + ".Json").add("cut", R"({"label": 0})");
  tar.add("b/000.png", Bytes{5, 6}).add("b/000.txt", "").add("b/000.cls", "2");
  tar.add("c/000.txt", "without an image").add("c/.000.txt", "hidden");
  tar.add("d/000.txt", "late").add("d/000.jpg", Bytes{7}).add("d/000.cls", "0");
  return tar;
}

const std::vector<Texts> kCaptions{{"first", std::nullopt, "S"},
                                   {"second", R"({"label": 0})", std::nullopt},
                                   {"", std::nullopt, std::nullopt},
                                   {"late", std::nullopt, std::nullopt}};

void expect_captions(const Reader& reader) {
  ASSERT_EQ(reader.info().count, kCaptions.size());
  EXPECT_EQ(reader.info().members, (std::vector<std::string>{"txt", "json", "seg.png"}));
  for (std::uint64_t i = 0; i < kCaptions.size(); ++i)
    EXPECT_EQ(members_of(reader, i), kCaptions[i]) << i;
}

TEST(TarMembers, StandOnBothSidesOfTheirImage) {
  const TempFolder folder;
  const std::string path = folder.write("set.tar", captioned().end());
  const auto plain = open_reader({"tar", path});
  const auto reader = open_reader(asking_for(path, "txt,JSON,seg.png"));
  expect_captions(*reader);
  test::expect_same_samples(*plain, *reader);
}

TEST(TarMembers, AreFoundThroughIndexesAsWell) {
  const TempFolder folder;
  const std::string path = folder.write("set/set.tar", captioned().end());
  folder.write("set/other.tar", TarBuilder().add("z.jpg", Bytes{9}).add("z.cls", "0").end());
  DataOptions options = asking_for(folder.path("set"), "txt,json,seg.png");
  tools::make_indexes(folder.path("set"), {});
  options.index = IndexUse::require;
  const auto listed = open_reader(options);
  const auto looked_up = open_tar(options, /*max_listed=*/1);
  ASSERT_EQ(looked_up->info().count, 5u);
  for (const auto* reader : {listed.get(), looked_up.get()}) {
    EXPECT_EQ(members_of(*reader, 0), (Texts{{}, {}, {}}));
    for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(members_of(*reader, i + 1), kCaptions[i]);
  }
}

TEST(TarMembers, OneOfThemIsTheMask) {
  const TempFolder folder;
  const std::string path = folder.write("set/set.tar", captioned().end());
  tools::make_indexes(folder.path("set"), {});
  for (const char* members : {"", "txt"}) {
    DataOptions options = asking_for(path, members);
    options.masks = "SEG.png";
    const auto listed = open_reader(options), looked_up = open_tar(options, /*max_listed=*/1);
    for (const auto* reader : {listed.get(), looked_up.get()}) {
      EXPECT_TRUE(reader->info().masks);
      EXPECT_EQ(reader->info().members, options.members) << "the mask is handed out as such";
      Buffer scratch;
      const Sample sample = reader->read(0, scratch);
      EXPECT_EQ(sample.members.size(), options.members.size());
      EXPECT_EQ(Bytes(sample.mask.begin(), sample.mask.end()), Bytes{'S'});
      EXPECT_EQ(reader->mask(0, scratch).size(), 1u);
      EXPECT_EQ(failure_of(*reader, 1), "it has no member .seg.png, its mask");
    }
  }
  const auto refused = [&](const std::string& masks, const std::string& reason, Cache cache) {
    DataOptions options{"tar", path};
    options.masks = masks;
    options.cache = cache;
    test::expect_error(Exit::usage, {reason}, [&] { open_reader(options); });
  };
  refused("png", "data.masks=png: a member .png is an image", Cache::os);
  refused("/data/masks", "data.masks=/data/masks: '/data/masks' is no ending", Cache::os);
  refused(".seg.png", "'.seg.png' is no ending of a member", Cache::os);
  refused("seg.png", "data.cache=ram serves only an archive's images, not its members or masks",
          Cache::ram);
}

TEST(TarMembers, FollowSplitsAndSubsets) {
  const TempFolder folder;
  TarBuilder tar;
  for (int i = 0; i < 6; ++i) {
    const std::string key = (i % 2 == 0 ? "train/a/" : "test/a/") + std::to_string(i);
    tar.add(key + ".txt", "caption " + std::to_string(i)).add(key + ".jpg", Bytes{1});
  }
  const std::string path = folder.write("set.tar", tar.end());
  DataOptions options = asking_for(path, "txt");
  options.split = "test";
  EXPECT_EQ(members_of(*open_reader(options), 1), Texts{"caption 3"});
  options.split = "train";
  options.listed = folder.write("list", test::bytes_from("2\n"));
  EXPECT_EQ(members_of(*open_reader(options), 0), Texts{"caption 4"});
}

TEST(TarMembers, JsonNeedsNoLabelWhereItIsAskedFor) {
  const TempFolder folder;
  TarBuilder tar;
  tar.add("0.jpg", Bytes{1}).add("0.json", R"({"caption": "a cat"})");
  tar.add("1.jpg", Bytes{2}).add("1.json", R"({"caption": "a dog"})");
  const std::string path = folder.write("set.tar", tar.end());
  EXPECT_THROW(open_reader({"tar", path}), DataError);
  const auto reader = open_reader(asking_for(path, "json"));
  EXPECT_EQ(members_of(*reader, 1), Texts{R"({"caption": "a dog"})"});
  EXPECT_EQ(test::labels_of(*reader), (std::vector<std::int64_t>{0, 0}));
}

TEST(TarMembers, OnesThatCannotBeHandedOutFailTheirSample) {
  const TempFolder folder;
  TarBuilder tar;
  tar.add("0.jpg", Bytes{1}).add("0.txt", "once").add("0.TXT", "twice");
  tar.add("1.jpg", Bytes{1}).add("1.txt", "", '2');
  tar.add("2.jpg", Bytes{1}).add("2.txt", Bytes(kMaxMemberBytes + 1));
  tar.add("3.jpg", Bytes{1}).add("3.txt", Bytes(kMaxMemberBytes));
  tar.add("4.jpg", Bytes{1});
  const std::string path = folder.write("set.tar", tar.end());
  const auto reader = open_reader(asking_for(path, "txt"));
  EXPECT_EQ(failure_of(*reader, 0), "it has two members .txt");
  EXPECT_EQ(failure_of(*reader, 1), "its member .txt is a symbolic link, not a file");
  EXPECT_EQ(failure_of(*reader, 2), "its member .txt has 16777217 bytes, more than 16777216");
  EXPECT_EQ(members_of(*reader, 3)[0]->size(), kMaxMemberBytes);
  // A member that nobody asks for may be of any size.
  EXPECT_EQ(members_of(*open_reader(asking_for(path, "json")), 2), Texts{std::nullopt});
}

TEST(TarMembers, WhatLiesBetweenTwoImagesIsBounded) {
  const TarIndex::Entry sample{kMaxGroupBytes, 100, 512, 0, 0};
  EXPECT_NO_THROW(TarGroup(sample, {512, kMaxGroupBytes - 512}));
  EXPECT_THROW(TarGroup(sample, {1024, kMaxGroupBytes - 512}), DataError);
  EXPECT_THROW(TarGroup(sample, surroundings_of(nullptr, sample, nullptr, 1 << 30)), DataError);
  // An index that does not fit together.
  EXPECT_THROW(TarGroup(sample, {0, 1024}), DataError);
  EXPECT_THROW(TarGroup(sample, {512, 99}), DataError);
}

TEST(TarMembers, AnArchiveThatWasChangedIsSaidToBe) {
  const TempFolder folder;
  Bytes bytes = captioned().end();
  const std::string path = folder.write("set.tar", bytes);
  const auto reader = open_reader(asking_for(path, "txt,json,seg.png"));
  for (std::size_t at = 0; at < bytes.size(); at += 512) bytes[at] ^= 1;
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  for (std::uint64_t i = 0; i < reader->info().count; ++i)
    EXPECT_NE(failure_of(*reader, i).find("the archive was changed"), std::string::npos);
  std::filesystem::resize_file(path, 600);
  EXPECT_NE(failure_of(*reader, 3).find("changed while the set is in use"), std::string::npos);
}

TEST(TarMembers, ANameThatNoSampleHasIsWarnedOfOnce) {
  const TempFolder folder;
  const std::string path = folder.write("set.tar", captioned().end());
  DataOptions options = asking_for(path, "txt,jsonn,seg.pngg");
  std::vector<std::string> remarks;
  options.warn = [&](const std::string& text) { remarks.push_back(text); };
  const auto reader = open_reader(options);
  for (const std::uint64_t i : {0, 1, 2}) members_of(*reader, i);
  EXPECT_TRUE(remarks.empty());
  for (const std::uint64_t i : {3, 0, 1, 2, 3}) members_of(*reader, i);
  EXPECT_EQ(remarks, std::vector<std::string>{
                         "data.members=jsonn,seg.pngg: none of the 4 samples that were read first "
                         "has such a member"});
}

TEST(TarMembers, NamesAreCheckedAndOtherReadersRefuseThem) {
  EXPECT_EQ(parse_members("TXT,seg.png"), (std::vector<std::string>{"txt", "seg.png"}));
  EXPECT_TRUE(parse_members("").empty());
  for (const char* bad : {",", "txt,", ".txt", "txt,TXT", "a/b", "txt, json"})
    EXPECT_THROW(parse_members(bad), UsageError) << bad;
  std::string many = "0";
  for (int i = 1; i < 64; ++i) many += "," + std::to_string(i);
  EXPECT_EQ(parse_members(many).size(), 64u);
  EXPECT_THROW(parse_members(many + ",64"), UsageError);

  const TempFolder folder;
  const std::string path = folder.write("set.tar", captioned().end());
  DataOptions options = asking_for(path, "txt");
  for (const Cache cache : {Cache::ram, Cache::cold}) {
    options.cache = cache;
    EXPECT_THROW(open_reader(options), UsageError);
  }
  options.cache = Cache::os;
  options.reader = "synthetic";
  EXPECT_THROW(open_reader(options), UsageError);
}

}  // namespace
}  // namespace millrace::pipeline
