// Tests manifests in CSV and JSONL, and the errors that a line can have.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "pipeline/readers/data_set.h"
#include "pipeline/readers/manifest_rows.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"

namespace millrace::pipeline {
namespace {

namespace fs = test::fs;
using test::Bytes;
using test::bytes_from;
using test::bytes_of;
using test::expect_data_error;
using test::label_of;
using test::TempFolder;

std::unique_ptr<Reader> open(const std::string& path, const std::string& split = "train",
                             int classes = 0) {
  return open_reader({"manifest", path, split, classes});
}

TEST(Csv, QuotesBreaksAndColumns) {
  const auto table = parse_csv("m.csv",
                               "\xef\xbb\xbflabel,extra,path\r\n"
                               "1,x,a.jpg\r\n"
                               "\r\n"
                               "\"2\",\"two\nlines\",\"b \"\"q\"\", c.jpg\"\n"
                               "3,,d.jpg");
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_FALSE(table.has_split);
  EXPECT_EQ(table.rows[0].path, "a.jpg");
  EXPECT_EQ(table.rows[0].line, 2u);
  EXPECT_EQ(table.rows[1].path, "b \"q\", c.jpg");
  EXPECT_EQ(table.rows[1].label, "2");
  EXPECT_EQ(table.rows[1].line, 4u);
  EXPECT_EQ(table.rows[2].label, "3");
  EXPECT_EQ(table.rows[2].line, 6u);
}

TEST(Csv, BadLines) {
  const auto refused = [](const char* text, std::initializer_list<std::string> parts) {
    expect_data_error(parts, [&] { parse_csv("m.csv", text); });
  };
  refused("", {"m.csv:1", "empty file"});
  refused("file,label\n", {"m.csv:1", "no column 'path'", "file,label"});
  refused("path,class\n", {"m.csv:1", "no column 'label'"});
  refused("path,label\na.jpg,1\nb,c.jpg,1\n", {"m.csv:3", "3 fields where the header has 2"});
  refused("path,label\n\na.jpg\n", {"m.csv:3", "1 fields"});
  refused("path,label\n,1\n", {"m.csv:2", "path is empty"});
  refused("path,label\na.jpg,\n", {"m.csv:2", "'a.jpg' has no label"});
  refused("path,label\n\"a.jpg,1\n", {"m.csv:2", "never closed"});
  refused("path,label\n\"a\"b,1\n", {"m.csv:2", "behind a closing quote"});
  refused("path,label\na\"b,1\n", {"m.csv:2", "does not begin with one"});
}

TEST(Manifest, AColumnNamesTheMasks) {
  const TempFolder folder;
  for (const char* name : {"a", "b", "c"}) {
    folder.write(std::string("images/") + name + ".jpg", Bytes{1});
    folder.write(std::string("masks/") + name + ".png",
                 Bytes{'m', static_cast<std::uint8_t>(*name)});
  }
  folder.write("m.csv", bytes_from("path,seg,label\nimages/a.jpg,masks/a.png,0\n"
                                   "images/b.jpg,masks/gone.png,0\nimages/c.jpg,,1\n"));
  folder.write("m.jsonl", bytes_from("{\"path\": \"images/a.jpg\", \"seg\": \"masks/a.png\"}\n"
                                     "{\"path\": \"images/b.jpg\", \"seg\": \"masks/gone.png\"}\n"
                                     "{\"path\": \"images/c.jpg\"}\n"));
  for (const char* name : {"m.csv", "m.jsonl"}) {
    DataOptions options{"manifest", folder.path(name)};
    const std::uint64_t without =
        name == std::string("m.csv") ? open_reader(options)->info().fingerprint : 0;
    options.masks = "seg";
    for (const Cache cache : {Cache::os, Cache::ram, Cache::cold}) {
      options.cache = cache;
      const auto reader = open_reader(options);
      EXPECT_TRUE(reader->info().masks);
      EXPECT_NE(reader->info().fingerprint, without);
      Buffer scratch;
      const auto mask = reader->mask(0, scratch);
      EXPECT_EQ(Bytes(mask.begin(), mask.end()), (Bytes{'m', 'a'}));
      expect_data_error({"its mask", "masks/gone.png", "No such file"},
                        [&] { reader->mask(1, scratch); });
      expect_data_error({"it has no mask"}, [&] { reader->mask(2, scratch); });
    }
    options.cache = Cache::os;
    options.masks = "other";
    expect_data_error({name == std::string("m.csv") ? "no column 'other' in the header: path,seg"
                                                    : "no image has a mask"},
                      [&] { open_reader(options); });
  }
}

TEST(Jsonl, RowsAndBadLines) {
  const auto table = parse_jsonl("m.jsonl",
                                 "{\"path\": \"a.jpg\", \"label\": 3, \"w\": [1]}\n\n"
                                 "{\"label\": \"cat\", \"path\": \"b.jpg\", \"split\": \"val\"}");
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].label, "3");
  EXPECT_EQ(table.rows[1].line, 3u);
  EXPECT_EQ(table.rows[1].split, "val");
  const auto refused = [](const char* text, std::initializer_list<std::string> parts) {
    expect_data_error(parts, [&] { parse_jsonl("m.jsonl", text); });
  };
  refused("{\"path\": \"a\", \"label\": 1}\n{\"path\"", {"m.jsonl:2", "damaged JSON"});
  refused("[1]\n", {"m.jsonl:1", "not a JSON object"});
  refused("{\"label\": 1}", {"m.jsonl:1", "\"path\""});
  refused("{\"path\": \"a\"}", {"m.jsonl:1", "'a' has no label"});
  refused("{\"path\": \"a\", \"label\": 1.5}", {"m.jsonl:1", "\"label\" is neither"});
  refused("{\"path\": \"a\\u0000b\", \"label\": 1}", {"m.jsonl:1", "zero byte"});
}

