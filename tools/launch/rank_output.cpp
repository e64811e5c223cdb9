// Merges the ranks' lines and errors.
#include "tools/launch/rank_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/printable.h"
#include "tools/terminal/console.h"
#include "tools/terminal/output.h"

namespace millrace::tools {
namespace {

constexpr std::size_t kLongestLine = 65536;
/// Delay from the first error to its print: other ranks that fail for the same reason have reported
/// it by then.
constexpr std::chrono::seconds kOthers{1};

/// "WHAT" of "millrace: WHAT\n  hint: ...".
std::string_view what_of(std::string_view text) {
  constexpr std::string_view kName = "millrace: ";
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.starts_with(kName) ? line.substr(kName.size()) : line;
}

/// Returns whether `text` only reports another rank's error: "rank 1 (host, pid 5) ended at step 9:
/// WHAT".
bool relays(const std::string& text, const std::string& other) {
  const std::string_view what = what_of(other);
  return text != other && !what.empty() && what_of(text).starts_with("rank ") &&
         what_of(text).ends_with(what);
}

}  // namespace

RankPipe::RankPipe(train::Fd pipe) : pipe_(std::move(pipe)) {
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
}

std::string RankPipe::take() {
  std::string all;
  char buffer[4096];
  while (pipe_) {
    const ssize_t n = read(pipe_.get(), buffer, sizeof buffer);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (n <= 0) {
      pipe_.close();
    } else {
      all.append(buffer, static_cast<std::size_t>(n));
    }
  }
  return all;
}

RankLines::RankLines(train::Fd pipe, int rank)
    : pipe_(std::move(pipe)), prefix_(fmt::format("[rank {}] ", rank)) {}

void RankLines::pump() {
  for (const char c : pipe_.take()) {
    if (c != '\n') line_ += c;
    if (c == '\n' || line_.size() >= kLongestLine) print_line();
  }
  if (pipe_.fd() < 0) end_line();
}

void RankLines::end_line() {
  if (!line_.empty()) print_line();
}

void RankLines::print_line() {
  write_error(prefix_ + base::printable_lines(line_) + "\n");
  line_.clear();
}

std::vector<int> RankErrors::fds() const {
  std::vector<int> open;
  for (const RankPipe& pipe : pipes_)
    if (pipe.fd() >= 0) open.push_back(pipe.fd());
  return open;
}

void RankErrors::pump() {
  for (std::size_t rank = 0; rank < pipes_.size(); ++rank) {
    std::string& text = texts_[rank];
    text += pipes_[rank].take();
    if (pipes_[rank].fd() >= 0 || text.empty()) continue;
    if (waiting_.empty()) due_ = Clock::now() + kOthers;
    std::vector<std::size_t>& ranks = waiting_[text];
    if (ranks.empty()) order_.push_back(text);
    ranks.push_back(rank);
    text.clear();
  }
  if (!waiting_.empty() && Clock::now() >= due_) print();
}

void RankErrors::print() {
  for (const std::string& text : order_) {
    const auto origin = [&](const std::string& other) { return relays(text, other); };
    std::vector<std::size_t>& ranks = waiting_[text];
    if (std::any_of(order_.begin(), order_.end(), origin) ||
        std::any_of(printed_.begin(), printed_.end(), origin)) {
      relaying_.insert(ranks.begin(), ranks.end());
      continue;
    }
    if (printed_.count(text) != 0) continue;
    std::sort(ranks.begin(), ranks.end());
    const bool all = ranks.size() == pipes_.size();
    print_error_text(text, all ? ""
                               : fmt::format("[{} {}] ", ranks.size() == 1 ? "rank" : "ranks",
                                             fmt::join(ranks, ", ")));
  }
  printed_.insert(order_.begin(), order_.end());
  order_.clear();
  waiting_.clear();
}

}  // namespace millrace::tools
