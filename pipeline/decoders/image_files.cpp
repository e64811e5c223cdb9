#include "pipeline/decoders/image_files.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "base/ascii.h"
#include "millrace/error.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/decoders/npy_image.h"
#include "pipeline/decoders/raw_image.h"
#include "plugins/host/registry.h"

namespace millrace::pipeline {
namespace {

/// A format that needs no plugin of the user's.
struct Format {
  std::string_view name;                    ///< for messages
  std::array<std::string_view, 2> endings;  ///< of its files' names; the first one is written
  /// Beginnings of its files; empty: found in another way.
  std::array<std::string_view, 2> begins;
  std::string_view brand = {};  ///< bytes 8 to 11 of its files; empty: any
  bool is_array = false;        ///< its files are images only where the caller says so
};

/// The formats, of which the last two have no codec: their files hold pixels.
constexpr std::array kFormats{Format{"JPEG", {".jpg", ".jpeg"}, {"\xff\xd8", ""}},
                              Format{"PNG", {".png", ""}, {"\x89PNG", ""}},
                              Format{"BMP", {".bmp", ""}, {"BM", ""}},
                              Format{"WebP", {".webp", ""}, {"RIFF", ""}, "WEBP"},
                              Format{"TIFF", {".tif", ".tiff"}, {"II*", "MM"}},
                              Format{"NumPy", {kNpyEnding, ""}, {"\x93NUMPY", ""}, "", true},
                              Format{"pixels", {kRawEnding, ""}, {"", ""}}};
constexpr std::span kDecoded = std::span(kFormats).first<kFormats.size() - 2>();

bool is_known(std::string_view ending) {
  return std::any_of(kFormats.begin(), kFormats.end(), [&](const Format& format) {
    return ending == format.endings[0] || ending == format.endings[1];
  });
}

bool begins_as(const Format& format, std::string_view bytes) {
  const bool any = std::any_of(
      format.begins.begin(), format.begins.end(),
      [&](std::string_view begin) { return !begin.empty() && bytes.starts_with(begin); });
  return any && (format.brand.empty() || bytes.substr(0, 12).ends_with(format.brand));
}

}  // namespace

std::string image_format_names() {
  std::vector<std::string_view> names;
  std::ranges::transform(kDecoded, std::back_inserter(names), &Format::name);
  const std::string_view last = names.back();
  names.pop_back();
  return fmt::format("{} and {}", fmt::join(names, ", "), last);
}

std::string image_endings() {
  std::vector<std::string_view> endings;
  for (const Format& format : kDecoded)
    for (const std::string_view ending : format.endings)
      if (!ending.empty()) endings.push_back(ending);
  return fmt::to_string(fmt::join(endings, " "));
}

std::uint64_t image_formats() {
  std::vector<std::string> added;
  for (const millrace_unit* unit : plugins::decoders())
    if (std::string ending = std::string(".") + unit->name;
        unit != &npy_decoder() && !is_known(ending))
      added.push_back(std::move(ending));
  std::sort(added.begin(), added.end());
  added.erase(std::unique(added.begin(), added.end()), added.end());
  std::string all;
  for (const std::string& ending : added) all += ending;
  return all.empty() ? 0 : XXH3_64bits(all.data(), all.size());
}

bool has_image_ending(std::string_view name, bool arrays) {
  const auto ends_in = [&](std::string_view ending) {
    return !ending.empty() && name.size() > ending.size() &&
           std::equal(ending.begin(), ending.end(), name.end() - std::ssize(ending),
                      [](char a, char b) { return a == base::lower(b); });
  };
  for (const Format& format : kFormats)
    if ((arrays || !format.is_array) &&
        std::any_of(format.endings.begin(), format.endings.end(), ends_in))
      return true;
  // A plugin's decoder is named like the files that it reads.
  const auto own = plugins::decoders();
  return std::any_of(own.begin(), own.end(), [&](const millrace_unit* unit) {
    const std::string_view format = unit->name;
    return unit != &npy_decoder() && ends_in(format) &&
           name[name.size() - format.size() - 1] == '.';
  });
}

std::string image_ending(std::span<const std::uint8_t> bytes) {
  if (is_raw(bytes)) {
    const Size size = parse_raw(bytes).size;
    return fmt::format("{}x{}{}", size.width, size.height, kRawEnding);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Format& format : kFormats)
    if (begins_as(format, text)) return std::string(format.endings[0].substr(1));
  try {
    return decoder_of(bytes).name;  // a plugin's decoder is named like its files
  } catch (const DataError&) {
    return {};
  }
}

}  // namespace millrace::pipeline
