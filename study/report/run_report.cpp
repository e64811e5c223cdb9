// Puts a run's report together: facts, figures of its time, tables.
#include "study/report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "study/analysis/wait_breakdown.h"
#include "study/records/config_table.h"
#include "study/records/machine_facts.h"
#include "study/records/run_files.h"
#include "study/report/figures.h"
#include "study/report/model_report.h"
#include "study/report/rank_report.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// --- facts

std::string seconds(double value) { return fmt::format("{:.3f} s", value); }

class FactList {
 public:
  explicit FactList(const Json& summary) : summary_(summary) {}

  void text(const char* name, const char* key) { add(name, text_at(summary_, {key})); }
  void count(const char* name, const char* key) {
    const double value = number_at(summary_, {key});
    if (std::isfinite(value)) add(name, with_thousands(value));
  }
  /// Adds the count unless it is 0.
  void count_unless_none(const char* name, const char* key) {
    if (number_at(summary_, {key}) > 0) count(name, key);
  }
  void number(const char* name, const char* key, double factor, int digits, const char* unit) {
    const double value = number_at(summary_, {key});
    if (std::isfinite(value)) add(name, fmt::format("{:.{}f}{}", factor * value, digits, unit));
  }
  void add(const std::string& name, const std::string& value) {
    if (!value.empty()) facts_.emplace_back(name, value);
  }
  Facts take() { return std::move(facts_); }

 private:
  const Json& summary_;
  Facts facts_;
};

std::string share(double part, double whole) {
  return whole > 0 ? fmt::format("{} ({:.1f}%)", seconds(part), 100 * part / whole) : seconds(part);
}

/// Returns the model's name. A profile writes its cost model under the same key.
std::string model_of(const Json& summary) {
  const std::string name = text_at(summary, {"model"});
  const double params = number_at(summary, {"params"});
  return name.empty() || !(params > 0)
             ? name
             : fmt::format("{}, {} parameters", name, with_thousands(params));
}

std::string data_of(const Json& summary) {
  const std::string reader = text_at(summary, {"dataset", "reader"});
  if (reader.empty()) return "";
  return fmt::format("{}, {}, {} samples, classes: {}", reader,
                     text_at(summary, {"dataset", "split"}),
                     with_thousands(number_at(summary, {"dataset", "samples"})),
                     text_at(summary, {"dataset", "classes"}));
}

/// Returns the facts of an unfinished run: its configuration and its progress.
Facts step_facts(const ConfigValues& config, const StepTable& steps, std::size_t epochs) {
  const StepSum& all = steps.all;
  const double load = 1e-9 * static_cast<double>(all.load_ns());
  const double update = 1e-9 * static_cast<double>(all.update_ns());
  const double other = 1e-9 * static_cast<double>(all.other_ns());
  Facts facts;
  for (const char* key : {"recipe", "data.path", "train.strategy", "train.device", "loader.batch",
                          "loader.workers", "train.epochs", "seed"})
    for (const auto& [name, value] : config)
      if (name == key) facts.emplace_back(name, value);
  facts.insert(facts.end(), {{"completed epochs", with_thousands(static_cast<double>(epochs))},
                             {"steps", with_thousands(static_cast<double>(all.last))},
                             {"images", with_thousands(static_cast<double>(all.images))},
                             {"load", share(load, load + update + other)},
                             {"update", share(update, load + update + other)},
                             {"other", share(other, load + update + other)}});
  if (load + update > 0)
    facts.emplace_back("images/s, training",
                       with_thousands(static_cast<double>(all.images) / (load + update)));
  return facts;
}

// --- time

constexpr std::size_t kMaxBars = 48;

/// Spans that belong to no step, or only to the first one.
constexpr pipeline::Span kBetween[] = {pipeline::Span::setup, pipeline::Span::first_batch,
                                       pipeline::Span::evaluate, pipeline::Span::checkpoint,
                                       pipeline::Span::teardown};

bool is_between(std::size_t i) {
  return std::find(std::begin(kBetween), std::end(kBetween), static_cast<pipeline::Span>(i)) !=
             std::end(kBetween) ||
         step_span_name(i) == "between";
}

std::int64_t in_steps(const StepSum& sum, auto wanted) {
  std::int64_t ns = 0;
  for (std::size_t i = 0; i < kStepSpanCount; ++i)
    if (!is_between(i) && wanted(i)) ns += sum.ns[i];
  return ns;
}

