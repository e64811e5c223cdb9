// Tests COCO's annotation files, and the errors that an entry can have.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pipeline/readers/coco_json.h"
#include "pipeline/readers/coco_outline.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/targets/outline.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"

namespace millrace::pipeline {
namespace {

using test::bytes_from;
using test::expect_data_error;
using test::TempFolder;
using Json = nlohmann::json;

/// Returns a set of two images, of which the second comes first by its id, and two categories.
Json small() {
  return Json::parse(R"({
    "info": {"year": 2017, "more": [[1, 2], {"a": null}]},
    "images": [{"id": 9, "file_name": "b.jpg", "width": 100, "height": 80},
               {"id": 4, "file_name": "a.jpg", "width": 60, "height": 50}],
    "annotations": [
      {"id": 1, "image_id": 4, "category_id": 3, "bbox": [1, 2, 30, 40], "segmentation": [[1, 2, 3]]},
      {"id": 2, "image_id": 9, "category_id": 17, "bbox": [90, 70, 20, 20.5], "iscrowd": 0},
      {"id": 3, "image_id": 9, "category_id": 3, "bbox": [5, 5, 0, 10]},
      {"id": 4, "image_id": 9, "category_id": 3, "bbox": [200, 5, 10, 10]},
      {"id": 5, "image_id": 9, "category_id": 3, "bbox": [0, 0, 9, 9], "iscrowd": 1,
       "segmentation": {"counts": [1, 2], "size": [80, 100]}},
      {"id": 6, "image_id": 4, "category_id": 17, "bbox": [0, 0, 9, 9]}],
    "categories": [{"id": 17, "name": "cat"}, {"id": 3, "name": "dog", "keypoints": ["nose"]}]})");
}

CocoSet parsed(const Json& json) { return parse_coco("a.json", json.dump()); }

TEST(Coco, BoxesGoByImageAndClassesByTheCategorysId) {
  const CocoSet set = parsed(small());
  EXPECT_EQ(set.files, (std::vector<std::string>{"b.jpg", "a.jpg"}));
  EXPECT_EQ(set.classes, (std::vector<std::string>{"dog", "cat"}));
  EXPECT_EQ(set.annotations.ends, (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(set.annotations.classes, (std::vector<std::int64_t>{1, 0, 1}));
  EXPECT_EQ(set.annotations.image_ids, (std::vector<std::int64_t>{9, 4}));
  const Box& clipped = set.annotations.boxes[0];
  EXPECT_EQ(clipped.x1, 100);
  EXPECT_EQ(clipped.y1, 80);
  EXPECT_EQ(set.annotations.boxes[1].y1, 42);
  EXPECT_EQ(set.empty_boxes, 2u) << "one without area, one outside of its image";
}

/// Returns the pixels of an object, with a line per row.
std::string drawn(const CocoSet& set, std::size_t object, Size size) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.width * size.height));
  const Rect inside = fill_outline(set.annotations.outlines, object, size, pixels.data());
  std::string rows;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    rows += pixels[i] == 1 ? '#' : pixels[i] == 0 ? '.' : '?';
    if ((i + 1) % static_cast<std::size_t>(size.width) == 0) rows += '\n';
  }
  clear_pixels(inside, size, pixels.data());
  EXPECT_EQ(pixels, std::vector<std::uint8_t>(pixels.size())) << "nothing lies outside of it";
  return rows;
}

/// Returns a set of one image of 6 x 4 pixels with objects of these outlines.
CocoSet outlined(const std::vector<std::string>& segmentations) {
  Json json = Json::parse(R"({"images": [{"id": 1, "file_name": "a.jpg", "width": 6, "height": 4}],
    "annotations": [], "categories": [{"id": 1, "name": "cat"}]})");
  for (const std::string& one : segmentations)
    json["annotations"].push_back({{"image_id", 1},
                                   {"category_id", 1},
                                   {"bbox", {0, 0, 6, 4}},
                                   {"segmentation", Json::parse(one)}});
  return parse_coco("a.json", json.dump(), true);
}

