// millrace inspect: what the model will see, and how the recipe was compiled.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "pipeline/atomic_file.h"
#include "pipeline/sampler.h"
#include "pipeline/simd.h"
#include "study/run_directory.h"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/inspect/sample_pixels.h"
#include "tools/inspect/sheet.h"
#include "tools/pipeline_setup.h"

namespace millrace {
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

/// One sample through the plan.
struct Inspected {
  std::string name;
  std::string label;
  Size size;
  Trace trace;
  std::vector<std::uint8_t> pixels;
};

/// The pipeline of a recipe, one sample at a time.
class Inspection {
 public:
  Inspection(const InspectArguments& arguments, Recipe recipe)
      : arguments_(arguments),
        recipe_(std::move(recipe)),
        reader_(open_data(recipe_, recipe_.text(arguments.eval ? "eval.split" : "data.split"))),
        plan_(make_plan(recipe_, arguments.eval ? recipe_.eval_augment() : recipe_.augment(),
                        *reader_)),
        scratch_(plan_->make_scratch()) {}

  /// The sample at a place of the epoch's order.
  Inspected operator()(std::uint64_t place) {
    const auto seed = static_cast<std::uint64_t>(recipe_.integer("seed"));
    const Shuffle shuffle = arguments_.eval ? Shuffle{Shuffle::Kind::none, 0}
                                            : Shuffle::parse(recipe_.text("loader.shuffle"));
    const std::uint64_t index =
        Sampler(reader_->info().count, shuffle, seed, arguments_.epoch)(place);
    Inspected result;
    result.name = reader_->name(index);
    try {
      SamplePixels source(*reader_, index, plan_->output().channels,
                          static_cast<std::uint64_t>(recipe_.integer("data.max_pixels")));
      result.size = source.size();
      const auto& classes = reader_->info().classes;
      const auto label = static_cast<std::size_t>(source.label());
      result.label = label < classes.size() ? classes[label] : fmt::format("{}", label);
      result.pixels.resize(plan_->output().bytes());
      plan_->run({seed, arguments_.epoch, index}, source,
                 reinterpret_cast<std::byte*>(result.pixels.data()), *scratch_, &result.trace);
    } catch (const DataError& error) {
      throw DataError(result.name + ": " + error.what(), error.hint());
    }
    return result;
  }

  const Recipe& recipe() const { return recipe_; }
  const Reader& reader() const { return *reader_; }
  const Plan& plan() const { return *plan_; }
  std::uint64_t count() const { return reader_->info().count; }

