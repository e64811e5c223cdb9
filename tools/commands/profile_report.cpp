// Formats a profile's predictions and measurements.
#include "tools/commands/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/terminal/console.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

/// Returns the rate that turns ratios into images/s.
double baseline_of(const ProfileReport& report) {
  return report.verified ? report.verified->baseline().value_or(report.baseline) : report.baseline;
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

/// Returns the score, or nothing for a void verification.
std::optional<study::Score> score_of(const ProfileReport& report) {
  if (!report.verified || report.verified->is_void()) return std::nullopt;
  return study::score_of(report.outcomes);
}

Json verification_json(const ProfileReport& report) {
  const study::Verification& verified = *report.verified;
  const auto score = score_of(report);
  const auto scored = [&](auto study::Score::*member) {
    return score ? Json((*score).*member) : Json(nullptr);
  };
  Json runs = Json::array();
  for (const study::TimedRun& one : verified.runs())
    runs.push_back(
        {{"change", one.change ? words_json(report.outcomes[*one.change].change) : Json::array()},
         {"images_per_s", one.images_per_s},
         {"others_busy", one.others},
         {"void", one.is_void()}});
  return {{"counted", scored(&study::Score::counted)},
          {"median_error", scored(&study::Score::median_error)},
          {"worst_error", scored(&study::Score::worst_error)},
          {"skill", scored(&study::Score::skill)},
          {"void", verified.is_void()},
          {"most_others", study::kMostOthers},
          {"void_runs", verified.void_runs()},
          {"runs", std::move(runs)}};
}

/// Returns the planned runs of --verify: per block, the changes in order. A baseline runs before
/// and after each.
Json order_json(const ProfileReport& report) {
  Json blocks = Json::array();
  for (const auto& block : report.order) {
    Json changes = Json::array();
    for (const std::size_t change : block)
      changes.push_back(words_json(report.outcomes[change].change));
    blocks.push_back(std::move(changes));
  }
  return blocks;
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
                    one->measured             ? with_commas(*one->measured * baseline)
                    : !one->change.runnable() ? "not run here"
                    : report.verified         ? "void"
                                              : "-",
                    one->measured ? fmt::format("{:.3f}", *one->measured) : "",
                    error ? percent(*error) : ""});
  }
  return to_table(rows);
}

std::string score_text(const ProfileReport& report) {
  const study::Verification& verified = *report.verified;
  const std::string runs = fmt::format(
      "{} of {} runs were void (other programs took more than {:.0f}% of the machine)\n",
      verified.void_runs(), verified.runs().size(), 100 * study::kMostOthers);
  const auto score = score_of(report);
  if (!score) {
    const auto unmeasured = std::count_if(
        report.outcomes.begin(), report.outcomes.end(),
        [](const study::Outcome& one) { return one.change.runnable() && !one.measured; });
    return fmt::format(
        "the verification is void and has no score: {} changes have too few valid runs; repeat it "
        "on a quiet machine\n{}",
        unmeasured, runs);
  }
  if (score->counted == 0)
    return "no change had a predicted or measured effect of 20%: nothing to score\n" + runs;
  return fmt::format(
      "{} changes count (predicted or measured effect of at least {:.0f}%): median error {:.1f}%, "
      "worst {:.1f}%, skill {:.2f}\n{}",
      score->counted, 100 * study::kCountedEffect, 100 * score->median_error,
      100 * score->worst_error, score->skill, runs);
}

std::string advice_text(const ProfileReport& report) {
  const double baseline = baseline_of(report);
  std::string text;
  if (const study::Outcome* best = study::most_helpful(report.outcomes))
    text =
        fmt::format("advice: {} gives {} images/s, {:.2f} times the baseline\n",
                    best->change.text(), with_commas(best->predicted * baseline), best->predicted);
  else
    text = fmt::format("advice: no change that this machine can be given gains {:.0f}%\n",
                       100 * (study::kWorthwhile - 1));
  if (report.bound.name == "storage") {
    std::string alone;
    for (const study::Outcome* one : study::storage_changes(report.outcomes))
      alone +=
          fmt::format("{}{} {:.2f}", alone.empty() ? "" : ", ", one->change.text(), one->predicted);
    if (!alone.empty()) text += fmt::format("one change alone: {}\n", alone);
  }
  const study::Advice& advice = report.advice;
  text += fmt::format(
      "enough workers: loader.workers={} loader.prefetch={} gives {} of at most {} images/s{}\n",
      advice.workers, advice.prefetch, with_commas(advice.images_per_s),
      with_commas(advice.best_images_per_s),
      advice.workers == report.workers && advice.prefetch == report.prefetch ? ": as configured"
                                                                             : "");
  return text;
}

}  // namespace

Json predictions_json(const ProfileReport& report) {
  Json json{{"command", "profile"},
            {"recipe", report.recipe},
            {"baseline_images_per_s", report.baseline},
            {"bound", report.bound.name},
            {"verdict", report.bound.sentence},
            {"what_if", what_if_json(report)},
            {"model", model_json(report)}};
  if (!report.order.empty())
    json["verification"] = {{"most_others", study::kMostOthers}, {"order", order_json(report)}};
  return json;
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
  if (report.verified) json["verification"] = verification_json(report);
  const study::Outcome* best = study::most_helpful(report.outcomes);
  json["advice"] = {{"workers", report.advice.workers},
                    {"prefetch", report.advice.prefetch},
                    {"images_per_s", report.advice.images_per_s},
                    {"best_images_per_s", report.advice.best_images_per_s},
                    {"change", best != nullptr ? words_json(best->change) : Json(nullptr)},
                    {"change_ratio", best != nullptr ? Json(best->predicted) : Json(nullptr)}};
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
  if (report.verified) text += score_text(report);
  text += advice_text(report);
  if (report.others > study::kMostOthers)
    text += fmt::format(
        "warning: other processes used up to {:.0f}% of the machine during a run; repeat the "
        "profile on a quiet machine before trusting small differences\n",
        100 * report.others);
  return text;
}

}  // namespace millrace::tools
