// What ranks say to each other on the control channel, and its bytes: length-prefixed messages of a
// few dozen bytes, little-endian, checked before anything is made of them.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

#include "strategies/control/failure_report.h"

namespace millrace::train {

/// A rank's first words to rank 0.
struct Hello {
  std::uint64_t key = 0;  ///< must be rank 0's
  std::uint32_t world = 0;
  std::uint32_t rank = 0;
  std::uint64_t pid = 0;
  std::string host;
  bool operator==(const Hello&) const = default;
};
/// Rank 0's answer.
struct Welcome {
  std::uint64_t pid = 0;
  std::string host;
  bool operator==(const Welcome&) const = default;
};
/// Its other answer.
struct Refused {
  std::string reason;
  bool operator==(const Refused&) const = default;
};
/// Rank 0 to all, once every rank has said hello.
struct AllHere {
  bool operator==(const AllHere&) const = default;
};
struct Heartbeat {
  std::uint64_t step = 0;
  std::uint64_t stamp = 0;  ///< changes with every sign of progress
  bool in_collective = false;
  bool interrupted = false;  ///< a signal has asked the sender, or one it has heard from, to stop
  bool operator==(const Heartbeat&) const = default;
};
struct Goodbye {
  std::uint64_t step = 0;
  std::string reason;  ///< of an error; empty: the end
  bool operator==(const Goodbye&) const = default;
};

using Message = std::variant<Hello, Welcome, Refused, AllHere, Heartbeat, Goodbye, FailureReport>;

/// Texts are cut to kMaxText bytes.
std::string encode(const Message& message);

inline constexpr std::size_t kMaxText = 1000;

struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Cuts a stream of bytes into messages.
class MessageReader {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  /// The next message; empty until all of it has come. Throws ProtocolError for what is none: then
  /// nothing that follows can be trusted.
  std::optional<Message> next();

 private:
  std::string bytes_;
};

}  // namespace millrace::train
