// Records and compares the archives of a run's data sets.
#include "tools/training/archives.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/folder.h"
#include "base/number_text.h"
#include "base/open_file.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/remote/sha256.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kArchivesFile = "archives.json";

bool is_known(const ArchiveInfo& archive) {
  return std::any_of(archive.sha256.begin(), archive.sha256.end(),
                     [](std::uint8_t byte) { return byte != 0; });
}

std::string fingerprint_of(const ArchiveInfo& archive) {
  return fmt::format("{:016x}", archive.fingerprint);
}

/// Returns the hash as it is recorded; empty if it is not known.
std::string hash_of(const ArchiveInfo& archive) {
  return is_known(archive) ? pipeline::hex_of(archive.sha256) : std::string();
}

/// Returns the hash of an archive that no index says; empty if it cannot be read, as where another
/// process removes it from the cache of a remote set.
std::string hash_in_file(const ArchiveInfo& archive) {
  if (!base::exists(archive.file)) return {};
  try {
    const base::OpenFile open = base::open_regular(archive.file);
    return pipeline::hex_of(pipeline::sha256_of_file(open.descriptor.get(), archive.file));
  } catch (const DataError&) {
    return {};
  }
}

[[noreturn]] void refuse(const fs::path& run, const DatasetInfo& set, const std::string& what) {
  throw UsageError(
      fmt::format("--resume: {}: {} (see {})", set.path, what, (run / kArchivesFile).string()),
      "restore the archives, or start a new run from the weights: "
      "model.weights=DIR/checkpoints/last/model.safetensors");
}

}  // namespace

void record_archives(const fs::path& run, const std::vector<DatasetInfo>& sets) {
  std::error_code error;
  if (fs::exists(run / kArchivesFile, error)) return;
  Json json = Json::object();
  for (const DatasetInfo& set : sets)
    for (const ArchiveInfo& archive : set.archives) {
      Json one{{"name", base::printable(archive.name)}, {"fingerprint", fingerprint_of(archive)}};
      if (is_known(archive)) {
        one["sha256"] = hash_of(archive);
      } else if (!archive.version.empty()) {
        one["url"] = base::printable(archive.url);
        one["version"] = base::printable(archive.version);
      }
      json[set.split].push_back(std::move(one));
    }
  if (!json.empty()) study::write_file(run / kArchivesFile, study::to_text(json, 1) + "\n");
}

void check_archives(const fs::path& run, const DatasetInfo& set, bool hash) {
  if (set.archives.empty()) return;
  const Json json = study::read_json(run / kArchivesFile);
  if (!json.is_object() || !json.contains(set.split) || !json[set.split].is_array()) return;
  const Json& before = json[set.split];
  const std::size_t both = std::min(before.size(), set.archives.size());
  bool said = false;
  for (std::size_t i = 0; i < both; ++i) {
    const ArchiveInfo& now = set.archives[i];
    const std::string name = base::printable(now.name);
    const std::string old_name = study::text_at(before[i], {"name"});
    if (name != old_name)
      refuse(run, set, fmt::format("archive {} is {}, but the run read {}", i + 1, name, old_name));
    if (fingerprint_of(now) != study::text_at(before[i], {"fingerprint"}))
      refuse(run, set, fmt::format("the samples of {} are not those that the run read", name));
    // A copy elsewhere has a version of its own.
    const std::string version = study::text_at(before[i], {"version"});
    if (!version.empty() && !now.version.empty() && version != base::printable(now.version) &&
        study::text_at(before[i], {"url"}) == base::printable(now.url))
      refuse(run, set,
             fmt::format("the ETag or modification time of {} has changed since the run read it",
                         name));
    const std::string recorded = study::text_at(before[i], {"sha256"});
    if (recorded.empty() || (!is_known(now) && !hash)) continue;
    if (!is_known(now) && !std::exchange(said, true))
      say(
          fmt::format("{}: reading archives to compare them with the run's, as they have no index "
                      "that fits (millrace data index writes one)",
                      set.path));
    const std::string here = is_known(now) ? hash_of(now) : hash_in_file(now);
    if (!here.empty() && here != recorded)
      refuse(run, set, fmt::format("the SHA-256 of {} has changed since the run read it", name));
  }
  if (before.size() != set.archives.size())
    refuse(run, set,
           fmt::format("the set has {}, but the run read {}",
                       base::counted(set.archives.size(), "archive"), before.size()));
}

}  // namespace millrace::tools
