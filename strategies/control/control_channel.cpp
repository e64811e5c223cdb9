// Connects ranks to rank 0, then hands the sockets to the background thread.
#include "strategies/control/control_channel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <thread>

#include "millrace/error.h"
#include "strategies/control/control_loop.h"

namespace millrace::train {
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
Message ask(const Fd& server, const std::string& hello, MessageReader& reader,
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
    throw UsageError(fmt::format("rank {} of {} ranks", options_.rank, options_.world),
                     "ranks count from 0 to one less than there are");
  if (!(options_.timeout_s >= 0.1) || !std::isfinite(options_.timeout_s))
    throw UsageError(
        fmt::format("ranks cannot be watched with a time-out of {} s", options_.timeout_s),
        "0.1 s is the least; a busy machine needs some seconds");
  state_.wake = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state_.wake) throw RunError(fmt::format("no eventfd: {}", std::strerror(errno)));
}

std::unique_ptr<ControlChannel> ControlChannel::serve(ControlOptions options,
                                                      const std::string& address) {
  std::unique_ptr<ControlChannel> channel(new ControlChannel(std::move(options)));
  Fd listener = listen_on(address);
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
  Fd server;
  MessageReader reader;
  Message answer;
  const auto wrong = [&](const ProtocolError& error) {
    return RunError(fmt::format("what listens at {}, port {} does not answer as rank 0 would: {}",
                                host, port, error.what()),
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
        fmt::format("what listens at {}, port {} does not answer as rank 0 would", host, port));
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
  if (state_.over) throw RunError("rank 0 has left before all ranks were there");
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
  static_cast<void>(!write(state_.wake.get(), &one, sizeof one));
  thread_.join();
}

}  // namespace millrace::train
