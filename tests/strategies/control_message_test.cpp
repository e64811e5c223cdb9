// Control messages: encoded messages are decoded unchanged, and malformed bytes are rejected.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "strategies/control/control_channel.h"

namespace millrace::train {
namespace {

const Message kAll[] = {
    Hello{0xFFFFFFFFFFFFFFFF, 3, 2, 77, "host"},
    Welcome{1, "rank-zero"},
    Refused{"it counts 4 ranks"},
    AllHere{},
    Heartbeat{120, 5, true},
    Heartbeat{120, 5, false, true},
    Goodbye{9, ""},
    Goodbye{9, "a reason"},
    FailureReport{FailureKind::stuck, 1, 2, "host", 3, 4.5, "why"},
    FailureReport{FailureKind::interrupted, 1, 2, "host", 3, 0, {}},
};

TEST(ControlMessage, IsReadAsItWasWritten) {
  MessageReader reader;
  for (const Message& message : kAll) reader.add(encode(message));
  for (const Message& message : kAll) EXPECT_EQ(reader.next(), message);
  EXPECT_FALSE(reader.next());
}

TEST(ControlMessage, ComesByteByByte) {
  MessageReader reader;
  for (const Message& message : kAll) {
    const std::string bytes = encode(message);
    EXPECT_LT(bytes.size(), 100u);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      EXPECT_FALSE(reader.next());
      reader.add(bytes.substr(i, 1));
    }
    EXPECT_EQ(reader.next(), message);
  }
}

TEST(ControlMessage, TextsAreCutAndHarmless) {
  MessageReader reader;
  reader.add(encode(Goodbye{1, "\033[2Jred\n" + std::string(5000, 'x')}));
  const auto message = reader.next();
  ASSERT_TRUE(message);
  const std::string& text = std::get<Goodbye>(*message).reason;
  EXPECT_EQ(text.size(), kMaxText);
  EXPECT_EQ(text.substr(0, 9), " [2Jred x");
}

TEST(ControlMessage, RubbishIsRefused) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1"), std::string(2, '\0'), std::string(2, '\xFF'),
        std::string("\x01\x00\x63", 3), std::string("\x02\x00\x03\x00", 4),
        std::string("\x01\x00\x04", 3)}) {
    MessageReader reader;
    reader.add(bytes);
    EXPECT_THROW(reader.next(), ProtocolError);
  }
  std::string old = encode(Hello{});
  old[7] = 9;  // version byte
  MessageReader reader;
  reader.add(old);
  EXPECT_THROW(reader.next(), ProtocolError);
}

TEST(ControlMessage, ChangedBytesAreReadOrRefused) {
  Draw draw(base::stream({1, 2, 3}, base::op_id("bytes")));
  int refused = 0, read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (int i = 0; i < 3; ++i) bytes += encode(kAll[draw.integer(std::size(kAll))]);
    for (std::uint32_t i = 0, n = draw.integer(4); i < n; ++i)
      bytes[draw.integer(static_cast<std::uint32_t>(bytes.size()))] =
          static_cast<char>(draw.bits());
    MessageReader reader;
    reader.add(bytes);
    try {
      while (reader.next()) ++read;
    } catch (const ProtocolError&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace millrace::train
