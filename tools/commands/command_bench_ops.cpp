// millrace bench ops: compares the native convolutions and poolings with LibTorch's.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/simd.h"
#include "strategies/trainer/torch_library.h"
#include "study/records/run_directory.h"
#include "tools/commands/commands.h"
#include "tools/terminal/console.h"
#include "tools/terminal/output.h"
#include "tools/training/train_records.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

double total(const train::OpSeconds& seconds) {
  return seconds.forward + seconds.backward + seconds.step;
}

Json seconds_json(const train::OpSeconds& seconds) {
  Json json{{"forward_s", seconds.forward}, {"backward_s", seconds.backward}};
  if (seconds.step > 0) json["step_s"] = seconds.step;
  json["total_s"] = total(seconds);
  return json;
}

Exit run(const train::OpsBenchOptions& options) {
  const std::vector<train::OpTiming> timings = train::bench_ops_in_library(options);
  const std::string_view simd = base::name_of(base::simd_level());
  if (verbosity().json) {
    Json json;
    json["command"] = "bench ops";
    json["torch"] = train::torch_version();
    json["batch"] = options.batch;
    json["threads"] = options.threads;
    json["rounds"] = options.rounds;
    json["simd"] = simd;
    for (const train::OpTiming& timing : timings) {
      Json entry{{"op", timing.name}, {"torch", seconds_json(timing.torch)}};
      if (timing.native) {
        entry["native"] = seconds_json(*timing.native);
        entry["native_of_torch"] = total(*timing.native) / total(timing.torch);
        entry["difference"] = timing.difference;
      }
      json["ops"].push_back(entry);
    }
    print("{}\n", study::to_text(json, 2));
    return Exit::done;
  }
  const auto us = [](double seconds) { return fmt::format("{:.0f}", 1e6 * seconds); };
  std::vector<std::vector<std::string>> rows{{"µs per call", "torch forward", "backward", "all",
                                              "native forward", "backward", "all", "torch / native",
                                              "difference"}};
  for (const train::OpTiming& timing : timings) {
    std::vector<std::string> row{timing.name, us(timing.torch.forward), us(timing.torch.backward),
                                 us(total(timing.torch))};
    if (timing.native)
      row.insert(row.end(), {us(timing.native->forward), us(timing.native->backward),
                             us(total(*timing.native)),
                             fmt::format("{:.1f}", total(timing.torch) / total(*timing.native)),
                             fmt::format("{:.0e}", timing.difference)});
    else
      row.insert(row.end(), {"same", "", "", "", ""});
    rows.push_back(row);
  }
  print("batch {}, {} thread{}, {}, LibTorch {}, minimum of {} rounds\n\n", options.batch,
        options.threads, options.threads == 1 ? "" : "s", simd, train::torch_version(),
        options.rounds);
  print("{}", to_table(rows));
  return Exit::done;
}

}  // namespace

void add_bench_ops(CLI::App& bench, Command& chosen) {
  auto* command =
      bench.add_subcommand("ops", "time LibTorch's convolution and pooling beside the native ones");
  auto options = std::make_shared<train::OpsBenchOptions>();
  command->add_option("--batch", options->batch, "images per call")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "threads of both sides")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "number of repetitions; the fastest counts")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_flag("--cifar", options->cifar,
                    "also time the 3x3 convolutions of VGG and ResNet on 32x32 images (slow)");
  add_common(*command);
  command->callback(
      [options, &chosen] { chosen = [options](const ProgramStart&) { return run(*options); }; });
}

}  // namespace millrace::tools
