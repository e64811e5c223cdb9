// Messages of the control channel, and a rank's end of it.
#include "strategies/control/control_channel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <thread>
#include <type_traits>

#include "millrace/error.h"

namespace millrace::train {

// Words of failure reports.

std::string FailureReport::text() const {
  const std::string who = fmt::format("rank {} ({}, pid {})", rank, host, pid);
  switch (kind) {
    case FailureKind::died:
      return fmt::format("{} died at step {}: its connection closed without a goodbye", who, step);
    case FailureKind::silent:
      return fmt::format("{} has not been heard from for {:.1f} s; its last message was at step {}",
                         who, idle_s, step);
    case FailureKind::stuck:
      return fmt::format("{} is stuck at step {}: no progress for {:.1f} s, and others wait for it",
                         who, step, idle_s);
    case FailureKind::interrupted:
      if (step == 0) return "interrupted before the first step";
      return fmt::format("interrupted at step {}, but {} did not answer: no checkpoint was made",
                         step, who);
    case FailureKind::ended:
      break;
  }
  return fmt::format("{} ended at step {}: {}", who, step, reason);
}

std::string FailureReport::hint() const {
  switch (kind) {
    case FailureKind::died:
      return "it was killed (out of memory?) or has crashed: see its own output and its host's log";
    case FailureKind::silent:
      return "it was stopped, or its host or network is gone; where ranks may pause for so long, "
             "raise train.timeout";
    case FailureKind::stuck:
      return "a read or a device that never answers? where a step may take so long, raise "
             "train.timeout";
    case FailureKind::interrupted:
      return step == 0 ? ""
                       : "the last checkpoint holds: go on with millrace train --resume --run DIR";
    case FailureKind::ended:
      break;
  }
  return "the run cannot go on without it";
}

// Encodes and decodes control messages.
namespace {

constexpr std::uint32_t kMagic = 0x4343524d;  // "MRCC"
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kLengthBytes = 2;  ///< size of the length prefix in bytes
constexpr std::size_t kLongest = 4096;   ///< most bytes of a message, without the prefix

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
    if (size > kMaxText) throw ProtocolError("a string is too long");
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
  if (in.number<std::uint32_t>() != kMagic) throw ProtocolError("not a rank of millrace");
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
    throw ProtocolError("an unknown kind of failure");
  m.kind = static_cast<FailureKind>(kind);
  const auto rank = in.number<std::uint32_t>();
  if (rank > 0x7FFFFFFF) throw ProtocolError("a rank is too large");
  m.rank = static_cast<int>(rank);
  m.pid = in.number<std::uint64_t>();
  m.step = in.number<std::uint64_t>();
  m.idle_s = std::bit_cast<double>(in.number<std::uint64_t>());
  if (!std::isfinite(m.idle_s)) throw ProtocolError("a time is not a number");
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
    throw ProtocolError("an unknown message type");
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
  if (bytes_.size() < kLengthBytes) return std::nullopt;
  const auto size = Parser(bytes_).number<std::uint16_t>();
  if (size == 0 || size > kLongest) throw ProtocolError("an impossible message length");
  if (bytes_.size() < kLengthBytes + size) return std::nullopt;
  Parser in(std::string_view(bytes_).substr(kLengthBytes, size));
  const auto type = in.number<std::uint8_t>();
  Message message = parse(type, [&](auto& one) { read(in, one); });
  in.end();
  bytes_.erase(0, kLengthBytes + size);
  return message;
}

// Connects ranks to rank 0, then hands the sockets to the background thread.
namespace {

using Clock = std::chrono::steady_clock;

/// Seconds during which a rank retries a connection that rank 0 has closed.
constexpr double kMaxDrops = 5;
constexpr std::chrono::milliseconds kPause{20};

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Hello hello_of(const ControlOptions& options) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return {options.key, static_cast<std::uint32_t>(options.world),
          static_cast<std::uint32_t>(options.rank), static_cast<std::uint64_t>(getpid()), host};
}

/// Rank 0 closed the connection before answering, as it does to the oldest of too many connections
/// without a hello.
struct Dropped : ProtocolError {
  Dropped() : ProtocolError("it closes the connection") {}
};

[[noreturn]] void throw_socket_error() {
  if (errno == ECONNRESET || errno == EPIPE) throw Dropped();
  throw ProtocolError(std::strerror(errno));
}

/// Sends a hello and returns rank 0's answer.
Message ask(const base::Descriptor& server, const std::string& hello, MessageReader& reader,
            Clock::time_point deadline) {
  if (send(server.get(), hello.data(), hello.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(hello.size()))
    throw_socket_error();
  for (;;) {
    if (auto message = reader.next()) return *message;
    char buffer[1024];
    if (!wait_readable(server, deadline)) throw ProtocolError("no answer");
    const ssize_t n = recv(server.get(), buffer, sizeof buffer, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) throw_socket_error();
    if (n == 0) throw Dropped();
    reader.add({buffer, static_cast<std::size_t>(n)});
  }
}

}  // namespace

ControlChannel::ControlChannel(ControlOptions options) : options_(std::move(options)) {
  if (options_.world < 1 || options_.rank < 0 || options_.rank >= options_.world)
    throw UsageError(
        fmt::format("rank {} is out of range for {} ranks", options_.rank, options_.world),
        "ranks are numbered from 0 to the world size minus one");
  if (!(options_.timeout_s >= 0.1) || !std::isfinite(options_.timeout_s))
    throw UsageError(
        fmt::format("ranks cannot be watched with a time-out of {} s", options_.timeout_s),
        "0.1 s is the least; a busy machine needs some seconds");
  state_.wake = base::Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state_.wake) throw RunError(fmt::format("no eventfd: {}", std::strerror(errno)));
}

