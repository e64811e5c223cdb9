// Draws and encodes contact sheets with OpenCV.
#include "tools/inspect/sheet.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <vector>

namespace {

constexpr int kLeastWidth = 200;  ///< width of a tile, for its text
constexpr int kLine = 16;
constexpr int kMargin = 8;
constexpr double kFontScale = 0.38;

/// Returns a whole factor by which small pictures are enlarged, so that their pixels are visible.
int zoom_of(const millrace_tile& tile) { return std::max(1, kLeastWidth / tile.width); }

cv::Mat enlarged(const millrace_tile& tile) {
  const cv::Mat pixels(tile.height, tile.width, tile.channels == 1 ? CV_8UC1 : CV_8UC3,
                       const_cast<std::uint8_t*>(tile.pixels));
  cv::Mat bgr;
  cv::cvtColor(pixels, bgr, tile.channels == 1 ? cv::COLOR_GRAY2BGR : cv::COLOR_RGB2BGR);
  const int zoom = zoom_of(tile);
  cv::resize(bgr, bgr, {}, zoom, zoom, cv::INTER_NEAREST);
  return bgr;
}

}  // namespace

extern "C" int millrace_make_sheet(const millrace_tile* tiles, std::size_t count, int columns,
                                   void (*write)(void*, const std::uint8_t*, std::size_t),
                                   void* context, char* error, std::size_t error_size) try {
  cv::setNumThreads(0);
  int width = kLeastWidth;
  int height = 0;
  std::size_t lines = 0;
  for (std::size_t i = 0; i < count; ++i) {
    width = std::max(width, tiles[i].width * zoom_of(tiles[i]));
    height = std::max(height, tiles[i].height * zoom_of(tiles[i]));
    lines = std::max(lines, tiles[i].line_count);
  }
  const int step_x = width + kMargin;
  const int step_y = height + static_cast<int>(lines) * kLine + 2 * kMargin;
  const int rows = (static_cast<int>(count) + columns - 1) / columns;
  cv::Mat sheet(rows * step_y + kMargin, columns * step_x + kMargin, CV_8UC3,
                cv::Scalar(250, 250, 250));
  for (std::size_t i = 0; i < count; ++i) {
    const int x = kMargin + static_cast<int>(i) % columns * step_x;
    const int y = kMargin + static_cast<int>(i) / columns * step_y;
    const cv::Mat picture = enlarged(tiles[i]);
    picture.copyTo(sheet(cv::Rect(x, y, picture.cols, picture.rows)));
    for (std::size_t line = 0; line < tiles[i].line_count; ++line)
      cv::putText(sheet(cv::Rect(x, 0, width, sheet.rows)), tiles[i].lines[line],
                  {0, y + height + kLine * (static_cast<int>(line) + 1)}, cv::FONT_HERSHEY_SIMPLEX,
                  kFontScale, cv::Scalar(40, 40, 40), 1, cv::LINE_AA);
  }
  std::vector<std::uint8_t> png;
  cv::imencode(".png", sheet, png);
  write(context, png.data(), png.size());
  return 0;
} catch (const std::exception& exception) {
  std::snprintf(error, error_size, "%s", exception.what());
  return 1;
}
