#include "measure/data_loader/loop_timeline.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace millrace::measure {
namespace {

void append(std::string& text, std::int64_t number) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), number).ptr;
  text.append(digits.data(), end);
}

/// Appends a comma and a time as seconds, whatever the locale.
void append_seconds(std::string& text, std::int64_t ns) {
  text += ',';
  if (ns == 0) {
    text += '0';
    return;
  }
  if (ns < 0) text += '-';
  const std::int64_t size = ns < 0 ? -ns : ns;
  append(text, size / 1'000'000'000);
  std::array<char, 10> digits{};
  std::int64_t rest = size % 1'000'000'000;
  for (int i = 8; i >= 0; --i, rest /= 10)
    digits[static_cast<std::size_t>(i)] = static_cast<char>('0' + rest % 10);
  text += '.';
  text.append(digits.data(), 9);
}

void append_row(std::string& text, const LoopRow& row) {
  const LoopSpans& ns = row.ns;
  const std::int64_t load = ns[kFirstBatch] + ns[kLoad];
  const std::int64_t update = ns[kUpdate] + ns[kLoop];
  append(text, row.epoch);
  text += ',';
  append(text, row.step);
  append_seconds(text, load);
  append_seconds(text, update);
  append_seconds(text, ns[kSetup] + ns[kEvaluate] + ns[kLog] + ns[kBetween]);
  text += ',';
  append(text, row.images);
  text += ',';  // no loss
  for (const std::int64_t one : ns) append_seconds(text, one);
  append_seconds(text, row.iter_ns);
  text += '\n';
}

/// Returns the span of time between loaders.
LoopSpan span_between(const LoopTable& table) {
  return table.steps == 0 && table.epoch == 0 ? kSetup : kBetween;
}

}  // namespace

void LoopTable::close_row() {
  iter_ns += row.iter_ns;
  for (std::size_t i = 0; i < row.ns.size(); ++i) {
    total[i] += row.ns[i];
    if (row.step <= kFirstSteps) first[i] += row.ns[i];
  }
  rows.push_back(row);
  row = LoopRow{};
}

std::string LoopTable::take_rows() {
  std::string text;
  text.reserve(96 * rows.size());
  for (const LoopRow& one : rows) append_row(text, one);
  rows.clear();
  return text;
}

/// Ends a stretch in the body of the foreground's loop, or between loaders.
void LoopTimeline::leave(std::int64_t now) {
  const std::int64_t whole = now - since_;
  if (stack_.empty()) {
    idle_ += whole;
  } else {
    LoopSpans& ns = stack_.back()->row.ns;
    if (forward_ != 0) {
      lead_ = forward_ - since_;
    } else if (expects_forward_ && lead_ >= 0) {
      forward_ = since_ + lead_;
    }
    std::int64_t begin = forward_ != 0 ? forward_ : step_begin_;
    // A step for the batch before may come ahead of the forward.
    if (0 < step_begin_ && step_begin_ < begin) begin = step_begin_;
    const std::int64_t update =
        step_end_ != 0 && begin != 0 ? std::max<std::int64_t>(0, step_end_ - begin) : 0;
    ns[kLoop] += whole - update;
    ns[kUpdate] += update;
    busy_ += whole;
  }
  since_ = now;
  forward_ = step_begin_ = step_end_ = 0;
  expects_forward_ = false;
}

void LoopTimeline::add(LoopTable& table, LoopSpan span, std::int64_t now) {
  table.row.ns[span] += now - since_;
  busy_ += now - since_;
  since_ = now;
}

void LoopTimeline::away(LoopTable& table) const {
  table.idle_mark = idle_;
  table.busy_mark = busy_;
  table.iter_mark = iters_;
  table.batch_mark = batches_;
}

/// Accounts for the time since a loader lost the foreground. If another one has only given a batch,
/// as where a loop goes over a zip of both, that is a part of the loop's body.
void LoopTimeline::back(LoopTable& table) const {
  table.row.ns[span_between(table)] += idle_ - table.idle_mark;
  const bool is_turn = iters_ == table.iter_mark && batches_ == table.batch_mark + 1;
  if (is_turn) ++table.turns;
  table.row.ns[is_turn ? kLoop : kEvaluate] += busy_ - table.busy_mark;
}

bool LoopTimeline::holds(const LoopTable& table) const {
  return std::any_of(stack_.begin(), stack_.end(),
                     [&](const auto& one) { return one.get() == &table; });
}