std::string left_out(const StepTable& steps) {
  std::string text;
  for (std::size_t i = 0; i < kStepSpanCount; ++i) {
    const auto ns = steps.all.ns[i];
    if (is_between(i) && ns > 0)
      text +=
          fmt::format("{}{} {:.3f} s", text.empty() ? "" : ", ", step_span_name(i), in_seconds(ns));
  }
  return text.empty() ? "" : " Not included, because they belong to no step: " + text + ".";
}

Series over_steps(const std::string& name, const StepTable& steps, auto ns_of) {
  Series series{.name = name};
  for (const StepSum& sum : steps.reduced.sums()) {
    series.x.push_back(sum.middle());
    series.y.push_back(static_cast<double>(ns_of(sum)) * 1e-6 / static_cast<double>(sum.steps));
  }
  return series;
}

std::string epoch_name(const JsonLines& epochs, const Group& group) {
  const std::string first = text_at(epochs[group.begin], {"epoch"});
  const std::string last = text_at(epochs[group.end - 1], {"epoch"});
  return first == last ? first : first + "-" + last;
}

/// Returns load, update and records in ms per step over the steps, then the same by spans. Spans
/// outside of steps (setup, first batch, evaluation, checkpoints, teardown) are in the captions and
/// in the figures per epoch.
std::vector<Figure> step_figures(const StepTable& steps) {
  if (steps.all.steps == 0) return {};
  const std::uint64_t width = steps.reduced.width();
  const std::string points =
      width > 1 ? fmt::format("Each point is the mean of {} steps.", width) : "One point per step.";
  const auto over = [&](const char* id, const char* title, const std::string& caption) {
    return Figure{.id = id,
                  .title = title,
                  .caption = caption,
                  .kind = FigureKind::stacked_area,
                  .x_label = "step",
                  .y_label = "ms per step"};
  };
  const auto sum_of = [](auto wanted) {
    return [wanted](const StepSum& sum) { return in_steps(sum, wanted); };
  };
  Figure kinds = over("step-time", "Step time", points + left_out(steps));
  kinds.series = {over_steps("load", steps, sum_of(is_load_span)),
                  over_steps("update", steps, sum_of(is_update_span)),
                  over_steps("other", steps, sum_of([](std::size_t i) {
                               return !is_load_span(i) && !is_update_span(i);
                             }))};
  Figure spans = over("step-spans", "Step time by spans", points);
  for (std::size_t i = 0; i < kStepSpanCount; ++i)
    if (!is_between(i))
      spans.series.push_back(over_steps(std::string(step_span_name(i)), steps,
                                        [i](const StepSum& sum) { return sum.ns[i]; }));
  std::vector<Figure> all = shown(std::move(kinds));
  for (Figure& figure : shown(std::move(spans)))
    if (figure.series.size() > 3) all.push_back(std::move(figure));
  return all;
}

/// Returns bars of seconds per epoch or, where there are many, per group of neighbours. `value`
/// returns the value of a name in an epoch's record.
std::vector<Figure> epoch_bars(const JsonLines& epochs, Figure figure,
                               const std::vector<std::string>& names, auto value) {
  const std::vector<Group> groups = groups_of(epochs.size(), kMaxBars);
  figure.kind = FigureKind::stacked_bar;
  figure.x_label = "epoch";
  figure.y_label = "seconds";
  for (const Group& group : groups) figure.categories.push_back(epoch_name(epochs, group));
  if (groups.size() < epochs.size()) figure.caption += " Each bar adds up neighbouring epochs.";
  return bars(std::move(figure), names, [&](const std::string& name, std::size_t at) {
    double sum = 0;
    for (std::size_t i = groups[at].begin; i < groups[at].end; ++i)
      if (const double one = value(epochs[i], name); std::isfinite(one)) sum += one;
    return sum;
  });
}

/// Returns each epoch's seconds by parts.
std::vector<Figure> epoch_figure(const JsonLines& epochs) {
  return epoch_bars(
      epochs,
      {.id = "epoch-time",
       .title = "Epoch time",
       .caption = "From the end of the previous epoch to its own end; set-up belongs to the "
                  "first."},
      {"load", "update", "evaluate", "checkpoint", "log", "setup"},
      [](const Json& epoch, const std::string& name) {
        return name == "load" || name == "update" ? number_at(epoch, {(name + "_s").c_str()})
                                                  : number_at(epoch, {"spans", name.c_str()});
      });
}