TEST(CocoOutlines, PolygonsHoldThePixelsWhoseCentresLieInside) {
  const CocoSet set = outlined(
      {"[[1, 1, 4, 1, 4, 3, 1, 3]]", "[[0, 0, 6, 0, 0, 4]]",
       "[[0, 0, 2, 0, 2, 4, 0, 4], [1, 1, 5, 1, 5, 2, 1, 2]]", "[[0, 0, 6, 4, 6, 0, 0, 4]]",
       "[[-9, -9, 1e6, -9, 1e6, 1.5, -9, 1.5]]", "[[1.6, 0, 2.4, 0, 2.4, 4, 1.6, 4]]"});
  const auto is = [&](std::size_t object, const char* expected) {
    EXPECT_EQ(drawn(set, object, {6, 4}), expected) << object;
  };
  is(0, "......\n.###..\n.###..\n......\n");
  is(1, "#####.\n####..\n##....\n#.....\n");
  is(2, "##....\n#####.\n##....\n##....\n");
  is(3, "#....#\n##..##\n##..##\n#....#\n");
  is(4, "######\n......\n......\n......\n");
  is(5, "......\n......\n......\n......\n");
}

TEST(CocoOutlines, RunsGoDownTheColumnsAsNumbersOrPackedAsText) {
  // Packed as in COCO's files: 5 bits per character, from the fourth run on as differences.
  const CocoSet set = outlined(
      {R"({"size": [4, 6], "counts": [1, 2, 2, 2, 17]})", R"({"size": [4, 6], "counts": "1220?"})",
       R"({"size": [4, 6], "counts": [0, 24]})", R"({"size": [4, 6], "counts": [24]})"});
  EXPECT_EQ(drawn(set, 0, {6, 4}), "......\n##....\n##....\n......\n");
  EXPECT_EQ(drawn(set, 1, {6, 4}), drawn(set, 0, {6, 4}));
  EXPECT_EQ(drawn(set, 2, {6, 4}), "######\n######\n######\n######\n");
  EXPECT_EQ(drawn(set, 3, {6, 4}), "......\n......\n......\n......\n");
}

TEST(CocoOutlines, OnlyTheirRectanglesAreTouched) {
  const CocoSet set =
      outlined({"[[1, 1, 4, 1, 4, 3, 1, 3]]", R"({"size": [4, 6], "counts": [5, 2, 3, 1, 13]})",
                "[[1, 0, 2, 0, 2, 1, 1, 1], [-5, 3, 1, 3, 1, 9, -5, 9]]", "[[7, 5, 9, 5, 9, 9]]"});
  const std::vector<Rect> most{{1, 1, 5, 3}, {1, 1, 3, 3}, {0, 0, 3, 4}, {6, 4, 6, 4}};
  for (std::size_t object = 0; object < most.size(); ++object) {
    const Rect& rect = most[object];
    std::vector<std::uint8_t> pixels(24, 9);
    for (int y = rect.y0; y < rect.y1; ++y)
      for (int x = rect.x0; x < rect.x1; ++x) pixels[static_cast<std::size_t>(6 * y + x)] = 0;
    std::vector<std::uint8_t> expected = pixels;
    const Rect inside = fill_outline(set.annotations.outlines, object, {6, 4}, pixels.data());
    EXPECT_TRUE(inside.x0 >= rect.x0 && inside.y0 >= rect.y0 && inside.x1 <= rect.x1 &&
                inside.y1 <= rect.y1)
        << object;
    clear_pixels(inside, {6, 4}, pixels.data());
    EXPECT_EQ(pixels, expected) << object;
  }
}

