// Follows links of run directories.

#include "study/records/run_links.h"

#include <fmt/format.h>

#include <string>
#include <system_error>
#include <utility>

#include "millrace/error.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

/// Folders that writers descend into, and the levels below them.
constexpr std::pair<const char*, int> kWritten[] = {
    {"checkpoints", 0},  // step-N, last, best
    {"report", 0},       // CSV files
    {"runs", 1},         // NAME.json, NAME.log, NAME/*
    {"blocks", 4},       // NNNN/attempt-N/runs/NAME/*
};
constexpr const char* kData = "data";

bool is_below(const fs::path& path, const fs::path& directory) {
  return (path / "").string().starts_with((directory / "").string());
}

void refuse_links_in(const fs::path& folder, int levels, const fs::path& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const bool is_link = entry->is_symlink(ignored);
    if (is_link) refuse_link_outside(entry->path(), directory);
    if (!is_link && levels > 0 && entry->is_directory(ignored))
      refuse_links_in(entry->path(), levels - 1, directory);
  }
}

}  // namespace

void refuse_link_outside(const fs::path& entry, const fs::path& directory) {
  std::error_code error;
  if (!fs::is_symlink(entry, error)) return;
  const fs::path to = fs::weakly_canonical(entry, error);
  if (!error && is_below(to, fs::weakly_canonical(directory, error)) && !error) return;
  std::error_code ignored;
  throw UsageError(fmt::format("{} is a link to {}, outside the run", entry.string(),
                               fs::read_symlink(entry, ignored).string()),
                   "a run is written below its own directory only: remove the link, or put in its "
                   "place what it leads to");
}

void refuse_links_outside(const fs::path& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().filename() != kData) refuse_link_outside(entry->path(), directory);
  for (const auto& [name, levels] : kWritten) refuse_links_in(directory / name, levels, directory);
}

}  // namespace millrace::study
