// Locks and writes run directories, moves earlier runs aside, and cuts files back for
// resumption.

#include "study/records/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>
#include <utility>

#include "base/atomic_file.h"
#include "base/descriptor.h"
#include "base/open_file.h"
#include "base/record_file.h"
#include "millrace/error.h"
#include "study/records/run_links.h"
#include "study/records/signature.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

/// Returns whether `path` still leads to the open file. Another process may have moved its folder.
bool is_at(int file, const fs::path& path) {
  struct stat held {};
  struct stat there {};
  return fstat(file, &held) == 0 && stat(path.c_str(), &there) == 0 &&
         held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

/// Returns the text that the holder has written about itself.
std::string holder(int file) {
  std::array<char, 300> text{};
  const ssize_t size = pread(file, text.data(), text.size(), 0);
  const std::string line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return line.empty() ? "another process" : line.substr(0, line.find('\n'));
}

void sign(int file) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string text = fmt::format("pid {} on host {}\n", getpid(), host.data());
  // The lock holds even if a full disk keeps the text out.
  if (ftruncate(file, 0) == 0) static_cast<void>(!pwrite(file, text.data(), text.size(), 0));
}

}  // namespace

RunLock::RunLock(const fs::path& directory, std::chrono::milliseconds patience) {
  using namespace std::chrono_literals;
  refuse_links_outside(directory);
  const fs::path path = directory / kFile;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    base::Descriptor file = base::open_own(path, O_RDWR);
    while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      if (error == EINTR) continue;
      if (error != EWOULDBLOCK)
        throw UsageError(
            fmt::format("{} cannot be locked: {}", path.string(), std::strerror(error)),
            "choose a directory on a file system with locks: --run DIR");
      if (std::chrono::steady_clock::now() >= deadline)
        throw UsageError(
            fmt::format("{} is in use: {} writes to it", directory.string(), holder(file.get())),
            "wait until it has ended, or choose another directory: --run DIR");
      std::this_thread::sleep_for(20ms);
    }
    if (!is_at(file.get(), path)) continue;
    sign(file.get());
    file_ = std::move(file);
    return;
  }
}

void RunLock::require_free(const fs::path& directory) {
  std::error_code error;
  if (fs::exists(directory / kFile, error)) RunLock{directory};
}

bool RunLock::is_held(const fs::path& directory) {
  base::OpenFile file;
  try {
    file = base::find_record(directory / kFile);
  } catch (const DataError&) {  // no writer has opened that either
    return false;
  }
  return file.descriptor && flock(file.descriptor.get(), LOCK_SH | LOCK_NB) != 0 &&
         errno == EWOULDBLOCK;
}

void RunLock::share_with_children() { fcntl(file_.get(), F_SETFD, 0); }

namespace {

[[noreturn]] void cannot_write(const fs::path& file, int error) {
  throw RunError(fmt::format("{} cannot be written: {}", file.string(), std::strerror(error)),
                 error == ENOSPC || error == EDQUOT
                     ? "free some space, or choose another place: --run DIR"
                     : "choose another place: --run DIR");
}

/// Returns whether a folder holds at most the files of a run that was killed before its first
/// record.
bool is_unused(const fs::path& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (const std::string name = entry.path().filename().string();
        name != RunLock::kFile && name != kSignatureFile && !name.starts_with("config.toml.tmp-") &&
        !name.starts_with(std::string(kSignatureFile) + ".tmp-"))
      return false;
  return true;
}

void refuse_what_is_no_run(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  if (!fs::is_directory(path, error))
    throw UsageError(fmt::format("--run {}: a file of that name exists", path.string()),
                     "choose another directory");
  if (!fs::exists(path / "config.toml", error) && !fs::exists(path / "sweep.json", error) &&
      !is_unused(path))
    throw UsageError(
        fmt::format("--run {}: the folder holds files that are not a run", path.string()),
        "choose another directory, or empty it");
}

/// Moves the run at `path` to path.1, path.2, ... and returns its new path.
fs::path move_aside(const fs::path& path) {
  std::error_code error;
  for (int n = 1;; ++n) {
    fs::path to = path;
    to += fmt::format(".{}", n);
    if (fs::exists(to, error)) continue;
    fs::rename(path, to, error);
    if (error) cannot_write(path, error.value());
    return to;
  }
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) cannot_write(path, error.value());
}

/// Removes temporary files of killed writers. The caller holds the lock.
void remove_left_overs(const fs::path& run) {
  base::remove_stale_temporaries(run);
  const fs::path checkpoints = run / "checkpoints";
  base::remove_stale_temporaries(checkpoints);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints, error))
    if (entry.path().extension() == ".tmp") fs::remove_all(entry.path(), error);
}