TEST(CocoOutlines, ChangeTheFingerprintAndStayWithTheSamplesOfASubset) {
  const TempFolder folder;
  Json json = small();
  for (std::size_t i = 0; i < json["annotations"].size(); ++i) {
    const double x = static_cast<double>(i);
    json["annotations"][i]["segmentation"] = {{x, 0, x + 2, 0, x + 2, 4}, {0, 4, x + 1, 1, 2, 2}};
  }
  const auto open = [&](const char* chosen) {
    const std::string file = folder.write("a.json", bytes_from(json.dump()));
    DataOptions options{"coco", file, "train", 0};
    options.instance_masks = true;
    if (chosen != nullptr) options.listed = folder.write("list.txt", bytes_from(chosen));
    return open_reader(options);
  };
  const auto whole = open(nullptr);
  const auto some = open("1\n");
  const auto drawn_in = [](const Reader& reader, std::size_t object) {
    std::vector<std::uint8_t> pixels(64);
    fill_outline(reader.annotations()->outlines, object, {8, 8}, pixels.data());
    return pixels;
  };
  const std::size_t before = whole->annotations()->begin(1);
  ASSERT_EQ(some->annotations()->boxes.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(drawn_in(*some, i), drawn_in(*whole, before + i)) << i;
  EXPECT_NE(drawn_in(*some, 0), drawn_in(*some, 1));

  Json& parts = json["annotations"][0]["segmentation"];
  Json joined = parts[0];
  for (const Json& number : parts[1]) joined.push_back(number);
  parts = {joined};  // the same numbers, and another outline
  EXPECT_NE(open(nullptr)->info().fingerprint, whole->info().fingerprint);
}

TEST(CocoOutlines, ABadOneIsNamed) {
  const auto refused = [](const std::string& segmentation, const std::string& part) {
    expect_data_error({"a.json: annotations[0]: segmentation ", part},
                      [&] { outlined({segmentation}); });
  };
  refused("[]", "is neither");
  refused("7", "is neither");
  refused("[7]", "is no list of polygons");
  refused("[[1, 2, 3, 4]]", "a polygon of 4 numbers");
  refused("[[1, 2, 3, 4, 5, 6, 7]]", "a polygon of 7 numbers");
  refused("[[1, 2, 3, 4, 5, null]]", "something else than numbers");
  refused("[[1, 2, 3, 4, 5, 1e99]]", "something else than numbers");
  refused(R"({"counts": [24]})", "neither a list of polygons nor counts");
  refused(R"({"size": [4, 6], "counts": 24})", "neither numbers nor text");
  refused(R"({"size": [4, 6], "counts": [20, -1, 5]})", "do not fit its size");
  refused(R"({"size": [4, 6], "counts": [20, 5]})", "do not fit its size");
  refused(R"({"size": [4, 6], "counts": [20, 3]})", "do not fill its size");
  refused(R"({"size": [4, 6], "counts": ["a"]})", "no whole numbers");
  refused(R"({"size": [4, 6], "counts": "122!"})", "damaged counts");
  refused(R"({"size": [4, 6], "counts": "122o"})", "damaged counts");
  refused(R"({"size": [4, 6], "counts": "ooooooooo0"})", "damaged counts");
  refused(R"({"size": [0, 6], "counts": []})", "an image of 6x0 pixels");
  refused(R"({"size": [1000000, 1000000], "counts": []})", "an image of 1000000x1000000");
  refused(R"({"size": [6, 4], "counts": [24]})", "for an image of 4x6 pixels, and image 1 has 6x4");
  Json json = small();
  json["annotations"][0]["segmentation"] = {{1, 2, 30, 2, 30, 40}};
  expect_data_error({"a.json: annotations[1]: no segmentation"},
                    [&] { parse_coco("a.json", json.dump(), true); });
}

TEST(CocoOutlines, ALongOneIsNotReadToItsEnd) {
  const auto text_with = [](const char* first, const char* more, std::size_t count) {
    std::string text = R"({"annotations": [{"segmentation": )";
    text += first;
    for (std::size_t i = 0; i < count; ++i) text += more;
    return text;  // without an end
  };
  for (const auto& [first, more] : {std::pair("[[0", ",0"), std::pair("[[]", ",[]"),
                                    std::pair(R"({"size": [4, 6], "counts": [0)", ",0")}) {
    expect_data_error({"a.json: annotations[0]: segmentation is too long"}, [&] {
      parse_coco("a.json", text_with(first, more, kMaxOutlineNumbers), true);
    });
    expect_data_error({"damaged JSON"}, [&] {
      parse_coco("a.json", text_with(first, more, kMaxOutlineNumbers), false);
    });
    expect_data_error({"damaged JSON"}, [&] {
      parse_coco("a.json", text_with(first, more, kMaxOutlineNumbers - 8), true);
    });
  }
  // Long lists elsewhere are none of its business.
  Json json = small();
  for (Json& one : json["annotations"]) one["segmentation"] = {{1, 2, 30, 2, 30, 40}};
  json["zones"] = Json::array({std::vector<int>(kMaxOutlineNumbers + 9)});
  EXPECT_EQ(parse_coco("a.json", json.dump(), true).annotations.boxes.size(), 3u);
}

TEST(Coco, KeyPointsBelongToTheirObjects) {
  Json json = small();
  json["annotations"][5]["keypoints"] = {1, 2, 2, 3, 4, 1};
  const Annotations all = parsed(json).annotations;
  ASSERT_EQ(all.points, 2u);
  ASSERT_EQ(all.key_points.size(), 6u);
  EXPECT_EQ(all.key_points[0].visibility, 0) << "an object without key points";
  EXPECT_EQ(all.key_points[4].x, 1);
  EXPECT_EQ(all.key_points[5].visibility, 1);
}

TEST(Coco, BadFilesAndEntries) {
  const auto refused = [](const std::string& text, std::initializer_list<std::string> parts) {
    expect_data_error(parts, [&] { parse_coco("a.json", text); });
  };
  const std::string sound = small().dump();
  refused(sound.substr(0, sound.size() / 2), {"a.json: damaged JSON at byte"});
  refused("", {"damaged JSON"});
  refused("[]", {"a.json: no JSON object"});
  refused("{}", {"no list \"images\""});
  refused(R"({"images": 3, "annotations": [], "categories": []})", {"images is no list"});
  refused(R"({"images": {"a": 1}, "annotations": [], "categories": []})", {"images is no list"});
  refused(R"({"images": [3], "annotations": [], "categories": []})", {"images[0]: no object"});
  refused(R"({"images": [{"id": 1, "width": NaN}], "annotations": [], "categories": []})",
          {"damaged JSON at byte 32"});

  refused(R"({"images": [{"id": 1, "width": 1e999}]})", {"damaged JSON: a number"});

  const auto with = [&](const char* path, const Json& value,
                        std::initializer_list<std::string> parts) {
    Json json = small();
    json[Json::json_pointer(path)] = value;
    refused(json.dump(), parts);
  };
  with("/images/1/id", "4", {"images[1]: id is no whole number"});
  with("/images/1/id", 9, {"image 9 comes twice"});
  with("/images/0/width", 0, {"images[0]: an image of 0x80 pixels"});
  with("/images/0/file_name", "", {"images[0]: file_name is empty"});
  with("/images/0/file_name", 7, {"images[0]: file_name is no text"});
  with("/annotations/1/bbox", {1, 2, 3}, {"annotations[1]: bbox is not left, top"});
  with("/annotations/1/bbox", {1, 2, 3, "4"}, {"annotations[1]: bbox is no list of numbers"});
  with("/annotations/1/bbox", {1, 2, 3, 1e300}, {"annotations[1]: bbox is no list of numbers"});
  with("/annotations/1/bbox", {1, 2, -3, 4}, {"annotations[1]: a box of -3 x 4"});
  with("/annotations/1/image_id", 5, {"annotations[1]: no image 5"});
  with("/annotations/1/category_id", 4, {"annotations[1]: no category 4"});
  with("/annotations/1/keypoints", {1, 2}, {"annotations[1]: 2 numbers as keypoints"});
  with("/annotations/1/keypoints", {1, 2, 7}, {"annotations[1]: a visibility of 7"});
  with("/categories/1/id", 17, {"categories[1]: category 17 comes twice"});

  Json crowded = small();
  for (std::size_t i = 0; i <= kMaxObjects; ++i)
    crowded["annotations"].push_back(
        {{"id", i}, {"image_id", 4}, {"category_id", 3}, {"bbox", {1, 1, 2, 2}}});
  refused(crowded.dump(), {"image 'a.jpg' has 65539 objects, more than 65536"});
}

TEST(Coco, FilesAreFoundInEveryLayout) {
  const struct {
    std::string annotations, images, path;
  } layouts[] = {{"annotations/instances_train2017.json", "train2017/", ""},
                 {"annotations/instances_train.json", "images/train/", ""},
                 {"train/_annotations.coco.json", "train/", ""},
                 {"some/where.json", "some/images/", "some/where.json"}};
  for (const auto& layout : layouts) {
    const TempFolder folder;
    folder.write(layout.annotations, bytes_from(small().dump()));
    for (const char* name : {"a.jpg", "b.jpg"})
      folder.write(layout.images + name, bytes_from(name));
    const auto reader = open_reader({"coco", folder.path(layout.path), "train", 0});
    ASSERT_EQ(reader->info().count, 2u) << layout.annotations;
    Buffer scratch;
    const Sample sample = reader->read(1, scratch);
    EXPECT_EQ(std::string(sample.bytes.begin(), sample.bytes.end()), "a.jpg");
    EXPECT_EQ(reader->annotations()->boxes.size(), 3u);
    EXPECT_THROW(open_reader({"coco", folder.path(layout.path), "test", 0}), MissingSplit);
  }
}

TEST(Coco, BoxesChangeTheFingerprintAndStayWithTheSamplesOfASubset) {
  const TempFolder folder;
  Json json = small();
  const auto open = [&] {
    const std::string file = folder.write("a.json", bytes_from(json.dump()));
    DataOptions options{"coco", file, "train", 0};
    options.listed = folder.write("list.txt", bytes_from("1\n"));
    return open_reader(options);
  };
  const auto reader = open();
  const Annotations& left = *reader->annotations();
  EXPECT_EQ(left.ends, std::vector<std::uint64_t>{2});
  EXPECT_EQ(left.classes, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(left.image_ids, std::vector<std::int64_t>{4});
  json["annotations"][0]["bbox"][0] = 2;
  EXPECT_NE(open()->info().fingerprint, reader->info().fingerprint);
}

}  // namespace
}  // namespace millrace::pipeline
