// millrace bench ops: times a model's layers and steps with LibTorch's operators and native ones.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/simd.h"
#include "models/descriptions.h"
#include "strategies/bench/ops_bench.h"
#include "strategies/trainer/torch_library.h"
#include "study/records/run_directory.h"
#include "tools/commands/commands.h"
#include "tools/terminal/terminal.h"
#include "tools/training/records.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

struct OpsArguments {
  train::OpsBenchOptions options{.models = {"linear", "mlp", "simple_conv", "lenet5"}};
  std::vector<std::int64_t> batches{64};
};

double total(const train::OpSeconds& seconds) {
  return seconds.forward + seconds.backward + seconds.step;
}

Json seconds_json(const train::OpSeconds& seconds) {
  Json json{{"forward_s", seconds.forward}, {"backward_s", seconds.backward}};
  if (seconds.step > 0) json["step_s"] = seconds.step;
  json["total_s"] = total(seconds);
  return json;
}

Json timing_json(const train::OpTiming& timing, std::int64_t batch) {
  Json json{{"model", timing.model},
            {"op", timing.name},
            {"batch", batch},
            {"torch", seconds_json(timing.torch)}};
  if (timing.native) {
    json["native"] = seconds_json(*timing.native);
    json["native_of_torch"] = total(*timing.native) / total(timing.torch);
    json["difference"] = timing.difference;
  }
  return json;
}

Json head_json(const OpsArguments& arguments) {
  const train::OpsBenchOptions& options = arguments.options;
  Json json;
  json["command"] = "bench ops";
  json["torch"] = train::torch_version();
  if (arguments.batches.size() == 1)
    json["batch"] = arguments.batches.front();
  else
    json["batch"] = arguments.batches;
  json["device"] = options.device;
  json["threads"] = options.threads;
  json["rounds"] = options.rounds;
  json["simd"] = base::name_of(base::simd_level());
  return json;
}

/// Returns the cells of one side: whose operators, microseconds per call, and `remark`.
std::vector<std::string> cells(const std::string& name, const char* side,
                               const train::OpSeconds& seconds, const std::string& remark) {
  const auto us = [](double s) { return fmt::format("{:.0f}", 1e6 * s); };
  return {name,
          side,
          us(seconds.forward),
          us(seconds.backward),
          seconds.step > 0 ? us(seconds.step) : std::string(),
          us(total(seconds)),
          remark};
}

/// Prints one table per model, and the largest difference.
void print_tables(const std::vector<train::OpTiming>& timings) {
  double difference = 0;
  for (auto begin = timings.begin(); begin != timings.end();) {
    const auto end = std::find_if(begin, timings.end(), [&](const train::OpTiming& timing) {
      return timing.model != begin->model;
    });
    std::vector<std::vector<std::string>> rows{{begin->model.empty() ? "CIFAR-10" : begin->model,
                                                "ops", "forward", "backward", "step", "all",
                                                "gain"}};
    for (; begin != end; ++begin) {
      rows.push_back(cells(begin->name, "torch", begin->torch, begin->native ? "" : "same"));
      if (!begin->native) continue;
      rows.push_back(cells("", "native", *begin->native,
                           fmt::format("{:.2f}x", total(begin->torch) / total(*begin->native))));
      difference = std::max(difference, begin->difference);
    }
    print("\n{}", to_table(rows));
  }
  print("\nlargest difference between the two: {:.0e} of the largest value\n", difference);
}

/// Runs the benchmark in its own library. Throws DeviceError if this build lacks LibTorch, and what
/// the benchmark throws.
std::vector<train::OpTiming> bench_ops(const train::OpsBenchOptions& options) {
  auto* const bench = reinterpret_cast<decltype(&millrace_bench_ops)>(
      train::torch_function("libmillrace_bench.so", "millrace_bench_ops"));
  std::vector<train::OpTiming> timings;
  bench(&options, &timings);
  return timings;
}

Exit run(const OpsArguments& arguments) {
  train::OpsBenchOptions options = arguments.options;
  Json json;
  for (const std::int64_t batch : arguments.batches) {
    options.batch = batch;
    const std::vector<train::OpTiming> timings = bench_ops(options);
    if (verbosity().json) {
      if (json.is_null()) json = head_json(arguments);
      for (const train::OpTiming& timing : timings)
        json["ops"].push_back(timing_json(timing, batch));
      continue;
    }
    const bool on_cpu = options.device == "cpu";
    print("{}batch {}, {}{}, LibTorch {}, µs per call, minimum of {} rounds\n",
          batch == arguments.batches.front() ? "" : "\n", batch, options.device,
          on_cpu ? fmt::format(" ({} thread{}, {})", options.threads,
                               options.threads == 1 ? "" : "s", base::name_of(base::simd_level()))
                 : std::string(),
          train::torch_version(), options.rounds);
    print_tables(timings);
  }
  if (verbosity().json) print("{}\n", study::to_text(json, 2));
  return Exit::done;
}

std::string check_device(const std::string& device) {
  const std::string_view index =
      std::string_view(device).substr(std::min<std::size_t>(device.size(), 5));
  const bool numbered =
      device.starts_with("cuda:") && !index.empty() && index.size() <= 2 &&
      std::all_of(index.begin(), index.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (device == "cpu" || device == "cuda" || numbered) return {};
  return "unknown device " + device + ": use cpu, cuda or cuda:N";
}

}  // namespace

void add_bench_ops(CLI::App& bench, Command& chosen) {
  auto* command = bench.add_subcommand(
      "ops",
      "time the layers and steps of the small models with LibTorch's operators and native ones");
  auto arguments = std::make_shared<OpsArguments>();
  train::OpsBenchOptions& options = arguments->options;
  command->add_option("--model", options.models, "models, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(train::model_names(/*only_sequential=*/true)))
      ->capture_default_str();
  command
      ->add_option("--batch", arguments->batches, "images per call; several, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--device", options.device, "cpu, cuda or cuda:N")
      ->check(CLI::Validator(check_device, ""))
      ->capture_default_str();
  command->add_option("--threads", options.threads, "threads of both sides, on the CPU")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--rounds", options.rounds, "number of repetitions; the fastest counts")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_flag("--cifar", options.cifar,
                    "also time the 3x3 convolutions of VGG and ResNet on 32x32 images (slow)");
  add_common(*command);
  command->footer(
      "Example:\n  millrace bench ops --model lenet5 --batch 8,64\n"
      "  millrace bench ops --json > ops.json");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart&) { return run(*arguments); };
  });
}

}  // namespace millrace::tools
