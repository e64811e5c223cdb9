// Formats the results of a training run as JSON and text.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/available_cores.h"
#include "base/number_text.h"
#include "base/simd.h"
#include "base/text.h"
#include "pipeline/readers/url.h"
#include "pipeline/remote/fetch.h"
#include "pipeline/setup/choices.h"
#include "strategies/trainer/train_choices.h"
#include "study/analysis/bound.h"
#include "study/analysis/machine.h"
#include "study/records/run_directory.h"
#include "study/report/run_facts.h"
#include "tools/terminal/terminal.h"
#include "tools/training/records.h"
#include "tools/training/setup.h"
#include "tools/version.h"

namespace millrace::tools {

namespace {

using Json = nlohmann::ordered_json;

/// With more classes the matrix would dominate the summary.
constexpr std::size_t kMaxClassesInConfusion = 100;

/// Returns null for NaN and infinity, which JSON lacks.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json span_json(const measure::SpanSeconds& seconds) {
  Json spans = Json::object();
  for (std::size_t i = 0; i < measure::kSpanCount; ++i)
    spans[std::string(measure::kSpanNames[i])] = seconds.each[i];
  return spans;
}

double part(std::uint64_t count, std::uint64_t of) {
  return of > 0 ? static_cast<double>(count) / static_cast<double>(of) : std::nan("");
}

/// Returns null without train.early_stopping.
Json early_stopping_json(const Recipe& recipe, const train::TrainResult& result) {
  const std::string& metric = recipe.text("train.early_stopping.metric");
  if (metric == "off") return nullptr;
  return {{"metric", metric},
          {"patience", recipe.integer("train.early_stopping.patience")},
          {"min_delta", recipe.number("train.early_stopping.min_delta")},
          {"stopped", result.stopped_early},
          {"last_epoch", result.stopping.last_epoch},
          {"best_epoch", result.stopping.best_epoch},
          {"best", number(result.stopping.best)}};
}

/// Returns the line on the steps that also set something up; empty without such.
std::string set_up_line(const Json& s) {
  if (s.value("setup_steps", 0) == 0) return "";
  std::vector<std::string> kinds;
  for (const auto& [kind, sum] : s["setup_updates"].items())
    kinds.push_back(fmt::format("{} {:.3f} s in {}", kind, sum["update_s"].get<double>(),
                                sum["steps"].get<std::uint64_t>()));
  std::string text = fmt::format("set-up: {:.3f} s of update ({})",
                                 s["setup_update_s"].get<double>(), fmt::join(kinds, ", "));
  if (s["update_s_per_step"].is_number())
    text += fmt::format("; {:.3f} ms per step without it, median {:.3f}",
                        1e3 * s["update_s_per_step"].get<double>(),
                        1e3 * number_in(s, "update_s_per_step_median"));
  return text + "\n";
}

/// Returns the line on the images that each rank or replica was given; empty without such.
std::string shares_line(const Json& s) {
  std::vector<std::string> images;
  if (s.contains("ranks"))
    for (const Json& rank : s["ranks"]) images.push_back(with_commas(rank["images"]));
  else if (s.contains("replica_images"))
    for (const Json& count : s["replica_images"]) images.push_back(with_commas(count));
  if (images.empty()) return "";
  return fmt::format("images per {}: {}\n", s.contains("ranks") ? "rank" : "replica",
                     fmt::join(images, " + "));
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

Json remote_json(double storage_s, double read_s) {
  const pipeline::RemoteCounts counts = pipeline::remote_counts();
  const pipeline::FetchTimes& read = counts.read;
  // A wait for another thread's fetch is counted by its share, so that clocks may disagree a
  // little.
  const double all = std::max(read_s, read.first_byte_s + read.transfer_s + read.retry_s);
  const double scale = all > 0 ? storage_s / all : 0;
  const double first = scale * read.first_byte_s, transfer = scale * read.transfer_s,
               retry = scale * read.retry_s;
  return {{"requests", counts.totals.requests},
          {"repeated", counts.totals.failures},
          {"bytes", counts.totals.bytes},
          {"storage",
           {{"first_byte", first},
            {"transfer", transfer},
            {"retry", retry},
            {"cache", std::max(0.0, storage_s - first - transfer - retry)}}}};
}

std::string remote_text(const Json& remote) {
  std::string parts;
  for (const auto& [name, seconds] : remote["storage"].items())
    parts += fmt::format("{}{} {:.3f} s", parts.empty() ? "" : ", ", name, seconds.get<double>());
  return fmt::format("remote: {} bytes in {} requests, {} repeated; waits for storage: {}",
                     remote["bytes"].get<std::uint64_t>(), remote["requests"].get<std::uint64_t>(),
                     remote["repeated"].get<std::uint64_t>(), parts);
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

std::vector<std::pair<std::string, double>> worst_classes(const Json& per_class) {
  constexpr std::size_t kShown = 10;
  std::vector<std::pair<std::string, double>> classes;
  for (const auto& [name, accuracy] : per_class.items())
    classes.emplace_back(name, accuracy.is_number() ? accuracy.get<double>() : std::nan(""));
  if (classes.size() <= kShown) return classes;
  std::erase_if(classes, [](const auto& one) { return std::isnan(one.second); });
  std::stable_sort(classes.begin(), classes.end(),
                   [](const auto& a, const auto& b) { return a.second < b.second; });
  classes.resize(std::min(classes.size(), kShown));
  return classes;
}

Json epoch_line(const train::EpochRecord& record, const DatasetInfo& dataset) {
  const measure::SpanSeconds seconds(record.ticks);
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
  line["train_top1"] = number(record.train_top1);
  if (record.evaluation) {
    const Json evaluation = to_json(*record.evaluation, dataset.classes);
    for (const char* key : {"test_loss", "top1", "top5", "per_class"}) line[key] = evaluation[key];
  }
  return line;
}

std::vector<study::Scalar> epoch_scalars(const Json& line) {
  constexpr std::array<std::array<const char*, 2>, 10> kTags{{{"train_loss", "train/loss"},
                                                              {"train_top1", "train/top1"},
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

namespace {

void add_machine(Json& s, const TrainFacts& facts) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  s["version"] = kVersion;
  s["git"] = kGit;
  s["host"] = host;
  s["cores"] = sysconf(_SC_NPROCESSORS_ONLN);
  const study::MachineFacts machine = study::machine_facts();
  s["cpu"] = machine.cpu.empty() ? Json(nullptr) : Json(machine.cpu);
  s["memory_bytes"] = machine.memory_bytes > 0 ? Json(machine.memory_bytes) : Json(nullptr);
  s["gpus"] = machine.gpus;
  s["device"] = facts.device.device();
  s["world_size"] = facts.options.world;
}

void add_settings(Json& s, const TrainFacts& facts) {
  const Recipe& recipe = facts.recipe;
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
}

/// Adds the counts of the whole run, and the times since it was started or resumed.
void add_progress(Json& s, const TrainFacts& facts, const train::TrainResult& result,
                  const measure::SpanSeconds& seconds) {
  const auto steps = static_cast<double>(result.steps - facts.from.steps);
  s["epochs"] = result.epochs;
  s["steps"] = result.steps;
  s["images"] = result.images;
  s["rank_images"] = result.rank_images;
  s["failed"] = facts.failed;
  s["interrupted"] = result.interrupted;
  s["early_stopping"] = early_stopping_json(facts.recipe, result);
  s["resumed_from_step"] = facts.from.steps;
  s["wall_s"] = facts.wall_s;
  s["load_s"] = seconds.load;
  s["update_s"] = seconds.update;
  s["other_s"] = seconds.other;
  s["spans"] = span_json(seconds);
  s["unaccounted_s"] = facts.wall_s - seconds.total();
  s["load_s_per_step"] = number(seconds.load / steps);
  // Everything that is not a set-up step's, so that both parts add up to update_s.
  const study::UpdateTimes::Sum set_up = facts.updates.set_up();
  const double rest = steps - static_cast<double>(set_up.steps);
  s["update_s_per_step"] =
      number(rest > 0 ? (seconds.update - set_up.seconds) / rest : std::nan(""));
  s["update_s_per_step_median"] = number(facts.updates.median());
  s["setup_steps"] = set_up.steps;
  s["setup_update_s"] = set_up.seconds;
  s["setup_updates"] = study::to_json(facts.updates);
  s["first_batch_s"] = seconds.each[static_cast<std::size_t>(measure::Span::first_batch)];
  s["images_per_s"] =
      number(static_cast<double>(result.new_images) / (seconds.load + seconds.update));
}

void add_quality(Json& s, const TrainFacts& facts, const train::TrainResult& result) {
  s["train_loss"] = number(result.train_loss);
  s["train_top1"] = number(result.train_top1);
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
}

/// Returns the device's own times of a step's parts; null where none were measured. Within a graph
/// forward and backward have no events: they are null where every step was a graph's.
Json parts_json(const train::DeviceTime& time) {
  if (time.parts_steps + time.graph_steps == 0) return nullptr;
  const auto seconds = [](std::uint64_t steps, base::Clock::Ticks ticks) {
    return steps > 0 ? Json(base::Clock::seconds(ticks)) : Json(nullptr);
  };
  return {{"steps", time.parts_steps},
          {"graph_steps", time.graph_steps},
          {"forward_s", seconds(time.parts_steps, time.parts.forward)},
          {"backward_s", seconds(time.parts_steps, time.parts.backward)},
          {"graph_s", seconds(time.graph_steps, time.parts.graph)},
          {"step_s", base::Clock::seconds(time.parts.step)}};
}

/// Adds memory, and what the device did where that was measured.
void add_device(Json& s, const TrainFacts& facts) {
  s["peak_rss_bytes"] = peak_rss_bytes();
  s["peak_device_bytes"] = facts.device.peak_device_bytes();
  s["clock"] = facts.recipe.text("train.clock");
  if (facts.utilization) {
    s["gpu_utilization"] = facts.utilization->gpu;
    s["gpu_memory_utilization"] = facts.utilization->memory;
  }
  if (facts.device_time) {
    const train::DeviceTime& time = *facts.device_time;
    s["inflight"] = facts.recipe.integer("train.inflight");
    s["device_busy_s"] = base::Clock::seconds(time.busy);
    s["device_busy_is"] = facts.device.knows_device_work() ? "exact" : "upper bound";
    const train::Submissions submissions = facts.device.submissions();
    s["device_submissions"] = submissions.steps;
    s["device_starved"] = submissions.starved;
    s["device_gap_load_s"] = base::Clock::seconds(time.gap_load());
    s["device_gap_other_s"] = base::Clock::seconds(time.gap_other());
    s["device_gaps"] = span_json(measure::SpanSeconds(time.gaps));
    s["device_parts"] = parts_json(time);
  }
}

/// Returns the device's timeline as the verdict takes it; empty where there is none.
std::optional<study::DeviceFigures> device_figures(const TrainFacts& facts,
                                                   const measure::SpanSeconds& seconds) {
  if (!facts.device_time) return {};
  const train::DeviceTime& time = *facts.device_time;
  const auto wait = static_cast<std::size_t>(measure::Span::device_wait);
  const study::UpdateTimes::Sum set_up = facts.updates.set_up();
  const train::Submissions submissions = facts.device.submissions();
  study::DeviceFigures figures{
      .asynchronous = train::clock_of(facts.recipe) == train::StepClock::async,
      .busy_s = base::Clock::seconds(time.busy - time.setup_busy),
      .wait_s = seconds.each[wait],
      .setup_s = set_up.seconds,
      .setup_wait_s = set_up.device_wait_s,
      .submissions = submissions.steps,
      .starved = submissions.starved,
  };
  const measure::SpanSeconds gaps(train::difference(time.gaps, time.setup_gaps));
  figures.gap_load_s = gaps.each[static_cast<std::size_t>(measure::Span::load)];
  figures.gap_host_s = gaps.update + gaps.each[static_cast<std::size_t>(measure::Span::log)];
  return figures;
}

void add_loading(Json& s, const TrainFacts& facts, const study::BoundVerdict& verdict) {
  if (pipeline::cache_of(facts.recipe) == Cache::cold) s["cold"] = cold_json(facts.loader.cold);
  s["bound"] = study::name_of(verdict.bound);
  s["verdict"] = verdict.sentence;
  s["workers_needed"] = number(verdict.workers_needed);
  s["others_busy"] = facts.others ? Json(*facts.others) : Json(nullptr);
  s["blame"] = study::to_json(facts.blame.seconds());
  s["blame_step"] = study::step_json(facts.blame);
  if (pipeline::is_remote(facts.dataset.path))
    s["remote"] = remote_json(s["blame"]["storage"].get<double>(), facts.loader.read.wall_s);
  s["loader_mode"] = facts.recipe.text("loader.mode");
  s["loader_cpu_s"] = {{"read", facts.loader.read.cpu_s},
                       {"decode", facts.loader.decode.cpu_s},
                       {"augment", facts.loader.augment.cpu_s},
                       {"machinery", facts.loader.machinery_cpu_s}};
}

}  // namespace

Json summary_of(const TrainFacts& facts, const train::TrainResult& result) {
  const measure::SpanSeconds seconds(facts.spans);
  Json s;
  s["command"] = "train";
  add_machine(s, facts);
  add_settings(s, facts);
  add_progress(s, facts, result, seconds);
  add_quality(s, facts, result);
  add_device(s, facts);
  study::BoundFigures figures =
      study::bound_figures(facts.blame, facts.loader, facts.options, base::available_cores(),
                           seconds.update, result.new_images);
  figures.device = device_figures(facts, seconds);
  figures.steps = result.steps - facts.from.steps;
  figures.update_threads = is_on_cpu(facts.recipe) ? facts.threads : 1;
  figures.others = facts.others;
  figures.update_spread = facts.updates.spread();
  figures.checkpoint_s = seconds.each[static_cast<std::size_t>(measure::Span::checkpoint)];
  add_loading(s, facts, study::classify(figures));
  return s;
}

void add_ranks(Json& s, const train::RankInfo& rank, train::Ranks& ranks) {
  Json mine{{"rank", rank.rank},
            {"host", s["host"]},
            {"pid", getpid()},
            {"images", s["rank_images"]},
            {"failed", s["failed"]},
            {"load_s", s["load_s"]},
            {"update_s", s["update_s"]},
            {"blame", s["blame"]},
            {"verdict", s["verdict"]},
            {"peer_wait_s", s["spans"]["peer_wait"]},
            {"network_wait_s", ranks.network_wait_s()},
            {"peak_rss_bytes", s["peak_rss_bytes"]},
            {"parameters_hash", s["parameters_hash"]}};
  for (const char* key : {"gpu_utilization", "gpu_memory_utilization"})
    if (s.contains(key)) mine[key] = s[key];
  Json all = Json::array();
  for (const std::string& text : ranks.gather(study::to_text(mine)))
    all.push_back(Json::parse(text));
  std::uint64_t failed = 0;
  double network_s = 0;
  for (const Json& one : all) {
    failed += one["failed"].get<std::uint64_t>();
    network_s += one["network_wait_s"].get<double>();
  }
  s["failed"] = failed;
  for (const char* key : {"load_s", "update_s"}) {
    double sum = 0;
    double most = 0;
    for (const Json& one : all) {
      const double value = one[key];
      sum += value;
      most = std::max(most, value);
    }
    s[std::string(key) + "_mean"] = sum / static_cast<double>(all.size());
    s[std::string(key) + "_max"] = most;
  }
  const std::vector<train::PeerWait> blamed = ranks.peer_waits();
  for (std::size_t r = 0; r < blamed.size(); ++r) {
    all[r]["blamed_wait_s"] = blamed[r].total();
    all[r]["blamed_on"] = {
        {"load", blamed[r].load}, {"update", blamed[r].update}, {"other", blamed[r].other}};
  }
  s["straggler_rank"] = train::straggler_of(blamed);
  s["straggler_on"] = train::cause_of_waits(blamed, network_s);
  s["network_wait_s"] = network_s / static_cast<double>(all.size());
  s["ranks"] = std::move(all);
}

std::string closing_table(const Json& s) {
  const double wall = s["wall_s"];
  const double steps = s["steps"].get<double>() - s["resumed_from_step"].get<double>();
  std::vector<std::vector<std::string>> rows{{"", "seconds", "share", "ms per step"}};
  const auto add = [&](const std::string& name, double value) {
    rows.push_back({name, fmt::format("{:.3f}", value), base::percent(value / wall, 1),
                    steps > 0 ? fmt::format("{:.3f}", 1e3 * value / steps) : "-"});
  };
  for (const char* kind : {"load", "update", "other"}) {
    add(kind, s[std::string(kind) + "_s"]);
    for (std::size_t i = 0; i < measure::kSpanCount; ++i) {
      const measure::Span span = static_cast<measure::Span>(i);
      const std::string of = measure::is_load(span)     ? "load"
                             : measure::is_update(span) ? "update"
                                                        : "other";
      const double value = s["spans"][std::string(measure::kSpanNames[i])];
      if (of == kind && value > 0.0005 * wall)
        add("  " + std::string(measure::kSpanNames[i]), value);
    }
    if (std::string_view(kind) != "load") continue;
    for (const auto& [part, value] : s["blame"].items())
      if (value > 0.0005 * wall) add("  wait: " + part, value);
  }
  add("wall", wall);
  std::string text;
  if (const double others = number_in(s, "others_busy"); others > study::kMaxOthers)
    text = fmt::format(
        "warning: other programs took {} of the machine during this run, so its times are partly "
        "theirs\n\n",
        base::percent(others));
  text += to_table(rows);
  const double resumed = s["resumed_from_step"];
  const std::string since =
      resumed > 0 ? fmt::format(" in all, {} steps since it was resumed", with_commas(steps)) : "";
  text += fmt::format(
      "\n{} images in {} steps{}, {} images/s while training (load + update), "
      "unaccounted {} of wall\n",
      with_commas(s["images"]), with_commas(s["steps"]), since,
      s["images_per_s"].is_number() ? with_commas(s["images_per_s"]) : "-",
      percent(s["unaccounted_s"].get<double>() / wall));
  text += set_up_line(s);
  text += shares_line(s);
  text += s["verdict"].get<std::string>() + "\n";
  if (const std::string stopped = study::early_stop_of(s); !stopped.empty()) text += stopped + "\n";
  if (s["failed"].get<std::uint64_t>() > 0)
    text +=
        fmt::format("{} samples failed: see quarantine.jsonl{}\n", s["failed"].get<std::uint64_t>(),
                    s.contains("ranks") ? " and the other ranks' quarantine.rankR.jsonl" : "");
  if (s["train_loss"].is_number())
    text += fmt::format("train loss {:.4f}{}\n", number_in(s, "train_loss"),
                        s["train_top1"].is_number()
                            ? fmt::format(", top-1 {:.2f}%", 100 * number_in(s, "train_top1"))
                            : "");
  if (s["top1"].is_number()) {
    text +=
        fmt::format("test loss {:.4f}, top-1 {:.2f}%, top-5 {:.2f}%\n", number_in(s, "test_loss"),
                    100 * number_in(s, "top1"), 100 * number_in(s, "top5"));
    const auto shown = worst_classes(s["per_class"]);
    std::string line =
        shown.size() < s["per_class"].size()
            ? fmt::format("per class, the {} worst of {}:", shown.size(), s["per_class"].size())
            : "per class:";
    for (const auto& [name, accuracy] : shown)
      line += std::isfinite(accuracy)
                  ? fmt::format(" {} {:.1f}%", base::printable(name), 100 * accuracy)
                  : fmt::format(" {} -", base::printable(name));
    text += wrapped(line, terminal_columns()) + "\n";
  }
  return text;
}

}  // namespace millrace::tools
