// Parses labels and class names, and computes fingerprints with xxHash.

#include "pipeline/readers/data_set.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <new>

#include "base/folder.h"
#include "base/located_sample.h"
#include "base/open_file.h"
#include "base/record_file.h"

namespace millrace::pipeline {

MissingSplit::~MissingSplit() = default;

void warn_of_unused_classes(const DataOptions& options, int seen) {
  if (options.split != "train" || options.classes <= 2 * seen || !options.warn) return;
  options.warn(
      fmt::format("model.classes={}, but {} has {} classes: {} outputs of the model never "
                  "see a sample",
                  options.classes, options.path, seen, options.classes - seen));
}

std::optional<std::int64_t> parse_label(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return std::nullopt;
  text = text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::int64_t max_classes(std::uint64_t count) {
  constexpr std::uint64_t kAlways = 65'536;  // a small part of a large set keeps its labels
  return std::min(kMaxClasses, static_cast<std::int64_t>(std::max(kAlways, count)));
}

std::vector<std::string> numbered_classes(std::int64_t count) {
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(count));
  for (std::int64_t label = 0; label < count; ++label) names.push_back(std::to_string(label));
  return names;
}

bool is_class_name(std::string_view name) {
  return !name.empty() && !name.ends_with('\r') && name.find('\n') == name.npos;
}

std::vector<std::string> read_class_names(const std::string& path) {
  std::vector<std::string> names;
  if (!base::exists(path) || base::is_folder(path)) return names;
  read_lines({}, path, [&](const std::string& line, std::uint64_t) {
    if (!line.empty()) names.push_back(line);
  });
  return names;
}

void read_lines(const std::string& key, const std::string& path,
                const std::function<void(const std::string&, std::uint64_t)>& visit) {
  try {
    base::open_regular(path);  // rejects files that could block
  } catch (const DataError& error) {
    if (key.empty()) throw;
    throw DataError(key + "=" + error.what(), "name a text file that can be read");
  }
  std::ifstream file(path);
  std::string line;
  for (std::uint64_t number = 1; base::read_line(file, line, path); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    visit(line, number);
  }
}

void Fingerprint::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Fingerprint::Fingerprint() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

void Fingerprint::add(std::span<const std::uint8_t> bytes) {
  XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

void Fingerprint::add(std::string_view name) {
  XXH3_64bits_update(state_.get(), name.data(), name.size());
  XXH3_64bits_update(state_.get(), "", 1);
}

void Fingerprint::add(std::uint64_t number) {
  std::array<std::uint8_t, 8> bytes{};
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(number);
    number >>= 8;
  }
  add(std::span<const std::uint8_t>(bytes));
}

void Fingerprint::add(const Annotations& annotations) {
  const auto add_all = [&](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    add({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  };
  add_all(annotations.ends);
  add_all(annotations.boxes);
  add_all(annotations.classes);
  add_all(annotations.key_points);
  add_all(annotations.flip_pairs);
  add_all(annotations.outlines.ends);
  add_all(annotations.outlines.polygon_ends);
  add_all(annotations.outlines.points);
  add_all(annotations.outlines.runs);
}

std::uint64_t Fingerprint::value() const { return XXH3_64bits_digest(state_.get()); }

Location location_of(const Reader& reader, std::uint64_t index) {
  Location location;
  if (!reader.locate(index, location))
    throw DataError("the path is too long", "move the set to a shorter path");
  return location;
}

void rethrow_for_mask(const DataError& error) {
  throw DataError(fmt::format("its mask {}", error.what()), error.hint());
}

std::span<const std::uint8_t> read_mask_file(const Reader& reader, std::uint64_t index,
                                             Buffer& scratch) {
  Location location;
  if (!reader.locate_mask(index, location))
    throw DataError("the path of its mask is too long", "move the masks to a shorter path");
  try {
    return base::read_located(location, scratch).bytes;
  } catch (const DataError& error) {
    rethrow_for_mask(error);
  }
}

}  // namespace millrace::pipeline

namespace millrace {

std::span<const float> Targets::numbers_of(std::uint64_t index) const {
  const std::size_t each = std::max<std::size_t>(width, 1);
  return std::span(numbers).subspan(static_cast<std::size_t>(index) * each, each);
}

std::string_view Targets::json_of(std::uint64_t index) const {
  const std::uint64_t begin = index > 0 ? ends[index - 1] : 0;
  return std::string_view(text).substr(begin, ends[index] - begin);
}

}  // namespace millrace
