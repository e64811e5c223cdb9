// Finds images by their names, makes thumbnails, and keeps them in mistakes.json.

#include "tools/inspect/mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/checksum.h"
#include "millrace/error.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"
#include "study/report/report.h"
#include "tools/data/data.h"
#include "tools/inspect/sheet.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kFile = "mistakes.json";
constexpr const char* kPredictions = "predictions";  ///< checksum of the file of predictions
constexpr const char* kPictures = "pictures";        ///< JPEGs in base64, by the row in that file
constexpr std::size_t kMaxPicture = 256 << 10;       ///< characters; larger ones are not ours
constexpr int kSide = 112;                           ///< longer side of a thumbnail, in pixels
constexpr int kQuality = 90;

/// Returns the mean of the pixels that a thumbnail's pixel covers, in one channel.
std::uint8_t mean_of(const ImageView& image, Size small, int x, int y, int c) {
  const auto range = [](int at, int from, int to) {
    const int begin = static_cast<int>(std::int64_t{at} * from / to);
    const int end = static_cast<int>((std::int64_t{at} + 1) * from / to);
    return std::pair(begin, std::max(end, begin + 1));
  };
  const auto [left, right] = range(x, image.width, small.width);
  const auto [top, bottom] = range(y, image.height, small.height);
  std::int64_t sum = 0;
  for (int row = top; row < bottom; ++row)
    for (int column = left; column < right; ++column) sum += *image.at(column, row, c);
  return static_cast<std::uint8_t>(sum / ((right - left) * (bottom - top)));
}

/// Returns a JPEG whose longer side is about kSide pixels: small images grow by a whole factor,
/// large ones become means of their pixels.
std::string thumbnail(const ImageView& image) {
  const int longer = std::max(image.width, image.height);
  const auto scaled = [&](int side) {
    return longer > kSide ? std::max(1, side * kSide / longer) : side * (kSide / longer);
  };
  const Size small{scaled(image.width), scaled(image.height)};
  std::vector<std::uint8_t> pixels;
  pixels.reserve(static_cast<std::size_t>(small.width) * static_cast<std::size_t>(small.height) *
                 3);
  for (int y = 0; y < small.height; ++y)
    for (int x = 0; x < small.width; ++x)
      for (int c = 0; c < 3; ++c)
        pixels.push_back(mean_of(image, small, x, y, image.channels == 3 ? c : 0));
  const std::vector<std::uint8_t> jpeg = encode_jpeg(pixels, small, kQuality);
  return {jpeg.begin(), jpeg.end()};
}

/// Returns whether a text is base64 and short enough to be one of our pictures.
bool is_picture(const Json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  return !text.empty() && text.size() <= kMaxPicture &&
         text.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
             "0123456789+/=") == std::string::npos;
}

}  // namespace

std::vector<std::string> draw_mistakes(const std::vector<study::WrongImage>& images,
                                       Recipe recipe) {
  recipe.set("data.cache=os");
  set_visible(recipe);
  Inspection inspection(std::move(recipe), 0, /*eval=*/true);
  const SampleSpec& spec = inspection.plan().output();
  std::vector<std::string> pictures;
  for (const study::WrongImage& image : images) {
    // Samples that failed have no row, so the image is at its row or behind it.
    std::uint64_t index = image.row;
    while (index < inspection.count() && inspection.name(index) != image.name) ++index;
    if (index >= inspection.count())
      throw DataError(fmt::format("the evaluation's data set has no {}", image.name));
    const Visible picture = visible(inspection(index).pixels, spec, inspection.recipe());
    pictures.push_back(
        study::base64(thumbnail(interleaved(picture.pixels.data(), spec.size, picture.channels))));
  }
  return pictures;
}

void keep_mistakes(const fs::path& run, const fs::path& predictions, const Recipe& recipe) {
  const auto images = study::read_predictions(predictions, kMistakes).confident;
  const std::vector<std::string> pictures = draw_mistakes(images, recipe);
  Json json{{kPredictions, base::file_checksum(predictions)}, {kPictures, Json::object()}};
  for (std::size_t i = 0; i < images.size(); ++i)
    json[kPictures][std::to_string(images[i].row)] = pictures[i];
  study::write_file(run / kFile, study::to_text(json) + "\n");
}

std::vector<std::string> kept_mistakes(const fs::path& run, const fs::path& predictions,
                                       const std::vector<study::WrongImage>& images) {
  const Json json = study::read_json(run / kFile);
  if (study::text_at(json, {kPredictions}) != base::file_checksum(predictions)) return {};
  std::vector<std::string> pictures;
  for (const study::WrongImage& image : images) {
    const auto all = json.find(kPictures);
    if (all == json.end() || !all->is_object()) return {};
    const auto found = all->find(std::to_string(image.row));
    if (found == all->end() || !is_picture(*found)) return {};
    pictures.push_back(*found);
  }
  return pictures;
}

}  // namespace millrace::tools
