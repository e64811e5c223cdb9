// Tells the other ranks that rank 0 is at work, and how the work ended.
#include "strategies/trainer/first_rank.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <sstream>

#include "millrace/error.h"

namespace millrace::train {
namespace {

constexpr std::chrono::milliseconds kShortestInterval{250};
constexpr const char* kWorking = "working";

/// Returns the end of the work as rank 0 tells it: exit code, message and hint.
std::string outcome_of(std::future<void>& done) {
  try {
    done.get();
    return "0";
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.exit())) + "\n" + error.what() + "\n" +
           error.hint();
  } catch (const std::exception& error) {
    return std::to_string(static_cast<int>(Exit::failed)) + "\n" + error.what() + "\n";
  }
}

void throw_unless_done(const std::string& outcome) {
  std::istringstream lines(outcome);
  std::string exit, message, hint;
  std::getline(lines, exit);
  std::getline(lines, message);
  std::getline(lines, hint);
  if (exit != "0") throw Error(static_cast<Exit>(std::stoi(exit)), message, hint);
}

}  // namespace

void do_on_first_rank(bool is_first, std::chrono::milliseconds timeout, const Gather& gather,
                      const std::function<void()>& work) {
  std::string outcome;
  if (is_first) {
    std::future<void> done = std::async(std::launch::async, work);
    // Each sign of life costs every rank a request per rank.
    const auto interval = std::max(kShortestInterval, timeout / 4);
    while (done.wait_for(interval) != std::future_status::ready) gather(kWorking);
    outcome = outcome_of(done);
    gather(outcome);
  } else {
    do outcome = gather({})[0];
    while (outcome == kWorking);
  }
  throw_unless_done(outcome);
}

}  // namespace millrace::train