/// Cuts a file off after `bytes` and appends `more`.
void cut(const fs::path& file, std::uint64_t bytes, const std::string& more = {}) {
  const base::Descriptor own = base::open_own(file, O_WRONLY);
  const auto end = static_cast<off_t>(bytes);
  errno = ENOSPC;  // a short write sets none
  if (ftruncate(own.get(), end) != 0 ||
      pwrite(own.get(), more.data(), more.size(), end) != static_cast<ssize_t>(more.size()))
    cannot_write(file, errno);
}

std::string row_of(const measure::StepRecord& record) {
  const measure::SpanSeconds seconds(record.ticks);
  fmt::memory_buffer row;
  auto out = std::back_inserter(row);
  fmt::format_to(out, "{},{},{:.9f},{:.9f},{:.9f},{},", record.epoch, record.step, seconds.load,
                 seconds.update, seconds.other, record.images);
  if (record.loss) fmt::format_to(out, "{:.9g}", *record.loss);
  for (const double span : seconds.each) fmt::format_to(out, ",{:.9f}", span);
  row.push_back('\n');
  return fmt::to_string(row);
}

/// Returns the file that holds the row of the unfinished step.
fs::path open_row(fs::path steps) { return steps += ".open"; }

/// Reads a complete line, with its newline.
bool next_line(std::istream& in, std::string& line, const fs::path& file) {
  if (!base::read_line(in, line, file) || in.eof()) return false;
  line += '\n';
  return true;
}

/// Reads the next row of a table of steps, which must be the row of `step`.
bool next_row(std::istream& in, std::string& row, const fs::path& file, std::uint64_t step) {
  if (!next_line(in, row, file)) return false;
  const std::size_t comma = row.find(',');
  const std::string wanted = std::to_string(step) + ",";
  return comma != std::string::npos && row.compare(comma + 1, wanted.size(), wanted) == 0;
}

/// Keeps the rows of the first `steps` steps, each of which must be there. The last one may still
/// be in the open row's file.
void cut_steps(const fs::path& file, std::uint64_t steps) {
  std::error_code missing;
  if (steps == 0 && !fs::exists(file, missing)) return;
  if (steps == 0) return cut(file, 0);  // open_steps() writes the header again
  std::ifstream in = base::open_record(file);
  std::string row;
  const bool has_header = next_line(in, row, file);
  std::uint64_t end = row.size();
  for (std::uint64_t step = 1; step <= steps; ++step) {
    if (has_header && next_row(in, row, file, step)) {
      end += row.size();
      continue;
    }
    std::ifstream open = base::open_record(open_row(file));
    if (has_header && step == steps && next_row(open, row, open_row(file), step))
      return cut(file, end, row);
    throw DataError(fmt::format("{}: the row of step {} is missing, the checkpoint is of step {}",
                                file.string(), step, steps),
                    "the file was changed since; start a new run from the checkpoint's weights: "
                    "model.weights=FILE");
  }
  cut(file, end);
}

/// Keeps the lines before the first whose "step" is `end` or later, and returns their number.
std::uint64_t cut_lines(const fs::path& file, std::uint64_t end) {
  std::error_code missing;
  if (!fs::exists(file, missing)) return 0;
  std::ifstream in = base::open_record(file);
  std::uint64_t kept = 0;
  std::uint64_t number = 1;
  // An incomplete last line is of a run that was killed while writing it.
  for (std::string text; next_line(in, text, file); ++number) {
    const auto line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) break;
    const auto step = line.find("step");
    if (step != line.end() && !step->is_number_unsigned())
      throw DataError(
          fmt::format("{}:{} is damaged: \"step\" is not a whole number", file.string(), number),
          "the file was changed since the run wrote it: restore it from a copy, or "
          "remove that line");
    if (step != line.end() && step->get<std::uint64_t>() >= end) break;
    kept += text.size();
  }
  cut(file, kept);
  return number - 1;
}

}  // namespace

void write_file(const fs::path& file, const std::string& text) {
  base::AtomicFile whole(file);
  whole.write(std::as_bytes(std::span(text)));
  whole.commit();
}

void write_derived_file(const fs::path& file, const std::string& text) {
  base::AtomicFile whole(file);
  whole.write(std::as_bytes(std::span(text)));
  whole.replace();
}

std::string to_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

fs::path make_run_folder(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  const std::string base = fmt::format("runs/{}-{}", name, stamp);
  make_folder("runs");
  std::error_code error;
  fs::path path = base;
  for (int n = 2; !fs::create_directory(path, error); ++n) {
    if (error) cannot_write(path, error.value());
    path = fmt::format("{}-{}", base, n);
  }
  return path;
}

