// Puts a run's report together.
#include "study/report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "study/records/config_table.h"
#include "study/records/run_files.h"
#include "study/records/step_table.h"
#include "study/report/model_figures.h"
#include "study/report/run_facts.h"
#include "study/report/run_figures.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void append(std::vector<Figure>& to, std::vector<Figure> figures) {
  for (Figure& figure : figures) to.push_back(std::move(figure));
}

double in_seconds(std::int64_t ns) { return 1e-9 * static_cast<double>(ns); }

/// Returns load, update and other with their quantiles, and the spans in each.
ReportTable time_table(const StepTable& steps) {
  ReportTable table{
      .id = "time",
      .title = "Where the time went",
      .caption =
          "Quantiles of the step time, to 2%. An evaluation counts for the step before it, "
          "set-up for the first.",
      .header = {"", "seconds", "share", "ms a step", "p50 ms", "p90 ms", "p99 ms"}};
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
    for (std::size_t i = 0; i < pipeline::kSpanCount; ++i)
      if (wanted(static_cast<pipeline::Span>(i)) && all.ns[i] > 0)
        add("- " + std::string(pipeline::kSpanNames[i]), all.ns[i], nullptr);
  };
  add("load", all.load_ns(), &steps.load);
  add_spans([](pipeline::Span span) { return pipeline::is_load(span); });
  add("update", all.update_ns(), &steps.update);
  add_spans([](pipeline::Span span) { return pipeline::is_update(span); });
  add("other", all.other_ns(), &steps.other);
  add_spans(
      [](pipeline::Span span) { return !pipeline::is_load(span) && !pipeline::is_update(span); });
  return table;
}

/// Returns the numbers of the ranks whose tables lie beside rank 0's.
std::vector<int> other_ranks(const fs::path& run) {
  std::vector<int> ranks;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run, error)) {
    const std::string name = entry.path().filename().string();
    int rank = 0, end = 0;
    if (std::sscanf(name.c_str(), "steps.rank%d.csv%n", &rank, &end) == 1 &&
        end == static_cast<int>(name.size()))
      ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

Json rank_in(const Json& summary, int rank) {
  if (summary.is_object() && summary.contains("ranks") && summary["ranks"].is_array())
    for (const Json& one : summary["ranks"])
      if (number_at(one, {"rank"}) == rank) return one;
  return nullptr;
}

/// Adds each rank's time, from its own table.
void add_ranks(const fs::path& run, const StepTable& first, const Json& summary, Report& report) {
  const std::vector<int> others = other_ranks(run);
  if (others.empty()) return;
  ReportTable table{
      .id = "ranks",
      .title = "Ranks",
      .caption = "waited for: seconds that the other ranks spent waiting for this one.",
      .header = {"rank", "host", "steps", "load s", "update s", "of it peer_wait s", "other s",
                 "waited for, s"}};
  Figure figure{
      .id = "rank-time",
      .title = "Time per rank",
      .caption = "A rank with much peer_wait waits for the others; the straggler has little.",
      .kind = FigureKind::stacked_bar,
      .x_label = "rank",
      .y_label = "seconds",
      .series = {{.name = "load"}, {.name = "update"}, {.name = "peer_wait"}}};
  const auto add = [&](int rank, const StepTable& steps) {
    const Json told = rank_in(summary, rank);
    const double load = in_seconds(steps.all.load_ns());
    const double update = in_seconds(steps.all.update_ns());
    const double wait =
        in_seconds(steps.all.ns[static_cast<std::size_t>(pipeline::Span::peer_wait)]);
    const double blamed = number_at(told, {"blamed_wait_s"});
    table.rows.push_back({std::to_string(rank), text_at(told, {"host"}),
                          with_thousands(static_cast<double>(steps.all.steps)),
                          fmt::format("{:.3f}", load), fmt::format("{:.3f}", update),
                          fmt::format("{:.3f}", wait),
                          fmt::format("{:.3f}", in_seconds(steps.all.other_ns())),
                          std::isfinite(blamed) ? fmt::format("{:.3f}", blamed) : "-"});
    figure.categories.push_back(std::to_string(rank));
    figure.series[0].y.push_back(load);
    figure.series[1].y.push_back(update - wait);
    figure.series[2].y.push_back(wait);
    if (steps.cut)
      report.notes.push_back(
          fmt::format("steps.rank{}.csv ends in an incomplete row, which is left out", rank));
  };
  add(0, first);
  for (const int rank : others) add(rank, read_steps(run / fmt::format("steps.rank{}.csv", rank)));
  const double expected = number_at(summary, {"world_size"});
  if (expected > static_cast<double>(table.rows.size()))
    report.notes.push_back(
        fmt::format("only the tables of {} of {:.0f} ranks are here; the others are on "
                    "their hosts",
                    table.rows.size(), expected));
  if (const std::string late = text_at(summary, {"straggler_rank"}); !late.empty())
    report.facts.emplace_back("straggler", "rank " + late);
  report.tables.push_back(std::move(table));
  append(report.figures, shown(std::move(figure)));
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

/// Returns the last recorded evaluation.
const Json& last_evaluation(const Json& summary, const JsonLines& epochs) {
  const auto has = [](const Json& json) {
    return json.is_object() && json.contains("per_class") && json["per_class"].is_object();
  };
  if (has(summary)) return summary;
  for (auto epoch = epochs.rbegin(); epoch != epochs.rend(); ++epoch)
    if (has(*epoch)) return *epoch;
  return summary;
}

}  // namespace

Report run_report(const fs::path& path) {
  const Json summary = read_json(path / "summary.json");
  bool cut = false;
  const JsonLines epochs = read_json_lines(path / "metrics.jsonl", cut);
  const StepTable steps = read_steps(path / "steps.csv");

  Report report;
  const std::string recipe = text_at(summary, {"recipe"});
  report.title = path.filename().string() + (recipe.empty() ? "" : ": " + recipe);
  report.verdict = text_at(summary, {"verdict"});
  report.facts.emplace_back("state", state_of(summary));
  const Facts facts = summary.is_object()
                          ? summary_facts(summary)
                          : step_facts(config_at(path / "config.toml"), steps, epochs.size());
  report.facts.insert(report.facts.end(), facts.begin(), facts.end());
  if (cut) report.notes.emplace_back("metrics.jsonl ends in an incomplete line, which is left out");

  append(report.figures, step_figures(steps));
  append(report.figures, epoch_figure(epochs));
  append(report.figures, blame_figure(epochs));
  append(report.figures, blame_step_figure(summary));
  append(report.figures, throughput_figure(epochs, steps));
  if (steps.all.steps > 0) report.tables.push_back(time_table(steps));
  add_ranks(path, steps, summary, report);

  const Json& evaluation = last_evaluation(summary, epochs);
  append(report.figures, loss_figures(epochs, steps));
  append(report.figures, accuracy_figure(epochs));
  append(report.figures, class_figure(evaluation));
  append(report.figures, confusion_figure(evaluation));
  for (ReportTable& table : confusion_table(evaluation)) report.tables.push_back(std::move(table));
  add_notes(summary, epochs, steps, report);
  if (!class_figure(evaluation).empty() && !evaluation.contains("confusion"))
    report.notes.push_back("no confusion matrix was recorded: millrace eval " + path.string() +
                           " prints one");
  return report;
}

}  // namespace millrace::study
