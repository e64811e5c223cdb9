// Manifests: tables of paths and labels, CSV or JSONL. The images are separate files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/private_api.h"
#include "millrace/reader.h"

namespace millrace::pipeline {

/// Returns the manifest files that `path` means: the file itself; in a folder, those named after a
/// split (train.csv, test.jsonl, ...), otherwise manifest.csv or manifest.jsonl. Returns an empty
/// list if there are none.
MILLRACE_PRIVATE_API std::vector<std::string> find_manifests(const std::string& path);

std::unique_ptr<Reader> open_manifest(const DataOptions& options);

}  // namespace millrace::pipeline
