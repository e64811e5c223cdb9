// Reads a run's JSON files for display: missing values are reported as missing, malformed files are
// errors.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace millrace::study {

/// Parses a stream's JSON and drops what is nested deeper than any of our records. Returns a
/// discarded value for malformed JSON.
nlohmann::ordered_json parse_json(std::istream& in);

/// Reads a JSON object. Returns null if there is no such file; throws DataError if it holds
/// anything else.
nlohmann::ordered_json read_json(const std::filesystem::path& file);

/// Reads one object per line. Returns nothing if there is no such file. Throws DataError with the
/// line number. Sets `cut` if the last line is incomplete, and leaves it out.
std::vector<nlohmann::ordered_json> read_json_lines(const std::filesystem::path& file, bool& cut);

/// Returns the number at a path of keys; NaN if there is none.
double number_at(const nlohmann::ordered_json& json, std::initializer_list<const char*> keys);
/// Returns the string at a path of keys, or a number or boolean as text; empty if there is none.
std::string text_at(const nlohmann::ordered_json& json, std::initializer_list<const char*> keys);

}  // namespace millrace::study
