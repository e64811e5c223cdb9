// Encodes and decodes control messages.
#include "strategies/control/control_message.h"

#include <bit>
#include <cmath>
#include <type_traits>

namespace millrace::train {
namespace {

constexpr std::uint32_t kMagic = 0x4343524d;  // "MRCC"
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kPrefix = 2;      ///< size of the length prefix in bytes
constexpr std::size_t kLongest = 4096;  ///< most bytes of a message, without the prefix

class Writer {
 public:
  template <class Integer>
  Writer& number(Integer value) {
    for (std::size_t i = 0; i < sizeof value; ++i)
      bytes_ += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xFF);
    return *this;
  }
  Writer& text(const std::string& value) {
    const std::string_view cut = std::string_view(value).substr(0, kMaxText);
    number(static_cast<std::uint16_t>(cut.size()));
    bytes_ += cut;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Parser {
 public:
  explicit Parser(std::string_view bytes) : bytes_(bytes) {}

  template <class Integer>
  Integer number() {
    std::uint64_t value = 0;
    const std::string_view bytes = take(sizeof(Integer));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    return static_cast<Integer>(value);
  }
  bool flag() {
    const auto value = number<std::uint8_t>();
    if (value > 1) throw ProtocolError("a flag is neither 0 nor 1");
    return value == 1;
  }
  /// Reads a text. Control characters that would move a terminal's cursor become spaces.
  std::string text() {
    const auto size = number<std::uint16_t>();
    if (size > kMaxText) throw ProtocolError("a text is too long");
    std::string value(take(size));
    for (char& c : value)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
    return value;
  }
  void end() const {
    if (!bytes_.empty()) throw ProtocolError("a message is too long");
  }

 private:
  std::string_view take(std::size_t size) {
    if (size > bytes_.size()) throw ProtocolError("a message is too short");
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  std::string_view bytes_;
};

void check_magic(Parser& in) {
  if (in.number<std::uint32_t>() != kMagic) throw ProtocolError("no rank of millrace");
  if (const auto version = in.number<std::uint32_t>(); version != kVersion)
    throw ProtocolError("a rank of another version of millrace");
}

void write(Writer& out, const Hello& m) {
  out.number(kMagic).number(kVersion).number(m.key).number(m.world).number(m.rank).number(m.pid);
  out.text(m.host);
}
void read(Parser& in, Hello& m) {
  check_magic(in);
  m.key = in.number<std::uint64_t>();
  m.world = in.number<std::uint32_t>();
  m.rank = in.number<std::uint32_t>();
  m.pid = in.number<std::uint64_t>();
  m.host = in.text();
}

void write(Writer& out, const Welcome& m) {
  out.number(kMagic).number(kVersion).number(m.pid).text(m.host);
}
void read(Parser& in, Welcome& m) {
  check_magic(in);
  m.pid = in.number<std::uint64_t>();
  m.host = in.text();
}

void write(Writer& out, const Refused& m) { out.text(m.reason); }
void read(Parser& in, Refused& m) { m.reason = in.text(); }

void write(Writer&, const AllHere&) {}
void read(Parser&, AllHere&) {}

void write(Writer& out, const Heartbeat& m) {
  out.number(m.step).number(m.stamp);
  out.number(static_cast<std::uint8_t>(m.in_collective));
  out.number(static_cast<std::uint8_t>(m.interrupted));
}
void read(Parser& in, Heartbeat& m) {
  m.step = in.number<std::uint64_t>();
  m.stamp = in.number<std::uint64_t>();
  m.in_collective = in.flag();
  m.interrupted = in.flag();
}

void write(Writer& out, const Goodbye& m) { out.number(m.step).text(m.reason); }
void read(Parser& in, Goodbye& m) {
  m.step = in.number<std::uint64_t>();
  m.reason = in.text();
}

void write(Writer& out, const FailureReport& m) {
  out.number(static_cast<std::uint8_t>(m.kind)).number(static_cast<std::uint32_t>(m.rank));
  out.number(m.pid).number(m.step).number(std::bit_cast<std::uint64_t>(m.idle_s));
  out.text(m.host).text(m.reason);
}
void read(Parser& in, FailureReport& m) {
  const auto kind = in.number<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(FailureKind::interrupted))
    throw ProtocolError("a failure of no known kind");
  m.kind = static_cast<FailureKind>(kind);
  const auto rank = in.number<std::uint32_t>();
  if (rank > 0x7FFFFFFF) throw ProtocolError("a rank is too large");
  m.rank = static_cast<int>(rank);
  m.pid = in.number<std::uint64_t>();
  m.step = in.number<std::uint64_t>();
  m.idle_s = std::bit_cast<double>(in.number<std::uint64_t>());
  if (!std::isfinite(m.idle_s)) throw ProtocolError("a time is no number");
  m.host = in.text();
  m.reason = in.text();
}

/// Calls `use` with an empty message of the type number `index`.
template <std::size_t I = 0, class Use>
Message parse(std::size_t index, const Use& use) {
  if constexpr (I < std::variant_size_v<Message>) {
    if (index != I) return parse<I + 1>(index, use);
    std::variant_alternative_t<I, Message> message;
    use(message);
    return message;
  } else {
    throw ProtocolError("a message of no known type");
  }
}

}  // namespace

std::string encode(const Message& message) {
  Writer body;
  body.number(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& one) { write(body, one); }, message);
  Writer prefix;
  prefix.number(static_cast<std::uint16_t>(body.bytes().size()));
  return prefix.bytes() + body.bytes();
}

std::optional<Message> MessageReader::next() {
  if (bytes_.size() < kPrefix) return std::nullopt;
  const auto size = Parser(bytes_).number<std::uint16_t>();
  if (size == 0 || size > kLongest) throw ProtocolError("a message of no possible length");
  if (bytes_.size() < kPrefix + size) return std::nullopt;
  Parser in(std::string_view(bytes_).substr(kPrefix, size));
  const auto type = in.number<std::uint8_t>();
  Message message = parse(type, [&](auto& one) { read(in, one); });
  in.end();
  bytes_.erase(0, kPrefix + size);
  return message;
}

}  // namespace millrace::train
