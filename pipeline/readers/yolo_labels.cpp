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
      reject(fmt::format("class {} is not below {} classes", label, classes),
             "classes count from 0; see classes.txt and model.classes, or repair the line");
    return label;
  }
  double next_fraction() {
    const std::string_view word = next_word();
    double value = 0;
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (status != std::errc() || end != word.data() + word.size())
      reject(fmt::format("'{}' is no number", shown(word)), kForms);
    if (!(value >= -kRounding && value <= 1 + kRounding))
      reject(fmt::format("'{}' is not between 0 and 1", shown(word)),
             "divide positions and sides by the image's width and height");
    return value;
  }

  static constexpr const char* kForms =
      "a line is CLASS X Y WIDTH HEIGHT, or CLASS and the points of an outline";

 private:
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
  if (count == 4) {
    const auto [x, y, width, height] = first;
    if (width < 0 || height < 0)
      line.reject(fmt::format("a box of {} x {}", width, height), "repair or remove the line");
    least = {x - width / 2, y - height / 2};
    most = {x + width / 2, y + height / 2};
  } else if (count < 6 || count % 2 != 0) {
    line.reject(fmt::format("{} numbers behind the class", count), Line::kForms);
  }
  const auto clipped = [](double value) { return static_cast<float>(std::clamp(value, 0.0, 1.0)); };
  return {clipped(least[0]), clipped(least[1]), clipped(most[0]), clipped(most[1])};
}

}  // namespace

std::uint64_t parse_yolo(const std::string& file, std::string_view text, std::int64_t classes,
                         Annotations& to) {
  const std::size_t before = to.boxes.size();
  std::uint64_t empty_boxes = 0;
  for (std::uint64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    Line line(file, number, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.at_end()) continue;
    const std::int64_t label = line.next_class(classes);
    const Box box = parse_box(line);
    if (!(box.x0 < box.x1 && box.y0 < box.y1)) {
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
