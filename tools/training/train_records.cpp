// Formats results as JSON and text.
#include "tools/training/train_records.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/printable.h"
#include "base/simd.h"
#include "study/analysis/bound.h"
#include "study/records/run_directory.h"
#include "tools/terminal/console.h"
#include "tools/training/pipeline_setup.h"
#include "tools/training/strategy_setup.h"
#include "tools/version.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

/// With more classes the matrix would dominate the summary.
constexpr std::size_t kMaxClassesInConfusion = 100;

/// Returns null for NaN and infinity, which JSON lacks.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json span_json(const pipeline::SpanSeconds& seconds) {
  Json spans = Json::object();
  for (std::size_t i = 0; i < pipeline::kSpanCount; ++i)
    spans[std::string(pipeline::kSpanNames[i])] = seconds.each[i];
  return spans;
}

double part(std::uint64_t count, std::uint64_t of) {
  return of > 0 ? static_cast<double>(count) / static_cast<double>(of) : std::nan("");
}

}  // namespace

double number_in(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_number() ? json[key].get<double>() : std::nan("");
}

std::string threads_text(const LoaderOptions& options) {
  return fmt::format(
      "{} workers{}", options.workers,
      options.io_threads > 0 ? fmt::format(", {} I/O threads", options.io_threads) : "");
}

Json cold_json(const ColdCounts& counts) {
  return {{"proven", counts.proven}, {"resident", counts.resident}};
}

std::uint64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

Json to_json(const train::Evaluation& evaluation, const std::vector<std::string>& classes) {
  Json json;
  json["images"] = evaluation.images;
  json["test_loss"] = number(
      evaluation.images > 0 ? evaluation.loss_sum / static_cast<double>(evaluation.images) : NAN);
  json["top1"] = number(train::top1_of(evaluation));
  json["top5"] = number(part(evaluation.top5, evaluation.images));
  Json per_class = Json::object();
  for (std::size_t i = 0; i < evaluation.samples.size(); ++i)
    per_class[i < classes.size() ? classes[i] : std::to_string(i)] =
        number(part(evaluation.correct[i], evaluation.samples[i]));
  json["per_class"] = std::move(per_class);
  return json;
}

Json epoch_line(const train::EpochRecord& record, const DatasetInfo& dataset) {
  const pipeline::SpanSeconds seconds(record.ticks);
  Json line;
  line["epoch"] = record.epoch;
  line["steps"] = record.steps;
  line["images"] = record.images;
  line["wall_s"] = seconds.total();
  line["load_s"] = seconds.load;
  line["update_s"] = seconds.update;
  line["other_s"] = seconds.other;
  line["spans"] = span_json(seconds);
  line["images_per_s"] =
      number(static_cast<double>(record.new_images) / (seconds.load + seconds.update));
  line["lr"] = record.lr;
  line["train_loss"] = number(record.train_loss);
  if (record.evaluation) {
    const Json evaluation = to_json(*record.evaluation, dataset.classes);
    for (const char* key : {"test_loss", "top1", "top5", "per_class"}) line[key] = evaluation[key];
  }
  return line;
}

std::vector<study::Scalar> epoch_scalars(const Json& line) {
  constexpr std::array<std::array<const char*, 2>, 9> kTags{{{"train_loss", "train/loss"},
                                                             {"lr", "train/lr"},
                                                             {"test_loss", "test/loss"},
                                                             {"top1", "test/top1"},
                                                             {"top5", "test/top5"},
                                                             {"images_per_s", "time/images_per_s"},
                                                             {"load_s", "time/load_s"},
                                                             {"update_s", "time/update_s"},
                                                             {"other_s", "time/other_s"}}};
  std::vector<study::Scalar> scalars;
  const auto add = [&](const std::string& tag, const Json& value) {
    if (value.is_number()) scalars.push_back({tag, value});
  };
  for (const auto& [key, tag] : kTags)
    if (line.contains(key)) add(tag, line[key]);
  for (const auto& [part, seconds] : line["blame"].items()) add("blame/" + part + "_s", seconds);
  return scalars;
}

