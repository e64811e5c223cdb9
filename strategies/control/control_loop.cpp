// Event loop of the control channel: connections, messages, heartbeats, interrupts.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/descriptor.h"
#include "strategies/control/control_channel.h"

namespace millrace::train {
namespace {

using namespace std::chrono_literals;

constexpr auto kGoodbyeTimeout = 1000ms;
constexpr auto kVerdictTimeout = 1500ms;
/// Most connections that have not said hello. Few, because each costs a descriptor of this process.
constexpr std::size_t kMaxUnidentified = 64;
/// Most connections accepted before the existing ones are read: a rank's hello arrives with its
/// connection.
constexpr int kMaxAccepted = 16;
constexpr std::size_t kMaxAtOnce = 65536;  ///< most bytes read from a connection at once
constexpr auto kLook = 100ms;              ///< interval between looks at the interrupt flag
constexpr auto kInterruptedInterval = 250ms;

std::chrono::steady_clock::duration seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(s));
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

ControlLoop::ControlLoop(const ControlOptions& options, ControlState& state,
                         base::Descriptor listener)
    : options_(options),
      state_(state),
      interval_(seconds(std::min(options.timeout_s / 10, 1.0))),
      limit_(seconds(options.timeout_s * 0.75)),
      listener_(std::move(listener)),
      members_(static_cast<std::size_t>(options.world)),
      now_(Clock::now()),
      next_beat_(now_) {
  Member& self = members_[static_cast<std::size_t>(options.rank)];
  self.presence = Member::Presence::here;
  self.pid = static_cast<std::uint64_t>(getpid());
  self.host = host_name();
  self.since = now_;
}

ControlLoop::ControlLoop(const ControlOptions& options, ControlState& state,
                         base::Descriptor server, MessageReader reader, const Welcome& welcome)
    : ControlLoop(options, state, base::Descriptor()) {
  Member& zero = members_[0];
  zero.presence = Member::Presence::here;
  zero.pid = welcome.pid;
  zero.host = welcome.host;
  zero.since = now_;
  connections_.push_back({std::move(server), std::move(reader), {}, 0, now_});
}

void ControlLoop::run() {
  publish_missing();
  for (Connection& one : connections_) receive(one);  // bytes that arrived with the welcome
  while (phase_ != Phase::over) {
    wait();
    take_orders();
    if (!interrupted_ && options_.interrupted != nullptr && options_.interrupted->load())
      interrupt();
    if (listener_) accept_new();
    for (Connection& one : connections_)
      if (one.fd) receive(one);
    if (phase_ == Phase::watching || phase_ == Phase::asking) {
      if (now_ >= next_beat_) beat();
      check_ranks();
    }
    for (Connection& one : connections_) flush(one);
    std::erase_if(connections_, [](const Connection& one) { return !one.fd; });
    end_phase();
  }
}

void ControlLoop::wait() {
  Time wake = until_;
  if (phase_ == Phase::watching) {
    wake = suspect_ ? std::min(next_beat_, suspect_until_) : next_beat_;
  } else if (phase_ == Phase::asking) {
    wake = std::min(next_beat_, until_);
  }
  if (phase_ == Phase::watching && !interrupted_ && options_.interrupted != nullptr)
    wake = std::min(wake, now_ + kLook);
  wake = std::max(wake, now_);
  std::vector<pollfd> fds{{state_.wake.get(), POLLIN, 0}};
  if (listener_ && listening_) fds.push_back({listener_.get(), POLLIN, 0});
  for (const Connection& one : connections_)
    fds.push_back(
        {one.fd.get(), static_cast<short>(one.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
  const auto most = std::chrono::ceil<std::chrono::milliseconds>(wake - Clock::now());
  poll(fds.data(), fds.size(), static_cast<int>(std::max<std::int64_t>(0, most.count())));
  now_ = Clock::now();
  if (now_ - wake > interval()) forgive(now_ - wake);
}

ControlLoop::Clock::duration ControlLoop::interval() const {
  return interrupted_ ? std::min<Clock::duration>(interval_, kInterruptedInterval) : interval_;
}

/// Announces the interrupt, and gives the others time to answer.
void ControlLoop::interrupt() {
  interrupted_ = true;
  if (options_.interrupted != nullptr) options_.interrupted->store(true);
  for (Connection& one : connections_) one.heard = now_;
  next_beat_ = now_;
}

/// This process was stopped or got no core: messages of the others are still unread.
void ControlLoop::forgive(Clock::duration stood_still) {
  for (Connection& one : connections_) one.heard += stood_still;
  for (Member& one : members_) one.since += stood_still;
}

void ControlLoop::take_orders() {
  std::uint64_t count = 0;
  if (::read(state_.wake.get(), &count, sizeof count) != sizeof count) return;
  Goodbye goodbye{state_.position.load(std::memory_order_relaxed) >> 1, {}};
  {
    const std::lock_guard lock(state_.mutex);
    ordered_ = state_.order;
    goodbye.reason = state_.reason;
  }
  if (phase_ != Phase::watching) return;  // a failure takes precedence
  if (ordered_ == Leave::silently) phase_ = Phase::over;
  if (ordered_ == Leave::done) {
    say(goodbye);
    phase_ = Phase::leaving;
    until_ = now_ + kGoodbyeTimeout;
  }
  if (ordered_ != Leave::failed) return;
  members_[static_cast<std::size_t>(options_.rank)].step = goodbye.step;
  if (serves()) {
    FailureReport report = report_on(0, FailureKind::ended);
    report.reason = goodbye.reason;
    suspect(std::move(report));
  } else {
    say(goodbye);
    phase_ = Phase::asking;
    until_ = now_ + kVerdictTimeout;
  }
}

void ControlLoop::accept_new() {
  listening_ = true;
  listening_ = true;
  const auto unidentified = [](const Connection& one) { return one.rank < 0; };
  for (int i = 0; i < kMaxAccepted; ++i) {
    base::Descriptor fd = accept_from(listener_);
    if (!fd) {
      // Without a free descriptor, a pending connection would wake poll() again and again.
      listening_ = errno == EAGAIN || errno == EWOULDBLOCK;
      return;
    }
    const auto count = std::count_if(connections_.begin(), connections_.end(), unidentified);
    // Closes the connection that has been silent for longest; new ones are at the end.
    if (static_cast<std::size_t>(count) >= kMaxUnidentified)
      connections_.erase(std::find_if(connections_.begin(), connections_.end(), unidentified));
    connections_.push_back({std::move(fd), {}, {}, -1, now_});
  }
}

void ControlLoop::receive(Connection& from) {
  char buffer[4096];
  bool closed = false;
  for (std::size_t taken = 0; taken < kMaxAtOnce;) {
    const ssize_t n = recv(from.fd.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    closed = n <= 0;
    if (closed) break;
    from.reader.add({buffer, static_cast<std::size_t>(n)});
    taken += static_cast<std::size_t>(n);
  }
  bool garbled = false;
  try {
    // Reads a closed connection to its end: the last message says why.
    while (const std::optional<Message> message = from.reader.next()) handle(from, *message);
  } catch (const ProtocolError&) {
    garbled = true;
  }
  if (from.fd && (closed || garbled)) lost(from, garbled);
}

void ControlLoop::handle(Connection& from, const Message& message) {
  from.heard = now_;
  if (from.rank < 0) {
    const auto* hello = std::get_if<Hello>(&message);
    if (hello == nullptr) throw ProtocolError("the first message is not a hello");
    greet(from, *hello);
    return;
  }
  if (phase_ != Phase::watching && phase_ != Phase::asking) return;
  Member& member = members_[static_cast<std::size_t>(from.rank)];
  if (const auto* beat = std::get_if<Heartbeat>(&message)) {
    note(*beat, member);
    if (beat->interrupted && !interrupted_) interrupt();
  } else if (const auto* goodbye = std::get_if<Goodbye>(&message)) {
    member.step = goodbye->step;
    member.presence = Member::Presence::left;
    if (!goodbye->reason.empty()) {
      FailureReport report = report_on(from.rank, FailureKind::ended);
      report.reason = goodbye->reason;
      suspect(std::move(report));
    } else if (!serves()) {
      phase_ = Phase::over;
    }
  } else if (const auto* report = std::get_if<FailureReport>(&message)) {
    // Rank 0 reports on any rank; other ranks only report that they gave up rank 0.
    if (report->rank >= options_.world || (serves() && report->rank != 0))
      throw ProtocolError("a failure report about a rank that the sender does not run");
    serves() ? decide(*report) : conclude(*report);
  } else if (std::holds_alternative<AllHere>(message) && !serves()) {
    const std::lock_guard lock(state_.mutex);
    state_.all_here = true;
    state_.changed.notify_all();
  } else {
    throw ProtocolError("an unexpected message");
  }
}

void ControlLoop::greet(Connection& from, const Hello& hello) {
  std::string refusal;
  if (hello.key != options_.key) {
    refusal = "it belongs to another run";
  } else if (hello.world != static_cast<std::uint32_t>(options_.world)) {
    refusal = fmt::format("its world size is {}, rank 0's is {}", hello.world, options_.world);
  } else if (hello.rank == 0 || hello.rank >= hello.world) {
    refusal = fmt::format("its rank is not from 1 to {}", options_.world - 1);
  } else if (const Member& there = members_[hello.rank];
             there.presence != Member::Presence::missing) {
    refusal = fmt::format("it is already connected, from {} as pid {}", there.host, there.pid);
  }
  if (!refusal.empty()) {
    from.out += encode(Refused{refusal});
    flush(from);
    from.fd.close();
    return;
  }
  from.rank = static_cast<int>(hello.rank);
  Member& member = members_[hello.rank];
  member.presence = Member::Presence::here;
  member.pid = hello.pid;
  member.host = hello.host;
  member.since = now_;
  const Member& self = members_[0];
  from.out += encode(Welcome{self.pid, self.host});
  if (verdict_) from.out += encode(*verdict_);  // it missed the verdict that the others received
  publish_missing();
}

void ControlLoop::note(const Heartbeat& beat, Member& member) {
  member.step = beat.step;
  member.in_collective = beat.in_collective;
  member.interrupted = beat.interrupted;
  if (beat.stamp != member.stamp) member.since = now_;
  member.stamp = beat.stamp;
}

void ControlLoop::lost(Connection& connection, bool garbled) {
  connection.fd.close();
  if (connection.rank < 0) return;  // no hello yet
  // Rank 0 says why before it ends. If it died first, an error of this rank only follows from that.
  const bool asking = phase_ == Phase::asking;
  const Member& member = members_[static_cast<std::size_t>(connection.rank)];
  if (asking && (garbled || interrupted_ || member.presence == Member::Presence::left)) {
    phase_ = Phase::over;  // this rank prints its own error
    return;
  }
  if (!(asking || phase_ == Phase::watching) || member.presence == Member::Presence::left) return;
  FailureReport report =
      report_on(connection.rank, interrupted_ ? FailureKind::interrupted : FailureKind::died);
  if (garbled) {
    report.kind = FailureKind::ended;
    report.reason = "it sent a malformed message; is it another version of millrace?";
  }
  decide(report);
}

void ControlLoop::beat() {
  next_beat_ = now_ + interval();
  const std::uint64_t position = state_.position.load(std::memory_order_relaxed);
  const Heartbeat beat{position >> 1, state_.stamp.load(std::memory_order_relaxed),
                       (position & 1) != 0, interrupted_};
  note(beat, members_[static_cast<std::size_t>(options_.rank)]);
  // A peer that does not read gets no second heartbeat.
  for (Connection& one : connections_)
    if (one.rank >= 0 && one.out.empty()) one.out += encode(beat);
}

void ControlLoop::say(const Message& message) {
  const std::string bytes = encode(message);
  for (Connection& one : connections_)
    if (one.rank >= 0 && one.fd) one.out += bytes;
}

void ControlLoop::flush(Connection& to) {
  while (to.fd && !to.out.empty()) {
    const ssize_t n = send(to.fd.get(), to.out.data(), to.out.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) {
      to.out.clear();  // messages sent before the close are still to be read
      return;
    }
    to.out.erase(0, static_cast<std::size_t>(n));
  }
}

void ControlLoop::publish_missing() {
  std::vector<int> missing;
  for (int rank = 1; serves() && rank < options_.world; ++rank)
    if (members_[static_cast<std::size_t>(rank)].presence == Member::Presence::missing)
      missing.push_back(rank);
  const bool all_here = serves() && missing.empty();
  if (all_here) say(AllHere{});
  const std::lock_guard lock(state_.mutex);
  state_.missing = std::move(missing);
  state_.all_here = all_here;
  state_.changed.notify_all();
}

// Verdict of the control channel: decides which rank failed, and ends the run.
namespace {

using namespace std::chrono_literals;

/// Time within which a new connection must say hello.
constexpr auto kHelloTimeout = 2s;
/// Delay before a rank's error is believed. If a rank is killed, its peers' collectives fail at the
/// same moment and they report that; the killed rank's closed connection arrives within this time.
constexpr auto kErrorDelay = 300ms;
/// Time for the others to read the verdict before rank 0's exit closes the connections.
constexpr auto kVerdictDelay = 250ms;
/// Time to answer after an interrupt; ranks that are stopped or gone are given up. Together with
/// kVerdictDelay, all ranks leave within 2 s of the signal.
constexpr auto kAnswerTimeout = 1250ms;

}  // namespace

void ControlLoop::check_ranks() {
  check_silence();
  if (serves() && phase_ == Phase::watching) check_progress();
  if (serves() && phase_ == Phase::watching && interrupted_) check_interrupt();
  if (suspect_ && phase_ == Phase::watching && now_ >= suspect_until_) decide(*suspect_);
}

void ControlLoop::check_silence() {
  const Clock::duration limit =
      interrupted_ ? std::min<Clock::duration>(limit_, kAnswerTimeout) : limit_;
  for (Connection& one : connections_) {
    if (one.rank < 0 && one.fd && now_ - one.heard > kHelloTimeout) one.fd.close();
    if (one.rank < 0 || phase_ != Phase::watching || now_ - one.heard <= limit) continue;
    if (members_[static_cast<std::size_t>(one.rank)].presence != Member::Presence::here) continue;
    FailureReport report =
        report_on(one.rank, interrupted_ ? FailureKind::interrupted : FailureKind::silent);
    report.idle_s = std::chrono::duration<double>(now_ - one.heard).count();
    decide(report);
  }
}

void ControlLoop::check_progress() {
  const auto idle = [&](const Member& one) { return now_ - one.since > limit_; };
  const bool waited_for = std::any_of(members_.begin(), members_.end(), [&](const Member& one) {
    return one.presence == Member::Presence::here && one.in_collective && idle(one);
  });
  if (!waited_for) return;
  int latest = -1;  // rank furthest behind
  for (int rank = 0; rank < options_.world; ++rank) {
    const Member& one = members_[static_cast<std::size_t>(rank)];
    const bool stuck = one.presence == Member::Presence::here && !one.in_collective && idle(one);
    if (!stuck && one.presence != Member::Presence::left) continue;
    if (latest < 0 || one.step < members_[static_cast<std::size_t>(latest)].step) latest = rank;
  }
  if (latest < 0) return;
  const Member& one = members_[static_cast<std::size_t>(latest)];
  FailureReport report = report_on(latest, FailureKind::stuck);
  report.idle_s = std::chrono::duration<double>(now_ - one.since).count();
  if (one.presence == Member::Presence::left) {
    report.kind = FailureKind::ended;
    report.reason = "it was done, but others wait for it in a collective";
  }
  decide(report);
}

/// Before the first step nothing is worth waiting for. A rank that has begun it says so in its
/// answer.
void ControlLoop::check_interrupt() {
  for (int rank = 0; rank < options_.world; ++rank) {
    const Member& one = members_[static_cast<std::size_t>(rank)];
    const bool starts = one.presence == Member::Presence::here && one.interrupted && one.step == 0;
    if (!starts && one.presence != Member::Presence::missing) continue;
    FailureReport report = report_on(rank, FailureKind::interrupted);
    report.step = 0;
    return decide(report);
  }
}

FailureReport ControlLoop::report_on(int rank, FailureKind kind) const {
  const Member& member = members_[static_cast<std::size_t>(rank)];
  std::uint64_t step = member.step;
  // Ranks take their steps together: this rank's own step is more recent than that of a heartbeat.
  if (kind != FailureKind::stuck && kind != FailureKind::ended)
    step = std::max(step, state_.position.load(std::memory_order_relaxed) >> 1);
  return {kind, rank, member.pid, member.host, step, 0, {}};
}

void ControlLoop::suspect(FailureReport report) {
  if (!serves()) {  // rank 0 has already waited for kErrorDelay
    decide(report);
    return;
  }
  if (suspect_) return;
  suspect_ = std::move(report);
  suspect_until_ = now_ + kErrorDelay;
}

void ControlLoop::decide(const FailureReport& report) {
  if (verdict_) return;
  verdict_ = report;
  say(report);
  phase_ = Phase::telling;
  until_ = now_ + kVerdictDelay;
  if (!serves()) {  // other ranks could only tell rank 0, which is the one that failed
    for (Connection& one : connections_) flush(one);
    conclude(report);
  }
}

void ControlLoop::conclude(const FailureReport& report) {
  phase_ = Phase::over;
  {
    const std::lock_guard lock(state_.mutex);
    state_.failure = report;
    state_.changed.notify_all();
  }
  const bool own_error = ordered_ == Leave::failed && report.rank == options_.rank;
  if (!own_error && options_.on_failure) options_.on_failure(report);
}

void ControlLoop::end_phase() {
  const bool late = now_ >= until_;
  if (phase_ == Phase::telling) {
    const bool read = std::none_of(connections_.begin(), connections_.end(),
                                   [](const Connection& one) { return one.rank >= 0; });
    if (late || read) conclude(*verdict_);
  } else if (phase_ == Phase::leaving) {
    const bool sent = std::all_of(connections_.begin(), connections_.end(),
                                  [](const Connection& one) { return one.out.empty(); });
    if (late || sent) phase_ = Phase::over;
  } else if (phase_ == Phase::asking && late) {
    phase_ = Phase::over;
  }
}

}  // namespace millrace::train
