// Rows of a manifest, parsed from text in memory: CSV with a header (RFC 4180), or one JSON object
// per line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::pipeline {

struct ManifestRow {
  std::string path;
  std::string label;       ///< as written; a JSON number gives its digits
  std::string split;       ///< empty if there is no such column
  std::string target;      ///< a JSON value; empty if there is none
  std::string mask;        ///< path of its mask; empty if there is none
  std::uint64_t line = 0;  ///< line number, from 1
};

struct ManifestRows {
  std::vector<ManifestRow> rows;
  bool has_split = false;
};

/// Parses CSV with the columns path and label, and optionally split, target and, if `masks` is not
/// empty, that one, in any order; ignores other columns. A manifest with targets or masks may lack
/// labels. Throws DataError with `file`:line for a missing column, a row of another length, an
/// unclosed quote or a target that is not JSON.
ManifestRows parse_csv(const std::string& file, std::string_view text,
                       const std::string& masks = {});

/// Parses {"path": ..., "label": ..., "split": ..., "target": ...} per line, and `masks` if it is
/// not empty; ignores other keys and empty lines. Throws DataError with `file`:line.
ManifestRows parse_jsonl(const std::string& file, std::string_view text,
                         const std::string& masks = {});

/// Throws DataError with `file`:line.
[[noreturn]] void reject_row(const std::string& file, std::uint64_t line, const std::string& reason,
                             const char* hint);

}  // namespace millrace::pipeline
