// Facts of a run for people: names and values.
#include "study/report/run_facts.h"

#include <fmt/format.h>

#include <cmath>

#include "base/number_text.h"
#include "study/analysis/machine.h"
#include "study/records/run_files.h"
#include "study/report/figures.h"

namespace millrace::study {
namespace {

std::string seconds(double value) { return fmt::format("{:.3f} s", value); }

std::string text(const std::optional<std::int64_t>& count) {
  return count ? std::to_string(*count) : "";
}

class FactList {
 public:
  void add(const std::string& name, const std::optional<std::string>& value) {
    if (value && !value->empty()) facts_.emplace_back(name, *value);
  }
  void count(const char* name, const auto& value) {
    if (value) add(name, with_thousands(to_number(value)));
  }
  /// Adds the count unless it is 0.
  void count_unless_none(const char* name, const auto& value) {
    if (value > 0) count(name, value);
  }
  void number(const char* name, const auto& value, double factor, int digits, const char* unit) {
    if (value) add(name, base::decimal(factor * to_number(value), digits) + unit);
  }
  Facts take() { return std::move(facts_); }

 private:
  Facts facts_;
};

std::string share(double part, double whole) {
  return whole > 0 ? fmt::format("{} ({})", seconds(part), base::percent(part / whole, 1))
                   : seconds(part);
}

std::string model_of(const Summary& summary) {
  if (!summary.model || !(summary.params > 0)) return summary.model.value_or("");
  return fmt::format("{}, {} parameters", *summary.model,
                     with_thousands(to_number(summary.params)));
}

std::string data_of(const DatasetRecord& data) {
  if (!data.reader) return "";
  return fmt::format("{}, {}, {} samples, classes: {}", *data.reader, data.split.value_or(""),
                     with_thousands(to_number(data.samples)), text(data.classes));
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

std::string state_of(const Summary& summary) {
  if (!summary.there) return "no summary.json: the run is still going, or was killed";
  if (!summary.error.value_or("").empty()) return "failed: " + *summary.error;
  if (!is_complete(summary))
    return "incomplete: still going, or cut off; the figures cover " + text(summary.steps) +
           " steps";
  if (summary.interrupted == true) return "interrupted after step " + text(summary.steps);
  return "finished";
}

std::string early_stop_of(const Summary& summary) {
  const EarlyStoppingRecord& stopping = summary.early_stopping;
  if (stopping.stopped != true) return "";
  const std::string begin = fmt::format("stopped early at epoch {}: {}", text(stopping.last_epoch),
                                        stopping.metric.value_or(""));
  if (!(stopping.best_epoch > 0)) return begin + " has never been a finite number";
  return fmt::format(
      "{} has not improved{} since epoch {}", begin,
      stopping.min_delta > 0 ? fmt::format(" by more than {:g}", *stopping.min_delta) : "",
      text(stopping.best_epoch));
}

Facts summary_facts(const Summary& s) {
  FactList facts;
  facts.add("recipe", s.recipe);
  facts.add("data set", data_of(s.dataset));
  facts.add("model", model_of(s));
  facts.add("strategy", s.strategy);
  facts.add("device", s.device);
  if (s.world_size > 1) facts.count("ranks", s.world_size);
  facts.count("batch", s.batch);
  facts.count("workers", s.workers);
  facts.count_unless_none("I/O threads", s.io_threads);
  facts.count("prefetch", s.prefetch);
  facts.count("LibTorch threads", s.threads);
  facts.add("clock", s.clock);
  facts.add("seed", text(s.seed));
  facts.count("epochs", s.epochs);
  facts.add("early stopping", early_stop_of(s));
  facts.count("steps", s.steps);
  facts.count("images", s.images);
  facts.count_unless_none("failed samples", s.failed);
  facts.count_unless_none("resumed from step", s.resumed_from_step);
  facts.number("wall time", s.wall_s, 1, 3, " s");
  for (const auto& [kind, value] : {std::pair("load", s.load_s), std::pair("update", s.update_s),
                                    std::pair("other", s.other_s)})
    if (value) facts.add(kind, share(*value, to_number(s.wall_s)));
  facts.number("unaccounted", s.unaccounted_s, 1e6, 1, " µs");
  facts.number("load per step", s.load_s_per_step, 1e3, 4, " ms");
  facts.number("update per step", s.update_s_per_step, 1e3, 4, " ms");
  facts.number("update per step, median", s.update_s_per_step_median, 1e3, 4, " ms");
  facts.count_unless_none("set-up steps", s.setup_steps);
  if (s.setup_steps > 0) facts.number("update in set-up steps", s.setup_update_s, 1, 3, " s");
  facts.count("images/s, training", s.images_per_s);
  facts.number("workers needed", s.workers_needed, 1, 1, "");
  facts.number("training loss", s.train_loss, 1, 4, "");
  facts.number("training top-1", s.train_top1, 100, 2, "%");
  facts.number("test loss", s.test_loss, 1, 4, "");
  facts.number("top-1", s.top1, 100, 2, "%");
  facts.number("top-5", s.top5, 100, 2, "%");
  const bool bounded = s.device_busy_is == "upper bound";
  facts.number(bounded ? "device busy, at most" : "device busy", s.device_busy_s, 1, 3, " s");
  facts.count_unless_none("submissions to an idle device", s.device_starved);
  facts.number("GPU utilisation", s.gpu_utilization, 100, 1, "%");
  facts.number("GPU memory utilisation", s.gpu_memory_utilization, 100, 1, "%");
  facts.number("peak memory", s.peak_rss_bytes, 1e-6, 0, " MB");
  if (s.peak_device_bytes > 0)
    facts.number("peak device memory", s.peak_device_bytes, 1e-6, 0, " MB");
  facts.add("host", s.host);
  facts.add("machine", machine_line(s));
  facts.add("millrace", fmt::format("{} ({})", s.version.value_or(""), s.git.value_or("")));
  return facts.take();
}

}  // namespace millrace::study
