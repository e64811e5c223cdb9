// Tests how text is made safe for terminals.
#include <gtest/gtest.h>

#include <string>

#include "base/text.h"

namespace millrace::pipeline {
namespace {

TEST(Printable, LettersStayAndWhatTerminalsObeyIsSpelledOut) {
  EXPECT_EQ(base::printable("größe 0.5 \"x\" \xe6\xbc\xa2 \xf0\x9f\x90\x9d"),
            "größe 0.5 \"x\" \xe6\xbc\xa2 \xf0\x9f\x90\x9d");
  EXPECT_EQ(base::printable("a\x1b[2Jb\x07\x7f"), "a\\u001b[2Jb\\u0007\\u007f");
  EXPECT_EQ(base::printable("one\ntwo\tthree\r"), "one\\ntwo\\tthree\\r");
  EXPECT_EQ(base::printable("\xc2\x9b"), "\\u009b") << "one byte of it begins a sequence";
  EXPECT_EQ(base::printable("a\xe2\x80\xae"), "a\\u202e") << "turns what follows";
  EXPECT_EQ(base::printable("\xff\x9b!"), "\\xff\\x9b!");
  EXPECT_EQ(base::printable("cut \xc3"), "cut \\xc3");
  EXPECT_EQ(base::printable(std::string_view("\0", 1)), "\\u0000");
  EXPECT_EQ(base::printable_lines("one\n\ttwo\x1b\r\n"), "one\n\ttwo\\u001b\\r\n");
  EXPECT_EQ(base::printable(base::printable("\x1b\n")), base::printable("\x1b\n"));
}

TEST(Printable, EveryTwoBytesComeOutHarmless) {
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      const std::string text =
          base::printable(std::string{static_cast<char>(first), static_cast<char>(second), 'x'});
      ASSERT_TRUE(base::is_utf8(text)) << first << " " << second;
      for (const char c : text) ASSERT_GE(static_cast<unsigned char>(c), 0x20) << first << second;
      ASSERT_EQ(text.find("\xc2\x9b"), std::string::npos);
    }
}

TEST(Abridged, KeepsBothEndsOfWhatIsLong) {
  EXPECT_EQ(base::abridged("short: /a/path"), "short: /a/path");
  const std::string path(511, 'p');
  EXPECT_EQ(base::abridged(path + ": not there"), path + ": not there");
  const std::string many = "loader.workers=" + std::string(1'000'000, 'A') + "Z: a number";
  const std::string less = base::abridged(many);
  EXPECT_LT(less.size(), 600u);
  EXPECT_TRUE(less.starts_with("loader.workers=AAA")) << less;
  EXPECT_TRUE(less.ends_with("AAAZ: a number")) << less;
  EXPECT_NE(less.find("bytes ...]"), std::string::npos);
  std::string words;
  for (int i = 0; i < 100'000; ++i) words += "word ";
  EXPECT_LT(base::abridged(words).size(), 4200u);
  std::string letters;
  for (int i = 0; i < 1000; ++i) letters += "ö";
  for (int shift = 0; shift < 3; ++shift) {
    EXPECT_TRUE(base::is_utf8(base::abridged(letters)));
    letters.insert(0, "x");
  }
}

}  // namespace
}  // namespace millrace::pipeline
