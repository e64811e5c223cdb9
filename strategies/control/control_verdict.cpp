// Verdict of the control channel: decides which rank failed, and ends the run.
#include <algorithm>

#include "strategies/control/control_loop.h"

namespace millrace::train {
namespace {

using namespace std::chrono_literals;

/// Time within which a new connection must say hello.
constexpr auto kGreeting = 2s;
/// Delay before a rank's error is believed. If a rank is killed, its peers' collectives fail at the
/// same moment and they report that; the killed rank's closed connection arrives within this time.
constexpr auto kDoubt = 300ms;
/// Time for the others to read the verdict before rank 0's exit closes the connections.
constexpr auto kTelling = 250ms;
/// Time to answer after an interrupt; ranks that are stopped or gone are given up. Together with
/// kTelling, all ranks leave within 2 s of the signal.
constexpr auto kAnswer = 1250ms;

}  // namespace

void ControlLoop::judge() {
  judge_silence();
  if (serves() && phase_ == Phase::watching) judge_progress();
  if (serves() && phase_ == Phase::watching && interrupted_) judge_interrupt();
  if (suspect_ && phase_ == Phase::watching && now_ >= suspect_until_) decide(*suspect_);
}

void ControlLoop::judge_silence() {
  const Clock::duration limit = interrupted_ ? std::min<Clock::duration>(limit_, kAnswer) : limit_;
  for (Connection& one : connections_) {
    if (one.rank < 0 && one.fd && now_ - one.heard > kGreeting) one.fd.close();
    if (one.rank < 0 || phase_ != Phase::watching || now_ - one.heard <= limit) continue;
    if (members_[static_cast<std::size_t>(one.rank)].presence != Member::Presence::here) continue;
    FailureReport report =
        report_on(one.rank, interrupted_ ? FailureKind::interrupted : FailureKind::silent);
    report.idle_s = std::chrono::duration<double>(now_ - one.heard).count();
    decide(report);
  }
}

void ControlLoop::judge_progress() {
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
void ControlLoop::judge_interrupt() {
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
  if (!serves()) {  // rank 0 has already waited for kDoubt
    decide(report);
    return;
  }
  if (suspect_) return;
  suspect_ = std::move(report);
  suspect_until_ = now_ + kDoubt;
}

void ControlLoop::decide(const FailureReport& report) {
  if (verdict_) return;
  verdict_ = report;
  say(report);
  phase_ = Phase::telling;
  until_ = now_ + kTelling;
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
