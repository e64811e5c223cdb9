// Checks what an output folder holds.
#include "tools/data/output_folder.h"

#include <fmt/core.h>

#include <filesystem>
#include <string>
#include <unordered_set>

#include "millrace/error.h"
#include "tools/data/output_file.h"

namespace millrace::tools {

void prepare_folder(const std::string& path, const std::vector<std::string>& names, bool force) {
  namespace fs = std::filesystem;
  if (path.empty()) throw UsageError("no folder given", "name one: millrace data make digits DIR");
  std::error_code error;
  if (const fs::file_status status = fs::status(path, error);
      fs::exists(status) && !fs::is_directory(status))
    throw RunError(fmt::format("{}: already exists and is not a folder", path),
                   "choose another name");
  make_folder(path);
  if (force) return;

  std::unordered_set<std::string> ours;
  for (const std::string& name : names) {
    const fs::path file = name;
    ours.insert(name);
    ours.insert((file.parent_path() / partial_name(file.filename())).string());
  }
  fs::recursive_directory_iterator entry(path, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_directory(unknown)) continue;
    const std::string name = entry->path().lexically_relative(path).string();
    if (!ours.contains(name))
      throw RunError(fmt::format("{}: already holds other files: {}", path, name),
                     "choose an empty or new folder, or use this one with --force");
  }
  if (error)
    throw RunError(fmt::format("{}: cannot be listed: {}", path, error.message()),
                   "check the folder's permissions");
}

}  // namespace millrace::tools
