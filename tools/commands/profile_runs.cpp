// Starts the children of a profile, reads their records, and formats predictions and
// measurements.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/number_text.h"
#include "millrace/error.h"
#include "predict/interval.h"
#include "predict/rules.h"
#include "predict/score.h"
#include "predict/verification.h"
#include "study/analysis/machine.h"
#include "study/analysis/whatif.h"
#include "study/records/run_files.h"
#include "study/report/profile_text.h"
#include "study/sweep/sweep_pace.h"
#include "tools/commands/profile.h"
#include "tools/data/data.h"
#include "tools/launch/launch.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

RunFigures figures_of(const fs::path& file, const RunLength& length) {
  RunFigures figures;
  std::int64_t images = 0, window_images = 0;
  double load = 0, update = 0, log = 0, window_s = 0;
  std::vector<double> rates, times;
  std::uint64_t steps = 0;
  study::for_each_step(file, [&](const study::StepSum& step) {
    if (step.last <= length.warm_up) return;
    ++steps;
    images += step.images;
    const double load_s = static_cast<double>(step.load_ns()) * 1e-9;
    const double update_s = static_cast<double>(step.update_ns()) * 1e-9;
    load += load_s;
    update += update_s;
    log += static_cast<double>(step.ns[static_cast<std::size_t>(measure::Span::log)]) * 1e-9;
    times.push_back(load_s + update_s);
    window_images += step.images;
    window_s += times.back();
    if (steps % length.window == 0 && window_s > 0)
      rates.push_back(static_cast<double>(std::exchange(window_images, 0)) /
                      std::exchange(window_s, 0));
  });
  if (steps == 0 || load + update <= 0)
    throw RunError(fmt::format("{}: no steps to count", file.string()));
  const auto count = static_cast<double>(steps);
  constexpr std::size_t kEnoughWindows = 5;
  figures.images_per_s = rates.size() >= kEnoughWindows
                             ? predict::median(std::move(rates))
                             : static_cast<double>(images) / (load + update);
  figures.step_s = predict::median(std::move(times));
  figures.load_s = load / count;
  figures.update_s = update / count;
  figures.log_s = log / count;
  return figures;
}

}  // namespace

