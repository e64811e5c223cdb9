// millrace eval: evaluates a trained model.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "augment/plan/plan_setup.h"
#include "base/atomic_file.h"
#include "pipeline/setup/data_setup.h"
#include "pipeline/setup/loader_setup.h"
#include "strategies/trainer/checkpoint.h"
#include "study/records/run_directory.h"
#include "study/report/report.h"
#include "tools/commands/commands.h"
#include "tools/inspect/mistakes.h"
#include "tools/terminal/terminal.h"
#include "tools/training/provenance.h"
#include "tools/training/records.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

struct EvalArguments {
  std::string what;
  std::string predictions;
  std::vector<std::string> overrides;
};

std::string confusion_table(const train::Evaluation& evaluation,
                            const std::vector<std::string>& classes) {
  std::vector<std::vector<std::string>> rows{{"label \\ predicted"}};
  for (const auto& name : classes) rows[0].push_back(name);
  for (std::size_t i = 0; i < evaluation.confusion.size(); ++i) {
    rows.push_back({classes[i]});
    for (const std::uint64_t count : evaluation.confusion[i])
      rows.back().push_back(std::to_string(count));
  }
  return to_table(rows);
}

/// A model and its evaluation data.
struct Evaluated {
  std::filesystem::path run;
  Recipe recipe;
  std::shared_ptr<const Reader> reader;
  std::shared_ptr<const augment::Plan> plan;
  std::unique_ptr<train::Strategy> strategy;
};

Evaluated load(const EvalArguments& arguments, const std::filesystem::path& weights) {
  check_checksum(weights);
  const std::filesystem::path config = train::find_config(arguments.what);
  std::vector<std::string> texts{"model.weights=" + weights.string(), "train.strategy=single",
                                 "train.ranks=0", "train.clock=sync"};
  texts.insert(texts.end(), arguments.overrides.begin(), arguments.overrides.end());
  const Provenance provenance(config, texts);
  texts.insert(texts.begin(), config.string());
  const Recipe given = load_recipe(texts);
  provenance.check(given);
  const Recipe recipe = with_ops(given);
  if (is_simulated(recipe))
    throw UsageError("the run had a simulated device: there is no model to evaluate");
  auto reader = open_data(recipe, evaluation_split(recipe));
  auto plan = augment::make_plan(recipe, recipe.eval_augment(), *reader);
  auto strategy = make_strategy(recipe, *reader, plan->output());
  return {config.parent_path(), recipe, std::move(reader), std::move(plan), std::move(strategy)};
}

/// A run in progress removes old checkpoints: if the weights disappear before they are read, uses
/// the newest ones at that time.
Evaluated load(const EvalArguments& arguments) {
  constexpr int kTries = 5;
  for (int i = 1;; ++i) {
    std::filesystem::path weights;
    try {
      weights = train::find_weights(arguments.what);
      return load(arguments, weights);
    } catch (const DataError&) {
      std::error_code error;
      if (i == kTries || std::filesystem::exists(weights, error)) throw;
    }
  }
}

/// A CSV file with a row per evaluated sample, in the order of the data set.
class PredictionsFile {
 public:
  PredictionsFile(const std::filesystem::path& path, const Reader& reader)
      : file_(checked(path)), reader_(reader), rows_("name,label,predicted,probability\n") {}

  /// Leaves out a sample that could not be loaded. Its batch must not have been added yet.
  void skip(std::uint64_t sample) { skipped_.insert(sample); }
  void add(const train::Prediction& prediction) {
    while (skipped_.erase(sample_) > 0) ++sample_;
    rows_ += fmt::format("{},{},{},{:.6f}\n", study::csv_field(reader_.name(sample_++)),
                         class_name(prediction.label), class_name(prediction.predicted),
                         prediction.probability);
    constexpr std::size_t kBlock = 1 << 20;
    if (rows_.size() >= kBlock) flush();
  }
  /// Makes the file appear.
  void commit() {
    flush();
    file_.commit();
  }

 private:
  /// Renaming would replace a device or a folder by a file.
  static const std::filesystem::path& checked(const std::filesystem::path& path) {
    std::error_code error;
    if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
      throw UsageError(fmt::format("--predictions {}: this is not a file", path.string()),
                       "name a new file, such as predictions.csv");
    return path;
  }
  void flush() {
    file_.write(std::as_bytes(std::span(rows_)));
    rows_.clear();
  }
  std::string class_name(std::int64_t index) const {
    return study::csv_field(reader_.info().classes[static_cast<std::size_t>(index)]);
  }

