// Puts a run's report together: facts, figures of its time, tables.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/number_text.h"
#include "measure/wait_breakdown.h"
#include "predict/rules.h"
#include "study/analysis/bound.h"
#include "study/records/run_files.h"
#include "study/report/figures.h"
#include "study/report/reports.h"
#include "study/report/run_facts.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// --- time

constexpr std::size_t kMaxBars = 48;

/// Spans that belong to no step, or only to the first one.
constexpr measure::Span kBetween[] = {measure::Span::setup, measure::Span::first_batch,
                                      measure::Span::evaluate, measure::Span::checkpoint,
                                      measure::Span::teardown};

bool is_between(std::size_t i) {
  return std::find(std::begin(kBetween), std::end(kBetween), static_cast<measure::Span>(i)) !=
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
  const auto add = [&](const std::string& name, std::int64_t ns,
                       const measure::Quantiles* quantiles) {
    std::vector<std::string> row{
        name, fmt::format("{:.3f}", in_seconds(ns)),
        whole > 0 ? base::percent(in_seconds(ns) / whole, 1) : "-",
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
void add_notes(const Summary& summary, const JsonLines& epochs, const StepTable& steps,
               Report& report) {
  if (const std::string state = state_of(summary); state != "finished")
    report.notes.insert(report.notes.begin(), state);
  if (summary.there && !is_complete(summary) && summary.steps < steps.all.steps)
    report.notes.push_back(
        fmt::format("verdict and facts are of the first {} steps, figures and tables of {}",
                    *summary.steps, steps.all.steps));
  if (summary.others_busy > predict::kMaxOthers)
    report.notes.push_back(fmt::format(
        "other programs took {} of the machine during this run, so its times are partly theirs",
        base::percent(*summary.others_busy)));
  if (!steps.there) report.notes.emplace_back("no steps.csv: no step has been taken yet");
  if (steps.cut)
    report.notes.emplace_back("steps.csv ends in an incomplete row, which is left out");
  if (epochs.empty())
    report.notes.emplace_back("no epoch has ended: no figures per epoch (metrics.jsonl)");
  if (summary.resumed_from_step > 0)
    report.notes.emplace_back(
        "the run was resumed: wall time, load, update, wait breakdown and verdict "
        "describe its last process; steps and epochs the whole run");
  if (summary.failed > 0)
    report.notes.emplace_back("samples failed: quarantine.jsonl lists them with the reasons");
  if (summary.params == 0)
    report.notes.emplace_back("no model (simulated device): no loss, no accuracy");
}

}  // namespace

std::vector<Figure> wait_quantiles(const Summary& summary) {
  Figure figure{.id = "blame-step",
                .title = "Wait per step",
                .caption = "50, 90 and 99 of 100 steps waited no longer than this.",
                .kind = FigureKind::bar,
                .x_label = "part of load",
                .y_label = "ms"};
  figure.series = {{.name = "p50"}, {.name = "p90"}, {.name = "p99"}};
  for (const auto& [part, of] : summary.blame_step) {
    if (!(of.p99 > 0)) continue;
    figure.categories.push_back(part);
    figure.series[0].y.push_back(1e3 * to_number(of.p50));
    figure.series[1].y.push_back(1e3 * to_number(of.p90));
    figure.series[2].y.push_back(1e3 * to_number(of.p99));
  }
  return shown(std::move(figure));
}

/// Returns what the waits for remote storage consisted of.
std::vector<Figure> remote_figure(const Summary& summary) {
  const StorageRecord& parts = summary.remote.storage;
  Figure figure{.id = "remote-storage",
                .title = "Waits for remote storage",
                .caption =
                    "The part `storage` of the wait breakdown, in proportion to the time "
                    "that threads spent reading.",
                .kind = FigureKind::stacked_bar,
                .x_label = "run",
                .y_label = "seconds"};
  figure.categories = {"storage"};
  figure.series = {{.name = "first_byte", .y = {to_number(parts.first_byte)}},
                   {.name = "transfer", .y = {to_number(parts.transfer)}},
                   {.name = "retry", .y = {to_number(parts.retry)}},
                   {.name = "cache", .y = {to_number(parts.cache)}}};
  return shown(std::move(figure));
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
  const Summary summary = read_summary(run_ / "summary.json");
  bool cut = false;
  const JsonLines epochs = read_json_lines(run_ / "metrics.jsonl", cut);
  const StepTable& first = steps("steps.csv", most_steps);
  std::vector<RankSteps> ranks{{0, &first}};
  for (const int rank : other_ranks(run_))
    ranks.push_back({rank, &steps(fmt::format("steps.rank{}.csv", rank), most_steps)});

  Report report;
  const std::string recipe = summary.recipe.value_or("");
  report.title = run_.filename().string() + (recipe.empty() ? "" : ": " + recipe);
  report.verdict = summary.verdict.value_or("");
  report.facts.emplace_back("state", state_of(summary));
  const Facts facts = summary.there
                          ? summary_facts(summary)
                          : step_facts(config_at(run_ / "config.toml"), first, epochs.size());
  report.facts.insert(report.facts.end(), facts.begin(), facts.end());
  if (cut) report.notes.emplace_back("metrics.jsonl ends in an incomplete line, which is left out");

  append(report.figures, step_figures(first));
  append(report.figures, step_ridge(first));
  append(report.figures, epoch_figure(epochs));
  append(report.figures, wait_figure(epochs));
  append(report.figures, wait_quantiles(summary));
  append(report.figures, remote_figure(summary));
  append(report.figures, throughput_figure(epochs, first));
  append(report.figures, memory_figure(run_));
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
