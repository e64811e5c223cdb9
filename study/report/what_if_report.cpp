// Puts a profile's report together.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/number_text.h"
#include "study/records/run_files.h"
#include "study/report/figures.h"
#include "study/report/reports.h"
#include "study/report/run_facts.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// One change: rates in images/s; NaN if it was not measured.
struct WhatIf {
  std::vector<std::string> words;
  double predicted = NAN, measured = NAN, error = NAN;
  double predicted_ratio = NAN, measured_ratio = NAN;
  double low = NAN, high = NAN;                   ///< 90% interval of predicted_ratio
  double disturbed = NAN, disturbed_ratio = NAN;  ///< measured by void runs
  bool runs_here = true;

  std::string text() const {
    std::string all;
    for (const std::string& word : words) all += (all.empty() ? "" : " ") + word;
    return all;
  }
};

/// Returns the changes, largest prediction first.
std::vector<WhatIf> changes_in(const Json& json) {
  std::vector<WhatIf> all;
  if (!json.is_object() || !json.contains("what_if") || !json["what_if"].is_array()) return all;
  for (const Json& one : json["what_if"]) {
    WhatIf change;
    if (one.is_object() && one.contains("change") && one["change"].is_array())
      for (const Json& word : one["change"])
        if (word.is_string()) change.words.push_back(word.get<std::string>());
    change.predicted = number_at(one, {"predicted"});
    change.measured = number_at(one, {"measured"});
    change.error = number_at(one, {"error"});
    change.predicted_ratio = number_at(one, {"predicted_ratio"});
    change.measured_ratio = number_at(one, {"measured_ratio"});
    change.low = number_at(one, {"predicted_low"});
    change.high = number_at(one, {"predicted_high"});
    change.disturbed_ratio = number_at(one, {"disturbed_ratio"});
    change.disturbed = change.disturbed_ratio * number_at(one, {"baseline"});
    change.runs_here = text_at(one, {"runs_here"}) != "false";
    all.push_back(std::move(change));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const WhatIf& a, const WhatIf& b) { return a.predicted > b.predicted; });
  return all;
}

/// Returns the baseline's rate, which turns ratios into images/s.
double baseline_in(const Json& json) {
  if (json.is_object() && json.contains("what_if") && json["what_if"].is_array() &&
      !json["what_if"].empty())
    return number_at(json["what_if"][0], {"baseline"});
  const double rate = number_at(json, {"baseline_images_per_s"});
  return std::isfinite(rate) ? rate : number_at(json, {"images_per_s"});
}

/// Returns whether any change was measured, be it by runs that other programs disturbed.
bool any_measured(const std::vector<WhatIf>& changes) {
  return std::any_of(changes.begin(), changes.end(), [](const WhatIf& one) {
    return std::isfinite(one.measured) || std::isfinite(one.disturbed);
  });
}

Figure change_bars(const std::vector<WhatIf>& changes, double baseline) {
  Figure figure{
      .id = "what-if",
      .title = "Effect of changes",
      .caption = "Predicted by the replay, then measured; the dashed line is the baseline.",
      .kind = FigureKind::bar,
      .x_label = "change",
      .y_label = "images/s",
      .series = {{.name = "predicted"}, {.name = "measured"}}};
  for (const WhatIf& change : changes) {
    figure.categories.push_back(change.text());
    figure.series[0].y.push_back(change.predicted);
    figure.series[1].y.push_back(change.measured);
  }
  const auto& measured = figure.series[1].y;
  if (std::none_of(measured.begin(), measured.end(), [](double y) { return std::isfinite(y); })) {
    figure.series.pop_back();
    figure.caption = "Predicted by the replay; the dashed line is the baseline.";
  }
  add_bound(figure, "as it is", baseline);
  return figure;
}

/// Returns the number of workers if the change affects nothing else.
std::optional<double> only_workers(const WhatIf& change) {
  constexpr std::string_view kKey = "loader.workers=";
  if (change.words.size() != 1 || !change.words[0].starts_with(kKey)) return {};
  const std::string& word = change.words[0];
  double workers = 0;
  const auto [end, error] =
      std::from_chars(word.data() + kKey.size(), word.data() + word.size(), workers);
  if (error != std::errc() || end != word.data() + word.size()) return {};
  return workers;
}