Json summary_of(const TrainFacts& facts, const train::TrainResult& result) {
  const Recipe& recipe = facts.recipe;
  const pipeline::SpanSeconds seconds(facts.spans);
  const auto steps = static_cast<double>(result.steps - facts.from.steps);
  char host[256] = "";
  gethostname(host, sizeof host - 1);

  Json s;
  s["command"] = "train";
  s["version"] = kVersion;
  s["git"] = kGit;
  s["host"] = host;
  s["cores"] = sysconf(_SC_NPROCESSORS_ONLN);
  s["device"] = facts.device;
  s["world_size"] = facts.options.world;
  s["seed"] = recipe.integer("seed");
  s["recipe"] = recipe.name();
  s["dataset"] = {{"reader", facts.dataset.reader},
                  {"path", facts.dataset.path},
                  {"split", facts.dataset.split},
                  {"samples", facts.dataset.count},
                  {"classes", facts.dataset.classes.size()},
                  {"fingerprint", fmt::format("{:016x}", facts.dataset.fingerprint)}};
  s["plugins"] = plugins_json();
  s["model"] = facts.parameters > 0 ? Json(recipe.text("model.name")) : Json(nullptr);
  s["ops"] = facts.parameters > 0 ? Json(recipe.text("model.ops")) : Json(nullptr);
  s["simd"] = base::name_of(base::simd_level());
  s["params"] = facts.parameters;
  s["strategy"] = recipe.text("train.strategy");
  s["workers"] = facts.options.workers;
  s["io_threads"] = facts.options.io_threads;
  s["prefetch"] = recipe.integer("loader.prefetch");
  s["threads"] = facts.threads;
  s["batch"] = facts.options.batch;
  s["accumulate"] = recipe.integer("train.accumulate");
  s["amp"] = recipe.text("train.amp");
  s["epochs"] = result.epochs;
  s["steps"] = result.steps;
  s["images"] = result.images;
  s["rank_images"] = result.rank_images;
  s["failed"] = facts.failed;
  s["interrupted"] = result.interrupted;
  s["resumed_from_step"] = facts.from.steps;
  s["wall_s"] = facts.wall_s;
  s["load_s"] = seconds.load;
  s["update_s"] = seconds.update;
  s["other_s"] = seconds.other;
  s["spans"] = span_json(seconds);
  s["unaccounted_s"] = facts.wall_s - seconds.total();
  s["load_s_per_step"] = number(seconds.load / steps);
  s["update_s_per_step"] = number(seconds.update / steps);
  s["first_batch_s"] = seconds.each[static_cast<std::size_t>(pipeline::Span::first_batch)];
  s["images_per_s"] =
      number(static_cast<double>(result.new_images) / (seconds.load + seconds.update));
  s["train_loss"] = number(result.train_loss);
  const Json evaluation =
      result.evaluation ? to_json(*result.evaluation, facts.dataset.classes) : Json();
  for (const char* key : {"test_loss", "top1", "top5", "per_class"})
    s[key] = evaluation.is_object() ? evaluation[key] : Json(nullptr);
  s["confusion"] = nullptr;
  if (result.evaluation && !result.evaluation->confusion.empty() &&
      result.evaluation->confusion.size() <= kMaxClassesInConfusion)
    s["confusion"] = result.evaluation->confusion;
  s["parameters_hash"] =
      facts.parameters_hash.empty() ? Json(nullptr) : Json(facts.parameters_hash);
  if (!facts.batch_hash.empty()) s["batch_hash"] = facts.batch_hash;
  s["peak_rss_bytes"] = peak_rss_bytes();
  s["peak_device_bytes"] = facts.peak_device_bytes;
  s["clock"] = recipe.text("train.clock");
  if (facts.utilization) {
    s["gpu_utilization"] = facts.utilization->gpu;
    s["gpu_memory_utilization"] = facts.utilization->memory;
  }
  if (facts.device_time) {
    const train::DeviceTime& time = *facts.device_time;
    s["inflight"] = recipe.integer("train.inflight");
    s["device_busy_s"] = base::Clock::seconds(time.busy);
    s["device_gap_load_s"] = base::Clock::seconds(time.gap_load());
    s["device_gap_other_s"] = base::Clock::seconds(time.gap_other());
    s["device_gaps"] = span_json(pipeline::SpanSeconds(time.gaps));
  }
  if (recipe.text("data.cache") == "cold") s["cold"] = cold_json(facts.loader.cold);
  const study::BoundVerdict verdict = study::judge(study::bound_figures(
      facts.blame, facts.loader, facts.options, cores(), seconds.update, result.new_images));
  s["bound"] = study::name_of(verdict.bound);
  s["verdict"] = verdict.sentence;
  s["workers_needed"] = number(verdict.workers_needed);
  s["blame"] = study::to_json(facts.blame.seconds());
  s["blame_step"] = study::step_json(facts.blame);
  s["loader_mode"] = recipe.text("loader.mode");
  s["loader_cpu_s"] = {{"read", facts.loader.read.cpu_s},
                       {"decode", facts.loader.decode.cpu_s},
                       {"augment", facts.loader.augment.cpu_s},
                       {"machinery", facts.loader.machinery_cpu_s}};
  return s;
}