TEST(Manifest, NumbersAreLabels) {
  const TempFolder folder;
  folder.write("images/a.jpg", {1});
  folder.write("b.jpg", {2, 2});
  const std::string path = folder.write(
      "list.csv", bytes_from("path,label\nimages/a.jpg,7\n" + folder.path("b.jpg") + ", 2"));
  const auto reader = open(path);
  EXPECT_EQ(reader->info().count, 2u);
  EXPECT_EQ(reader->info().bytes, 3u);
  EXPECT_EQ(reader->info().classes.size(), 8u);
  EXPECT_EQ(bytes_of(*reader, 0), Bytes{1});
  EXPECT_EQ(bytes_of(*reader, 1), (Bytes{2, 2}));
  EXPECT_EQ(label_of(*reader, 0), 7);
  EXPECT_EQ(label_of(*reader, 1), 2);
  EXPECT_EQ(reader->name(0), folder.path("images/a.jpg") + " (line 2)");
  expect_data_error({path + ":2", "label 7 is not below 5 classes"},
                    [&] { open(path, "train", 5); });
}

TEST(Manifest, OneLabelMakesNoMillionsOfClasses) {
  const TempFolder folder;
  folder.write("a.jpg", {1});
  const auto list = [&](const std::string& label) {
    return folder.write("list.csv", bytes_from("path,label\na.jpg,0\na.jpg," + label + "\n"));
  };
  const std::string path = list("1999999999");
  expect_data_error({path + ":3", "label 1999999999 is not below 65536 classes"},
                    [&] { open(path); });
  list("65536");
  expect_data_error({path + ":3", "label 65536"}, [&] { open(path); });
  EXPECT_EQ(open(path, "train", 70'000)->info().classes.size(), 70'000u);
  list("65535");
  EXPECT_EQ(open(path)->info().classes.size(), 65'536u);
}

TEST(Manifest, NamesAreSortedAndTheSameForEverySplit) {
  const TempFolder folder;
  folder.write("a.jpg", {1});
  folder.write("train.jsonl", bytes_from("{\"path\":\"a.jpg\",\"label\":\"dog\"}\n"
                                         "{\"path\":\"a.jpg\",\"label\":\"Cat\"}\n"));
  folder.write("val.csv", bytes_from("path,label\na.jpg,zebra\n"));
  const auto train = open(folder.path());
  const auto test = open(folder.path(), "test");
  EXPECT_EQ(train->info().classes, (std::vector<std::string>{"Cat", "dog", "zebra"}));
  EXPECT_EQ(test->info().classes, train->info().classes);
  EXPECT_EQ(label_of(*train, 0), 1);
  EXPECT_EQ(label_of(*test, 0), 2);
  expect_data_error({"3 class names where 2", "'zebra'"}, [&] { open(folder.path(), "train", 2); });
}

TEST(Manifest, ASplitColumnChooses) {
  const TempFolder folder;
  folder.write("a.jpg", {1});
  const std::string path = folder.write(
      "manifest.csv", bytes_from("path,label,split\na.jpg,0,train\na.jpg,1,test\na.jpg,2,\n"));
  EXPECT_EQ(open(path)->info().count, 2u);
  EXPECT_EQ(open(folder.path())->info().count, 2u);
  EXPECT_EQ(label_of(*open(path, "test"), 0), 1);
  EXPECT_EQ(open(path, "test")->info().classes.size(), 3u);
  folder.write("manifest.csv", bytes_from("path,label\na.jpg,0\n"));
  EXPECT_THROW(open(path, "test"), MissingSplit);
}

std::vector<float> numbers(const Targets& targets, std::uint64_t index) {
  const auto found = targets.numbers_of(index);
  return {found.begin(), found.end()};
}

TEST(Targets, ListsOfEquallyManyNumbersAreNumeric) {
  const TempFolder folder;
  const std::string csv =
      folder.write("t.csv", bytes_from("path,target\na.jpg,\"[1, -2.5]\"\nb.jpg,\"[3e2,4]\"\n"));
  const auto reader = open(csv);
  const Targets* targets = reader->targets();
  ASSERT_NE(targets, nullptr);
  EXPECT_TRUE(targets->numeric);
  EXPECT_EQ(targets->width, 2u);
  EXPECT_EQ(numbers(*targets, 0), (std::vector<float>{1, -2.5}));
  EXPECT_EQ(numbers(*targets, 1), (std::vector<float>{300, 4}));
  EXPECT_EQ(reader->info().classes, (std::vector<std::string>{"0"}));  // without labels
}

TEST(Targets, OtherValuesStayJson) {
  const TempFolder folder;
  const std::string path = folder.write(
      "t.jsonl", bytes_from("{\"path\":\"a\",\"label\":1,\"target\":[[1,2],[3,4]]}\n"
                            "{\"path\":\"b\",\"label\":0,\"target\":{\"box\": \"\\u00e9\"}}\n"
                            "{\"path\":\"c\",\"label\":0,\"target\":null}\n"));
  const auto reader = open(path);
  const Targets* targets = reader->targets();
  ASSERT_NE(targets, nullptr);
  EXPECT_FALSE(targets->numeric);
  EXPECT_EQ(targets->json_of(0), "[[1,2],[3,4]]");
  EXPECT_EQ(targets->json_of(1), "{\"box\":\"\xc3\xa9\"}");
  EXPECT_EQ(targets->json_of(2), "null");
}

TEST(Targets, BelongToTheSplitAndAllSplitsDecideOnTheirForm) {
  const TempFolder folder;
  const auto path = [&](const std::string& last) {
    return folder.write("t.csv", bytes_from("path,label,split,target\na,0,train,1\nb,0,test,2\n"
                                            "c,1,test," +
                                            last + "\n"));
  };
  const auto test = open(path("3"), "test");
  EXPECT_TRUE(test->targets()->numeric);
  EXPECT_EQ(test->targets()->width, 0u);
  EXPECT_EQ(numbers(*test->targets(), 1), (std::vector<float>{3}));
  const std::uint64_t before = test->info().fingerprint;
  EXPECT_NE(open(path("4"), "test")->info().fingerprint, before);
  const auto train = open(path("\"[3]\""));
  EXPECT_FALSE(train->targets()->numeric);
  EXPECT_EQ(train->targets()->json_of(0), "1");
}

TEST(Targets, PassThroughTheCaches) {
  const TempFolder folder;
  folder.write("a.jpg", {1});
  const std::string path = folder.write("t.csv", bytes_from("path,target\na.jpg,5\n"));
  for (const Cache cache : {Cache::ram, Cache::cold}) {
    DataOptions options{"manifest", path, "train", 0};
    options.cache = cache;
    const auto reader = open_reader(options);
    ASSERT_NE(reader->targets(), nullptr);
    EXPECT_EQ(numbers(*reader->targets(), 0), (std::vector<float>{5}));
  }
}

TEST(Targets, BadOnesAreNamedWithTheirLine) {
  const auto refused = [](const std::string& text, std::initializer_list<std::string> parts) {
    const TempFolder folder;
    const std::string path =
        folder.write(text.front() == '{' ? "t.jsonl" : "t.csv", bytes_from(text));
    expect_data_error(parts, [&] { open(path); });
  };
  refused("path,target\na,1\nb,cat\n", {"t.csv:3", "the target is not JSON: 'cat'"});
  refused("path,target\na,\n", {"t.csv:2", "the target is not JSON: ''"});
  refused("path,target\na," + std::string(65, '[') + std::string(65, ']') + "\n",
          {"t.csv:2", "more than 64 levels"});
  refused(
      "{\"path\":\"a\",\"target\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}",
      {"t.jsonl:1", "more than 64 levels"});
  refused("{\"path\":\"a\",\"label\":0,\"target\":1}\n{\"path\":\"b\",\"label\":0}",
          {"t.jsonl:2", "no target, and other rows have one"});
  refused("{\"path\":\"a\",\"label\":0,\"target\":1}\n{\"path\":\"b\",\"target\":1}",
          {"t.jsonl:2", "'b' has no label, and other rows have one"});
  const std::string brackets = "\"" + std::string(70, '[') + "\"";  // in a text they nest nothing
  const auto table = parse_jsonl("m.jsonl", "{\"path\":\"a\",\"target\":" + brackets + "}");
  EXPECT_EQ(table.rows.front().target, brackets);
}

TEST(Manifest, WhatIsNotThere) {
  const TempFolder folder;
  expect_data_error({"no manifest"}, [&] { open(folder.path()); });
  expect_data_error({"x.csv", "No such file"}, [&] { open(folder.path("x.csv")); });
  expect_data_error({"no rows"}, [&] { open(folder.write("m.csv", bytes_from("path,label\n"))); });
  // A missing file is an error of its sample.
  const std::string path = folder.write("m.csv", bytes_from("path,label\ngone.jpg,0\nfifo,0\n"));
  ASSERT_EQ(mkfifo(folder.path("fifo").c_str(), 0600), 0);
  const auto reader = open(path);
  expect_data_error({"gone.jpg", "cannot be read"}, [&] { bytes_of(*reader, 0); });
  expect_data_error({"fifo", "not a regular file"}, [&] { bytes_of(*reader, 1); });
  folder.write("late.jpg", {1});
  const auto changed = open(folder.write("n.csv", bytes_from("path,label\nlate.jpg,0\n")));
  folder.write("late.jpg", {1, 2});
  expect_data_error({"late.jpg", "changed", "2 bytes, listed with 1"},
                    [&] { bytes_of(*changed, 0); });
}

}  // namespace
}  // namespace millrace::pipeline
