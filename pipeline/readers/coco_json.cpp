// Parses COCO's annotation files entry by entry, as the tree of a large one takes gigabytes.
#include "pipeline/readers/coco_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/coco_outline.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/targets/outline.h"

namespace millrace::pipeline {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxPixelsPerSide = 1 << 20;
constexpr const char* kWantedFile =
    "give a file in COCO's format, such as instances_train2017.json";
constexpr const char* kRepair = "repair or remove the entry";
constexpr const char* kMendOutline = "repair it, or leave data.instance_masks out";

/// One entry of a list, with checked access.
class Entry {
 public:
  Entry(const std::string& file, const std::string& list, std::uint64_t index, const Json& json)
      : file_(file), list_(list), index_(index), json_(json) {}

  [[noreturn]] void reject(const std::string& reason, const char* hint = kRepair) const {
    throw DataError(fmt::format("{}: {}[{}]: {}", file_, list_, index_, reason), hint);
  }
  std::int64_t whole(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number_integer()) reject(fmt::format("{} is no whole number", key));
    return value.get<std::int64_t>();
  }
  bool is_set(const char* key) const { return json_.contains(key) && json_[key] == 1; }
  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) reject(fmt::format("{} is no text", key));
    auto text = value.get<std::string>();
    if (text.empty() || text.find('\0') != std::string::npos)
      reject(fmt::format("{} is empty or holds a zero byte", key));
    return text;
  }
  /// Returns a list of numbers that fit float32, or nothing if there is no such key.
  std::optional<std::vector<double>> numbers(const char* key) const {
    if (!json_.contains(key)) return std::nullopt;
    std::vector<double> values;
    for (const Json& value : json_[key]) {
      if (!value.is_number() ||
          !(std::abs(value.get<double>()) <= std::numeric_limits<float>::max()))
        reject(fmt::format("{} is no list of numbers", key));
      values.push_back(value.get<double>());
    }
    return values;
  }
  const Json& at(const char* key) const {
    if (!json_.contains(key)) reject(fmt::format("no {}", key));
    return json_[key];
  }

 private:
  const std::string& file_;
  const std::string& list_;
  std::uint64_t index_;
  const Json& json_;
};

struct Object {
  std::int64_t image, category;
  double x, y, width, height;
  std::uint64_t entry;       ///< its index in the file's list
  std::size_t first_number;  ///< of its key points in Lists::key_points; kNone: it has none
  std::size_t place;         ///< its index in Lists::objects
};
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// The file's three lists.
struct Lists {
  std::vector<std::int64_t> image_ids;
  std::vector<std::string> files;
  std::vector<Size> sizes;
  std::map<std::int64_t, std::string> categories;
  std::vector<Object> objects;
  std::vector<float> key_points;  ///< x, y and visibility
  std::size_t points = 0;         ///< per object
  bool has_outlines = false;      ///< whether those of objects are read
  Outlines outlines;
  std::vector<std::optional<Size>> outline_sizes;  ///< per object: the image that its runs are for

