// Reads, writes and verifies position.json.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/checksum.h"
#include "base/record_file.h"
#include "base/simd.h"
#include "millrace/error.h"
#include "recipe/recipe_file.h"
#include "strategies/trainer/checkpoint.h"
#include "strategies/trainer/train_choices.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"
#include "study/report/run_facts.h"
#include "tools/terminal/terminal.h"
#include "tools/training/records.h"
#include "tools/training/setup.h"

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
  std::ifstream in = base::open_record(file);
  if (!in) damaged(file, "it cannot be opened");
  Json json = study::parse_json(base::read_record(in, file));
  if (!json.is_object()) damaged(file, "it is not a JSON object");
  if ((json.contains(kFiles) || json.contains(kChecksum)) &&
      study::text_at(json, {kChecksum}) != checksum_of(json))
    damaged(file, "its checksum does not match");
  return json;
}

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// Returns a number that may be NaN, for which JSON has null.
double number_at(const Json& json, const char* key) {
  return json.at(key).is_null() ? kNone : json.at(key).get<double>();
}

/// Returns the state of train.early_stopping, which older checkpoints do not have.
train::EarlyStoppingState stopping_in(const Json& position) {
  if (!position.contains("early_stopping")) return {};
  const Json& saved = position["early_stopping"];
  return {.best = number_at(saved, "best"),
          .best_epoch = saved.at("best_epoch"),
          .last_epoch = saved.at("last_epoch"),
          .stale = saved.at("stale")};
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
            {"closed_images", position.closed_images},
            {"best_top1", position.best_top1},
            {"evaluation_due", position.evaluation_due},
            {"train_loss", position.train_loss},
            {"train_top1", position.train_top1},
            {"train_samples", position.train_counts.samples},
            {"train_correct", position.train_counts.correct},
            {"early_stopping",
             {{"best", position.stopping.best},
              {"best_epoch", position.stopping.best_epoch},
              {"last_epoch", position.stopping.last_epoch},
              {"stale", position.stopping.stale}}},
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
    for (const auto& [name, expected] : json[kFiles].items()) {
      if (!base::is_file_name(name)) damaged(folder / kName, "it names files elsewhere");
      compare(folder / name, expected.is_string() ? expected.get<std::string>() : "");
    }
  try {
    const train::Position position{
        .steps = json.at("steps"),
        .images = json.at("images"),
        .epoch_images = json.at("epoch_images"),
        .closed_images = json.value("closed_images", std::uint64_t{0}),
        .best_top1 = json.at("best_top1"),
        .evaluation_due = json.at("evaluation_due"),
        .train_loss = number_at(json, "train_loss"),
        // Checkpoints of version 0.2.0 have no counts.
        .train_top1 = json.contains("train_top1") ? number_at(json, "train_top1") : kNone,
        .train_counts = {.samples = json.value("train_samples", std::uint64_t{0}),
                         .correct = json.value("train_correct", std::uint64_t{0})},
        .stopping = stopping_in(json)};
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

// Checks that a run may continue, and cuts its records back.
namespace {

namespace fs = std::filesystem;

/// Keys that change how, where or how long the run works. Every other key changes the result.
constexpr std::array kFree{"data.path",
                           "data.masks",
                           "data.cache",
                           "data.index",
                           "data.remote.fetch",
                           "data.remote.cache",
                           "data.remote.cache_bytes",
                           "data.remote.deadline",
                           "data.storage.bandwidth",
                           "data.storage.latency",
                           "data.storage.iops",
                           "loader.workers",
                           "loader.prefetch",
                           "loader.io_threads",
                           "loader.grain",
                           "train.epochs",
                           "train.steps",
                           "train.threads",
                           "train.ranks",
                           "train.clock",
                           "train.inflight",
                           "train.cuda_graphs",
                           "train.cudnn_benchmark",
                           "train.device_parts",
                           "train.log_every",
                           "train.tensorboard",
                           "train.early_stopping.patience",
                           "train.timeout",
                           "train.checkpoints",
                           "train.checkpoint_every",
                           "train.checkpoint_keep",
                           "eval.every",
                           "eval.batch",
                           "plugins.path",
                           "model.weights"};

bool is_free(std::string_view key) {
  return key.starts_with("debug.") || key.starts_with("bench.") ||
         std::find(kFree.begin(), kFree.end(), key) != kFree.end();
}

bool is_whole(const fs::path& checkpoint) {
  try {
    read_position(checkpoint);
    return true;
  } catch (const DataError&) {
    return false;
  }
}

/// Returns advice for a damaged last checkpoint: the commands to continue, or another way.
std::string way_back(const fs::path& run, const fs::path& bad) {
  std::string removed = " " + shell_word(bad.string());
  for (const fs::path& one : train::checkpoints_of(run)) {
    if (one == bad) continue;
    if (is_whole(one))
      return fmt::format(
          "{} is intact: rm -r{} && millrace train --resume --run {} continues from it",
          one.filename().string(), removed, shell_word(run.string()));
    removed += " " + shell_word(one.string());
  }
  return "no other checkpoint is intact: start the run again, without --resume";
}

}  // namespace

Resume::Resume(fs::path run, std::vector<std::string> texts)
    : run_(std::move(run)), texts_(std::move(texts)) {
  if (run_.empty())
    throw UsageError("--resume: which run?", "name its directory: --run DIR --resume");
  if (nothing_at(run_))
    throw UsageError(fmt::format("--resume: {} is not a run's directory", run_.string()),
                     "start the run without --resume first, or give a recipe too");
  if (texts_.empty() || recipe::is_override(texts_[0])) {
    provenance_.emplace(run_ / "config.toml", texts_);
    texts_.insert(texts_.begin(), (run_ / "config.toml").string());
  }
}

void Resume::require_granted(const Recipe& recipe) const {
  if (provenance_) provenance_->check(recipe);
}

void Resume::take_up(bool alone) {
  if (alone) lock_.emplace(run_);
  if (const fs::path folder = train::last_checkpoint(run_); !folder.empty()) {
    checkpoint_ = folder;
    try {
      SavedPosition saved = read_position(folder);
      position_ = saved.position;
      simd_ = std::move(saved.simd);
    } catch (const DataError& error) {
      throw DataError(error.what(), way_back(run_, folder));
    }
  } else {
    say(fmt::format("{} has no checkpoint yet: the run starts from the beginning", run_.string()));
  }
}

bool Resume::nothing_at(const fs::path& run) {
  std::error_code ignored;
  return !fs::is_regular_file(run / "config.toml", ignored);
}

Recipe Resume::checked(Recipe recipe) const {
  const std::vector<std::string> own{(run_ / "config.toml").string()};
  // The run's own plugins are loaded by now.
  const Recipe before = load_recipe(own, pipeline::Plugins::none);
  if (train::ops_of(recipe) == train::ModelOps::automatic)
    recipe.set("model.ops=" + before.text("model.ops"));
  std::string changed;
  for (const Param& key : recipe_keys())
    if (!is_free(key.name) && recipe.at(key.name) != before.at(key.name))
      changed += fmt::format(", {}", key.name);
  // These schedules depend on the total number of epochs.
  const std::string& schedule = before.text("train.schedule");
  if ((schedule == "cosine" || schedule == "onecycle") &&
      recipe.integer("train.epochs") != before.integer("train.epochs"))
    changed += fmt::format(", train.epochs (train.schedule={})", schedule);
  if (recipe.augment() != before.augment()) changed += ", [[augment]]";
  if (recipe.eval_augment() != before.eval_augment()) changed += ", [[eval.augment]]";
  if (!changed.empty())
    throw UsageError(
        fmt::format("--resume: these keys differ from {}: {}", own[0], changed.substr(2)),
        "leave out the recipe and those keys, or start a new run from the weights: "
        "model.weights=DIR/checkpoints/last/model.safetensors");
  return recipe;
}

bool Resume::finished(std::uint64_t steps, std::uint64_t epoch_samples) {
  if (position_.steps < steps || position_.steps == 0) return false;
  if (study::state_of(study::read_summary(run_ / "summary.json")) == "finished") return true;
  if (!position_.epoch_open()) {
    position_.evaluation_due = true;
    // Samples that failed are not among those of the epoch. Older checkpoints do not know.
    position_.epoch_images = position_.closed_images > 0 ? position_.closed_images : epoch_samples;
  }
  return false;
}

study::RunDirectory Resume::open(const Recipe& recipe) {
  if (const auto here = base::name_of(base::simd_level()); !simd_.empty() && simd_ != here)
    say(
        fmt::format("warning: {} was written at SIMD level {}, this is {}: the last bits of the "
                    "losses may differ from an uninterrupted run's",
                    checkpoint_->string(), simd_, here));
  return study::RunDirectory::resume(run_, recipe.to_toml(), position_.steps,
                                     position_.epoch_open(), std::move(lock_).value());
}

}  // namespace millrace::tools
