// Reads, writes and verifies position.json.
#include "tools/training/position_file.h"

#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/simd.h"
#include "millrace/error.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kName = "position.json";
constexpr const char* kFiles = "files";        ///< checksums of the other files, by name
constexpr const char* kChecksum = "checksum";  ///< checksum of the rest of position.json

/// Returns the checksum of JSON text, which stays the same when written and read back.
std::string checksum_of(Json position) {
  position.erase(kChecksum);
  return base::checksum(study::to_text(position));
}

[[noreturn]] void damaged(const fs::path& file, const std::string& how) {
  throw DataError(fmt::format("{} is damaged: {}", file.string(), how),
                  "restore the checkpoint from a copy");
}

/// Returns the whole document, after comparing its own checksum.
Json document_in(const fs::path& folder) {
  const fs::path file = folder / kName;
  std::ifstream in(file, std::ios::binary);
  if (!in) damaged(file, "it cannot be opened");
  Json json = study::parse_json(in);
  if (!json.is_object()) damaged(file, "it is not a JSON object");
  if ((json.contains(kFiles) || json.contains(kChecksum)) &&
      study::text_at(json, {kChecksum}) != checksum_of(json))
    damaged(file, "its checksum does not match");
  return json;
}

void compare(const fs::path& file, const std::string& expected) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) damaged(file, "it is missing");
  if (base::file_checksum(file) != expected)
    damaged(file, "its checksum differs from the one in position.json");
}

}  // namespace

void save_position(const train::Position& position, const fs::path& folder) {
  Json json{{"steps", position.steps},
            {"images", position.images},
            {"epoch_images", position.epoch_images},
            {"best_top1", position.best_top1},
            {"evaluation_due", position.evaluation_due},
            {"train_loss", position.train_loss},
            {"simd", base::name_of(base::simd_level())}};
  json[kFiles] = Json::object();
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file())
      json[kFiles][entry.path().filename().string()] = base::file_checksum(entry.path());
  json[kChecksum] = checksum_of(json);
  study::write_file(folder / kName, study::to_text(json, 2) + "\n");
}

SavedPosition read_position(const fs::path& folder) {
  const Json json = document_in(folder);
  if (json.contains(kFiles))
    for (const auto& [name, expected] : json[kFiles].items())
      compare(folder / name, expected.is_string() ? expected.get<std::string>() : "");
  try {
    const train::Position position{.steps = json.at("steps"),
                                   .images = json.at("images"),
                                   .epoch_images = json.at("epoch_images"),
                                   .best_top1 = json.at("best_top1"),
                                   .evaluation_due = json.at("evaluation_due"),
                                   .train_loss = json.at("train_loss").is_null()
                                                     ? std::numeric_limits<double>::quiet_NaN()
                                                     : json.at("train_loss").get<double>()};
    return {position, json.value("simd", "")};
  } catch (const nlohmann::json::exception&) {
    damaged(folder / kName, "a key is missing or has the wrong type");
  }
}

void check_checksum(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file.parent_path() / kName, error)) return;
  const std::string name = file.filename().string();
  const std::string expected =
      study::text_at(document_in(file.parent_path()), {kFiles, name.c_str()});
  if (!expected.empty()) compare(file, expected);
}

}  // namespace millrace::tools