  void add_image(const Entry& entry) {
    const std::int64_t width = entry.whole("width"), height = entry.whole("height");
    if (std::min(width, height) < 1 || std::max(width, height) > kMaxPixelsPerSide)
      entry.reject(fmt::format("an image of {}x{} pixels", width, height));
    image_ids.push_back(entry.whole("id"));
    files.push_back(entry.text("file_name"));
    sizes.push_back({static_cast<int>(width), static_cast<int>(height)});
  }
  void add_category(const Entry& entry) {
    if (!categories.emplace(entry.whole("id"), entry.text("name")).second)
      entry.reject(fmt::format("category {} comes twice", entry.whole("id")));
  }
  void add_object(const Entry& entry, std::uint64_t index) {
    if (entry.is_set("iscrowd")) return;
    const auto box = entry.numbers("bbox");
    if (!box || box->size() != 4) entry.reject("bbox is not left, top, width and height");
    const double* const side = box->data() + 2;
    if (side[0] < 0 || side[1] < 0) entry.reject(fmt::format("a box of {} x {}", side[0], side[1]));
    Object object{entry.whole("image_id"),
                  entry.whole("category_id"),
                  (*box)[0],
                  (*box)[1],
                  side[0],
                  side[1],
                  index,
                  kNone,
                  objects.size()};
    if (const auto numbers = entry.numbers("keypoints")) {
      const std::size_t count = numbers->size() / 3;
      if (count == 0 || numbers->size() % 3 != 0 || (points != 0 && count != points))
        entry.reject(fmt::format("{} numbers as keypoints", numbers->size()),
                     "give x, y and visibility of each, and all objects equally many");
      points = count;
      object.first_number = key_points.size();
      for (const double number : *numbers) key_points.push_back(static_cast<float>(number));
      for (std::size_t i = object.first_number + 2; i < key_points.size(); i += 3)
        if (key_points[i] != 0 && key_points[i] != 1 && key_points[i] != 2)
          entry.reject(fmt::format("a visibility of {}", key_points[i]),
                       "0: not labelled, 1: hidden, 2: visible");
    }
    objects.push_back(object);
    if (has_outlines) add_outline(entry);
  }
  void add_outline(const Entry& entry) {
    try {
      const CocoOutline outline = parse_outline(entry.at("segmentation"));
      outline.append_to(outlines);
      outline_sizes.push_back(outline.size);
    } catch (const DataError& error) {
      if (!error.hint().empty()) throw;  // one that has its place
      entry.reject(error.what(), kMendOutline);
    }
  }
};

/// Reads the three lists. No more than an entry of them is in memory as a tree.
Lists read_lists(const std::string& file, std::string_view text, bool outlines) {
  Lists lists;
  lists.has_outlines = outlines;
  std::string list;
  std::map<std::string, std::uint64_t> seen;  // entries so far
  bool in_outline = false;
  std::size_t numbers = 0;  // of the outline so far, and lists
  const auto visit = [&](int depth, Json::parse_event_t event, Json& json) {
    using Event = Json::parse_event_t;
    if (event == Event::key && depth == 1) {
      list = json.get<std::string>();
      if (list == "images" || list == "annotations" || list == "categories") seen[list];
    }
    if (depth == 1 && seen.contains(list) &&
        (event == Event::value || event == Event::object_start))
      throw DataError(fmt::format("{}: {} is no list", file, list), kWantedFile);
    if (depth < 3) in_outline = false;
    if (event == Event::key && depth == 3) {
      in_outline = list == "annotations" && json == "segmentation";
      numbers = 0;
      return outlines || !in_outline;  // outlines take most of a file
    }
    // Fail before a long one is in memory as a tree.
    if (outlines && in_outline && event != Event::array_end && event != Event::object_end &&
        ++numbers > kMaxOutlineNumbers)
      Entry(file, list, seen[list], json).reject("segmentation is too long", kMendOutline);
    if (event == Event::key) return true;
    if (depth != 2 || !seen.contains(list)) return depth < 2 || seen.contains(list);
    if (event == Event::object_start) return true;
    const std::uint64_t index = seen[list]++;
    const Entry entry(file, list, index, json);
    if (event != Event::object_end) entry.reject("no object");
    if (list == "images") lists.add_image(entry);
    if (list == "categories") lists.add_category(entry);
    if (list == "annotations") lists.add_object(entry, index);
    return false;
  };
  try {
    if (!Json::parse(text, visit).is_object())
      throw DataError(fmt::format("{}: no JSON object", file), kWantedFile);
  } catch (const Json::parse_error& error) {
    throw DataError(fmt::format("{}: damaged JSON at byte {}", file, error.byte),
                    "fetch or write the file again; NaN and Infinity are no JSON");
  } catch (const Json::out_of_range&) {
    throw DataError(fmt::format("{}: damaged JSON: a number that no type holds", file), kRepair);
  }
  for (const char* name : {"images", "annotations", "categories"})
    if (!seen.contains(name))
      throw DataError(fmt::format("{}: no list \"{}\"", file, name), kWantedFile);
  return lists;
}

