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
#include "predict/rules.h"
#include "strategies/trainer/train_choices.h"
#include "study/analysis/bound.h"
#include "study/analysis/machine.h"
#include "study/records/run_directory.h"
#include "study/records/wait_records.h"
#include "study/report/run_facts.h"
#include "tools/terminal/terminal.h"
#include "tools/training/records.h"
#include "tools/training/setup.h"
#include "tools/version.h"

namespace millrace::tools {

namespace {

using Json = nlohmann::ordered_json;
using study::known;
using study::to_number;

/// With more classes the matrix would dominate the summary.
constexpr std::size_t kMaxClassesInConfusion = 100;

/// Returns null for NaN and infinity, which JSON lacks.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

study::Named<double> by_span(const measure::SpanSeconds& seconds) {
  study::Named<double> spans;
  for (std::size_t i = 0; i < measure::kSpanCount; ++i)
    spans.emplace_back(measure::kSpanNames[i], seconds.each[i]);
  return spans;
}

double part(std::uint64_t count, std::uint64_t of) {
  return of > 0 ? static_cast<double>(count) / static_cast<double>(of) : std::nan("");
}

/// Returns an empty record without train.early_stopping.
study::EarlyStoppingRecord early_stopping_record(const Recipe& recipe,
                                                 const train::TrainResult& result) {
  const std::string& metric = recipe.text("train.early_stopping.metric");
  if (metric == "off") return {};
  return {.metric = metric,
          .patience = recipe.integer("train.early_stopping.patience"),
          .min_delta = recipe.number("train.early_stopping.min_delta"),
          .stopped = result.stopped_early,
          .last_epoch = result.stopping.last_epoch,
          .best_epoch = result.stopping.best_epoch,
          .best = result.stopping.best};
}

/// Returns the kind of the span of that name.
std::string_view kind_of(std::string_view name) {
  for (std::size_t i = 0; i < measure::kSpanCount; ++i)
    if (const auto span = static_cast<measure::Span>(i); measure::kSpanNames[i] == name)
      return measure::is_load(span) ? "load" : measure::is_update(span) ? "update" : "other";
  return "";
}

/// Returns the line on the steps that also set something up; empty without such.
std::string set_up_line(const study::Summary& s) {
  if (!(s.setup_steps > 0)) return "";
  std::vector<std::string> kinds;
  for (const auto& [kind, sum] : s.setup_updates)
    kinds.push_back(
        fmt::format("{} {:.3f} s in {}", kind, to_number(sum.update_s), to_number(sum.steps)));
  std::string text = fmt::format("set-up: {:.3f} s of update ({})", to_number(s.setup_update_s),
                                 fmt::join(kinds, ", "));
  if (s.update_s_per_step)
    text += fmt::format("; {:.3f} ms per step without it, median {:.3f}",
                        1e3 * to_number(s.update_s_per_step),
                        1e3 * to_number(s.update_s_per_step_median));
  return text + "\n";
}

/// Returns the line on the images that each rank or replica was given; empty without such.
std::string shares_line(const study::Summary& s) {
  std::vector<std::string> images;
  for (const study::RankRecord& rank : s.ranks)
    images.push_back(with_commas(to_number(rank.images)));
  if (images.empty())
    for (const std::uint64_t count : s.replica_images)
      images.push_back(with_commas(static_cast<double>(count)));
  if (images.empty()) return "";
  return fmt::format("images per {}: {}\n", s.ranks.empty() ? "replica" : "rank",
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

study::ColdRecord cold_record(const ColdCounts& counts) { return {counts.proven, counts.resident}; }

study::RemoteRecord remote_record(double storage_s, double read_s) {
  const pipeline::RemoteCounts counts = pipeline::remote_counts();
  const pipeline::FetchTimes& read = counts.read;
  // A wait for another thread's fetch is counted by its share, so that clocks may disagree a
  // little.
  const double all = std::max(read_s, read.first_byte_s + read.transfer_s + read.retry_s);
  const double scale = all > 0 ? storage_s / all : 0;
  const double first = scale * read.first_byte_s, transfer = scale * read.transfer_s,
               retry = scale * read.retry_s;
  return {.requests = counts.totals.requests,
          .repeated = counts.totals.failures,
          .bytes = counts.totals.bytes,
          .storage = {.first_byte = first,
                      .transfer = transfer,
                      .retry = retry,
                      .cache = std::max(0.0, storage_s - first - transfer - retry)}};
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

study::Named<double> worst_classes(study::Named<double> classes) {
  constexpr std::size_t kShown = 10;
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
  line["spans"] = study::to_json(by_span(seconds));
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

void add_machine(study::Summary& s, const TrainFacts& facts) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  s.version = kVersion;
  s.git = kGit;
  s.host = host;
  s.cores = sysconf(_SC_NPROCESSORS_ONLN);
  const study::MachineFacts machine = study::machine_facts();
  if (!machine.cpu.empty()) s.cpu = machine.cpu;
  if (machine.memory_bytes > 0) s.memory_bytes = machine.memory_bytes;
  s.gpus = machine.gpus;
  s.device = facts.device.device();
  s.world_size = facts.options.world;
}

void add_settings(study::Summary& s, const TrainFacts& facts) {
  const Recipe& recipe = facts.recipe;
  s.seed = recipe.integer("seed");
  s.recipe = recipe.name();
  s.dataset = {.reader = facts.dataset.reader,
               .path = facts.dataset.path,
               .split = facts.dataset.split,
               .samples = facts.dataset.count,
               .classes = facts.dataset.classes.size(),
               .fingerprint = fmt::format("{:016x}", facts.dataset.fingerprint)};
  s.plugins = plugin_records();
  if (facts.parameters > 0) {
    s.model = recipe.text("model.name");
    s.ops = recipe.text("model.ops");
  }
  s.simd = base::name_of(base::simd_level());
  s.params = facts.parameters;
  s.strategy = recipe.text("train.strategy");
  s.workers = facts.options.workers;
  s.io_threads = facts.options.io_threads;
  s.prefetch = recipe.integer("loader.prefetch");
  s.threads = facts.threads;
  s.batch = facts.options.batch;
  s.accumulate = recipe.integer("train.accumulate");
  s.amp = recipe.text("train.amp");
}

/// Adds the counts of the whole run, and the times since it was started or resumed.
void add_progress(study::Summary& s, const TrainFacts& facts, const train::TrainResult& result,
                  const measure::SpanSeconds& seconds) {
  const auto steps = static_cast<double>(result.steps - facts.from.steps);
  s.epochs = result.epochs;
  s.steps = result.steps;
  s.images = result.images;
  s.rank_images = result.rank_images;
  s.failed = facts.failed;
  s.interrupted = result.interrupted;
  s.early_stopping = early_stopping_record(facts.recipe, result);
  s.resumed_from_step = facts.from.steps;
  s.wall_s = facts.wall_s;
  s.load_s = seconds.load;
  s.update_s = seconds.update;
  s.other_s = seconds.other;
  s.spans = by_span(seconds);
  s.unaccounted_s = facts.wall_s - seconds.total();
  s.load_s_per_step = known(seconds.load / steps);
  // Everything that is not a set-up step's, so that both parts add up to update_s.
  const study::UpdateTimes::Sum set_up = facts.updates.set_up();
  const double rest = steps - static_cast<double>(set_up.steps);
  if (rest > 0) s.update_s_per_step = known((seconds.update - set_up.seconds) / rest);
  s.update_s_per_step_median = known(facts.updates.median());
  s.setup_steps = set_up.steps;
  s.setup_update_s = set_up.seconds;
  s.setup_updates = study::set_up_records(facts.updates);
  s.first_batch_s = seconds.each[static_cast<std::size_t>(measure::Span::first_batch)];
  s.images_per_s = known(static_cast<double>(result.new_images) / (seconds.load + seconds.update));
}

void add_quality(study::Summary& s, const TrainFacts& facts, const train::TrainResult& result) {
  s.train_loss = known(result.train_loss);
  s.train_top1 = known(result.train_top1);
  if (result.evaluation) {
    study::Summary of = study::summary_from(to_json(*result.evaluation, facts.dataset.classes));
    s.test_loss = of.test_loss;
    s.top1 = of.top1;
    s.top5 = of.top5;
    s.per_class = std::move(of.per_class);
    if (result.evaluation->confusion.size() <= kMaxClassesInConfusion)
      s.confusion = result.evaluation->confusion;
  }
  if (!facts.parameters_hash.empty()) s.parameters_hash = facts.parameters_hash;
  if (!facts.batch_hash.empty()) s.batch_hash = facts.batch_hash;
}

/// Returns the device's own times of a step's parts; empty where none were measured. Within a graph
/// forward and backward have no events: they are not set where every step was a graph's.
study::DevicePartsRecord parts_record(const train::DeviceTime& time) {
  study::DevicePartsRecord parts;
  if (time.parts_steps + time.graph_steps == 0) return parts;
  parts.steps = time.parts_steps;
  parts.graph_steps = time.graph_steps;
  if (time.parts_steps > 0) {
    parts.forward_s = base::Clock::seconds(time.parts.forward);
    parts.backward_s = base::Clock::seconds(time.parts.backward);
  }
  if (time.graph_steps > 0) parts.graph_s = base::Clock::seconds(time.parts.graph);
  parts.step_s = base::Clock::seconds(time.parts.step);
  return parts;
}

/// Adds memory, and what the device did where that was measured.
void add_device(study::Summary& s, const TrainFacts& facts) {
  s.peak_rss_bytes = peak_rss_bytes();
  s.peak_device_bytes = facts.device.peak_device_bytes();
  s.clock = facts.recipe.text("train.clock");
  if (facts.utilization) {
    s.gpu_utilization = facts.utilization->gpu;
    s.gpu_memory_utilization = facts.utilization->memory;
  }
  if (facts.device_time) {
    const train::DeviceTime& time = *facts.device_time;
    s.inflight = facts.recipe.integer("train.inflight");
    s.device_busy_s = base::Clock::seconds(time.busy);
    s.device_busy_is = facts.device.knows_device_work() ? "exact" : "upper bound";
    const train::Submissions submissions = facts.device.submissions();
    s.device_submissions = submissions.steps;
    s.device_starved = submissions.starved;
    s.device_gap_load_s = base::Clock::seconds(time.gap_load());
    s.device_gap_other_s = base::Clock::seconds(time.gap_other());
    s.device_gaps = by_span(measure::SpanSeconds(time.gaps));
    s.device_parts = parts_record(time);
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

void add_loading(study::Summary& s, const TrainFacts& facts, const study::BoundVerdict& verdict) {
  if (pipeline::cache_of(facts.recipe) == Cache::cold) s.cold = cold_record(facts.loader.cold);
  s.bound = study::name_of(verdict.bound);
  s.verdict = verdict.sentence;
  s.workers_needed = known(verdict.workers_needed);
  s.others_busy = facts.others;
  s.blame = study::by_part(facts.blame.seconds());
  s.blame_step = study::step_quantiles(facts.blame);
  if (pipeline::is_remote(facts.dataset.path))
    s.remote = remote_record(*study::find(s.blame, "storage"), facts.loader.read.wall_s);
  s.loader_mode = facts.recipe.text("loader.mode");
  s.loader_cpu_s = {.read = facts.loader.read.cpu_s,
                    .decode = facts.loader.decode.cpu_s,
                    .augment = facts.loader.augment.cpu_s,
                    .machinery = facts.loader.machinery_cpu_s};
}

}  // namespace

study::Summary summary_of(const TrainFacts& facts, const train::TrainResult& result) {
  const measure::SpanSeconds seconds(facts.spans);
  study::Summary s;
  s.command = "train";
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

void add_ranks(study::Summary& s, const train::RankInfo& rank, train::Ranks& ranks) {
  const study::RankRecord mine{.rank = rank.rank,
                               .host = s.host,
                               .pid = getpid(),
                               .images = s.rank_images,
                               .failed = s.failed,
                               .load_s = s.load_s,
                               .update_s = s.update_s,
                               .blame = s.blame,
                               .verdict = s.verdict,
                               .peer_wait_s = *study::find(s.spans, "peer_wait"),
                               .network_wait_s = ranks.network_wait_s(),
                               .peak_rss_bytes = s.peak_rss_bytes,
                               .parameters_hash = s.parameters_hash,
                               .gpu_utilization = s.gpu_utilization,
                               .gpu_memory_utilization = s.gpu_memory_utilization};
  for (const std::string& text : ranks.gather(study::to_text(study::to_json(mine))))
    s.ranks.push_back(study::rank_from(Json::parse(text)));
  const auto count = static_cast<double>(s.ranks.size());
  std::int64_t failed = 0;
  double network_s = 0, load_s = 0, update_s = 0;
  for (const study::RankRecord& one : s.ranks) {
    failed += *one.failed;
    network_s += *one.network_wait_s;
    load_s += *one.load_s;
    update_s += *one.update_s;
    s.load_s_max = std::max(s.load_s_max, one.load_s);
    s.update_s_max = std::max(s.update_s_max, one.update_s);
  }
  s.failed = failed;
  s.load_s_mean = load_s / count;
  s.update_s_mean = update_s / count;
  const std::vector<train::PeerWait> blamed = ranks.peer_waits();
  for (std::size_t r = 0; r < blamed.size(); ++r) {
    s.ranks[r].blamed_wait_s = blamed[r].total();
    s.ranks[r].blamed_on = {blamed[r].load, blamed[r].update, blamed[r].other};
  }
  s.straggler_rank = train::straggler_of(blamed);
  s.straggler_on = train::cause_of_waits(blamed, network_s);
  s.network_wait_s = network_s / count;
}

std::string closing_table(const study::Summary& s) {
  const double wall = to_number(s.wall_s);
  const double resumed = to_number(s.resumed_from_step);
  const double steps = to_number(s.steps) - resumed;
  std::vector<std::vector<std::string>> rows{{"", "seconds", "share", "ms per step"}};
  const auto add = [&](const std::string& name, double value) {
    rows.push_back({name, fmt::format("{:.3f}", value), base::percent(value / wall, 1),
                    steps > 0 ? fmt::format("{:.3f}", 1e3 * value / steps) : "-"});
  };
  const auto add_kind = [&](const char* kind, const std::optional<double>& seconds) {
    add(kind, to_number(seconds));
    for (const auto& [span, value] : s.spans)
      if (kind_of(span) == kind && value > 0.0005 * wall) add("  " + span, value);
  };
  add_kind("load", s.load_s);
  for (const auto& [part, value] : s.blame)
    if (value > 0.0005 * wall) add("  wait: " + part, value);
  add_kind("update", s.update_s);
  add_kind("other", s.other_s);
  add("wall", wall);
  std::string text;
  if (s.others_busy > predict::kMaxOthers)
    text = fmt::format(
        "warning: other programs took {} of the machine during this run, so its times are partly "
        "theirs\n\n",
        base::percent(to_number(s.others_busy)));
  text += to_table(rows);
  const std::string since =
      resumed > 0 ? fmt::format(" in all, {} steps since it was resumed", with_commas(steps)) : "";
  text += fmt::format(
      "\n{} images in {} steps{}, {} images/s while training (load + update), "
      "unaccounted {} of wall\n",
      with_commas(to_number(s.images)), with_commas(to_number(s.steps)), since,
      s.images_per_s ? with_commas(*s.images_per_s) : "-",
      percent(to_number(s.unaccounted_s) / wall));
  text += set_up_line(s);
  text += shares_line(s);
  text += s.verdict.value_or("") + "\n";
  if (const std::string stopped = study::early_stop_of(s); !stopped.empty()) text += stopped + "\n";
  if (s.failed > 0)
    text += fmt::format("{} samples failed: see quarantine.jsonl{}\n", *s.failed,
                        s.ranks.empty() ? "" : " and the other ranks' quarantine.rankR.jsonl");
  if (s.train_loss)
    text += fmt::format("train loss {:.4f}{}\n", *s.train_loss,
                        s.train_top1 ? fmt::format(", top-1 {:.2f}%", 100 * *s.train_top1) : "");
  if (s.top1) {
    text += fmt::format("test loss {:.4f}, top-1 {:.2f}%, top-5 {:.2f}%\n", to_number(s.test_loss),
                        100 * *s.top1, 100 * to_number(s.top5));
    const auto shown = worst_classes(s.per_class);
    std::string line =
        shown.size() < s.per_class.size()
            ? fmt::format("per class, the {} worst of {}:", shown.size(), s.per_class.size())
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