std::vector<Figure> worker_lines(const Summary& summary, const Json& ceilings,
                                 const std::vector<WhatIf>& changes, double baseline) {
  struct Point {
    double workers, predicted, measured;
  };
  std::vector<Point> points;
  for (const WhatIf& change : changes)
    if (const auto workers = only_workers(change))
      points.push_back({*workers, change.predicted, change.measured});
  if (points.empty()) return {};
  if (summary.workers) points.push_back({to_number(summary.workers), baseline, baseline});
  std::sort(points.begin(), points.end(),
            [](const Point& a, const Point& b) { return a.workers < b.workers; });
  Figure figure{.id = "workers",
                .title = "Images per second by workers",
                .kind = FigureKind::line,
                .x_label = "loader.workers",
                .y_label = "images/s",
                .series = {{.name = "predicted"}, {.name = "measured"}}};
  for (const Point& point : points) {
    figure.series[0].x.push_back(point.workers);
    figure.series[0].y.push_back(point.predicted);
    if (!std::isfinite(point.measured)) continue;
    figure.series[1].x.push_back(point.workers);
    figure.series[1].y.push_back(point.measured);
  }
  // The baseline alone makes no line.
  if (figure.series[1].y.size() < 2) figure.series.pop_back();
  for (const char* name : {"device", "storage", "cores"}) {
    const double rate = number_at(ceilings, {name});
    if (!std::isfinite(rate)) continue;
    figure.caption =
        "Dashed: the rates that device, storage and cores allow with any number of workers.";
    figure.series.push_back({.name = name,
                             .x = {points.front().workers, points.back().workers},
                             .y = {rate, rate},
                             .bound = true});
  }
  return {std::move(figure)};
}

/// Returns the mean load and update per step, in s, of the profile's own runs that differ from the
/// baseline in the workers only, by number of workers.
std::map<double, std::pair<double, double>> times_by_workers(const fs::path& profile) {
  const auto comparable = [](const fs::path& file) {
    ConfigValues values = config_at(file);
    std::erase_if(values, [](const auto& one) {
      return one.first == "loader.workers" || one.first == "train.steps" ||
             one.first == "train.epochs" || one.first == "train.threads" ||
             one.first == "eval.every" || one.first == "recipe" ||
             one.first == "train.early_stopping.metric";
    });
    return values;
  };
  const ConfigValues baseline = comparable(profile / "config.toml");
  std::map<double, std::vector<std::pair<double, double>>> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(profile / "runs", error)) {
    const Summary summary = read_summary(entry.path() / "summary.json");
    // Runs of "device" measure the device alone and are short.
    if (!summary.load_s_per_step || !summary.update_s_per_step ||
        entry.path().filename().string().ends_with("-device") ||
        comparable(entry.path() / "config.toml") != baseline)
      continue;
    all[to_number(summary.workers)].emplace_back(*summary.load_s_per_step,
                                                 *summary.update_s_per_step);
  }
  std::map<double, std::pair<double, double>> means;
  for (const auto& [workers, runs] : all)
    for (const auto& [load, update] : runs) {
      means[workers].first += load / static_cast<double>(runs.size());
      means[workers].second += update / static_cast<double>(runs.size());
    }
  return means;
}

/// Returns load and update per step over the workers, as far as they were measured, and the
/// predicted curve of their sum through them.
std::vector<Figure> worker_bars(const fs::path& profile, const Summary& summary,
                                const std::vector<WhatIf>& changes, double baseline) {
  const double batch = to_number(summary.batch);
  std::map<double, double> predicted;
  for (const WhatIf& change : changes)
    if (const auto workers = only_workers(change))
      predicted[*workers] = 1e3 * batch / change.predicted;
  if (predicted.empty() || !(batch > 0)) return {};
  predicted[to_number(summary.workers)] = 1e3 * batch / baseline;
  const auto measured = times_by_workers(profile);
  Figure figure{.id = "workers-time",
                .title = "Load and update by workers",
                .kind = FigureKind::stacked_bar,
                .x_label = "loader.workers",
                .y_label = "ms per step"};
  std::vector<double> workers;
  Series line{.name = "predicted", .line = true};
  for (const auto& [count, ms] : predicted) {
    workers.push_back(count);
    figure.categories.push_back(fmt::format("{}", count));
    line.y.push_back(ms);
  }
  std::vector<Figure> all =
      bars(std::move(figure), {"load", "update"}, [&](const std::string& name, std::size_t at) {
        const auto found = measured.find(workers[at]);
        if (found == measured.end()) return static_cast<double>(NAN);
        return 1e3 * (name == "load" ? found->second.first : found->second.second);
      });
  for (Figure& one : all) {
    one.caption =
        "Bars: means of whole runs, warm-up included. Line: load + update as predicted from the "
        "baseline.";
    one.series.push_back(line);
  }
  return all;
}

