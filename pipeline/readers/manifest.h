// Manifests: a table of paths and labels, CSV or JSONL. The images are files of their own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/reader.h"

namespace millrace::pipeline {

/// The manifest files that `path` means: the file itself, or, in a folder, those that are called
/// by a split (train.csv, test.jsonl, ...), or else manifest.csv or manifest.jsonl. Empty: none.
std::vector<std::string> find_manifests(const std::string& path);

std::unique_ptr<Reader> open_manifest(const DataOptions& options);

}  // namespace millrace::pipeline
