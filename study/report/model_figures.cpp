// Builds figures from metrics.jsonl and evaluations.
#include "study/report/model_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "study/records/run_files.h"

namespace millrace::study {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxClasses = 60;  ///< per bar chart
constexpr std::size_t kMaxInMatrix = 40;
constexpr std::size_t kMaxMistakes = 12;

Figure over_epochs(std::string id, std::string title, std::string y_label) {
  return {.id = std::move(id),
          .title = std::move(title),
          .caption = {},
          .kind = FigureKind::line,
          .x_label = "epoch",
          .y_label = std::move(y_label),
          .categories = {},
          .series = {}};
}

/// Adds a line over the epochs. Epochs without the value are skipped, and the line continues.
void add_line(Figure& figure, const JsonLines& epochs, const char* name, const char* key,
              double factor) {
  Series series{.name = name};
  for (const Json& epoch : epochs) {
    const double value = factor * number_at(epoch, {key});
    if (!std::isfinite(value)) continue;
    series.x.push_back(number_at(epoch, {"epoch"}));
    series.y.push_back(value);
  }
  if (!series.y.empty()) figure.series.push_back(std::move(series));
}

std::vector<Figure> unless_empty(Figure figure) {
  if (figure.series.empty()) return {};
  return {std::move(figure)};
}

using Counts = std::vector<std::vector<double>>;

/// Returns the confusion matrix; empty if it is missing, not square or not numeric.
Counts confusion_of(const Json& evaluation) {
  if (!evaluation.is_object() || !evaluation.contains("confusion")) return {};
  const Json& all = evaluation["confusion"];
  if (!all.is_array()) return {};
  Counts counts;
  for (const Json& row : all) {
    if (!row.is_array() || row.size() != all.size()) return {};
    counts.emplace_back();
    for (const Json& one : row) {
      if (!one.is_number()) return {};
      counts.back().push_back(one.get<double>());
    }
  }
  return counts;
}

std::vector<std::string> class_names(const Json& evaluation, std::size_t count) {
  std::vector<std::string> names;
  if (evaluation.contains("per_class") && evaluation["per_class"].is_object())
    for (const auto& [name, accuracy] : evaluation["per_class"].items()) names.push_back(name);
  for (std::size_t i = names.size(); i < count; ++i) names.push_back(std::to_string(i));
  names.resize(count);
  return names;
}

}  // namespace

std::vector<Figure> loss_figures(const JsonLines& epochs, const StepTable& steps) {
  Figure figure = over_epochs("loss", "Loss", "cross-entropy, nats");
  figure.caption =
      "Training: the mean over the epoch's samples, while the model learns. Test: at "
      "its end.";
  add_line(figure, epochs, "train", "train_loss", 1);
  add_line(figure, epochs, "test", "test_loss", 1);
  std::vector<Figure> all = unless_empty(std::move(figure));

  Figure single = over_epochs("step-loss", "Loss per step", "cross-entropy, nats");
  single.x_label = "step";
  single.caption = steps.reduced.width() > 1
                       ? fmt::format(
                             "Means of the losses that were read (train.log_every) within "
                             "{} steps.",
                             steps.reduced.width())
                       : "The losses that were read (train.log_every).";
  Series series{.name = "train"};
  for (const StepSum& sum : steps.reduced.sums()) {
    if (sum.losses == 0) continue;
    series.x.push_back(sum.middle());
    series.y.push_back(sum.loss_sum / static_cast<double>(sum.losses));
  }
  if (series.y.size() < 2) return all;
  single.series.push_back(std::move(series));
  all.push_back(std::move(single));
  return all;
}

std::vector<Figure> accuracy_figure(const JsonLines& epochs) {
  Figure figure = over_epochs("accuracy", "Accuracy on the test set", "%");
  add_line(figure, epochs, "top-1", "top1", 100);
  add_line(figure, epochs, "top-5", "top5", 100);
  return unless_empty(std::move(figure));
}

std::vector<Figure> class_figure(const Json& evaluation) {
  if (!evaluation.is_object() || !evaluation.contains("per_class") ||
      !evaluation["per_class"].is_object())
    return {};
  std::vector<std::pair<std::string, double>> classes;
  for (const auto& [name, accuracy] : evaluation["per_class"].items())
    if (accuracy.is_number()) classes.emplace_back(name, 100 * accuracy.get<double>());
  if (classes.empty()) return {};
  Figure figure{.id = "class-accuracy",
                .title = "Accuracy per class",
                .caption = "Top-1 on the test set in the last evaluation.",
                .kind = FigureKind::bar,
                .x_label = "class",
                .y_label = "%"};
  if (classes.size() > kMaxClasses) {
    std::stable_sort(classes.begin(), classes.end(),
                     [](const auto& a, const auto& b) { return a.second < b.second; });
    figure.caption += fmt::format(" The {} lowest of {}.", kMaxClasses, classes.size());
    classes.resize(kMaxClasses);
  }
  figure.series.push_back({.name = "top-1"});
  for (const auto& [name, accuracy] : classes) {
    figure.categories.push_back(name);
    figure.series[0].y.push_back(accuracy);
  }
  return {std::move(figure)};
}

std::vector<Figure> confusion_figure(const Json& evaluation) {
  const Counts counts = confusion_of(evaluation);
  if (counts.empty() || counts.size() > kMaxInMatrix) return {};
  Figure figure{.id = "confusion",
                .title = "Confusion matrix",
                .caption =
                    "Test images of each class (rows) by the class that was predicted "
                    "(columns).",
                .kind = FigureKind::matrix,
                .x_label = "predicted",
                .y_label = "label",
                .categories = class_names(evaluation, counts.size())};
  for (std::size_t i = 0; i < counts.size(); ++i)
    figure.series.push_back({.name = figure.categories[i], .y = counts[i]});
  return {std::move(figure)};
}

std::vector<ReportTable> confusion_table(const Json& evaluation) {
  const Counts counts = confusion_of(evaluation);
  const auto names = class_names(evaluation, counts.size());
  struct Mistake {
    std::size_t label, predicted;
    double count, share;
  };
  std::vector<Mistake> mistakes;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    double all = 0;
    for (const double count : counts[i]) all += count;
    for (std::size_t j = 0; j < counts.size(); ++j)
      if (i != j && counts[i][j] > 0) mistakes.push_back({i, j, counts[i][j], counts[i][j] / all});
  }
  if (mistakes.empty()) return {};
  std::stable_sort(mistakes.begin(), mistakes.end(),
                   [](const Mistake& a, const Mistake& b) { return a.count > b.count; });
  mistakes.resize(std::min(mistakes.size(), kMaxMistakes));
  ReportTable table{.id = "mistakes",
                    .title = "Most frequent mistakes",
                    .caption = "In the last evaluation.",
                    .header = {"label", "taken for", "images", "of that label"}};
  for (const Mistake& one : mistakes)
    table.rows.push_back({names[one.label], names[one.predicted], fmt::format("{}", one.count),
                          fmt::format("{:.1f}%", 100 * one.share)});
  return {std::move(table)};
}

}  // namespace millrace::study
