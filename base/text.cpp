// Makes text safe to print, and quotes it.

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace millrace::base {
namespace {

/// Returns the number of bytes of the character that begins at `at`, or 0 if none does.
std::size_t character_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<std::uint8_t>(text[at]);
  const std::size_t size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  return is_utf8(text.substr(at, size)) ? std::min(size, text.size() - at) : 0;
}

std::uint32_t code_point(std::string_view character) {
  if (character.size() == 1) return static_cast<std::uint8_t>(character[0]);
  std::uint32_t code = static_cast<std::uint8_t>(character[0]) & (0x7fu >> character.size());
  for (const char c : character.substr(1)) code = code << 6 | (static_cast<std::uint8_t>(c) & 0x3f);
  return code;
}

/// Returns whether a terminal acts on the character: C0, C1 (0x9b alone begins a sequence), and the
/// marks that change the writing direction.
bool is_obeyed(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = character_at(text, at);
    if (size == 0) {
      out += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(text[at++]));
      continue;
    }
    const std::string_view character = text.substr(at, size);
    at += size;
    const std::uint32_t code = code_point(character);
    if (!is_obeyed(code) || kept.find(character) != std::string_view::npos)
      out += character;
    else if (code == '\n' || code == '\t' || code == '\r')
      out += code == '\n' ? "\\n" : code == '\t' ? "\\t" : "\\r";
    else
      out += fmt::format("\\u{:04x}", code);
  }
  return out;
}

bool goes_on(char byte) { return (static_cast<std::uint8_t>(byte) & 0xc0) == 0x80; }

/// Returns the first `head` and the last `tail` bytes, cut a little shorter so that no character is
/// split.
std::string ends_of(std::string_view text, std::size_t head, std::size_t tail) {
  std::size_t begin = text.size() - tail;
  while (head > 0 && goes_on(text[head])) --head;
  while (begin < text.size() && goes_on(text[begin])) ++begin;
  return fmt::format("{}[... {} bytes ...]{}", text.substr(0, head), begin - head,
                     text.substr(begin));
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, ""); }

std::string printable_lines(std::string_view text) { return escaped(text, "\n\t"); }

std::string abridged(std::string_view text) {
  constexpr std::size_t kWord = 512;
  constexpr std::size_t kText = 4096;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    out += word.size() > kWord ? ends_of(word, kWord / 2, kWord / 4) : word;
    if (end < text.size()) out += text[end];
    at = end + 1;
  }
  return out.size() > kText ? ends_of(out, kText / 2, kText / 4) : out;
}

std::string shell_word(std::string_view text) {
  if (!text.empty() &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "_./-+=:,@%") == std::string_view::npos)
    return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

std::string folded(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != '-' && c != '_') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string_view our_name(std::string_view name) {
  struct Synonym {
    std::string_view theirs, ours;
  };
  static constexpr Synonym kSynonyms[] = {
      {"randomhorizontalflip", "hflip"},
      {"horizontalflip", "hflip"},
      {"fliplr", "hflip"},
      {"randomverticalflip", "vflip"},
      {"verticalflip", "vflip"},
      {"flipud", "vflip"},
      {"rotate", "random_rotation"},
      {"rotation", "random_rotation"},
      {"perspective", "random_perspective"},
      {"randomscale", "random_affine"},
      {"shiftscalerotate", "random_affine"},
      {"randomgrayscale", "grayscale"},
      {"togray", "grayscale"},
      {"randominvert", "invert"},
      {"randomposterize", "posterize"},
      {"randomsolarize", "solarize"},
      {"randomequalize", "equalize"},
      {"randomautocontrast", "autocontrast"},
      {"randomadjustsharpness", "sharpness"},
      {"sharpen", "sharpness"},
      {"trivialaugmentwide", "trivial_augment"},
      {"elastictransform", "elastic"},
      {"gaussnoise", "gaussian_noise"},
      {"jpeg", "jpeg_compression"},
      {"imagecompression", "jpeg_compression"},
      {"cutout", "random_erasing"},
      {"coarsedropout", "random_erasing"},
      {"imagefolder", "folder"},
      {"webdataset", "tar"},
      {"weightedrandomsampler", "weighted"},
      {"mperclasssampler", "balanced"},
      {"rasampler", "repeat"},
      {"repeataugsampler", "repeat"},
      {"sequentialsampler", "sequential"},
      {"randomsampler", "shuffle"},
      {"warp", "geometric"},
      {"gpu", "cuda"},
      {"distributed", "ddp"},
      {"distributeddataparallel", "ddp"},
      {"dataparallel", "data_parallel"},
      {"dp", "data_parallel"},
      {"cosineannealinglr", "cosine"},
      {"steplr", "step"},
  };
  const std::string wanted = folded(name);
  for (const Synonym& one : kSynonyms)
    if (one.theirs == wanted) return one.ours;
  return {};
}

}  // namespace millrace::base