/// Returns the positions of keys. Throws DataError for one that comes twice.
std::unordered_map<std::int64_t, std::size_t> index_of(const std::string& file,
                                                       const std::vector<std::int64_t>& ids) {
  std::unordered_map<std::int64_t, std::size_t> positions;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (!positions.emplace(ids[i], i).second)
      throw DataError(fmt::format("{}: images[{}]: image {} comes twice", file, i, ids[i]),
                      kRepair);
  return positions;
}

}  // namespace

CocoSet parse_coco(const std::string& file, std::string_view text, bool outlines) {
  Lists lists = read_lists(file, text, outlines);
  CocoSet set;
  std::map<std::int64_t, std::int64_t> class_of;  // category -> class
  for (auto& [id, name] : lists.categories) {
    class_of[id] = std::ssize(set.classes);
    set.classes.push_back(std::move(name));
  }
  const auto images = index_of(file, lists.image_ids);
  Annotations& all = set.annotations;
  all.sizes = std::move(lists.sizes);
  all.points = lists.points;
  all.has_outlines = outlines;

  // Objects that count, in the order of the images.
  const auto unknown = [&](const Object& object, const char* what, std::int64_t id) {
    return DataError(fmt::format("{}: annotations[{}]: no {} {}", file, object.entry, what, id),
                     "add it to the file's list, or remove the entry");
  };
  std::vector<std::pair<std::size_t, const Object*>> placed;
  for (const Object& object : lists.objects) {
    const auto image = images.find(object.image);
    if (image == images.end()) throw unknown(object, "image", object.image);
    if (!class_of.contains(object.category)) throw unknown(object, "category", object.category);
    placed.emplace_back(image->second, &object);
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });

  auto next = placed.begin();
  for (std::size_t image = 0; image < lists.files.size(); ++image) {
    const std::size_t before = all.boxes.size();
    const double width = all.sizes[image].width, height = all.sizes[image].height;
    for (; next != placed.end() && next->first == image; ++next) {
      const Object& object = *next->second;
      const Box box{static_cast<float>(std::clamp(object.x, 0.0, width)),
                    static_cast<float>(std::clamp(object.y, 0.0, height)),
                    static_cast<float>(std::clamp(object.x + object.width, 0.0, width)),
                    static_cast<float>(std::clamp(object.y + object.height, 0.0, height))};
      if (!(box.x0 < box.x1 && box.y0 < box.y1)) {
        ++set.empty_boxes;
        continue;
      }
      if (outlines) {
        const auto& size = lists.outline_sizes[object.place];
        if (size && !(*size == all.sizes[image]))
          throw DataError(fmt::format("{}: annotations[{}]: segmentation is for an image of {}x{} "
                                      "pixels, and image {} has {}x{}",
                                      file, object.entry, size->width, size->height, object.image,
                                      width, height),
                          kRepair);
        append_outline(lists.outlines, object.place, all.outlines);
      }
      all.boxes.push_back(box);
      all.classes.push_back(class_of[object.category]);
      for (std::size_t i = 0; i < all.points; ++i) {
        const float* const point = lists.key_points.data() + object.first_number + 3 * i;
        all.key_points.push_back(
            object.first_number == kNone ? KeyPoint{} : KeyPoint{point[0], point[1], point[2]});
      }
    }
    if (all.boxes.size() - before > kMaxObjects)
      throw DataError(
          fmt::format("{}: image '{}' has {} objects, more than {}", file,
                      base::printable(lists.files[image]), all.boxes.size() - before, kMaxObjects),
          "remove it, or cut it into parts");
    all.ends.push_back(all.boxes.size());
  }
  set.files = std::move(lists.files);
  all.image_ids = std::move(lists.image_ids);
  return set;
}

}  // namespace millrace::pipeline
