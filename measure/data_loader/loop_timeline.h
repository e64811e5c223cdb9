// Time of the trainer's thread: at any moment it is in exactly one span of one loader, or between
// loaders.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace millrace::measure {

/// Spans of a row, in the order of the columns of steps.csv. first_batch and load count as load,
/// update and loop as update, the others as other.
enum LoopSpan { kSetup, kFirstBatch, kLoad, kUpdate, kLoop, kEvaluate, kLog, kBetween, kLoopSpans };

inline constexpr std::array<const char*, kLoopSpans> kLoopSpanNames{
    "setup", "first_batch", "load", "update", "loop", "evaluate", "log", "between"};

/// Time per span, in ns.
using LoopSpans = std::array<std::int64_t, kLoopSpans>;

/// Steps whose bodies do what happens once: they import modules, fill caches, compile. Where a
/// framework takes a batch ahead, the first body is empty and the second one does it.
inline constexpr std::int64_t kFirstSteps = 2;

/// One step of a loader: from its start to the start of the next.
struct LoopRow {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::int64_t images = 0;
  std::int64_t iter_ns = 0;
  LoopSpans ns{};
};

/// Steps of one loader. Its rows add up to the time since the recording began.
struct LoopTable {
  std::vector<LoopRow> rows;  ///< finished, not yet written
  LoopRow row;                ///< under way
  std::int64_t epoch = 0;
  std::int64_t steps = 0;
  std::int64_t images = 0;
  std::int64_t iter_ns = 0;
  std::int64_t updates = 0;  ///< steps of optimizers in its loop
  std::int64_t turns = 0;    ///< steps in which another loader of the same loop gave a batch
  LoopSpans total{};         ///< of all finished rows
  LoopSpans first{};         ///< of those of the first kFirstSteps steps
  // The timeline's counters when this loader lost the foreground.
  std::int64_t idle_mark = 0;
  std::int64_t busy_mark = 0;
  std::int64_t iter_mark = 0;
  std::int64_t batch_mark = 0;

  void close_row();
  /// Returns the lines of steps.csv of the finished rows and forgets them.
  std::string take_rows();
};

/// Hands each stretch of time to the loader in the foreground, in turn. Times are those of
/// wall_ns().
class LoopTimeline {
 public:
  explicit LoopTimeline(std::int64_t now) : since_(now) {}

  // Marks in the body of the loop.
  void forward(std::int64_t now) {
    if (forward_ == 0) forward_ = now;
  }
  /// Takes the forward of this body, unless one is marked, to come as long after the body's begin
  /// as the latest one that was marked.
  void expect_forward() { expects_forward_ = true; }
  void step_begins(std::int64_t now) {
    if (step_begin_ == 0) step_begin_ = now;
  }
  void step_ended(std::int64_t now) {
    step_end_ = now;
    if (!stack_.empty()) ++stack_.back()->updates;
  }
  /// Returns whether an optimizer has stepped since the body of the loop began.
  bool stepped() const { return step_end_ != 0; }
  std::int64_t forward_mark() const { return forward_; }
  std::int64_t step_mark() const { return step_begin_; }

  // Transitions. Each ends the stretch that began with the one before.
  void iter_begins(const std::shared_ptr<LoopTable>& table, std::int64_t now);
  /// Returns the time that iter() took.
  std::int64_t iter_ended(LoopTable& table, std::int64_t now);
  void next_begins(const std::shared_ptr<LoopTable>& table, std::int64_t now);
  /// Begins the body of the loop with a new batch.
  void next_ended(LoopTable& table, std::int64_t now, std::int64_t images);
  /// Begins the end of an iteration that its loop abandoned in the body of a step, as at an
  /// exception.
  void abandoned(const std::shared_ptr<LoopTable>& table, std::int64_t now);
  /// Ends a call of next() that returned no batch.
  void next_failed() { asked_ = nullptr; }
  /// Ends an iteration: next() raised StopIteration or an error. Returns the time of this call.
  std::int64_t exhausted(LoopTable& table, std::int64_t now);
  /// Ends a stretch in which the recorder itself worked, right after next().
  void logged_after_next(LoopTable& table, std::int64_t now) { add(table, kLog, now); }
  /// Ends a stretch in which the recorder itself has worked since `begin`, outside of calls of
  /// next().
  void logged(std::int64_t begin, std::int64_t now);
  /// Time of the thread between loaders so far: of its loop, where another thread takes the
  /// batches.
  std::int64_t between(std::int64_t now) const {
    return idle_ + (stack_.empty() ? now - since_ : 0);
  }
  /// Ends the recording: every row is closed. `is_cut`: an error has ended the script. The body in
  /// which it came counts as other, unless an optimizer has stepped in it.
  void close(const std::vector<std::shared_ptr<LoopTable>>& tables, std::int64_t now,
             bool is_cut = false);

  /// Leaves a loader to another timeline.
  void forget(LoopTable& table, std::int64_t now);
  /// Goes on with a loader that another timeline has left, as if it had begun now.
  void take(const std::shared_ptr<LoopTable>& table, std::int64_t now);

  bool holds(const LoopTable& table) const;
  /// Returns whether the thread is in a call of next() of another loader, whose data set has this
  /// one inside: its time belongs to that call.
  bool is_inside_another(const LoopTable& table) const {
    return asked_ != nullptr && asked_ != &table;
  }
  /// Returns the loader in the foreground, or null.
  std::shared_ptr<LoopTable> front() const { return stack_.empty() ? nullptr : stack_.back(); }

 private:
  void leave(std::int64_t now);
  void add(LoopTable& table, LoopSpan span, std::int64_t now);
  void away(LoopTable& table) const;
  void back(LoopTable& table) const;
  void bring_to_front(const std::shared_ptr<LoopTable>& table);

  std::int64_t since_;
  std::int64_t idle_ = 0;
  std::int64_t busy_ = 0;
  std::int64_t iters_ = 0;            ///< iterations that have begun
  std::int64_t batches_ = 0;          ///< of all loaders
  const LoopTable* asked_ = nullptr;  ///< whose next() has been called
  std::int64_t forward_ = 0;
  bool expects_forward_ = false;
  std::int64_t lead_ = -1;  ///< from a body's begin to its forward; -1: none was marked yet
  std::int64_t step_begin_ = 0;
  std::int64_t step_end_ = 0;
  std::vector<std::shared_ptr<LoopTable>> stack_;
  std::shared_ptr<LoopTable>
      abandoned_;                    ///< the latest that was abandoned before an optimizer stepped
  std::int64_t abandoned_step_ = 0;  ///< in this step
  std::int64_t abandoned_ns_ = 0;    ///< after so much of its body
};

}  // namespace millrace::measure
