// Recognises data sets by the names of their files.
#include "tools/data/detect.h"

#include "base/files.h"
#include "millrace/error.h"
#include "pipeline/readers/cifar.h"
#include "pipeline/readers/idx.h"
#include "pipeline/readers/manifest.h"
#include "pipeline/readers/tar.h"
#include "pipeline/remote/url.h"

namespace millrace::tools {
namespace {

bool has_tars(const std::string& path) {
  try {
    pipeline::find_tars(path, "train");
    return true;
  } catch (const pipeline::MissingSplit&) {
    return true;
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace

std::string detect_reader(const std::string& path) {
  if (pipeline::is_remote(path)) return "tar";
  if (path.ends_with(".tar")) return "tar";
  if (path.ends_with(".csv") || path.ends_with(".jsonl") || path.ends_with(".ndjson"))
    return "manifest";
  for (const char* split : {"train", "test"}) {
    const pipeline::IdxPaths idx = pipeline::find_idx(path, split);
    if (!idx.images.empty() || !idx.labels.empty()) return "idx";
    if (pipeline::find_cifar(path, split).layout != nullptr) return "cifar";
  }
  if (!base::is_folder(path)) return "folder";
  if (!pipeline::find_manifests(path).empty()) return "manifest";
  return has_tars(path) ? "tar" : "folder";
}

}  // namespace millrace::tools