void add_ranks(Json& s, const train::RankInfo& rank, train::Strategy& strategy) {
  const Json mine{{"rank", rank.rank},
                  {"host", s["host"]},
                  {"pid", getpid()},
                  {"images", s["rank_images"]},
                  {"failed", s["failed"]},
                  {"load_s", s["load_s"]},
                  {"update_s", s["update_s"]},
                  {"blame", s["blame"]},
                  {"verdict", s["verdict"]},
                  {"peer_wait_s", s["spans"]["peer_wait"]},
                  {"peak_rss_bytes", s["peak_rss_bytes"]},
                  {"parameters_hash", s["parameters_hash"]}};
  Json ranks = Json::array();
  for (const std::string& text : strategy.gather(study::to_text(mine)))
    ranks.push_back(Json::parse(text));
  std::uint64_t failed = 0;
  for (const Json& one : ranks) failed += one["failed"].get<std::uint64_t>();
  s["failed"] = failed;
  for (const char* key : {"load_s", "update_s"}) {
    double sum = 0;
    double most = 0;
    for (const Json& one : ranks) {
      const double value = one[key];
      sum += value;
      most = std::max(most, value);
    }
    s[std::string(key) + "_mean"] = sum / static_cast<double>(ranks.size());
    s[std::string(key) + "_max"] = most;
  }
  const std::vector<train::BlamedWait> blamed = strategy.blamed_waits();
  for (std::size_t r = 0; r < blamed.size(); ++r) {
    ranks[r]["blamed_wait_s"] = blamed[r].total();
    ranks[r]["blamed_on"] = {
        {"load", blamed[r].load}, {"update", blamed[r].update}, {"other", blamed[r].other}};
  }
  const auto less = [](const train::BlamedWait& a, const train::BlamedWait& b) {
    return a.total() < b.total();
  };
  s["straggler_rank"] = std::max_element(blamed.begin(), blamed.end(), less) - blamed.begin();
  s["ranks"] = std::move(ranks);
}

std::string closing_table(const Json& s) {
  const double wall = s["wall_s"];
  const double steps = s["steps"].get<double>() - s["resumed_from_step"].get<double>();
  std::vector<std::vector<std::string>> rows{{"", "seconds", "share", "ms per step"}};
  const auto add = [&](const std::string& name, double value) {
    rows.push_back({name, fmt::format("{:.3f}", value), fmt::format("{:.1f}%", 100 * value / wall),
                    steps > 0 ? fmt::format("{:.3f}", 1e3 * value / steps) : "-"});
  };
  for (const char* kind : {"load", "update", "other"}) {
    add(kind, s[std::string(kind) + "_s"]);
    for (std::size_t i = 0; i < pipeline::kSpanCount; ++i) {
      const pipeline::Span span = static_cast<pipeline::Span>(i);
      const std::string of = pipeline::is_load(span)     ? "load"
                             : pipeline::is_update(span) ? "update"
                                                         : "other";
      const double value = s["spans"][std::string(pipeline::kSpanNames[i])];
      if (of == kind && value > 0.0005 * wall)
        add("  " + std::string(pipeline::kSpanNames[i]), value);
    }
    if (std::string_view(kind) != "load") continue;
    for (const auto& [part, value] : s["blame"].items())
      if (value > 0.0005 * wall) add("  wait: " + part, value);
  }
  add("wall", wall);
  std::string text = to_table(rows);
  text += fmt::format(
      "\n{} images in {} steps, {} images/s while training (load + update), "
      "unaccounted {:.4f}% of wall\n",
      with_commas(s["images"]), with_commas(steps),
      s["images_per_s"].is_number() ? with_commas(s["images_per_s"]) : "-",
      100 * s["unaccounted_s"].get<double>() / wall);
  text += s["verdict"].get<std::string>() + "\n";
  if (s["failed"].get<std::uint64_t>() > 0)
    text +=
        fmt::format("{} samples failed: see quarantine.jsonl{}\n", s["failed"].get<std::uint64_t>(),
                    s.contains("ranks") ? " and the other ranks' quarantine.rankR.jsonl" : "");
  if (s["top1"].is_number()) {
    text +=
        fmt::format("test loss {:.4f}, top-1 {:.2f}%, top-5 {:.2f}%\n", number_in(s, "test_loss"),
                    100 * number_in(s, "top1"), 100 * number_in(s, "top5"));
    std::string line = "per class:";
    for (const auto& [name, accuracy] : s["per_class"].items())
      line += accuracy.is_number()
                  ? fmt::format(" {} {:.1f}%", base::printable(name), 100 * accuracy.get<double>())
                  : fmt::format(" {} -", base::printable(name));
    text += line + "\n";
  }
  return text;
}

}  // namespace millrace::tools