/// Returns the parts of load: ours, or those of a loop in Python, which has other places.
std::vector<std::string> parts_of(const JsonLines& epochs) {
  std::vector<std::string> parts;
  for (const Json& epoch : epochs) {
    if (!epoch.contains("blame") || !epoch["blame"].is_object()) continue;
    for (const auto& [name, seconds] : epoch["blame"].items())
      if (name != "load_s" && std::find(parts.begin(), parts.end(), name) == parts.end())
        parts.push_back(name);
  }
  return parts;
}

/// Returns the wait breakdown over the epochs, in ms per step; of a single epoch, in seconds.
std::vector<Figure> wait_figure(const JsonLines& epochs) {
  Figure figure{.id = "blame",
                .title = "Wait breakdown",
                .caption = "Load, split by what the trainer was waiting for."};
  const std::vector<std::string> parts = parts_of(epochs);
  if (epochs.size() < 2)
    return epoch_bars(epochs, std::move(figure), parts,
                      [](const Json& epoch, const std::string& name) {
                        return number_at(epoch, {"blame", name.c_str()});
                      });
  figure.title = "Wait breakdown over time";
  figure.kind = FigureKind::stacked_area;
  figure.x_label = "epoch";
  figure.y_label = "ms per step";
  for (const std::string& part : parts) {
    Series series{.name = part};
    for (const Json& epoch : epochs) {
      const double ms =
          1e3 * number_at(epoch, {"blame", part.c_str()}) / number_at(epoch, {"steps"});
      series.x.push_back(number_at(epoch, {"epoch"}));
      series.y.push_back(std::isfinite(ms) ? ms : 0);
    }
    figure.series.push_back(std::move(series));
  }
  return shown(std::move(figure));
}

/// Returns how often steps took how long.
std::vector<Figure> step_ridge(const StepTable& steps) {
  std::vector<Series> rows;
  for (const auto& [name, durations] :
       {std::pair("load", &steps.load), std::pair("update", &steps.update),
        std::pair(kWholeStep, &steps.step)})
    for (Series& one : distribution(name, *durations)) rows.push_back(std::move(one));
  return ridge({.id = "step-distribution",
                .title = "Distribution of the step time",
                .caption = "How often steps took how long; one step in a thousand is left out at "
                           "either end."},
               std::move(rows));
}

/// Returns images/s over the epochs, or over the steps if there are fewer than two epochs.
std::vector<Figure> throughput_figure(const JsonLines& epochs, const StepTable& steps) {
  Figure figure{.id = "throughput",
                .title = "Images per second",
                .caption = "While training: images over load + update.",
                .kind = FigureKind::line,
                .x_label = "step",
                .y_label = "images/s"};
  if (epochs.size() >= 2)
    return curves(std::move(figure), epochs, {{"images/s", "images_per_s", 1}});
  Series series{.name = "images/s"};
  for (const StepSum& sum : steps.reduced.sums()) {
    const std::int64_t ns = sum.load_ns() + sum.update_ns();
    series.x.push_back(sum.middle());
    series.y.push_back(ns > 0 ? static_cast<double>(sum.images) / in_seconds(ns) : NAN);
  }
  figure.series.push_back(std::move(series));
  return shown(std::move(figure));
}

// --- tables

/// Returns load, update and other with their quantiles, and the spans in each.
ReportTable time_table(const StepTable& steps) {
  ReportTable table{
      .id = "time",
      .title = "Where the time went",
      .caption =
          "Quantiles of the step time, to 2%. An evaluation counts for the step before it, "
          "set-up for the first.",
      .header = {"", "seconds", "share", "ms per step", "p50 ms", "p90 ms", "p99 ms"}};
  const StepSum& all = steps.all;
  const double whole = in_seconds(all.load_ns() + all.update_ns() + all.other_ns());
  const auto add = [&](const std::string& name, std::int64_t ns, const Quantiles* quantiles) {
    std::vector<std::string> row{
        name, fmt::format("{:.3f}", in_seconds(ns)),
        whole > 0 ? fmt::format("{:.1f}%", 100 * in_seconds(ns) / whole) : "-",
        fmt::format("{:.4f}", 1e3 * in_seconds(ns) / static_cast<double>(all.steps))};
    for (const double q : {0.5, 0.9, 0.99})
      row.push_back(quantiles == nullptr ? "" : fmt::format("{:.4f}", 1e3 * quantiles->at(q)));
    table.rows.push_back(std::move(row));
  };
  const auto add_spans = [&](auto wanted) {
    for (std::size_t i = 0; i < kStepSpanCount; ++i)
      if (wanted(i) && all.ns[i] > 0)
        add("- " + std::string(step_span_name(i)), all.ns[i], nullptr);
  };
  add("load", all.load_ns(), &steps.load);
  add_spans(is_load_span);
  add("update", all.update_ns(), &steps.update);
  add_spans(is_update_span);
  add("other", all.other_ns(), &steps.other);
  add_spans([](std::size_t i) { return !is_load_span(i) && !is_update_span(i); });
  return table;
}

