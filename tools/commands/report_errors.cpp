// Finds the images by their names, and makes thumbnails.
#include "tools/commands/report_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include "millrace/error.h"
#include "strategies/trainer/checkpoint.h"
#include "study/report/predictions.h"
#include "tools/data/jpeg_writer.h"
#include "tools/inspect/contact_sheet.h"
#include "tools/training/pipeline_setup.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kImages = 24;
constexpr int kSide = 112;  ///< longer side of a thumbnail, in pixels
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

/// Finds images in the order of the data set.
class Thumbnails {
 public:
  explicit Thumbnails(const fs::path& run)
      : inspection_(load_recipe({(run / "config.toml").string(), "data.cache=os", "output.dtype=u8",
                                 "output.normalize=loader", "output.layout=hwc"},
                                Plugins::none),
                    0, /*eval=*/true) {}

  /// Returns nothing if the data set has no image of that name at the row or after it.
  std::optional<std::string> of(const study::WrongImage& wrong) {
    std::uint64_t index = wrong.row;
    while (index < inspection_.count() && inspection_.name(index) != wrong.name) ++index;
    if (index >= inspection_.count()) return std::nullopt;
    const Inspected image = inspection_(index);
    const SampleSpec& spec = inspection_.plan().output();
    return thumbnail(interleaved(image.pixels.data(), spec.size, spec.channels));
  }

 private:
  Inspection inspection_;
};

/// Adds a thumbnail to each row. Leaves the rows without any where the data set is another.
void add_thumbnails(const fs::path& run, const std::vector<study::WrongImage>& images,
                    study::ReportTable& table, std::vector<std::string>& notes) {
  try {
    Thumbnails thumbnails(run);
    std::vector<std::string> pictures;
    for (const study::WrongImage& image : images) {
      const std::optional<std::string> picture = thumbnails.of(image);
      if (!picture) throw DataError(fmt::format("the evaluation's data set has no {}", image.name));
      pictures.push_back(*picture);
    }
    table.pictures = std::move(pictures);
  } catch (const std::exception& error) {
    notes.push_back(fmt::format("no images of wrong predictions: {}", error.what()));
  }
}

bool is_older(const fs::path& file, const fs::path& other) {
  std::error_code error;
  const auto mine = fs::last_write_time(file, error);
  if (error) return false;
  const auto others = fs::last_write_time(other, error);
  return !error && mine < others;
}

}  // namespace

void add_wrong_images(const fs::path& run, const fs::path& file, study::Report& report) {
  const study::Predictions predictions = study::read_predictions(file, kImages);
  const std::string name = file.filename().string();
  if (is_older(file, train::last_checkpoint(run) / "position.json"))
    report.notes.push_back(fmt::format(
        "{} is older than the last checkpoint: the predictions may be another model's", name));
  if (predictions.wrong == 0) {
    report.notes.push_back(fmt::format("{}: no image is wrong", name));
    return;
  }
  study::ReportTable table{
      .id = "wrong-images",
      .title = "Most confidently wrong images",
      .caption = fmt::format("{} of {} images in {} are wrong; shown are those whose wrong class "
                             "got the highest probability.",
                             predictions.wrong, predictions.images, name),
      .header = {"image", "label", "predicted", "probability"}};
  for (const study::WrongImage& image : predictions.confident)
    table.rows.push_back({image.name, image.label, image.predicted,
                          fmt::format("{:.1f}%", 100 * image.probability)});
  add_thumbnails(run, predictions.confident, table, report.notes);
  report.tables.push_back(std::move(table));
}

}  // namespace millrace::tools
