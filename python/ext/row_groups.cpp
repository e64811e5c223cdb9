// Decides which row groups are held, and loads them.
#include "python/ext/row_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "millrace/error.h"
#include "python/ext/gil.h"

namespace millrace::python {

RowGroups::RowGroups(const std::vector<std::uint64_t>& rows) : groups_(rows.size()) {
  std::uint64_t end = 0;
  for (const std::uint64_t one : rows) ends_.push_back(end += one);
}

std::size_t RowGroups::group_of(std::uint64_t row) const {
  return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), row) -
                                  ends_.begin());
}

void RowGroups::plan(const LoaderOptions& options) {
  const std::uint64_t rows = ends_.back();
  std::uint64_t largest = 0;
  for (std::size_t group = 0; group < ends_.size(); ++group)
    largest = std::max(largest, ends_[group] - first_row(group));
  using Kind = SamplerOptions::Kind;
  if (options.shuffle.kind == Shuffle::Kind::global || options.sampler.kind == Kind::weighted ||
      options.sampler.kind == Kind::balanced || options.sampler.kind == Kind::given)
    throw UsageError(
        fmt::format("mr.Parquet: this order of samples needs all {} row groups at once",
                    ends_.size()),
        fmt::format("set loader.shuffle=window:{}, which holds the groups of about two windows, or "
                    "read_table() the file into memory, for mr.Samples",
                    std::min(rows, 4 * largest)));
  const std::uint64_t window = options.shuffle.kind == Shuffle::Kind::window
                                   ? std::min(options.shuffle.window, rows)
                                   : largest;
  std::size_t most = 1;  // groups that a window touches
  for (std::uint64_t first = 0; first < rows; first += window)
    most = std::max(most, group_of(std::min(first + window, rows) - 1) - group_of(first) + 1);
  // Half a window ahead, so that seldom more than two windows are in use.
  lookahead_ = std::max<std::uint64_t>(1, window / 2);
  const auto under_way = static_cast<std::uint64_t>(options.batch) *
                         static_cast<std::uint64_t>(std::max(1, options.prefetch));
  const std::uint64_t windows = (lookahead_ + under_way + window - 1) / window + 1;
  most_ = std::min(groups_.size(), static_cast<std::size_t>(windows) * most);
}

void RowGroups::restart() {
  const std::lock_guard lock(mutex_);
  for (Group& group : groups_) group.due = 0;
}

bool RowGroups::expect(std::uint64_t row) {
  const std::lock_guard lock(mutex_);
  const std::size_t number = group_of(row);
  Group& group = groups_[number];
  group.used = ++clock_;
  ++group.due;
  if (group.state != State::away || std::exchange(group.expected, true)) return false;
  expected_.push_back(number);
  return !std::exchange(loads_ahead_, true);
}

void RowGroups::load_ahead(const Load& load, const std::function<bool()>& goes_on) {
  for (;;) {
    std::size_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      if (expected_.empty() || !goes_on()) {
        for (const std::size_t left : expected_) groups_[left].expected = false;
        expected_.clear();
        loads_ahead_ = false;
        return;
      }
      number = expected_.front();
      expected_.pop_front();
      Group& group = groups_[number];
      group.expected = false;
      if (group.state != State::away || group.due == 0) continue;  // its readers were faster
      group.state = State::loading;
      ++held_;
    }
    try {
      load_now(number, load);
    } catch (const Error&) {  // the group is away again: its readers say why
    }
  }
}

void RowGroups::load_now(std::size_t number, const Load& load) {
  Columns columns;
  std::string failure;
  const auto end = [&](State state) {
    {
      const std::lock_guard lock(mutex_);
      Group& group = groups_[number];
      group.state = state;
      group.used = ++clock_;
      if (state == State::held)
        group.columns = std::move(columns);
      else
        --held_;
      group.failure = std::move(failure);
    }
    changed_.notify_all();
  };
  try {
    // Columns that are let go of are released with the GIL, which is held in there.
    failure = load(
        number, [this] { take_unused(most_); }, columns);
  } catch (...) {
    end(State::away);
    throw;
  }
  end(failure.empty() ? State::held : State::failed);
}

/// Takes groups out until `left` are left: first those from which no row is expected, and of these
/// what was used least lately.
auto RowGroups::take_unused(std::size_t left) -> std::vector<Columns> {
  std::vector<Columns> taken;
  const std::lock_guard lock(mutex_);
  while (held_ > left) {
    Group* least = nullptr;
    const auto rank = [](const Group& group) { return std::pair(group.due > 0, group.used); };
    for (Group& group : groups_)
      if (group.state == State::held && group.pins == 0 &&
          (least == nullptr || rank(group) < rank(*least)))
        least = &group;
    if (least == nullptr) break;
    taken.push_back(std::exchange(least->columns, {}));
    least->state = State::away;
    --held_;
  }
  return taken;
}

void RowGroups::read(std::uint64_t row, const Load& load,
                     const std::function<void(const Columns&, std::uint64_t)>& use) {
  const std::size_t number = group_of(row);
  Group& group = groups_[number];
  {
    std::unique_lock lock(mutex_);
    while (group.state != State::held) {
      if (group.state == State::failed) {
        const std::size_t end = group.failure.find('\n');
        throw DataError(group.failure.substr(0, end),
                        end == std::string::npos ? "" : group.failure.substr(end + 1));
      }
      if (group.state == State::loading) {
        // The thread that loads may be one that the interpreter has ended.
        changed_.wait_for(lock, std::chrono::milliseconds(100));
        if (is_ending()) throw RunError("the interpreter is ending");
        continue;
      }
      group.state = State::loading;
      ++held_;
      lock.unlock();
      load_now(number, load);
      lock.lock();
    }
    ++group.pins;
    group.used = ++clock_;
    if (group.due > 0) --group.due;
  }
  const auto unpin = [&] {
    const std::lock_guard lock(mutex_);
    --group.pins;
  };
  try {
    use(group.columns, row - first_row(number));
  } catch (...) {
    unpin();
    throw;
  }
  unpin();
}

void RowGroups::release() {
  restart();
  take_unused(0);
}

void RowGroups::leak() {
  for (Group& group : groups_) {
    static_cast<void>(group.columns.images.release());
    static_cast<void>(group.columns.labels.release());
  }
}

}  // namespace millrace::python
