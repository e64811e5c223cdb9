// Records a watched loader's calls of next().
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "measure/data_loader/steps.h"
#include "python/ext/watch/step_hooks.h"
#include "python/ext/watch/torch_batch.h"

namespace millrace::python {

/// Steps of a loader in a session.
class LoaderSteps : public measure::LoopSteps {
 public:
  LoaderSteps(std::shared_ptr<StepHooks> session, std::shared_ptr<measure::LoopTable> table,
              std::shared_ptr<measure::DataLoaderBreakdown> breakdown)
      : measure::LoopSteps(session->timeline, std::move(table), std::move(breakdown)),
        session_(std::move(session)) {}

  /// Begins a call of next(). Returns the Depth of its record. `of`: the iterator's number, from 1;
  /// 0 is none.
  int begin(std::int64_t of, measure::Receipts* receipts) {
    if (of == 0 || of != generation || !session_->takes_part() || is_inside_another())
      return static_cast<int>(measure::Depth::none);
    return static_cast<int>(next_begins(measure::wall_ns(), receipts));
  }
  /// Ends a call of next(). Returns what is due.
  int end(std::int64_t batch, nanobind::handle data, const measure::Receipts* receipts) {
    if (!session_->is_open())
      return static_cast<int>(measure::Due::nothing);  // the recording ended meanwhile
    const std::int64_t now = measure::wall_ns();
    std::int64_t samples = 0;
    try {
      samples = samples_in(data);
    } catch (const nanobind::python_error&) {  // from a signal's handler: next() ends with it
      next_ended(now, batch, 0, receipts);
      throw;
    }
    next_ended(now, batch, samples != measure::kUnknown ? samples : batch_size, receipts);
    if (in_detail()) {
      session_->arm();
    } else {
      session_->timeline->expect_forward();
    }
    return static_cast<int>(due(now));
  }
  /// Stays in its thread, which has got hooks of its own.
  void stay(std::shared_ptr<StepHooks> session) { session_ = std::move(session); }
  /// Goes on in the thread of another session.
  void move(std::shared_ptr<StepHooks> session) {
    go_on(session->timeline, measure::wall_ns());
    session_ = std::move(session);
  }

  /// Samples of a batch that does not tell their number, such as one without arrays; 0 if unknown.
  std::int64_t batch_size = 0;

 private:
  std::shared_ptr<StepHooks> session_;
};

}  // namespace millrace::python
