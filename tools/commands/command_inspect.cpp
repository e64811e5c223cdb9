// millrace inspect: shows the model's input and the compiled plan.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/atomic_file.h"
#include "base/simd.h"
#include "study/records/run_directory.h"
#include "tools/commands/commands.h"
#include "tools/inspect/sheet.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

struct InspectArguments {
  std::vector<std::string> recipe;
  std::string out;
  bool plan = false;
  bool eval = false;
  int samples = 0;
  int columns = 4;
  std::uint32_t epoch = 0;
};

std::string joined(const std::vector<std::string>& names) {
  return names.empty() ? "-" : fmt::format("{}", fmt::join(names, " + "));
}

/// Plan steps that many samples have in common: the pass, and the ops folded into it.
struct StepSum {
  std::string what, ops, detail;  ///< `detail`: of the first sample
  int samples = 0;
  std::int64_t ns = 0;
};

std::vector<StepSum> sum_steps(Inspection& inspection, int samples) {
  std::vector<StepSum> sums;
  for (int i = 0; i < samples; ++i) {
    const Inspected sample = inspection(static_cast<std::uint64_t>(i));
    for (const augment::Trace::Step& step : sample.trace.steps) {
      const std::string ops = joined(step.ops);
      auto sum = std::find_if(sums.begin(), sums.end(), [&](const StepSum& s) {
        return s.what == step.what && s.ops == ops;
      });
      if (sum == sums.end()) sum = sums.insert(sums.end(), {step.what, ops, step.detail, 0, 0});
      ++sum->samples;
      sum->ns += step.ns;
    }
  }
  return sums;
}

Exit show_plan(const InspectArguments& arguments) {
  Inspection inspection(load_recipe(arguments.recipe), arguments.epoch, arguments.eval);
  const int samples = static_cast<int>(std::min<std::uint64_t>(
      inspection.count(),
      static_cast<std::uint64_t>(arguments.samples > 0 ? arguments.samples : 64)));
  const Inspected first = inspection(0);
  const std::vector<StepSum> sums = sum_steps(inspection, samples);
  const SampleSpec& out = inspection.plan().output();
  const std::string output = fmt::format("{}x{}x{} {}, {} bytes", out.size.width, out.size.height,
                                         out.channels, name_of(out.dtype), out.bytes());
  if (verbosity().json) {
    Json json;
    json["command"] = "inspect";
    json["recipe"] = inspection.recipe().name();
    json["resample"] = inspection.recipe().text("resample");
    json["simd"] = base::name_of(base::simd_level());
    json["samples"] = samples;
    json["first"] = {
        {"name", first.name}, {"width", first.size.width}, {"height", first.size.height}};
    json["output"] = {{"width", out.size.width},
                      {"height", out.size.height},
                      {"channels", out.channels},
                      {"dtype", name_of(out.dtype)}};
    for (const StepSum& sum : sums)
      json["steps"].push_back({{"step", sum.what},
                               {"ops", sum.ops},
                               {"first", sum.detail},
                               {"samples", sum.samples},
                               {"us", static_cast<double>(sum.ns) * 1e-3 / sum.samples}});
    for (const augment::Trace::Drawn& drawn : first.trace.drawn)
      json["drawn"].push_back({{"op", drawn.op}, {"name", drawn.name}, {"value", drawn.value}});
    print("{}\n", study::to_text(json, 2));
    return Exit::done;
  }
  print("{}, resample={}, {} -> {} (kernels: {})\n", inspection.recipe().name(),
        inspection.recipe().text("resample"), first.name, output,
        base::name_of(base::simd_level()));
  std::vector<std::vector<std::string>> rows{
      {"pass over pixels", "ops", "samples", "µs per sample", "first sample"}};
  for (const StepSum& sum : sums)
    rows.push_back({sum.what, sum.ops, fmt::format("{}/{}", sum.samples, samples),
                    fmt::format("{:.1f}", static_cast<double>(sum.ns) * 1e-3 / sum.samples),
                    sum.detail});
  print("{}", to_table(rows));
  print_unless_quiet(
      "Ops on one line were fused into one pass. The decoder decodes the region that the first "
      "pass reads.\n");
  return Exit::done;
}

Exit write_sheet(const InspectArguments& arguments) {
  base::AtomicFile file(arguments.out);
  const ContactSheet sheet = contact_sheet(
      load_recipe(arguments.recipe), arguments.epoch, arguments.eval,
      static_cast<std::size_t>(arguments.samples > 0 ? arguments.samples : 16), arguments.columns);
  file.write(std::as_bytes(std::span(sheet.png)));
  file.commit();
  if (verbosity().json) {
    Json json;
    json["command"] = "inspect";
    json["out"] = arguments.out;
    for (const Inspected& sample : sheet.samples) {
      Json drawn = Json::array();
      for (const augment::Trace::Drawn& d : sample.trace.drawn)
        drawn.push_back({{"op", d.op}, {"name", d.name}, {"value", d.value}});
      json["samples"].push_back({{"name", sample.name}, {"label", sample.label}, {"drawn", drawn}});
      if (!sample.objects.boxes.empty()) json["samples"].back()["boxes"] = sample.objects.boxes;
    }
    print("{}\n", study::to_text(json, 2));
  } else {
    print_unless_quiet("{}: {} samples of epoch {}, as {} of {}x{}\n", arguments.out,
                       sheet.samples.size(), arguments.epoch,
                       sheet.spec.channels == 1 ? "gray" : "RGB", sheet.spec.size.width,
                       sheet.spec.size.height);
  }
  return Exit::done;
}

Exit inspect(const InspectArguments& arguments) {
  if (arguments.plan == !arguments.out.empty())
    throw UsageError("inspect needs --out F.png or --plan",
                     "for example millrace inspect mnist-lenet --out sheet.png");
  return arguments.plan ? show_plan(arguments) : write_sheet(arguments);
}

}  // namespace

void add_inspect(CLI::App& app, Command& chosen) {
  auto* command =
      app.add_subcommand("inspect", "show what the model will see and how the recipe was compiled");
  auto arguments = std::make_shared<InspectArguments>();
  command->add_option("recipe", arguments->recipe, "[RECIPE] [key=value ...]");
  command->add_option("--out", arguments->out,
                      "write a contact sheet (PNG): images with the random draws that made them");
  command->add_flag("--plan", arguments->plan,
                    "print the compiled plan: fused ops, decoded region and scale, cost");
  command->add_option("--samples", arguments->samples, "number of samples (16; 64 with --plan)")
      ->check(CLI::Range(1, 4096));
  command->add_option("--columns", arguments->columns, "columns of the contact sheet")
      ->check(CLI::Range(1, 64));
  command->add_option("--epoch", arguments->epoch, "epoch whose random draws are shown");
  command->add_flag("--eval", arguments->eval, "show what evaluation sees");
  add_common(*command);
  command->footer(
      "Example:\n  millrace inspect imagenet-rrc data.path=data/photos --out sheet.png\n"
      "  millrace inspect imagenet-rrc data.path=data/photos --plan");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart&) { return inspect(*arguments); };
  });
}

}  // namespace millrace::tools
