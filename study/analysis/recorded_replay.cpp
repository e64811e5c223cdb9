// Turns a summary into the replay's input.
#include "study/analysis/recorded_replay.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "study/records/run_files.h"

namespace millrace::study {

std::optional<ReplayInput> recorded_input(const nlohmann::ordered_json& summary, bool storage) {
  const auto at = [&](const char* key) { return number_at(summary, {key}); };
  const double images = at("images"), steps = at("steps"), batch = at("batch");
  const double samples = number_at(summary, {"dataset", "samples"});
  const double read = number_at(summary, {"loader_cpu_s", "read"});
  const double decode = number_at(summary, {"loader_cpu_s", "decode"});
  const double augment = number_at(summary, {"loader_cpu_s", "augment"});
  const double log = number_at(summary, {"spans", "log"});
  const double numbers[] = {at("cores"), at("workers"), at("prefetch"), at("update_s_per_step"),
                            samples,     read,          decode,         augment,
                            log};
  const bool known = std::all_of(std::begin(numbers), std::end(numbers), [](double number) {
    return std::isfinite(number) && number >= 0;
  });
  if (!known || !(images > 0) || !(steps > 0) || !(batch >= 1) || at("world_size") != 1 ||
      at("cores") < 1 || samples < 1 || storage || at("resumed_from_step") > 0 ||
      summary.contains("auto_workers"))
    return {};
  const bool on_cpu = text_at(summary, {"device"}).starts_with("cpu");
  ReplayInput in;
  in.cores = static_cast<int>(at("cores"));
  in.workers = static_cast<int>(at("workers"));
  in.io_threads = static_cast<int>(std::max(0.0, at("io_threads")));
  in.prefetch = static_cast<int>(at("prefetch"));
  in.batch = static_cast<std::int64_t>(batch);
  in.samples = static_cast<std::uint64_t>(samples);
  in.sample_s = (decode + augment) / images;
  in.read_s = read / images;
  in.update_s = at("update_s_per_step");
  in.update_threads = on_cpu ? std::max(1, static_cast<int>(at("threads"))) : 0;
  in.frees_early = !on_cpu;  // on the CPU the model reads the slot itself
  in.host_s = log / steps;
  return in;
}

}  // namespace millrace::study
