#include "strategies/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "pipeline/error.h"

namespace millrace {
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

/// Makes or moves a symbolic link, at no moment leaving none.
void point(const fs::path& link, const std::string& to) {
  fs::path temporary = link;
  temporary += ".tmp";
  std::error_code error;
  fs::remove(temporary, error);
  if (::symlink(to.c_str(), temporary.c_str()) != 0 ||
      ::rename(temporary.c_str(), link.c_str()) != 0)
    cannot_write(link, errno);
}

/// The step of a checkpoint's folder; 0 for any other name.
std::uint64_t step_of(const std::string& name) {
  std::uint64_t step = 0;
  if (!name.starts_with(kPrefix)) return 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + std::strlen(kPrefix), end, step);
  return error == std::errc() && stop == end ? step : 0;
}

void remove_old(const fs::path& folder, int keep) {
  std::error_code error;
  const std::string best = fs::read_symlink(folder / kBest, error).string();
  std::vector<std::uint64_t> steps;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (const std::uint64_t step = step_of(entry.path().filename().string()); step > 0)
      steps.push_back(step);
  std::sort(steps.begin(), steps.end(), std::greater<>());
  for (std::size_t i = static_cast<std::size_t>(keep); i < steps.size(); ++i) {
    const std::string name = kPrefix + std::to_string(steps[i]);
    if (name != best) fs::remove_all(folder / name, error);
  }
}

}  // namespace

fs::path write_checkpoint(const fs::path& run, std::uint64_t step, const CheckpointOptions& options,
                          const std::function<void(const fs::path&)>& write) {
  const fs::path folder = run / kFolder;
  const std::string name = kPrefix + std::to_string(step);
  const fs::path temporary = folder / (name + ".tmp");
  const fs::path final = folder / name;
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::create_directories(temporary, error);
  if (error) cannot_write(temporary, error.value());
  try {
    write(temporary);
    sync_folder(temporary);
    fs::remove_all(final, error);
    if (::rename(temporary.c_str(), final.c_str()) != 0) cannot_write(final, errno);
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

fs::path last_checkpoint(const fs::path& run) {
  std::error_code ignored;
  const fs::path folder = fs::canonical(run / kFolder / kLast, ignored);
  return ignored ? fs::path() : folder;
}

fs::path find_weights(const fs::path& what) {
  std::error_code ignored;
  if (!fs::exists(what, ignored))
    throw DataError(what.string() + " does not exist",
                    "give a run directory, a checkpoint's folder or a .safetensors file");
  if (fs::is_regular_file(what, ignored)) return what;
  for (const fs::path& file :
       {what / "ema.safetensors", what / "model.safetensors",
        what / "checkpoints/last/ema.safetensors", what / "checkpoints/last/model.safetensors"})
    if (fs::is_regular_file(file, ignored)) return file;
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

}  // namespace millrace
