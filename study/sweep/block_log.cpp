// Links entries into place and watches heartbeats.
#include "study/sweep/block_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/descriptor.h"
#include "base/record_file.h"
#include "millrace/error.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kBeat{1000};
constexpr milliseconds kLook{100};  ///< between two looks at a counter
/// Heartbeat of a claimant that has left complete runs; of a counter's length.
constexpr const char* kLeft = "complete, unpublished";

/// Returns the content of a file of the system, below /proc.
std::string system_text(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string host_name() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return host.data();
}

/// Returns the boot of this machine and the pid namespace of this process; empty if they are
/// hidden.
std::string pid_space() {
  std::string boot = system_text("/proc/sys/kernel/random/boot_id");
  boot.erase(boot.find_last_not_of('\n') + 1);
  if (boot.empty()) return {};
  std::error_code error;
  return boot + " " + fs::read_symlink("/proc/self/ns/pid", error).string();
}

/// Returns when a process started, in ticks since boot; 0 if it has ended, as a zombie has. Empty
/// if /proc does not show it.
std::optional<std::uint64_t> start_of(std::int64_t pid) {
  const std::string stat = system_text(fmt::format("/proc/{}/stat", pid));
  const auto name_end = stat.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return {};
  const char state = stat[name_end + 2];
  if (state == 'Z' || state == 'X') return 0;
  constexpr int kFields = 20;  // from the state to the start
  std::istringstream fields(stat.substr(name_end + 2));
  std::string field;
  for (int i = 0; i < kFields; ++i) fields >> field;
  if (!fields) return {};
  return std::strtoull(field.c_str(), nullptr, 10);
}

/// Returns whether the process that started at `started` has ended.
bool has_ended(std::int64_t pid, std::uint64_t started) {
  const auto now = start_of(pid);
  if (now) return *now != started;
  return kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;  // /proc may hide those of others
}

/// Returns the job that the scheduler's variables name.
std::string job_name() {
  const auto variable = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  const std::string array = variable("SLURM_ARRAY_JOB_ID");
  return array.empty() ? variable("SLURM_JOB_ID") : array + "_" + variable("SLURM_ARRAY_TASK_ID");
}

Json to_json(const BlockOwner& owner) {
  return {{"host", owner.host},
          {"pid", owner.pid},
          {"started", owner.started},
          {"space", owner.space},
          {"job", owner.job}};
}

fs::path entry_file(const fs::path& folder, int number) {
  return folder / fmt::format("{}.json", number);
}

/// Returns the numbers of the entries. Lists the folder, because that asks a file server: a name
/// that was looked up too early stays absent for a while in the client's cache.
std::set<int> entry_numbers(const fs::path& folder, std::error_code& error) {
  std::set<int> numbers;
  fs::directory_iterator files(folder, error);
  for (; !error && files != fs::directory_iterator(); files.increment(error)) {
    const std::string name = files->path().filename().string();
    int number = 0;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (failed == std::errc() && std::string_view(end) == ".json") numbers.insert(number);
  }
  if (error == std::errc::no_such_file_or_directory) error.clear();
  return numbers;
}

BlockEntry entry_of(const fs::path& file, int number) {
  BlockEntry entry;
  entry.number = number;
  std::ifstream in = base::open_record(file);
  if (!in)
    throw RunError(fmt::format("{} cannot be read: {}", file.string(), std::strerror(errno)),
                   "check the file system and try again");
  const auto damaged = [&] {
    return DataError(fmt::format("{} is damaged", file.string()),
                     "remove the block's folder to have the block run again");
  };
  try {
    entry.all = parse_json(base::read_record(in, file));
    const std::string kind = entry.all.at("kind");
    entry.kind = kind == "claim"    ? BlockEntry::Kind::claim
                 : kind == "result" ? BlockEntry::Kind::result
                                    : BlockEntry::Kind::failure;
    entry.attempt = entry.all.at("attempt");
    if (entry.attempt < 1 || entry.attempt > number) throw damaged();
    const Json& owner = entry.all.at("owner");
    entry.owner = {owner.at("host"), owner.at("pid"), owner.at("started"), owner.at("space"),
                   owner.at("job")};
  } catch (const nlohmann::json::exception&) {
    throw damaged();
  }
  return entry;
}

std::string counter_text(std::uint64_t beats) { return fmt::format("{:020}\n", beats); }