/// Lists the figures this run cannot have, and why.
void add_notes(const Json& summary, const JsonLines& epochs, const StepTable& steps,
               Report& report) {
  if (const std::string state = state_of(summary); state != "finished")
    report.notes.insert(report.notes.begin(), state);
  if (!steps.there) report.notes.emplace_back("no steps.csv: no step has been taken yet");
  if (steps.cut)
    report.notes.emplace_back("steps.csv ends in an incomplete row, which is left out");
  if (epochs.empty())
    report.notes.emplace_back("no epoch has ended: no figures per epoch (metrics.jsonl)");
  if (number_at(summary, {"resumed_from_step"}) > 0)
    report.notes.emplace_back(
        "the run was resumed: wall time, load, update, wait breakdown and verdict "
        "describe its last process; steps and epochs the whole run");
  if (number_at(summary, {"failed"}) > 0)
    report.notes.emplace_back("samples failed: quarantine.jsonl lists them with the reasons");
  if (summary.is_object() && summary.contains("model") && summary["model"].is_null())
    report.notes.emplace_back("no model (simulated device): no loss, no accuracy");
}

}  // namespace

std::string state_of(const Json& summary) {
  if (!summary.is_object()) return "no summary.json: the run is still going, or was killed";
  const std::string error = text_at(summary, {"error"});
  if (!error.empty()) return "failed: " + error;
  if (text_at(summary, {"interrupted"}) == "true")
    return "interrupted after step " + text_at(summary, {"steps"});
  return "finished";
}

std::string early_stop_of(const Json& summary) {
  if (text_at(summary, {"early_stopping", "stopped"}) != "true") return "";
  const auto text = [&](const char* key) { return text_at(summary, {"early_stopping", key}); };
  const std::string begin =
      fmt::format("stopped early at epoch {}: {}", text("last_epoch"), text("metric"));
  if (!(number_at(summary, {"early_stopping", "best_epoch"}) > 0))
    return begin + " has never been a finite number";
  const double least = number_at(summary, {"early_stopping", "min_delta"});
  return fmt::format("{} has not improved{} since epoch {}", begin,
                     least > 0 ? fmt::format(" by more than {:g}", least) : "", text("best_epoch"));
}

Facts summary_facts(const Json& summary) {
  FactList facts(summary);
  const double wall = number_at(summary, {"wall_s"});
  facts.text("recipe", "recipe");
  facts.add("data set", data_of(summary));
  facts.add("model", model_of(summary));
  facts.text("strategy", "strategy");
  facts.text("device", "device");
  if (number_at(summary, {"world_size"}) > 1) facts.count("ranks", "world_size");
  facts.count("batch", "batch");
  facts.count("workers", "workers");
  facts.count_unless_none("I/O threads", "io_threads");
  facts.count("prefetch", "prefetch");
  facts.count("LibTorch threads", "threads");
  facts.text("clock", "clock");
  facts.text("seed", "seed");
  facts.count("epochs", "epochs");
  facts.add("early stopping", early_stop_of(summary));
  facts.count("steps", "steps");
  facts.count("images", "images");
  facts.count_unless_none("failed samples", "failed");
  facts.count_unless_none("resumed from step", "resumed_from_step");
  facts.number("wall time", "wall_s", 1, 3, " s");
  for (const char* kind : {"load", "update", "other"}) {
    const double value = number_at(summary, {(std::string(kind) + "_s").c_str()});
    if (std::isfinite(value)) facts.add(kind, share(value, wall));
  }
  facts.number("unaccounted", "unaccounted_s", 1e6, 1, " µs");
  facts.number("load per step", "load_s_per_step", 1e3, 4, " ms");
  facts.number("update per step", "update_s_per_step", 1e3, 4, " ms");
  facts.number("update per step, median", "update_s_per_step_median", 1e3, 4, " ms");
  facts.count_unless_none("set-up steps", "setup_steps");
  if (number_at(summary, {"setup_steps"}) > 0)
    facts.number("update in set-up steps", "setup_update_s", 1, 3, " s");
  facts.count("images/s, training", "images_per_s");
  facts.number("workers needed", "workers_needed", 1, 1, "");
  facts.number("training loss", "train_loss", 1, 4, "");
  facts.number("training top-1", "train_top1", 100, 2, "%");
  facts.number("test loss", "test_loss", 1, 4, "");
  facts.number("top-1", "top1", 100, 2, "%");
  facts.number("top-5", "top5", 100, 2, "%");
  const bool bounded = text_at(summary, {"device_busy_is"}) == "upper bound";
  facts.number(bounded ? "device busy, at most" : "device busy", "device_busy_s", 1, 3, " s");
  facts.count_unless_none("submissions to an idle device", "device_starved");
  facts.number("GPU utilisation", "gpu_utilization", 100, 1, "%");
  facts.number("GPU memory utilisation", "gpu_memory_utilization", 100, 1, "%");
  facts.number("peak memory", "peak_rss_bytes", 1e-6, 0, " MB");
  if (number_at(summary, {"peak_device_bytes"}) > 0)
    facts.number("peak device memory", "peak_device_bytes", 1e-6, 0, " MB");
  facts.text("host", "host");
  facts.add("machine", machine_line(summary));
  facts.add("millrace",
            fmt::format("{} ({})", text_at(summary, {"version"}), text_at(summary, {"git"})));
  return facts.take();
}

