// Messages of the control channel and their wire format: length-prefixed, a few dozen bytes,
// little-endian, validated before use.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

#include "strategies/control/failure_report.h"

namespace millrace::train {

/// A rank's first message to rank 0.
struct Hello {
  std::uint64_t key = 0;  ///< must equal rank 0's key
  std::uint32_t world = 0;
  std::uint32_t rank = 0;
  std::uint64_t pid = 0;
  std::string host;
  bool operator==(const Hello&) const = default;
};
/// Rank 0's answer to an accepted hello.
struct Welcome {
  std::uint64_t pid = 0;
  std::string host;
  bool operator==(const Welcome&) const = default;
};
/// Rank 0's answer to a rejected hello.
struct Refused {
  std::string reason;
  bool operator==(const Refused&) const = default;
};
/// Sent by rank 0 to all, once every rank has said hello.
struct AllHere {
  bool operator==(const AllHere&) const = default;
};
struct Heartbeat {
  std::uint64_t step = 0;
  std::uint64_t stamp = 0;  ///< changes with every sign of progress
  bool in_collective = false;
  bool interrupted = false;  ///< a signal asked the sender, or a rank it has heard from, to stop
  bool operator==(const Heartbeat&) const = default;
};
struct Goodbye {
  std::uint64_t step = 0;
  std::string reason;  ///< text of an error; empty: regular end
  bool operator==(const Goodbye&) const = default;
};

using Message = std::variant<Hello, Welcome, Refused, AllHere, Heartbeat, Goodbye, FailureReport>;

/// Encodes a message. Cuts texts to kMaxText bytes.
std::string encode(const Message& message);

inline constexpr std::size_t kMaxText = 1000;

struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Splits a byte stream into messages.
class MessageReader {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  /// Returns the next message; empty until it is complete. Throws ProtocolError for malformed
  /// bytes, after which the stream cannot be trusted.
  std::optional<Message> next();

 private:
  std::string bytes_;
};

}  // namespace millrace::train