/// Brings a loader to the foreground. Those above it in the stack were abandoned by their loops.
void LoopTimeline::bring_to_front(const std::shared_ptr<LoopTable>& table) {
  if (!stack_.empty() && stack_.back() == table) return;
  if (holds(*table)) {
    while (stack_.back() != table) {
      away(*stack_.back());
      stack_.pop_back();
      back(*stack_.back());
    }
    return;
  }
  if (!stack_.empty()) away(*stack_.back());
  stack_.push_back(table);
  back(*table);
}

void LoopTimeline::iter_begins(const std::shared_ptr<LoopTable>& table, std::int64_t now) {
  leave(now);
  bring_to_front(table);
  ++iters_;
  if (table->row.step != 0) table->close_row();
  ++table->epoch;
}

std::int64_t LoopTimeline::iter_ended(LoopTable& table, std::int64_t now) {
  const std::int64_t took = now - since_;
  add(table, table.steps != 0 ? kLoad : kFirstBatch, now);
  table.row.iter_ns += took;
  return took;
}

void LoopTimeline::next_begins(const std::shared_ptr<LoopTable>& table, std::int64_t now) {
  leave(now);
  bring_to_front(table);
  asked_ = table.get();
}

void LoopTimeline::next_ended(LoopTable& table, std::int64_t now, std::int64_t images) {
  const std::int64_t waited = now - since_;
  since_ = now;
  busy_ += waited;
  ++batches_;
  asked_ = nullptr;
  if (table.row.step != 0) table.close_row();
  LoopRow& row = table.row;
  row.ns[table.steps != 0 ? kLoad : kFirstBatch] += waited;
  ++table.steps;
  table.images += images;
  row.epoch = table.epoch;
  row.step = table.steps;
  row.images = images;
}

void LoopTimeline::abandoned(const std::shared_ptr<LoopTable>& table, std::int64_t now) {
  const bool in_body = !stack_.empty() && stack_.back() == table && !stepped();
  abandoned_ = in_body ? table : nullptr;
  abandoned_step_ = table->row.step;
  abandoned_ns_ = now - since_;
  next_begins(table, now);
}

std::int64_t LoopTimeline::exhausted(LoopTable& table, std::int64_t now) {
  asked_ = nullptr;
  const auto found = std::find_if(stack_.begin(), stack_.end(),
                                  [&](const auto& one) { return one.get() == &table; });
  if (found == stack_.end()) return 0;
  const std::int64_t took = now - since_;
  add(table, table.steps != 0 ? kLoad : kFirstBatch, now);
  away(table);
  stack_.erase(found);
  if (!stack_.empty()) back(*stack_.back());
  return took;
}

void LoopTimeline::logged(std::int64_t begin, std::int64_t now) {
  leave(begin);
  if (!stack_.empty()) add(*stack_.back(), kLog, now);
}

void LoopTimeline::forget(LoopTable& table, std::int64_t now) {
  if (asked_ == &table) asked_ = nullptr;
  if (!stack_.empty() && stack_.back().get() == &table) {
    leave(now);
    stack_.pop_back();
    if (!stack_.empty()) back(*stack_.back());
    return;
  }
  // The stretch under way goes on in this timeline.
  back(table);
  table.row.ns[stack_.empty() ? span_between(table) : kEvaluate] += now - since_;
  std::erase_if(stack_, [&](const auto& one) { return one.get() == &table; });
}

void LoopTimeline::take(const std::shared_ptr<LoopTable>& table, std::int64_t now) {
  since_ = now;
  away(*table);
  stack_.assign(1, table);
}

void LoopTimeline::close(const std::vector<std::shared_ptr<LoopTable>>& tables, std::int64_t now,
                         bool is_cut) {
  if (is_cut && !stack_.empty() && !stepped()) add(*stack_.back(), kBetween, now);
  if (is_cut && abandoned_ != nullptr && abandoned_->row.step == abandoned_step_) {
    abandoned_->row.ns[kLoop] -= abandoned_ns_;
    abandoned_->row.ns[kBetween] += abandoned_ns_;
  }
  leave(now);
  while (!stack_.empty()) {
    away(*stack_.back());
    stack_.pop_back();
    if (!stack_.empty()) back(*stack_.back());
  }
  for (const auto& table : tables) {
    back(*table);
    away(*table);
    table->close_row();
  }
}

}  // namespace millrace::measure
