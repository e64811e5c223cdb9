// Writes checkpoints atomically and beside the training, and finds them again.
#include "strategies/trainer/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "millrace/error.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "checkpoints";
constexpr const char* kPrefix = "step-";
constexpr const char* kLast = "last";
constexpr const char* kBest = "best";

[[noreturn]] void cannot_write(const fs::path& path, int error) {
  throw RunError(
      path.string() + " cannot be written: " + std::strerror(error),
      "make room or choose another place (--run DIR); earlier checkpoints are untouched");
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || fsync(fd) != 0) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    cannot_write(folder, error);
  }
  ::close(fd);
}

/// Makes or replaces a symbolic link atomically.
void point(const fs::path& link, const std::string& to) {
  fs::path temporary = link;
  temporary += ".tmp";
  std::error_code error;
  fs::remove(temporary, error);
  if (::symlink(to.c_str(), temporary.c_str()) != 0 ||
      ::rename(temporary.c_str(), link.c_str()) != 0)
    cannot_write(link, errno);
}

/// Returns the step in the name of a checkpoint's folder; 0 for any other name.
std::uint64_t step_of(const std::string& name) {
  std::uint64_t step = 0;
  if (!name.starts_with(kPrefix)) return 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + std::strlen(kPrefix), end, step);
  return error == std::errc() && stop == end ? step : 0;
}

/// Moves a folder to its place atomically, replacing an existing one.
void put_in_place(const fs::path& temporary, const fs::path& final) {
  std::error_code error;
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(temporary, error);  // the replaced folder
    return;
  }
  if (errno != ENOENT) fs::remove_all(final, error);  // the file system cannot exchange folders
  if (::rename(temporary.c_str(), final.c_str()) != 0) cannot_write(final, errno);
}

/// Returns the steps of all checkpoints, newest first.
std::vector<std::uint64_t> steps_in(const fs::path& folder) {
  std::error_code error;
  std::vector<std::uint64_t> steps;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (const std::uint64_t step = step_of(entry.path().filename().string()); step > 0)
      steps.push_back(step);
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

std::string name_of(std::uint64_t step) { return kPrefix + std::to_string(step); }

void remove_old(const fs::path& folder, int keep) {
  std::error_code error;
  const std::string best = fs::read_symlink(folder / kBest, error).string();
  const std::vector<std::uint64_t> steps = steps_in(folder);
  for (std::size_t i = static_cast<std::size_t>(keep); i < steps.size(); ++i)
    if (const std::string name = name_of(steps[i]); name != best)
      fs::remove_all(folder / name, error);
}

}  // namespace

fs::path write_checkpoint(const fs::path& run, std::uint64_t step, const CheckpointOptions& options,
                          const std::function<void(const fs::path&)>& write) {
  const fs::path folder = run / kFolder;
  const std::string name = name_of(step);
  const fs::path temporary = folder / (name + ".tmp");
  fs::path final = folder / name;
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::create_directories(temporary, error);
  if (error) cannot_write(temporary, error.value());
  try {
    write(temporary);
    sync_folder(temporary);
    put_in_place(temporary, final);
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
  point(folder / kLast, name);
  if (options.best) point(folder / kBest, name);
  sync_folder(folder);
  remove_old(folder, options.keep);
  return final;
}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::start(std::function<void()> write) {
  ended_.store(false, std::memory_order_relaxed);
  try {
    thread_ = std::thread([this, write] { run(write); });
  } catch (const std::system_error&) {  // the limit of threads
    run(write);
  }
}

void CheckpointWriter::run(const std::function<void()>& write) noexcept {
  const std::int64_t begin = base::Clock::steady_ns();
  try {
    write();
    ++writes_;
  } catch (...) {
    failure_ = std::current_exception();
  }
  seconds_ += static_cast<double>(base::Clock::steady_ns() - begin) * 1e-9;
  ended_.store(true, std::memory_order_release);
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void CheckpointWriter::check() {
  if (ended_.load(std::memory_order_acquire)) wait();
}

std::vector<fs::path> checkpoints_of(const fs::path& run) {
  std::error_code error;
  std::vector<fs::path> all;
  for (const std::uint64_t step : steps_in(run / kFolder))
    all.push_back(fs::canonical(run / kFolder / name_of(step), error));
  return all;
}

fs::path last_checkpoint(const fs::path& run) {
  std::error_code error;
  fs::path last = fs::canonical(run / kFolder / kLast, error);
  if (!error) return last;
  // The run was killed before it pointed at its first checkpoint, or was copied without links.
  const std::vector<fs::path> all = checkpoints_of(run);
  return all.empty() ? fs::path() : all.front();
}

fs::path find_weights(const fs::path& what) {
  std::error_code ignored;
  if (!fs::exists(what, ignored))
    throw DataError(what.string() + " does not exist",
                    "give a run directory, a checkpoint's folder or a .safetensors file");
  if (fs::is_regular_file(what, ignored)) return what;
  for (const fs::path& folder : {what, last_checkpoint(what)})
    for (const char* name : {"ema.safetensors", "model.safetensors"})
      if (!folder.empty() && fs::is_regular_file(folder / name, ignored)) return folder / name;
  throw DataError(
      what.string() + " holds no checkpoint",
      "a run writes checkpoints/last/model.safetensors after each epoch; was it killed before?");
}

fs::path find_config(const fs::path& what) {
  std::error_code ignored;
  const fs::path start = fs::canonical(what, ignored);
  for (fs::path folder = start; folder.has_relative_path(); folder = folder.parent_path())
    if (fs::is_regular_file(folder / "config.toml", ignored)) return folder / "config.toml";
  throw DataError(
      what.string() + ": no config.toml beside it or above it",
      "give the recipe that it was trained with: model.weights=FILE in `millrace train`");
}

}  // namespace millrace::train