std::unique_ptr<ControlChannel> ControlChannel::serve(ControlOptions options,
                                                      const std::string& address) {
  std::unique_ptr<ControlChannel> channel(new ControlChannel(std::move(options)));
  base::Descriptor listener = listen_on(address);
  channel->port_ = port_of(listener);
  channel->start([loop = std::make_shared<ControlLoop>(channel->options_, channel->state_,
                                                       std::move(listener))] { loop->run(); });
  return channel;
}

std::unique_ptr<ControlChannel> ControlChannel::connect(ControlOptions options,
                                                        const std::string& host, int port,
                                                        double patience_s) {
  std::unique_ptr<ControlChannel> channel(new ControlChannel(std::move(options)));
  const Clock::time_point deadline = after(patience_s);
  const Clock::time_point dropped_until = std::min(deadline, after(kMaxDrops));
  const std::string hello = encode(hello_of(channel->options_));
  base::Descriptor server;
  MessageReader reader;
  Message answer;
  const auto wrong = [&](const ProtocolError& error) {
    return RunError(
        fmt::format("the process that listens at {}, port {} is not rank 0 of this run: {}", host,
                    port, error.what()),
        "are all ranks of the same version, and is it this run's port?");
  };
  for (;;) {
    server = connect_to(host, port, deadline);
    reader = {};
    try {
      answer = ask(server, hello, reader, deadline);
      break;
    } catch (const Dropped& error) {
      if (Clock::now() >= dropped_until) throw wrong(error);
    } catch (const ProtocolError& error) {
      throw wrong(error);
    }
    std::this_thread::sleep_for(kPause);
  }
  if (const auto* refused = std::get_if<Refused>(&answer))
    throw UsageError(fmt::format("rank 0 at {}, port {} refuses rank {}: {}", host, port,
                                 channel->options_.rank, refused->reason),
                     "start each rank once, all with the same world size");
  const auto* welcome = std::get_if<Welcome>(&answer);
  if (welcome == nullptr)
    throw RunError(
        fmt::format("the process listening at {}, port {} did not answer like rank 0 of a "
                    "millrace run",
                    host, port));
  channel->start(
      [loop = std::make_shared<ControlLoop>(channel->options_, channel->state_, std::move(server),
                                            std::move(reader), *welcome)] { loop->run(); });
  return channel;
}

ControlChannel::~ControlChannel() { leave(Leave::silently, {}); }

/// Blocks all signals on the new thread: the trainer's thread handles them.
void ControlChannel::start(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, body = std::move(body)]() mutable {
    body();
    body = nullptr;  // destroying the loop closes the sockets
    const std::lock_guard lock(state_.mutex);
    state_.over = true;
    state_.changed.notify_all();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ControlChannel::wait_for_ranks(double patience_s) {
  std::unique_lock lock(state_.mutex);
  // Rank 0 knows which ranks are missing, so its message should come first.
  const Clock::time_point deadline = after(options_.rank == 0 ? patience_s : patience_s + 2);
  state_.changed.wait_until(lock, deadline, [&] { return state_.all_here || state_.over; });
  if (state_.all_here) return;
  if (state_.failure) throw RunError(state_.failure->text(), state_.failure->hint());
  if (state_.over) throw RunError("rank 0 left before all ranks had joined");
  if (options_.rank > 0)
    throw RunError(fmt::format("rank 0 still waits for other ranks after {} s", patience_s + 2));
  throw RunError(
      fmt::format("{} {} of {} {} not come within {} s",
                  state_.missing.size() == 1 ? "rank" : "ranks", fmt::join(state_.missing, ", "),
                  options_.world, state_.missing.size() == 1 ? "has" : "have", patience_s),
      "is each one started, and can it reach this host?");
}

void ControlChannel::goodbye() { leave(Leave::done, {}); }

void ControlChannel::fail(const std::string& reason) {
  leave(Leave::failed, reason.empty() ? "without a reason" : reason.substr(0, reason.find('\n')));
}

void ControlChannel::leave(Leave how, const std::string& reason) {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(state_.mutex);
    state_.order = how;
    state_.reason = reason;
  }
  const std::uint64_t one = 1;
  static_cast<void>(!::write(state_.wake.get(), &one, sizeof one));
  thread_.join();
}

}  // namespace millrace::train
