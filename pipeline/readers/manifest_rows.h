// The rows of a manifest, from text in memory: CSV with a header (RFC 4180) or a JSON object a
// line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::pipeline {

struct ManifestRow {
  std::string path;
  std::string label;       ///< as it stands there; a JSON number is its digits
  std::string split;       ///< empty where there is no such column
  std::uint64_t line = 0;  ///< from 1
};

struct ManifestRows {
  std::vector<ManifestRow> rows;
  bool has_split = false;
};

/// Columns path and label, and perhaps split, in any order; others are passed over. Throws
/// DataError with `file`:line for a column that is missing, rows of another length, quotes that
/// don't close.
ManifestRows parse_csv(const std::string& file, std::string_view text);

/// {"path": ..., "label": ..., "split": ...} a line; other keys are passed over, and so are empty
/// lines. Throws DataError with `file`:line.
ManifestRows parse_jsonl(const std::string& file, std::string_view text);

}  // namespace millrace::pipeline
