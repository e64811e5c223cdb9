// Rows of a manifest, parsed from text in memory: CSV with a header (RFC 4180), or one JSON object
// per line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/private_api.h"
#include "millrace/reader.h"

namespace millrace::pipeline {

struct ManifestRow {
  std::string path;
  std::string label;       ///< as written; a JSON number gives its digits
  std::string split;       ///< empty if there is no such column
  std::string target;      ///< a JSON value; empty if there is none
  std::uint64_t line = 0;  ///< line number, from 1
};

struct ManifestRows {
  std::vector<ManifestRow> rows;
  bool has_split = false;
};

/// Parses CSV with the columns path and label, and optionally split and target, in any order;
/// ignores other columns. A manifest with targets may lack labels. Throws DataError with
/// `file`:line for a missing column, a row of another length, an unclosed quote or a target that is
/// not JSON.
ManifestRows parse_csv(const std::string& file, std::string_view text);

/// Parses {"path": ..., "label": ..., "split": ..., "target": ...} per line; ignores other keys and
/// empty lines.
/// Throws DataError with `file`:line.
ManifestRows parse_jsonl(const std::string& file, std::string_view text);

// Manifests: tables of paths and labels, CSV or JSONL. The images are separate files.

/// Returns the manifest files that `path` means: the file itself; in a folder, those named after a
/// split (train.csv, test.jsonl, ...), otherwise manifest.csv or manifest.jsonl. Returns an empty
/// list if there are none.
MILLRACE_PRIVATE_API std::vector<std::string> find_manifests(const std::string& path);

std::unique_ptr<Reader> open_manifest(const DataOptions& options);

}  // namespace millrace::pipeline
