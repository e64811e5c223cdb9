// Facts of a run for people: names and values.
#include "study/report/run_facts.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/number_text.h"
#include "study/analysis/machine.h"
#include "study/records/run_files.h"
#include "study/report/figures.h"

namespace millrace::study {
namespace {

using Json = nlohmann::ordered_json;

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
    if (std::isfinite(value)) add(name, base::decimal(factor * value, digits) + unit);
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
  return whole > 0 ? fmt::format("{} ({})", seconds(part), base::percent(part / whole, 1))
                   : seconds(part);
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

}  // namespace

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

std::string state_of(const Json& summary) {
  if (!summary.is_object()) return "no summary.json: the run is still going, or was killed";
  const std::string error = text_at(summary, {"error"});
  if (!error.empty()) return "failed: " + error;
  if (!is_complete(summary))
    return "incomplete: still going, or cut off after step " + text_at(summary, {"steps"});
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

}  // namespace millrace::study