const Json& member(const Json& json, const char* name) {
  static const Json nothing;
  return json.is_object() && json.contains(name) ? json[name] : nothing;
}

std::vector<Figure> ceiling_bars(const Json& ceilings, double baseline) {
  std::vector<Figure> all = member_bars(
      {.id = "ceilings",
       .title = "Rate that each resource would allow",
       .caption = "Images per second if nothing else limited the run, on a logarithmic axis. The "
                  "lowest, which is marked, limits it. The dashed line was measured.",
       .kind = FigureKind::bar,
       .x_label = "resource",
       .y_label = "images/s",
       .logarithmic = true},
      "ceiling", ceilings, 1);
  for (Figure& figure : all) {
    const std::vector<double>& rates = figure.series[0].y;
    figure.marked = figure.categories[static_cast<std::size_t>(
        std::min_element(rates.begin(), rates.end()) - rates.begin())];
    add_bound(figure, "as it is", baseline);
  }
  return all;
}

/// Returns one bar per stage: CPU time per sample.
std::vector<Figure> stage_bars(const Json& json) {
  return member_bars(
      {.id = "stages",
       .title = "Cost of a sample",
       .caption = "CPU time on an otherwise idle core; machinery is the graph around "
                  "the stages.",
       .kind = FigureKind::bar,
       .x_label = "stage",
       .y_label = "µs of CPU per sample"},
      "CPU", member(member(json, "model"), "cpu_s_per_image"), 1e6);
}

/// Returns the baseline's load by its wait breakdown, one bar per part.
std::vector<Figure> wait_bars(const Json& summary) {
  return member_bars({.id = "blame",
                      .title = "Wait breakdown",
                      .caption = "The baseline's load.",
                      .kind = FigureKind::bar,
                      .x_label = "part of load",
                      .y_label = "seconds"},
                     "load", member(summary, "blame"), 1);
}

std::string ratio_text(double ratio) {
  return std::isfinite(ratio) ? fmt::format("{:.3f}", ratio) : "";
}

ReportTable change_table(const std::vector<WhatIf>& changes) {
  ReportTable table{.id = "what-if-table",
                    .title = "Predictions",
                    .caption = "Ratios to the baseline; 90%: interval of the predicted one.",
                    .header = {"change", "predicted images/s", "ratio", "90%"}};
  const bool measured = any_measured(changes);
  if (measured) {
    table.title = "Predictions and measurements";
    table.caption =
        "Ratios to the baseline; 90%: interval of the predicted one; error: predicted / measured "
        "- 1.";
    table.header.insert(table.header.end(), {"measured images/s", "ratio", "error"});
  }
  for (const WhatIf& one : changes) {
    table.rows.push_back(
        {one.text(), with_thousands(one.predicted), ratio_text(one.predicted_ratio),
         std::isfinite(one.low) ? ratio_text(one.low) + " to " + ratio_text(one.high) : ""});
    if (!measured) continue;
    std::vector<std::string>& row = table.rows.back();
    row.push_back(std::isfinite(one.measured)    ? with_thousands(one.measured)
                  : std::isfinite(one.disturbed) ? "void: " + with_thousands(one.disturbed)
                  : one.runs_here                ? "-"
                                                 : "not run here");
    row.push_back(
        ratio_text(std::isfinite(one.measured_ratio) ? one.measured_ratio : one.disturbed_ratio));
    row.push_back(std::isfinite(one.error) ? base::signed_percent(one.error) : "");
  }
  return table;
}

