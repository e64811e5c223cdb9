// Parses YOLO's label files line by line.
#include "pipeline/readers/yolo_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <system_error>

#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"

namespace millrace::pipeline {
namespace {

/// Distance from the image at which a number still counts as rounded, and is clipped.
constexpr double kRounding = 0.01;

/// A line of a label file, which is taken word by word.
class Line {
 public:
  Line(const std::string& file, std::uint64_t number, std::string_view text)
      : file_(file), number_(number), left_(text) {
    skip_blanks();
  }

  [[noreturn]] void reject(const std::string& reason, const std::string& hint) const {
    throw DataError(fmt::format("{}:{}: {}", file_, number_, reason), hint);
  }
  bool at_end() const { return left_.empty(); }
  std::int64_t next_class(std::int64_t classes) {
    const std::string_view word = next_word();
    std::int64_t label = 0;
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), label);
    if (status != std::errc() || end != word.data() + word.size() || label < 0)
      reject(fmt::format("class '{}' is no whole number from 0 on", shown(word)), kForms);
    if (label >= classes)
      reject(
          fmt::format("class {} is not below {} classes", label, classes),
          "classes count from 0; see data.yaml, classes.txt and model.classes, or repair the line");
    return label;
  }
  double next_fraction() {
    const std::string_view word = next_word();
    const double value = number_of(word);
    if (!(value >= -kRounding && value <= 1 + kRounding))
      reject(fmt::format("'{}' is not between 0 and 1", shown(word)),
             "divide positions and sides by the image's width and height");
    return value;
  }
  float next_visibility() {
    const std::string_view word = next_word();
    const double value = number_of(word);
    if (value != 0 && value != 1 && value != 2)
      reject(fmt::format("a visibility of '{}'", shown(word)),
             "it is 0 (not known), 1 (hidden) or 2 (visible); see kpt_shape in data.yaml");
    return static_cast<float>(value);
  }
  std::size_t words() const {
    Line rest = *this;
    std::size_t count = 0;
    for (; !rest.at_end(); ++count) rest.next_word();
    return count;
  }

  static constexpr const char* kForms =
      "a line is CLASS X Y WIDTH HEIGHT, or CLASS and the points of an outline";

 private:
  double number_of(std::string_view word) const {
    double value = 0;
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (status != std::errc() || end != word.data() + word.size())
      reject(fmt::format("'{}' is no number", shown(word)), kForms);
    return value;
  }
  static std::string shown(std::string_view word) { return base::printable(word.substr(0, 60)); }
  void skip_blanks() {
    left_.remove_prefix(std::min(left_.find_first_not_of(" \t\r"), left_.size()));
  }
  std::string_view next_word() {
    const std::string_view word = left_.substr(0, left_.find_first_of(" \t\r"));
    left_.remove_prefix(word.size());
    skip_blanks();
    return word;
  }

  const std::string& file_;
  std::uint64_t number_;
  std::string_view left_;
};

float clipped(double value) { return static_cast<float>(std::clamp(value, 0.0, 1.0)); }

/// Returns a box by its centre, clipped to the image.
Box centred_box(const Line& line, const std::array<double, 4>& numbers) {
  const auto [x, y, width, height] = numbers;
  if (width < 0 || height < 0)
    line.reject(fmt::format("a box of {} x {}", width, height), "repair or remove the line");
  return {clipped(x - width / 2), clipped(y - height / 2), clipped(x + width / 2),
          clipped(y + height / 2)};
}

/// Returns the rest of a line as a box, and appends its key points to `to`.
Box parse_box_and_points(Line& line, std::size_t numbers_per_point, Annotations& to) {
  const std::size_t words = line.words(), expected = 4 + to.points * numbers_per_point;
  if (words != expected)
    line.reject(
        fmt::format("{} numbers behind the class instead of {}", words, expected),
        fmt::format("kpt_shape in data.yaml says {} key points of {} numbers behind the box",
                    to.points, numbers_per_point));
  std::array<double, 4> box{};
  for (double& number : box) number = line.next_fraction();
  for (std::size_t i = 0; i < to.points; ++i) {
    const float x = clipped(line.next_fraction()), y = clipped(line.next_fraction());
    to.key_points.push_back({x, y, numbers_per_point == 3 ? line.next_visibility() : 2.0F});
  }
  return centred_box(line, box);
}

/// Returns the rest of a line as a box that is clipped to the image.
Box parse_box(Line& line) {
  std::array<double, 4> first{};
  std::array<double, 2> least, most;  // of the outline, if it is one
  least.fill(std::numeric_limits<double>::infinity());
  most.fill(-std::numeric_limits<double>::infinity());
  std::size_t count = 0;
  for (; !line.at_end(); ++count) {
    const double number = line.next_fraction();
    if (count < first.size()) first[count] = number;
    least[count % 2] = std::min(least[count % 2], number);
    most[count % 2] = std::max(most[count % 2], number);
  }
  if (count == 4) return centred_box(line, first);
  if (count < 6 || count % 2 != 0)
    line.reject(fmt::format("{} numbers behind the class", count), Line::kForms);
  return {clipped(least[0]), clipped(least[1]), clipped(most[0]), clipped(most[1])};
}

}  // namespace

std::uint64_t parse_yolo(const std::string& file, std::string_view text, std::int64_t classes,
                         Annotations& to, std::size_t numbers_per_point) {
  const std::size_t before = to.boxes.size();
  std::uint64_t empty_boxes = 0;
  for (std::uint64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    Line line(file, number, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.at_end()) continue;
    const std::int64_t label = line.next_class(classes);
    const Box box =
        to.points == 0 ? parse_box(line) : parse_box_and_points(line, numbers_per_point, to);
    if (!(box.x0 < box.x1 && box.y0 < box.y1)) {
      to.key_points.resize(to.boxes.size() * to.points);
      ++empty_boxes;
      continue;
    }
    if (to.boxes.size() - before == kMaxObjects)
      line.reject(fmt::format("more than {} objects", kMaxObjects),
                  "remove the image, or cut it into parts");
    to.boxes.push_back(box);
    to.classes.push_back(label);
  }
  to.ends.push_back(to.boxes.size());
  return empty_boxes;
}

}  // namespace millrace::pipeline