RunLength run_length(double step_s, double seconds, int prefetch, std::uint64_t batches_per_epoch) {
  RunLength length;
  length.warm_up = static_cast<std::uint64_t>(std::max(8, prefetch + 2));
  length.steps =
      static_cast<std::uint64_t>(std::clamp(seconds / std::max(step_s, 1e-9), 16.0, 100'000.0));
  length.window = std::max<std::uint64_t>(length.window, 4 * static_cast<std::uint64_t>(prefetch));
  for (std::uint64_t* const count : {&length.steps, &length.window})
    if (batches_per_epoch <= 2 * *count)
      *count = std::max<std::uint64_t>(1, (*count + batches_per_epoch / 2) / batches_per_epoch) *
               batches_per_epoch;
  return length;
}

std::string work_text(const ProfileWork& work) {
  constexpr double kModelStartS = 1.5;  // LibTorch and the model, beside the data set
  constexpr double kStepGuessS = 0.02;
  const bool model = work.devices > 0;
  const double run_s = work.start_s + (model ? kModelStartS : 0) + work.run_s;
  const double short_s =
      run_s - work.run_s + static_cast<double>(kShortRun.warm_up + kShortRun.steps) * kStepGuessS;
  const auto times = [](std::size_t count, double seconds) {
    return static_cast<double>(count) * seconds;
  };
  const double first_s = times(work.probes, work.probe_s) + times(work.devices, short_s + run_s) +
                         times(work.baselines, run_s);
  const std::size_t runs = 2 * work.devices + work.baselines;
  if (work.verifications == 0)
    return fmt::format("about {}: {} of the loader, {}", study::duration_text(first_s),
                       base::counted(work.probes, "probe"), base::counted(runs, "run"));
  return fmt::format("about {}: {} of the loader, {}, then {} of --verify",
                     study::duration_text(first_s + times(work.verifications, run_s)),
                     base::counted(work.probes, "probe"), base::counted(runs, "run"),
                     base::counted(work.verifications, "run"));
}

ChildRuns::ChildRuns(std::vector<std::string> recipe, fs::path folder)
    : recipe_(std::move(recipe)), folder_(std::move(folder)) {}

RunFigures ChildRuns::run(const std::string& name, const std::vector<std::string>& overrides,
                          const RunLength& length) {
  std::string label = name;
  for (char& c : label)
    if (c == '/' || c == ' ' || static_cast<unsigned char>(c) < 0x20) c = '_';
  if (label.size() > 100) label.resize(100);
  const fs::path folder = folder_ / fmt::format("{:03}-{}", ++started_, label);
  std::vector<std::string> child{"train"};
  child.insert(child.end(), recipe_.begin(), recipe_.end());
  child.insert(child.end(), overrides.begin(), overrides.end());
  child.insert(child.end(), {fmt::format("train.steps={}", length.warm_up + length.steps),
                             "train.epochs=1000000", "eval.split=none",
                             // Loading would go on while the trainer waits for a checkpoint.
                             "train.checkpoints=false", "train.early_stopping.metric=off", "--run",
                             folder.string()});
  fs::create_directories(folder_);
  fs::path log = folder;
  log += ".log";
  const study::MachineSample before = study::sample_machine();
  const std::int64_t own = base::Clock::process_cpu_ns();
  const ChildResult result = run_child(child, log);
  const double own_s = static_cast<double>(base::Clock::process_cpu_ns() - own) * 1e-9;
  const study::Noise noise =
      study::noise_between(before, study::sample_machine(), own_s + result.cpu_s);
  if (interrupted())
    throw Error(Exit::interrupted, fmt::format("interrupted in run {}", started_),
                "the measurements so far are in " + folder_.string());
  if (result.exit_code != 0)
    throw Error(
        static_cast<Exit>(result.exit_code >= 1 && result.exit_code <= 4 ? result.exit_code : 1),
        fmt::format("{}: {}", name, result.last_line), "its messages are in " + log.string());
  RunFigures figures = figures_of(folder / "steps.csv", length);
  figures.others = std::min(noise.others + noise.steal, 1.0);
  figures.summary = study::read_summary(folder / "summary.json");
  if (!figures.summary.there) throw RunError((folder / "summary.json").string() + " is missing");
  return figures;
}

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

/// Returns the 90% interval of the measured ratio of the outcome with that index, if it has one.
std::optional<std::pair<double, double>> measured_interval(const ProfileReport& report,
                                                           std::size_t change) {
  if (!report.verified || !report.conclusion.outcomes[change].measured) return std::nullopt;
  return report.verified->interval(change);
}

Json what_if_json(const ProfileReport& report) {
  const double baseline = baseline_of(report);
  Json all = Json::array();
  for (const study::Outcome& one : report.conclusion.outcomes) {
    const auto error = one.error();
    all.push_back(
        {{"change", words_json(one.change)},
         {"predicted", one.predicted * baseline},
         {"measured", one.measured ? Json(*one.measured * baseline) : Json(nullptr)},
         {"error", error ? Json(*error) : Json(nullptr)},
         {"baseline", baseline},
         {"predicted_ratio", one.predicted},
         {"predicted_low", one.low},
         {"predicted_high", one.high},
         {"measured_ratio", one.measured ? Json(*one.measured) : Json(nullptr)},
         {"disturbed_ratio", one.disturbed ? Json(*one.disturbed) : Json(nullptr)},
         {"runs_here", one.change.runnable()},
         {"counted", one.has_effect() && !study::is_arithmetic(one.change, report.simulated)}});
    if (const auto interval = measured_interval(report, all.size() - 1)) {
      all.back()["measured_low"] = interval->first;
      all.back()["measured_high"] = interval->second;
    }
    if (!one.change.packing) continue;
    all.back()["bytes_ratio"] = one.change.packing->bytes;
    all.back()["lossy"] = one.change.packing->lossy();
  }
  return all;
}

/// Returns the score, or nothing for a void verification.
std::optional<predict::Score> score_of(const ProfileReport& report) {
  if (!report.verified || report.verified->is_void()) return std::nullopt;
  return study::score_of(report.conclusion.outcomes, report.simulated);
}

Json verification_json(const ProfileReport& report) {
  const predict::Verification& verified = *report.verified;
  const auto score = score_of(report);
  const auto scored = [&](auto predict::Score::*member) {
    return score ? Json((*score).*member) : Json(nullptr);
  };
  Json runs = Json::array();
  for (const predict::TimedRun& one : verified.runs())
    runs.push_back(
        {{"change",
          one.change ? words_json(report.conclusion.outcomes[*one.change].change) : Json::array()},
         {"images_per_s", one.images_per_s},
         {"others_busy", one.others},
         {"void", one.is_void()}});
  return {{"counted", scored(&predict::Score::counted)},
          {"median_error", scored(&predict::Score::median_error)},
          {"worst_error", scored(&predict::Score::worst_error)},
          {"skill", scored(&predict::Score::skill)},
          {"arithmetic", scored(&predict::Score::arithmetic)},
          {"with_interval", scored(&predict::Score::with_interval)},
          {"held", scored(&predict::Score::held)},
          {"accept_noise", verified.accepts_noise()},
          {"stopped", verified.stopped()},
          {"void", verified.is_void()},
          {"most_others", predict::kMaxOthers},
          {"void_runs", verified.void_runs()},
          {"baseline_scatter", verified.baseline_scatter()},
          {"runs", std::move(runs)}};
}

/// Returns the planned runs of --verify: per block, the changes in order. A baseline runs before
/// and after each.
Json order_json(const ProfileReport& report) {
  Json blocks = Json::array();
  for (const auto& block : report.order) {
    Json changes = Json::array();
    for (const std::size_t change : block)
      changes.push_back(words_json(report.conclusion.outcomes[change].change));
    blocks.push_back(std::move(changes));
  }
  return blocks;
}

Json model_json(const ProfileReport& report) {
  const study::StageDemand& s = report.conclusion.demand;
  return {{"cpu_s_per_image",
           {{"read", s.read_s},
            {"decode", s.decode_s},
            {"augment", s.augment_s},
            {"machinery", s.machinery_s}}},
          {"demand_fit", report.conclusion.demand_fit},
          {"crowding_stage", report.crowding_stage},
          {"crowding_update", report.crowding_update},
          {"wake_s", report.wake_s},
          {"take_s", report.take_s},
          {"demand_spread", report.spread},
          {"replayed_images_per_s", report.conclusion.replayed.images_per_s},
          {"replayed_load_s_per_step", report.conclusion.replayed.load_s},
          {"replayed_update_s_per_step", report.conclusion.replayed.update_s},
          {"cores_busy", report.conclusion.replayed.cores_busy},
          {"workers_busy", report.conclusion.replayed.workers_busy},
          {"device_busy", report.conclusion.replayed.device_busy},
          {"storage_busy", report.conclusion.replayed.storage_busy}};
}

std::string stage_table(const ProfileReport& report) {
  std::vector<std::vector<std::string>> rows{{"loading a sample", "CPU µs", "share"}};
  const study::StageDemand& s = report.conclusion.demand;
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

/// Returns the wait breakdown of the run in a line, and what it says about the bound in another.
std::string blame_line(const ProfileReport& report) {
  const study::Summary& summary = report.summary;
  std::string text;
  for (const auto& [part, seconds] : summary.blame) {
    const double share = seconds / std::max(1e-12, study::to_number(summary.load_s));
    if (share >= 0.01)
      text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : ", ", part, 100 * share);
  }
  return fmt::format("load, {:.3f} ms per step: {}\nthe run's own verdict: {}\n",
                     1e3 * study::to_number(summary.load_s_per_step), text.empty() ? "none" : text,
                     report.conclusion.run_verdict);
}

/// Says what a verification without a score lacks, and what to do.
std::string void_text(const ProfileReport& report) {
  if (report.verified->stopped())
    return "the verification stopped after its first block, because every run of it was void: "
           "repeat it on a quiet machine, or use such runs with --accept-noise\n";
  const auto unmeasured = std::count_if(
      report.conclusion.outcomes.begin(), report.conclusion.outcomes.end(),
      [](const study::Outcome& one) { return one.change.runnable() && !one.measured; });
  return fmt::format(
      "the verification is void and has no score: {} {} too few valid runs; repeat it on a quiet "
      "machine, or use void runs with --accept-noise\n",
      base::counted(unmeasured, "change"), unmeasured == 1 ? "has" : "have");
}

constexpr double kNotedScatter = 0.05;  ///< of the baseline's runs

std::string score_text(const ProfileReport& report) {
  const predict::Verification& verified = *report.verified;
  std::string runs =
      fmt::format("{} of {} were {} (other programs took more than {:.0f}% of the machine)\n",
                  verified.void_runs(), base::counted(verified.runs().size(), "run"),
                  verified.accepts_noise() ? "disturbed and used all the same" : "void",
                  100 * predict::kMaxOthers);
  const auto score = score_of(report);
  if (!score) return void_text(report) + runs;
  if (verified.baseline_scatter() > kNotedScatter)
    runs += fmt::format(
        "warning: runs of the baseline differed by {} (standard deviation): errors may be as "
        "large\n",
        base::percent(verified.baseline_scatter()));
  std::string text =
      fmt::format("{} of {} lie within the 90% interval of their prediction\n", score->held,
                  base::counted(score->with_interval, "measured ratio"));
  if (score->arithmetic > 0)
    text += fmt::format(
        "{} of the simulated device or its batch {} not count: their rate is "
        "arithmetic\n",
        base::counted(score->arithmetic, "change"), score->arithmetic == 1 ? "does" : "do");
  if (score->counted == 0)
    return "no change that counts had a predicted or measured effect of 20%: nothing to score\n" +
           text + runs;
  return fmt::format(
             "{} (predicted or measured effect of at least {:.0f}%): median error {}, worst {}, "
             "skill {:.2f}\n",
             score->counted == 1 ? "1 change counts"
                                 : fmt::format("{} changes count", score->counted),
             100 * predict::kCountedEffect, base::percent(score->median_error, 1),
             base::percent(score->worst_error, 1), score->skill) +
         text + runs;
}

/// Returns a line for each way to pack that is worthwhile: "packed at short side 256: 2.1x, 31% of
/// the bytes".
std::string packing_text(const ProfileReport& report) {
  std::string text;
  bool lossy = false;
  for (const study::Outcome& one : report.conclusion.outcomes) {
    if (!one.change.packing || one.predicted < predict::kWorthwhile) continue;
    const study::Packing& way = *one.change.packing;
    text += fmt::format("packed{}{}: {:.1f}x, {:.0f}% of the bytes\n", way.raw ? " raw" : "",
                        way.lossy() ? fmt::format(" at short side {}", way.short_side) : "",
                        one.predicted, 100 * way.bytes);
    lossy = lossy || way.lossy();
  }
  if (lossy) text += std::string(kLossyPacking) + "\n";
  return text;
}

std::string advice_lines(const ProfileReport& report) {
  const double baseline = baseline_of(report);
  std::string text = study::advice_text(report.conclusion, baseline) + "\n";
  if (report.conclusion.bound.find("storage") != std::string::npos) {
    std::string alone;
    for (const study::Outcome* one : study::storage_changes(report.conclusion.outcomes))
      alone +=
          fmt::format("{}{} {:.3f}", alone.empty() ? "" : ", ", one->change.text(), one->predicted);
    if (!alone.empty()) text += fmt::format("one change alone: {}\n", alone);
  }
  return text + study::workers_text(report.conclusion, report.workers, baseline) + "\n";
}

Json advice_json(const ProfileReport& report) {
  const double baseline = baseline_of(report);
  const study::Outcome* best = report.conclusion.advised();
  const study::WorkerRows rows = report.conclusion.enough_workers(report.workers);
  return {{"workers", rows.workers},
          {"prefetch", report.prefetch},
          {"images_per_s", rows.ratio * baseline},
          {"best_images_per_s", rows.best_ratio * baseline},
          {"change", best != nullptr ? words_json(best->change) : Json(nullptr)},
          {"change_ratio",
           best != nullptr ? Json(best->measured.value_or(best->predicted)) : Json(nullptr)},
          {"text", study::advice_text(report.conclusion, baseline)},
          {"workers_text", study::workers_text(report.conclusion, report.workers, baseline)}};
}

}  // namespace

Json predictions_json(const ProfileReport& report) {
  Json json{{"command", "profile"},
            {"recipe", report.recipe},
            {"baseline_images_per_s", report.baseline},
            {"bound", report.conclusion.bound},
            {"verdict", report.conclusion.sentence},
            {"what_if", what_if_json(report)},
            {"model", model_json(report)}};
  if (!report.order.empty())
    json["verification"] = {{"most_others", predict::kMaxOthers}, {"order", order_json(report)}};
  return json;
}

Json profile_json(const ProfileReport& report) {
  Json json = study::to_json(report.summary);
  json["command"] = "profile";
  json["run_bound"] = json["bound"];  // by the waits alone
  json["run_verdict"] = report.conclusion.run_verdict;
  json["bound"] = report.conclusion.bound;
  json["verdict"] = report.conclusion.sentence;
  json["ceilings"] = Json::object();
  for (const study::Ceiling& one : report.conclusion.ceilings)
    json["ceilings"][one.name] = one.images_per_s;
  json["what_if"] = what_if_json(report);
  if (report.verified) json["verification"] = verification_json(report);
  json["advice"] = advice_json(report);
  json["remarks"] = report.remarks;
  json["model"] = model_json(report);
  json["others_busy"] = report.others;
  return json;
}

namespace {

/// Says what a table beside a simulated device does not know about batch sizes.
std::string batch_text(const ProfileReport& report) {
  const auto& outcomes = report.conclusion.outcomes;
  const bool any = std::any_of(outcomes.begin(), outcomes.end(), [](const study::Outcome& one) {
    return one.change.overrides.size() == 1 && one.change.overrides[0].starts_with("loader.batch=");
  });
  if (!report.simulated || !any) return "";
  return "loader.batch: a real update grows with the batch, the simulated one does not; no "
         "advice\n";
}

}  // namespace

std::string profile_text(const ProfileReport& report) {
  std::string text;
  if (report.others > predict::kMaxOthers)
    text = fmt::format(
        "warning: other programs took up to {} of the machine during a run; repeat the profile on "
        "a quiet machine before trusting small differences\n\n",
        base::percent(report.others));
  text +=
      report.conclusion.sentence + "\n" + blame_line(report) + "\n" + stage_table(report) + "\n";
  std::vector<std::vector<std::string>> rows{{"ceiling", "images/s"}};
  for (const study::Ceiling& one : report.conclusion.ceilings)
    rows.push_back({one.name, with_commas(one.images_per_s)});
  rows.push_back({"measured", with_commas(baseline_of(report))});
  rows.push_back({"replayed", with_commas(report.conclusion.replayed.images_per_s)});
  text += to_table(rows) + "\n" +
          to_table(study::change_rows(report.conclusion.outcomes, baseline_of(report),
                                      report.verified.has_value())) +
          "\n";
  if (report.verified) text += score_text(report);
  text += batch_text(report);
  text += packing_text(report);
  text += advice_lines(report);
  for (const std::string& remark : report.remarks) text += "note: " + remark + "\n";
  return text;
}

}  // namespace millrace::tools
