// Draws tiles and text into an RGB image and encodes it with libpng.
#include "tools/inspect/sheet.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "millrace/error.h"

namespace millrace::tools {
namespace {

constexpr int kLeastWidth = 200;  ///< width of a tile, for its text
constexpr int kLine = 16;
constexpr int kMargin = 8;
constexpr std::uint8_t kPaper = 250, kInk = 40;

// The font: ASCII in 5x7 pixels. A row is a digit of base 32, a glyph seven rows from the top, from
// ' ' to '~'.

constexpr int kGlyphWidth = 5, kGlyphHeight = 7;
constexpr std::string_view kRows =
    "00000004444404aaa0000aavavaa4fke5u4oo248j3cik8lid44800002488842"
    "842224804lel40044v4400000448000v00000000cc01248g0ehjlphe4c4444e"
    "eh1248vv2421he26aiv22vgu11he68guhhev124888ehhehheehhf12c0cc0cc0"
    "0cc0448248g84200v0v008421248eh12404eh1dlleehhvhhhuhhuhhuehggghe"
    "sihhhisvgguggvvggugggehgnhhfhhhvhhhe44444e72222ichikokihggggggv"
    "hrllhhhhhpljhhehhhhheuhhugggehhhliduhhukihfgge11uv444444hhhhhhe"
    "hhhhha4hhhlllahha4ahhhhha444v1248gve88888e0g84210e22222e4ah0000"
    "000000v842000000e1fhfggmphhu00egghe11djhhf00ehvge698s8880fhhf1e"
    "ggmphhh40c444e20622icggikokic44444e00qllhh00mphhh00ehhhe00uhugg"
    "00djf1100mpggg00fge1u88s889600hhhjd00hhha400hhlla00ha4ah00hhf1e"
    "00v248v244844244444448442448008l200";
static_assert(kRows.size() == ('~' - ' ' + 1) * kGlyphHeight);

constexpr unsigned dots_of(char digit) {
  return static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

/// Returns whether the glyph of `character` has a dot at column x of row y. Characters other than
/// those from ' ' to '~' are boxes.
bool has_dot(char character, int x, int y) {
  if (character < ' ' || character > '~')
    return x == 0 || y == 0 || x == kGlyphWidth - 1 || y == kGlyphHeight - 1;
  const auto glyph = static_cast<std::size_t>(character - ' ') * kGlyphHeight;
  return (dots_of(kRows[glyph + static_cast<std::size_t>(y)]) >> (kGlyphWidth - 1 - x) & 1) != 0;
}

/// An RGB image.
struct Sheet {
  Sheet(int w, int h)
      : width(w),
        height(h),
        pixels(static_cast<std::size_t>(w) * static_cast<std::size_t>(h) * 3, kPaper) {}

  std::uint8_t* at(int x, int y) {
    return pixels.data() + (static_cast<std::size_t>(y) * static_cast<std::size_t>(width) +
                            static_cast<std::size_t>(x)) *
                               3;
  }

  int width, height;
  std::vector<std::uint8_t> pixels;
};

/// Returns a whole factor by which small pictures are enlarged, so that their pixels are visible.
int zoom_of(const Tile& tile) { return std::max(1, kLeastWidth / tile.width); }

/// Returns a colour for a class id: neighbours differ, and no id is gray.
std::array<std::uint8_t, 3> colour_of(std::uint8_t id) {
  std::array<std::uint8_t, 3> colour{};
  for (std::size_t c = 0; c < 3; ++c) {
    const double hue = std::fmod(id * 0.618034 + static_cast<double>(c) / 3, 1);
    colour[c] = static_cast<std::uint8_t>(255 * std::clamp(std::abs(6 * hue - 3) - 1, 0., 1.));
  }
  return colour;
}

/// Mixes a colour into that of a pixel, by half.
void tint(std::uint8_t* pixel, const std::array<std::uint8_t, 3>& colour) {
  for (std::size_t c = 0; c < 3; ++c)
    pixel[c] = static_cast<std::uint8_t>((pixel[c] + colour[c]) / 2);
}

/// Draws the pixels, and over them the mask's class ids but 0, half transparent.
void draw_picture(Sheet& sheet, const Tile& tile, int left, int top) {
  const int zoom = zoom_of(tile);
  for (int y = 0; y < tile.height * zoom; ++y)
    for (int x = 0; x < tile.width * zoom; ++x) {
      const int pixel = y / zoom * tile.width + x / zoom;
      const std::uint8_t* from = tile.pixels + pixel * tile.channels;
      std::uint8_t* const to = sheet.at(left + x, top + y);
      for (int c = 0; c < 3; ++c) to[c] = from[tile.channels == 3 ? c : 0];
      const int id = tile.mask.empty() ? 0 : tile.mask[static_cast<std::size_t>(pixel)];
      if (id != 0) tint(to, colour_of(static_cast<std::uint8_t>(id)));
    }
}

/// Draws masks of objects, half transparent, the outlines of boxes, both in the colours of their
/// classes, and key points as squares: filled if they are visible.
void draw_objects(Sheet& sheet, const Tile& tile, int left, int top) {
  constexpr std::array<std::uint8_t, 3> kPoint{30, 200, 60};
  constexpr int kReach = 2;
  const int zoom = zoom_of(tile);
  const auto place = [zoom](float at, int side) {
    return std::clamp(static_cast<int>(at * static_cast<float>(zoom)), 0, side * zoom - 1);
  };
  const auto dot = [&](int x, int y, const std::array<std::uint8_t, 3>& colour) {
    if (x < 0 || y < 0 || x >= tile.width * zoom || y >= tile.height * zoom) return;
    std::copy(colour.begin(), colour.end(), sheet.at(left + x, top + y));
  };
  const auto colour_of_object = [&](std::size_t i) {
    return colour_of(static_cast<std::uint8_t>(tile.objects->classes[i]));
  };
  if (const std::size_t bytes = tile.objects->mask_bytes; bytes > 0)
    for (std::size_t i = 0; i < tile.objects->classes.size(); ++i)
      for (int y = 0; y < tile.height * zoom; ++y)
        for (int x = 0; x < tile.width * zoom; ++x) {
          const auto pixel = static_cast<std::size_t>(y / zoom * tile.width + x / zoom);
          if (tile.objects->masks[i * bytes + pixel] != 0)
            tint(sheet.at(left + x, top + y), colour_of_object(i));
        }
  const std::vector<float>& boxes = tile.objects->boxes;
  for (std::size_t i = 0; i < boxes.size(); i += 4) {
    const std::array<std::uint8_t, 3> colour = colour_of_object(i / 4);
    const int x0 = place(boxes[i], tile.width), y0 = place(boxes[i + 1], tile.height);
    const int x1 = place(boxes[i + 2], tile.width), y1 = place(boxes[i + 3], tile.height);
    for (int x = x0; x <= x1; ++x)
      for (const int y : {y0, y1}) dot(x, y, colour);
    for (int y = y0; y <= y1; ++y)
      for (const int x : {x0, x1}) dot(x, y, colour);
  }
  const std::vector<float>& points = tile.objects->key_points;
  for (std::size_t i = 0; i < points.size(); i += 3) {
    if (points[i + 2] == 0) continue;
    const int x = place(points[i], tile.width), y = place(points[i + 1], tile.height);
    for (int dy = -kReach; dy <= kReach; ++dy)
      for (int dx = -kReach; dx <= kReach; ++dx)
        if (points[i + 2] == 2 || std::max(std::abs(dx), std::abs(dy)) == kReach)
          dot(x + dx, y + dy, kPoint);
  }
}

/// Draws text of which at most `width` columns are shown. A character that is not ASCII is one box.
void draw_text(Sheet& sheet, const std::string& text, int left, int top, int width) {
  constexpr int kStep = kGlyphWidth + 1;
  int x = 0;
  for (const char character : text) {
    if ((character & 0xC0) == 0x80) continue;  // the rest of a character in UTF-8
    if (x + kGlyphWidth > width) return;
    for (int dy = 0; dy < kGlyphHeight; ++dy)
      for (int dx = 0; dx < kGlyphWidth; ++dx)
        if (has_dot(character, dx, dy)) std::fill_n(sheet.at(left + x + dx, top + dy), 3, kInk);
    x += kStep;
  }
}

std::string encode(const Sheet& sheet) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(sheet.width);
  image.height = static_cast<png_uint_32>(sheet.height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string png(size, '\0');
  if (png_image_write_to_memory(&image, png.data(), &size, 0, sheet.pixels.data(), 0, nullptr) == 0)
    throw RunError(fmt::format("the contact sheet could not be encoded: {}", image.message),
                   "ask for fewer samples (--samples)");
  png.resize(size);
  return png;
}

}  // namespace

std::string draw_sheet(std::span<const Tile> tiles, int columns) {
  int width = kLeastWidth, height = 0;
  std::size_t lines = 0;
  for (const Tile& tile : tiles) {
    width = std::max(width, tile.width * zoom_of(tile));
    height = std::max(height, tile.height * zoom_of(tile));
    lines = std::max(lines, tile.lines.size());
  }
  const int step_x = width + kMargin;
  const int step_y = height + static_cast<int>(lines) * kLine + 2 * kMargin;
  const int rows = (static_cast<int>(tiles.size()) + columns - 1) / columns;
  Sheet sheet(columns * step_x + kMargin, rows * step_y + kMargin);
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const int x = kMargin + static_cast<int>(i) % columns * step_x;
    const int y = kMargin + static_cast<int>(i) / columns * step_y;
    draw_picture(sheet, tiles[i], x, y);
    if (tiles[i].objects != nullptr) draw_objects(sheet, tiles[i], x, y);
    for (std::size_t line = 0; line < tiles[i].lines.size(); ++line)
      draw_text(sheet, tiles[i].lines[line], x,
                y + height + kLine * (static_cast<int>(line) + 1) - kGlyphHeight, width);
  }
  return encode(sheet);
}

}  // namespace millrace::tools