  base::AtomicFile file_;
  const Reader& reader_;
  std::string rows_;  ///< not yet written
  std::uint64_t sample_ = 0;
  std::set<std::uint64_t> skipped_;
};

/// Evaluates the model, and writes each sample's prediction to `predictions` unless it is empty.
train::Evaluation evaluate(const Evaluated& evaluated, const std::string& predictions) {
  const auto& [run, recipe, reader, plan, strategy] = evaluated;
  LoaderOptions options =
      pipeline::eval_loader_options(recipe, *reader, pipeline::emulated_storage(recipe));
  options.stop = &interrupted();
  std::optional<PredictionsFile> file;
  if (!predictions.empty()) {
    file.emplace(predictions, *reader);
    options.quarantine = [&file](const Failure& failure) { file->skip(failure.sample); };
    strategy->on_prediction([&file](const train::Prediction& one) { file->add(one); });
  }
  Loader loader(reader, plan, options);
  std::optional<train::Evaluation> evaluation = strategy->evaluate(loader);
  if (interrupted()) throw Error(Exit::interrupted, "interrupted: nothing to report");
  strategy->on_prediction({});
  if (!file) return std::move(evaluation).value();
  file->commit();
  try {
    keep_mistakes(run, predictions, recipe);
  } catch (const std::exception& error) {  // the predictions have been written
    say(fmt::format("warning: no pictures of mistakes for reports: {}", error.what()));
  }
  return std::move(evaluation).value();
}

Exit evaluate(const EvalArguments& arguments) {
  const Evaluated evaluated = load(arguments);
  const auto& [run, recipe, reader, plan, strategy] = evaluated;
  const train::Evaluation evaluation = evaluate(evaluated, arguments.predictions);

  const auto& classes = reader->info().classes;
  auto json = to_json(evaluation, classes);
  if (verbosity().json) {
    nlohmann::ordered_json document{{"command", "eval"},
                                    {"weights", recipe.text("model.weights")},
                                    {"dataset", reader->info().path},
                                    {"split", reader->info().split}};
    document.update(json);
    document["confusion"] = nullptr;
    if (!evaluation.confusion.empty()) document["confusion"] = evaluation.confusion;
    document["parameters_hash"] = strategy->parameters_hash();
    print("{}\n", study::to_text(document, 2));
    return Exit::done;
  }
  const study::Summary all = study::summary_from(json);
  print("{} on {} {} images of {}\nloss {:.4f}, top-1 {:.2f}%, top-5 {:.2f}%\n\n",
        recipe.text("model.weights"), with_commas(static_cast<double>(evaluation.images)),
        reader->info().split, reader->info().path, study::to_number(all.test_loss),
        100 * study::to_number(all.top1), 100 * study::to_number(all.top5));
  std::vector<std::vector<std::string>> rows{{"class", "accuracy"}};
  for (const auto& [name, accuracy] : worst_classes(all.per_class))
    rows.push_back({name, std::isfinite(accuracy) ? fmt::format("{:.2f}%", 100 * accuracy) : "-"});
  print("{}", to_table(rows));
  if (rows.size() <= all.per_class.size())
    print("the {} worst of {} classes; --json prints all\n", rows.size() - 1, all.per_class.size());
  if (classes.size() <= 20) print("\n{}", confusion_table(evaluation, classes));
  return Exit::done;
}

}  // namespace

void add_eval(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand(
      "eval", "evaluate a run or checkpoint: top-1, top-5, loss, per-class accuracy, confusion");
  auto arguments = std::make_shared<EvalArguments>();
  command
      ->add_option("what", arguments->what, "RUN directory, checkpoint folder or .safetensors file")
      ->required();
  command->add_option("overrides", arguments->overrides, "key=value overrides of the run's recipe");
  command
      ->add_option("--predictions", arguments->predictions,
                   "write each image's name, label, prediction and its probability to FILE.csv")
      ->type_name("FILE.csv");
  add_common(*command);
  command->footer(
      "Example:\n  millrace eval runs/real data.path=data/digits\n"
      "  millrace eval runs/real --predictions predictions.csv");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart&) { return evaluate(*arguments); };
  });
}

}  // namespace millrace::tools
