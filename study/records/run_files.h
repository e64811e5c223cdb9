// A run's JSON files, read to be shown: what is missing is missing, what cannot be parsed is an
// error.
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

/// Null where there is no such file; throws DataError where it holds no JSON object.
nlohmann::ordered_json read_json(const std::filesystem::path& file);

/// One object a line; none where there is no such file. Throws DataError with the line. `cut`: the
/// last line was not written to its end, and is left out.
std::vector<nlohmann::ordered_json> read_json_lines(const std::filesystem::path& file, bool& cut);

/// The number at a path of keys; NaN where there is none.
double number_at(const nlohmann::ordered_json& json, std::initializer_list<const char*> keys);
/// The text there, or a number or true/false as text; empty where there is none.
std::string text_at(const nlohmann::ordered_json& json, std::initializer_list<const char*> keys);

}  // namespace millrace::study
