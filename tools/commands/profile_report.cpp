// Formats a profile's predictions and measurements.
#include "tools/commands/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/terminal/console.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

/// Share of other processes above which measured ratios are unreliable.
constexpr double kNoisy = 0.1;

/// Returns the rate that turns ratios into images/s.
double baseline_of(const ProfileReport& report) {
  return report.verified_baseline.value_or(report.baseline);
}

Json words_json(const study::Change& change) {
  Json all = change.overrides;
  for (const std::string& text : change.assumed) all.push_back(text);
  return all;
}

Json what_if_json(const ProfileReport& report) {
  const double baseline = baseline_of(report);
  Json all = Json::array();
  for (const study::Outcome& one : report.outcomes) {
    const auto error = one.error();
    all.push_back({{"change", words_json(one.change)},
                   {"predicted", one.predicted * baseline},
                   {"measured", one.measured ? Json(*one.measured * baseline) : Json(nullptr)},
                   {"error", error ? Json(*error) : Json(nullptr)},
                   {"baseline", baseline},
                   {"predicted_ratio", one.predicted},
                   {"measured_ratio", one.measured ? Json(*one.measured) : Json(nullptr)},
                   {"runs_here", one.change.runnable()}});
  }
  return all;
}

Json model_json(const ProfileReport& report) {
  const study::StageDemand& s = report.stages;
  return {{"cpu_s_per_image",
           {{"read", s.read_s},
            {"decode", s.decode_s},
            {"augment", s.augment_s},
            {"machinery", s.machinery_s}}},
          {"crowding_stage", report.crowding_stage},
          {"crowding_update", report.crowding_update},
          {"wake_s", report.wake_s},
          {"take_s", report.take_s},
          {"demand_spread", report.spread},
          {"replayed_images_per_s", report.replayed.images_per_s},
          {"replayed_load_s_per_step", report.replayed.load_s},
          {"replayed_update_s_per_step", report.replayed.update_s},
          {"cores_busy", report.replayed.cores_busy},
          {"workers_busy", report.replayed.workers_busy},
          {"device_busy", report.replayed.device_busy},
          {"storage_busy", report.replayed.storage_busy}};
}

std::string percent(double part) { return fmt::format("{:+.1f}%", 100 * part); }

std::string stage_table(const ProfileReport& report) {
  std::vector<std::vector<std::string>> rows{{"loading a sample", "CPU µs", "share"}};
  const study::StageDemand& s = report.stages;
  const std::pair<const char*, double> stages[] = {{"read", s.read_s},
                                                   {"decode", s.decode_s},
                                                   {"augment", s.augment_s},
                                                   {"graph", s.machinery_s}};
  for (const auto& [name, seconds] : stages)
    if (seconds > 0)
      rows.push_back({name, fmt::format("{:.2f}", 1e6 * seconds),
                      fmt::format("{:.0f}%", 100 * seconds / s.total())});
  return to_table(rows);
}

/// Returns the run's own wait breakdown in a line.
std::string blame_line(const Json& summary) {
  std::string text;
  for (const auto& [part, seconds] : summary["blame"].items()) {
    const double share = seconds.get<double>() / std::max(1e-12, summary["load_s"].get<double>());
    if (share >= 0.01)
      text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : ", ", part, 100 * share);
  }
  return fmt::format("load, {:.3f} ms per step: {}\nthe run's own verdict: {}\n",
                     1e3 * summary["load_s_per_step"].get<double>(), text.empty() ? "none" : text,
                     summary["verdict"].get<std::string>());
}

std::string what_if_table(const ProfileReport& report) {
  const double baseline = baseline_of(report);
  std::vector<std::vector<std::string>> rows{
      {"change", "predicted images/s", "ratio", "measured", "ratio", "error"}};
  std::vector<const study::Outcome*> order;
  for (const study::Outcome& one : report.outcomes) order.push_back(&one);
  std::stable_sort(
      order.begin(), order.end(),
      [](const study::Outcome* a, const study::Outcome* b) { return a->predicted > b->predicted; });
  for (const study::Outcome* one : order) {
    const auto error = one->error();
    rows.push_back({one->change.text(), with_commas(one->predicted * baseline),
                    fmt::format("{:.3f}", one->predicted),
                    one->measured            ? with_commas(*one->measured * baseline)
                    : one->change.runnable() ? "-"
                                             : "not run here",
                    one->measured ? fmt::format("{:.3f}", *one->measured) : "",
                    error ? percent(*error) : ""});
  }
  return to_table(rows);
}

}  // namespace

Json predictions_json(const ProfileReport& report) {
  return {{"command", "profile"},
          {"recipe", report.recipe},
          {"baseline_images_per_s", report.baseline},
          {"bound", report.bound.name},
          {"verdict", report.bound.sentence},
          {"what_if", what_if_json(report)},
          {"model", model_json(report)}};
}

Json profile_json(const ProfileReport& report) {
  Json json = report.summary;
  json["command"] = "profile";
  // The run's bound follows from where its load went; the profile's follows from the ceilings.
  json["run_bound"] = json["bound"];
  json["run_verdict"] = json["verdict"];
  json["bound"] = report.bound.name;
  json["verdict"] = report.bound.sentence;
  json["ceilings"] = Json::object();
  for (const study::Ceiling& one : report.ceilings) json["ceilings"][one.name] = one.images_per_s;
  json["what_if"] = what_if_json(report);
  if (report.score)
    json["verification"] = {{"counted", report.score->counted},
                            {"median_error", report.score->median_error},
                            {"worst_error", report.score->worst_error},
                            {"skill", report.score->skill}};
  json["advice"] = {{"workers", report.advice.workers},
                    {"prefetch", report.advice.prefetch},
                    {"images_per_s", report.advice.images_per_s},
                    {"best_images_per_s", report.advice.best_images_per_s}};
  json["model"] = model_json(report);
  json["others_busy"] = report.others;
  return json;
}

std::string profile_text(const ProfileReport& report) {
  std::string text =
      report.bound.sentence + "\n" + blame_line(report.summary) + "\n" + stage_table(report) + "\n";
  std::vector<std::vector<std::string>> rows{{"ceiling", "images/s"}};
  for (const study::Ceiling& one : report.ceilings)
    rows.push_back({one.name, with_commas(one.images_per_s)});
  rows.push_back({"measured", with_commas(baseline_of(report))});
  rows.push_back({"replayed", with_commas(report.replayed.images_per_s)});
  text += to_table(rows) + "\n" + what_if_table(report) + "\n";
  if (report.score && report.score->counted > 0) {
    const study::Score& score = *report.score;
    text += fmt::format(
        "{} changes count (measured effect of at least {:.0f}%): median error {:.1f}%, worst "
        "{:.1f}%, skill {:.2f}\n",
        score.counted, 100 * study::kCountedEffect, 100 * score.median_error,
        100 * score.worst_error, score.skill);
  } else if (report.score) {
    text += "no change had a measured effect of 20%: nothing to score\n";
  }
  const study::Advice& advice = report.advice;
  text += fmt::format(
      "advice: loader.workers={} loader.prefetch={} gives {} of at most {} images/s{}\n",
      advice.workers, advice.prefetch, with_commas(advice.images_per_s),
      with_commas(advice.best_images_per_s),
      advice.workers == report.workers && advice.prefetch == report.prefetch ? ": as configured"
                                                                             : "");
  if (report.others > kNoisy)
    text += fmt::format(
        "warning: other processes used up to {:.0f}% of the machine during a run; repeat the "
        "profile on a quiet machine before trusting small differences\n",
        100 * report.others);
  return text;
}

}  // namespace millrace::tools