RunDirectory::RunDirectory(fs::path path, const std::string& config_toml) : path_(std::move(path)) {
  while (path_.has_relative_path() && !path_.has_filename()) path_ = path_.parent_path();
  refuse_what_is_no_run(path_);
  make_folder(path_);
  lock_.emplace(path_);
  remove_left_overs(path_);
  if (!is_unused(path_)) {
    moved_aside_ = move_aside(path_);
    make_folder(path_);
    // Holds the earlier run's lock until the new one is taken, so that no other process gets in
    // between.
    lock_ = RunLock(path_);
  }
  write_signed(path_, "config.toml", config_toml);
}

void RunDirectory::check(const fs::path& path) {
  refuse_what_is_no_run(path);
  RunLock::require_free(path);
}

RunDirectory RunDirectory::resume(fs::path path, const std::string& config_toml, std::uint64_t step,
                                  bool epoch_open, RunLock lock) {
  RunDirectory directory;
  directory.path_ = std::move(path);
  directory.lock_ = std::move(lock);
  remove_left_overs(directory.path_);
  cut_steps(directory.path_ / directory.steps_name_, step);
  cut_lines(directory.path_ / "metrics.jsonl", epoch_open ? step : step + 1);
  directory.quarantined_ = cut_lines(directory.path_ / directory.quarantine_name_, step + 1);
  std::error_code error;
  fs::remove(directory.path_ / "summary.json", error);
  if (error) cannot_write(directory.path_ / "summary.json", error.value());
  write_signed(directory.path_, "config.toml", config_toml);
  directory.open_steps();
  return directory;
}

RunDirectory RunDirectory::of_rank(fs::path path, int rank, std::uint64_t step) {
  RunDirectory directory;
  directory.path_ = std::move(path);
  directory.steps_name_ = fmt::format("steps.rank{}.csv", rank);
  directory.quarantine_name_ = fmt::format("quarantine.rank{}.jsonl", rank);
  make_folder(directory.path_);  // other hosts may have another disk
  cut_steps(directory.path_ / directory.steps_name_, step);
  directory.quarantined_ = cut_lines(directory.path_ / directory.quarantine_name_, step + 1);
  directory.open_steps();
  return directory;
}

RunDirectory::File RunDirectory::open(const std::string& name) const {
  const fs::path file = path_ / name;
  base::Descriptor own = base::open_own(file, O_WRONLY | O_APPEND);
  File opened(fdopen(own.get(), "a"));
  if (opened == nullptr) cannot_write(file, errno);
  static_cast<void>(own.release());
  return opened;
}

void RunDirectory::write(File& file, const std::string& name, const std::string& text, bool flush) {
  errno = 0;
  const bool good = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                    (!flush || std::fflush(file.get()) == 0);
  if (!good) cannot_write(path_ / name, errno);
}

void RunDirectory::open_steps() {
  if (steps_ != nullptr) return;
  steps_ = open(steps_name_);
  if (fs::file_size(path_ / steps_name_) > 0) return;
  std::string header = "epoch,step,load_s,update_s,other_s,images,loss";
  // A span shares its name with the step number's column, and columns need distinct names.
  for (const auto name : measure::kSpanNames)
    header += fmt::format(",{}", name == "step" ? "step_s" : name);
  write(steps_, steps_name_, header + "\n", false);
}

void RunDirectory::step(const measure::StepRecord& record) {
  open_steps();
  const auto now = std::chrono::steady_clock::now();
  const bool flush = now - flushed_ > std::chrono::seconds(1);
  if (flush) flushed_ = now;
  write(steps_, steps_name_, row_of(record), flush);
}

void RunDirectory::open_step(const measure::StepRecord& record) { begin_open_step(record)(); }

std::function<void()> RunDirectory::begin_open_step(const measure::StepRecord& record) {
  open_steps();
  write(steps_, steps_name_, "", /*flush=*/true);
  return [file = fileno(steps_.get()), path = path_ / steps_name_, row = row_of(record)] {
    if (fdatasync(file) != 0) cannot_write(path, errno);
    write_file(open_row(path), row);
  };
}

void RunDirectory::epoch(const nlohmann::ordered_json& line) {
  if (metrics_ == nullptr) metrics_ = open("metrics.jsonl");
  write(metrics_, "metrics.jsonl", to_text(line) + "\n", true);
}

void RunDirectory::quarantine(const nlohmann::ordered_json& line) {
  const std::lock_guard lock(*quarantining_);
  if (quarantine_ == nullptr) quarantine_ = open(quarantine_name_);
  write(quarantine_, quarantine_name_, to_text(line) + "\n", true);
}

void RunDirectory::close() {
  open_steps();  // a run without steps has a table without rows
  write(steps_, steps_name_, "", true);
  steps_.reset();
}

void RunDirectory::summary(const nlohmann::ordered_json& summary) {
  write_file(path_ / "summary.json", to_text(summary, 2) + "\n");
}

}  // namespace millrace::study