/// Adds the lines of advice that the profile printed.
void add_advice(const Json& advice, Report& report) {
  for (const char* key : {"text", "workers_text"}) {
    const std::string line = text_at(advice, {key});
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos)
      report.facts.emplace_back(line.substr(0, colon), line.substr(colon + 2));
  }
}

/// Adds the score of a verification, or why it has none.
void add_verification(const Json& verification, Report& report) {
  const auto number = [&](const char* key) { return number_at(verification, {key}); };
  if (number("counted") > 0)
    report.facts.emplace_back(
        "verified", fmt::format("changes that count: {}; median error {}, worst {}, skill {:.2f}",
                                number("counted"), base::percent(number("median_error"), 1),
                                base::percent(number("worst_error"), 1), number("skill")));
  if (number("with_interval") > 0)
    report.facts.emplace_back(
        "within the 90% interval",
        fmt::format("{} of {} measured ratios", number("held"), number("with_interval")));
  const std::string runs = fmt::format(
      "other programs took more than {:.0f}% of the machine in {:.0f} of {} runs",
      100 * number("most_others"), number("void_runs"), member(verification, "runs").size());
  if (text_at(verification, {"void"}) == "true")
    report.notes.push_back("the verification is void and has no score: " + runs);
  else if (text_at(verification, {"accept_noise"}) == "true")
    report.notes.push_back("the verification used disturbed runs (--accept-noise): " + runs);
}

void add_profile_facts(const Json& summary, Report& report) {
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) report.facts.emplace_back(name, value);
  };
  add("the run's own verdict", text_at(summary, {"run_verdict"}));
  add_advice(member(summary, "advice"), report);
  add_verification(member(summary, "verification"), report);
  for (const Json& remark : member(summary, "remarks"))
    if (remark.is_string()) report.notes.push_back(remark.get<std::string>());
  const double others = number_at(summary, {"others_busy"});
  if (others > 0.1)
    report.notes.push_back(
        fmt::format("other processes used up to {:.0f}% of the machine during a "
                    "run: repeat the profile on a quiet machine before trusting "
                    "small differences",
                    100 * others));
}

}  // namespace

Report profile_report(const fs::path& path) {
  const Json summary = read_json(path / "summary.json");
  const Json predictions = read_json(path / "predictions.json");
  const Json& all = summary.is_object() ? summary : predictions;
  const Summary baseline_run = summary_from(summary);
  const Json& ceilings = member(summary, "ceilings");

  Report report;
  report.title = "Profile " + path.filename().string();
  if (const std::string recipe = text_at(all, {"recipe"}); !recipe.empty())
    report.title += ": " + recipe;
  report.verdict = text_at(all, {"verdict"});
  add_profile_facts(summary, report);
  const double baseline = baseline_in(all);
  if (std::isfinite(baseline))
    report.facts.emplace_back("baseline, images/s", with_thousands(baseline));
  if (summary.is_object()) {
    // The rate of the summary is the first run's; all tables compare with the baseline's.
    Facts facts = summary_facts(baseline_run);
    std::erase_if(facts, [](const auto& fact) { return fact.first == "images/s, training"; });
    report.facts.insert(report.facts.end(), facts.begin(), facts.end());
  } else {
    report.notes.emplace_back(
        "no summary.json: the profile is still going, or was stopped before "
        "its end; this report shows its predictions");
  }

  const std::vector<WhatIf> changes = changes_in(all);
  append(report.figures, ceiling_bars(ceilings, baseline));
  append(report.figures, worker_lines(baseline_run, ceilings, changes, baseline));
  append(report.figures, worker_bars(path, baseline_run, changes, baseline));
  append(report.figures, wait_bars(summary));
  append(report.figures, wait_quantiles(baseline_run));
  append(report.figures, stage_bars(all));
  if (changes.empty()) {
    report.notes.emplace_back("no change has been predicted yet");
  } else {
    report.figures.push_back(change_bars(changes, baseline));
    report.tables.push_back(change_table(changes));
  }
  if (!any_measured(changes))
    report.notes.emplace_back(
        "nothing was measured: millrace profile ... --verify runs the changes");
  return report;
}

}  // namespace millrace::study