 private:
  const InspectArguments& arguments_;
  Recipe recipe_;
  std::shared_ptr<const Reader> reader_;
  std::shared_ptr<const Plan> plan_;
  std::unique_ptr<Transform::Scratch> scratch_;
};

std::string joined(const std::vector<std::string>& names) {
  return names.empty() ? "-" : fmt::format("{}", fmt::join(names, " + "));
}

/// Steps that many samples have in common: what is walked over, and what was folded into it.
struct StepSum {
  std::string what, ops, detail;  ///< the detail of the first sample
  int samples = 0;
  std::int64_t ns = 0;
};

std::vector<StepSum> sum_steps(Inspection& inspection, int samples) {
  std::vector<StepSum> sums;
  for (int i = 0; i < samples; ++i) {
    const Inspected sample = inspection(static_cast<std::uint64_t>(i));
    for (const Trace::Step& step : sample.trace.steps) {
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
  Inspection inspection(arguments, load_recipe(arguments.recipe));
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
    json["simd"] = name_of(simd_level());
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
    for (const Trace::Drawn& drawn : first.trace.drawn)
      json["drawn"].push_back({{"op", drawn.op}, {"name", drawn.name}, {"value", drawn.value}});
    fmt::print("{}\n", to_text(json, 2));
    return Exit::done;
  }
  fmt::print("{}, resample={}, {} -> {} (kernels: {})\n", inspection.recipe().name(),
             inspection.recipe().text("resample"), first.name, output, name_of(simd_level()));
  std::vector<std::vector<std::string>> rows{
      {"walk over pixels", "ops in it", "samples", "µs a sample", "first sample"}};
  for (const StepSum& sum : sums)
    rows.push_back({sum.what, sum.ops, fmt::format("{}/{}", sum.samples, samples),
                    fmt::format("{:.1f}", static_cast<double>(sum.ns) * 1e-3 / sum.samples),
                    sum.detail});
  fmt::print("{}", to_table(rows));
  fmt::print(
      "Ops on one line were folded into one walk; what the decoder was asked for is what the "
      "first walk reads.\n");
  return Exit::done;
}

/// The module that draws, from beside the pipeline's library.
decltype(&millrace_make_sheet) load_sheet() {
  Dl_info self{};
  std::filesystem::path folder = "lib";
  if (dladdr(reinterpret_cast<void*>(&simd_level), &self) != 0 && self.dli_fname != nullptr)
    folder = std::filesystem::path(self.dli_fname).parent_path();
  const std::string file = (folder / "millrace_sheet.so").string();
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw DeviceError(fmt::format("contact sheets need OpenCV: {}", dlerror()),
                      "install libopencv-imgcodecs and build millrace whole");
  return reinterpret_cast<decltype(&millrace_make_sheet)>(dlsym(library, "millrace_make_sheet"));
}

/// Name, label, then the draws, some to a line.
std::vector<std::string> lines_of(const Inspected& sample) {
  std::vector<std::string> lines{
      std::filesystem::path(sample.name).filename().string(),
      fmt::format("{}, {}x{}", sample.label, sample.size.width, sample.size.height)};
  std::string op;
  for (const Trace::Drawn& drawn : sample.trace.drawn) {
    const std::string value = fmt::format("{}={:.4g}", drawn.name, drawn.value);
    if (drawn.op == op && lines.back().size() + value.size() < 30) {
      lines.back() += " " + value;
    } else {
      lines.push_back(drawn.op == op ? "  " + value : drawn.op + ": " + value);
      op = drawn.op;
    }
  }
  return lines;
}

Exit write_sheet(const InspectArguments& arguments) {
  std::vector<std::string> words = arguments.recipe;
  // As the store would see it, before it normalises.
  for (const char* key : {"output.dtype=u8", "output.normalize=loader", "output.layout=hwc"})
    words.emplace_back(key);
  Inspection inspection(arguments, load_recipe(words));
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(
      inspection.count(),
      static_cast<std::uint64_t>(arguments.samples > 0 ? arguments.samples : 16)));
  std::vector<Inspected> samples;
  std::vector<std::vector<std::string>> texts;
  for (std::size_t i = 0; i < count; ++i) {
    samples.push_back(inspection(i));
    texts.push_back(lines_of(samples.back()));
  }
  std::vector<std::vector<const char*>> lines(count);
  std::vector<millrace_tile> tiles;
  const SampleSpec& spec = inspection.plan().output();
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::string& line : texts[i]) lines[i].push_back(line.c_str());
    tiles.push_back({samples[i].pixels.data(), spec.size.width, spec.size.height, spec.channels,
                     lines[i].data(), lines[i].size()});
  }
  AtomicFile file(arguments.out);
  char error[256] = {};
  const auto write = [](void* to, const std::uint8_t* bytes, std::size_t size) {
    static_cast<std::vector<std::uint8_t>*>(to)->assign(bytes, bytes + size);
  };
  std::vector<std::uint8_t> png;
  if (load_sheet()(tiles.data(), tiles.size(), std::min(arguments.columns, static_cast<int>(count)),
                   write, &png, error, sizeof error) != 0)
    throw RunError(fmt::format("the contact sheet could not be drawn: {}", error));
  file.write(std::as_bytes(std::span(png)));
  file.commit();
  if (verbosity().json) {
    Json json;
    json["command"] = "inspect";
    json["out"] = arguments.out;
    for (const Inspected& sample : samples) {
      Json drawn = Json::array();
      for (const Trace::Drawn& d : sample.trace.drawn)
        drawn.push_back({{"op", d.op}, {"name", d.name}, {"value", d.value}});
      json["samples"].push_back({{"name", sample.name}, {"label", sample.label}, {"drawn", drawn}});
    }
    fmt::print("{}\n", to_text(json, 2));
  } else {
    fmt::print("{}: {} samples of epoch {}, as {} of {}x{}\n", arguments.out, count,
               arguments.epoch, spec.channels == 1 ? "gray" : "RGB", spec.size.width,
               spec.size.height);
  }
  return Exit::done;
}

Exit inspect(const InspectArguments& arguments) {
  if (arguments.plan == !arguments.out.empty())
    throw UsageError("inspect takes --out F.png or --plan",
                     "for example millrace inspect mnist-lenet --out sheet.png");
  return arguments.plan ? show_plan(arguments) : write_sheet(arguments);
}

}  // namespace

void add_inspect(CLI::App& app, Command& chosen) {
  auto* command =
      app.add_subcommand("inspect", "what the model will see; how the recipe was compiled");
  auto arguments = std::make_shared<InspectArguments>();
  command->add_option("recipe", arguments->recipe, "[RECIPE] [key=value ...]");
  command->add_option("--out", arguments->out,
                      "write a contact sheet (PNG): pictures and the draws that made them");
  command->add_flag(
      "--plan", arguments->plan,
      "print the compiled plan: what was fused, what the decoder does, what it costs");
  command->add_option("--samples", arguments->samples, "how many (16; 64 with --plan)")
      ->check(CLI::Range(1, 4096));
  command->add_option("--columns", arguments->columns, "of the sheet")->check(CLI::Range(1, 64));
  command->add_option("--epoch", arguments->epoch, "whose draws are shown");
  command->add_flag("--eval", arguments->eval, "what evaluation sees");
  add_common(*command);
  command->footer(
      "Example:\n  millrace inspect imagenet-rrc data.path=data/photos --out sheet.png\n"
      "  millrace inspect imagenet-rrc data.path=data/photos --plan");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart&) { return inspect(*arguments); };
  });
}

}  // namespace millrace