std::vector<Figure> wait_quantiles(const Json& summary) {
  Figure figure{.id = "blame-step",
                .title = "Wait per step",
                .caption = "50, 90 and 99 of 100 steps waited no longer than this.",
                .kind = FigureKind::bar,
                .x_label = "part of load",
                .y_label = "ms"};
  std::vector<std::string> parts{"load"};
  parts.insert(parts.end(), kPartNames.begin(), kPartNames.end());
  for (const std::string& part : parts)
    if (number_at(summary, {"blame_step", part.c_str(), "p99"}) > 0)
      figure.categories.push_back(part);
  const std::vector<std::string> shown_parts = figure.categories;
  return bars(
      std::move(figure), {"p50", "p90", "p99"}, [&](const std::string& quantile, std::size_t at) {
        return 1e3 * number_at(summary, {"blame_step", shown_parts[at].c_str(), quantile.c_str()});
      });
}

RunReader::RunReader(fs::path run) : run_(std::move(run)) {}

const StepTable& RunReader::steps(const std::string& name, std::uint64_t& left) {
  const auto [found, is_new] = tables_.try_emplace(name, run_ / name);
  StepReader& reader = found->second.reader;
  StepTable& table = found->second.table;
  if (reader.start_over_if_cut()) table = StepTable();
  const StepFile state = reader.read(
      [&](const StepSum& step) {
        table.add(step);
        --left;
      },
      left);
  table.there = state.there;
  table.cut = state.cut;
  at_end_ &= reader.at_end();
  return table;
}

Report RunReader::report(std::uint64_t most_steps) {
  at_end_ = true;
  const Json summary = read_json(run_ / "summary.json");
  bool cut = false;
  const JsonLines epochs = read_json_lines(run_ / "metrics.jsonl", cut);
  const StepTable& first = steps("steps.csv", most_steps);
  std::vector<RankSteps> ranks{{0, &first}};
  for (const int rank : other_ranks(run_))
    ranks.push_back({rank, &steps(fmt::format("steps.rank{}.csv", rank), most_steps)});

  Report report;
  const std::string recipe = text_at(summary, {"recipe"});
  report.title = run_.filename().string() + (recipe.empty() ? "" : ": " + recipe);
  report.verdict = text_at(summary, {"verdict"});
  report.facts.emplace_back("state", state_of(summary));
  const Facts facts = summary.is_object()
                          ? summary_facts(summary)
                          : step_facts(config_at(run_ / "config.toml"), first, epochs.size());
  report.facts.insert(report.facts.end(), facts.begin(), facts.end());
  if (cut) report.notes.emplace_back("metrics.jsonl ends in an incomplete line, which is left out");

  append(report.figures, step_figures(first));
  append(report.figures, step_ridge(first));
  append(report.figures, epoch_figure(epochs));
  append(report.figures, wait_figure(epochs));
  append(report.figures, wait_quantiles(summary));
  append(report.figures, throughput_figure(epochs, first));
  if (first.all.steps > 0) report.tables.push_back(time_table(first));
  if (ranks.size() > 1) add_ranks(ranks, summary, report);
  add_replicas(summary, report);
  add_notes(summary, epochs, first, report);
  add_model(run_, summary, epochs, first, report);
  return report;
}

Report run_report(const fs::path& path) {
  return RunReader(path).report(std::numeric_limits<std::uint64_t>::max());
}

}  // namespace millrace::study
