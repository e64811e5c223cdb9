// Dots of the font: a row is a digit of base 32, a glyph seven rows from the top, from ' ' to '~'.
#include "tools/inspect/glyphs.h"

#include <string_view>

namespace millrace::tools {
namespace {

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

}  // namespace

bool has_dot(char character, int x, int y) {
  if (character < ' ' || character > '~')
    return x == 0 || y == 0 || x == kGlyphWidth - 1 || y == kGlyphHeight - 1;
  const auto glyph = static_cast<std::size_t>(character - ' ') * kGlyphHeight;
  return (dots_of(kRows[glyph + static_cast<std::size_t>(y)]) >> (kGlyphWidth - 1 - x) & 1) != 0;
}

}  // namespace millrace::tools