bool overwrite(const base::Descriptor& file, const std::string& text) {
  return pwrite(file.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

}  // namespace

std::string BlockOwner::text() const {
  return (job.empty() ? "" : "job " + job + ", ") + fmt::format("pid {} on host {}", pid, host);
}

BlockOwner this_owner() {
  return {host_name(), getpid(), start_of(getpid()).value_or(0), pid_space(), job_name()};
}

std::vector<BlockEntry> BlockLog::entries() const {
  std::vector<BlockEntry> all;
  std::error_code error;
  const std::set<int> numbers = entry_numbers(folder_, error);
  for (int number = 1; numbers.contains(number); ++number)
    all.push_back(entry_of(entry_file(folder_, number), number));
  if (error)
    throw RunError(fmt::format("{} cannot be read: {}", folder_.string(), error.message()),
                   "check the file system and try again");
  return all;
}

std::optional<BlockEntry> BlockLog::last() const {
  auto all = entries();
  if (all.empty()) return {};
  return std::move(all.back());
}

fs::path BlockLog::attempt(int number) const { return folder_ / fmt::format("attempt-{}", number); }

bool BlockLog::add(int number, const Json& entry) const {
  const fs::path file = entry_file(folder_, number);
  const BlockOwner self = this_owner();
  const fs::path draft =
      folder_ / fmt::format("{}.draft-{}-{}-{}", number, self.host, self.pid, self.started);
  std::error_code error;
  fs::create_directories(folder_, error);
  write_file(draft, to_text(entry, 2) + "\n");
  const int failure = link(draft.c_str(), file.c_str()) == 0 ? 0 : errno;
  // A lost answer of a file server looks like a failure; the number of links tells.
  struct stat drafted {};
  const bool linked = failure == 0 || (stat(draft.c_str(), &drafted) == 0 && drafted.st_nlink == 2);
  unlink(draft.c_str());
  if (linked) return true;
  if (failure == EEXIST) return false;
  throw RunError(fmt::format("{} cannot be linked: {}", file.string(), std::strerror(failure)),
                 "the sweep's directory has to be on a file system with hard links");
}

bool BlockLog::has_left(const BlockEntry& claim) const {
  return base::read_record(attempt(claim.attempt) / "heartbeat") == kLeft;
}

Observation BlockLog::watch(const BlockEntry& claim, milliseconds patience,
                            const std::function<bool()>& pause) const {
  const std::string space = pid_space();
  const bool here = !space.empty() && claim.owner.space == space;
  const fs::path folder = attempt(claim.attempt);
  const auto counter = [&] {
    std::string text = base::read_record(folder / "heartbeat");
    if (!text.empty()) return text;
    std::error_code error;  // listing a folder makes a file server's client look again
    for (fs::directory_iterator one(folder, error), end; !error && one != end;)
      one.increment(error);
    return base::read_record(folder / "heartbeat");
  };
  std::string first = counter();
  const auto unseen_patience = std::max<milliseconds>(patience, kUnseenPatience);
  milliseconds waited{0};
  for (auto before = Clock::now();;) {
    if (has_left(claim)) return {Pulse::left};
    if (here && has_ended(claim.owner.pid, claim.owner.started)) return {Pulse::gone};
    const milliseconds limit = first.empty() ? unseen_patience : patience;
    std::this_thread::sleep_for(std::min(kLook, limit - waited));
    if (pause && !pause()) return {Pulse::beating};
    const auto now = Clock::now();
    // A longer step means that this process did not run; nor may the claimant have done so.
    waited += std::clamp(std::chrono::duration_cast<milliseconds>(now - before), milliseconds(1),
                         2 * kLook);
    before = now;
    const std::string text = counter();
    if (!text.empty() && text != kLeft && text != first) {
      if (!first.empty()) return {Pulse::beating};
      first = text;
      waited = milliseconds(0);
    } else if (waited >= limit) {
      return {Pulse::silent, limit};
    }
  }
}

std::optional<BlockClaim> BlockClaim::take(const BlockLog& log, int number, Json about) {
  about["owner"] = to_json(this_owner());
  Json entry{{"kind", "claim"}, {"attempt", number}};
  entry.update(about);
  // The folder precedes the claim, so that nothing is claimed where there is no room for its runs.
  BlockClaim claim(log, number, std::move(about));
  fs::create_directories(claim.folder() / "runs");
  // The heartbeat does too: a host that sees the claim sees a heartbeat.
  claim.create_heartbeat();
  claim.beaten_ = Clock::now();
  if (!log.add(number, entry)) return {};
  return claim;
}

void BlockClaim::create_heartbeat() const {
  const fs::path file = folder() / "heartbeat";
  const base::Descriptor counter(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!counter && errno == EEXIST) return;  // a rival's, who may have been faster
  errno = counter ? ENOSPC : errno;         // a short write sets none
  if (counter && overwrite(counter, counter_text(beats_)) && fsync(counter.get()) == 0) return;
  const int reason = errno;
  if (counter) unlink(file.c_str());
  throw RunError(fmt::format("{} cannot be written: {}", file.string(), std::strerror(reason)),
                 "check the file system and try again");
}

base::Descriptor BlockClaim::write_heartbeat(const std::string& text) const {
  const fs::path file = folder() / "heartbeat";
  try {
    base::Descriptor counter = base::open_own(file, O_WRONLY);
    return overwrite(counter, text) ? std::move(counter) : base::Descriptor();
  } catch (const Error&) {
    return {};
  }
}

bool BlockClaim::beat() {
  const auto now = Clock::now();
  if (now - beaten_ < kBeat) return false;
  beaten_ = now;
  // A beat that cannot be written is lost; what counts is decided by the log. The file is closed at
  // each beat, because file servers then show its content to others.
  static_cast<void>(write_heartbeat(counter_text(++beats_)));
  return true;
}

bool BlockClaim::is_overtaken() {
  std::error_code error;
  overtaken_ = overtaken_ || entry_numbers(log_.folder(), error).contains(number_ + 1);
  return overtaken_;
}

bool BlockClaim::end(const char* kind, const Json& more) {
  Json entry{{"kind", kind}, {"attempt", number_}};
  entry.update(about_);
  entry.update(more);
  overtaken_ = overtaken_ || !log_.add(number_ + 1, entry);
  return !overtaken_;
}

void BlockClaim::give_up(const std::string& reason) { end("failure", {{"reason", reason}}); }

bool BlockClaim::leave() {
  const base::Descriptor heartbeat = write_heartbeat(kLeft);
  return heartbeat && fsync(heartbeat.get()) == 0;
}

}  // namespace millrace::study
