#include "strategies/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "pipeline/error.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

fs::path write_checkpoint(const fs::path& run, std::uint64_t step,
                          const std::function<void(const fs::path&)>& write) {
  const fs::path folder = run / "checkpoints";
  const std::string name = "step-" + std::to_string(step);
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
  const fs::path link = folder / "last.tmp";
  fs::remove(link, error);
  if (::symlink(name.c_str(), link.c_str()) != 0 ||
      ::rename(link.c_str(), (folder / "last").c_str()) != 0)
    cannot_write(folder / "last", errno);
  sync_folder(folder);
  return final;
}

fs::path find_weights(const fs::path& what) {
  std::error_code ignored;
  if (!fs::exists(what, ignored))
    throw DataError(what.string() + " does not exist",
                    "give a run directory, a checkpoint's folder or a .safetensors file");
  if (fs::is_regular_file(what, ignored)) return what;
  for (const fs::path& file :
       {what / "model.safetensors", what / "checkpoints/last/model.safetensors"})
    if (fs::is_regular_file(file, ignored)) return file;
  throw DataError(
      what.string() + " holds no checkpoint",
      "a run writes checkpoints/last/model.safetensors at its end; was it killed before?");
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
