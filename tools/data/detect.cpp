#include "tools/data/detect.h"

#include "millrace/error.h"
#include "pipeline/readers/cifar.h"
#include "pipeline/readers/files.h"
#include "pipeline/readers/idx.h"
#include "pipeline/readers/manifest.h"
#include "pipeline/readers/tar_files.h"

namespace millrace {
namespace {

bool has_tars(const std::string& path) {
  try {
    find_tars(path, "train");
    return true;
  } catch (const MissingSplit&) {
    return true;
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace

std::string detect_reader(const std::string& path) {
  if (path.ends_with(".tar")) return "tar";
  if (path.ends_with(".csv") || path.ends_with(".jsonl") || path.ends_with(".ndjson"))
    return "manifest";
  for (const char* split : {"train", "test"}) {
    const IdxPaths idx = find_idx(path, split);
    if (!idx.images.empty() || !idx.labels.empty()) return "idx";
    if (find_cifar(path, split).layout != nullptr) return "cifar";
  }
  if (!is_folder(path)) return "folder";
  if (!find_manifests(path).empty()) return "manifest";
  return has_tars(path) ? "tar" : "folder";
}

}  // namespace millrace
