// The part of a run's report on its model: parses predictions, and builds figures from
// metrics.jsonl and evaluations.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/record_file.h"
#include "millrace/error.h"
#include "study/records/run_files.h"
#include "study/report/reports.h"

namespace millrace::study {

// Parses a table of predictions, a row at a time.

namespace {

using Row = std::vector<std::string>;

constexpr const char* kWriteAgain = "write it again: millrace eval RUN --predictions FILE.csv";

/// Reads a row of RFC 4180, whose quoted fields may hold commas, quotes and line breaks. Returns
/// false at the end of the file. Throws DataError if a row of `file` is longer than any line.
bool read_row(std::istream& in, Row& row, const std::filesystem::path& file) {
  row.assign(1, "");
  bool quoted = false;
  std::size_t size = 0;
  for (int c = in.get(); c != std::istream::traits_type::eof(); c = in.get()) {
    if (++size > base::kLongestLine)
      throw DataError(fmt::format("{} is damaged: a row without an end", file.string()),
                      kWriteAgain);
    if (c == '"') {
      if (quoted && in.peek() == '"')
        row.back() += static_cast<char>(in.get());
      else
        quoted = !quoted;
    } else if (c == ',' && !quoted) {
      row.emplace_back();
    } else if (c == '\n' && !quoted) {
      return true;
    } else {
      row.back() += static_cast<char>(c);
    }
  }
  return size > 0;
}

/// Returns whether `text` is a probability, and its value. NaN is what a model whose loss diverged
/// gives: it counts as 0, a prediction without confidence.
bool read_probability(const std::string& text, double& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return false;
  if (std::isnan(value)) value = 0;
  return value >= 0 && value <= 1;
}

bool more_confident(const WrongImage& a, const WrongImage& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.row < b.row;
}

}  // namespace

Predictions read_predictions(const std::filesystem::path& file, std::size_t most) {
  std::ifstream in = base::open_record(file);
  const auto damaged = [&](const std::string& where, const char* what) {
    throw DataError(fmt::format("{}{} is damaged: {}", file.string(), where, what), kWriteAgain);
  };
  Row row;
  if (!read_row(in, row, file) || row != Row{"name", "label", "predicted", "probability"})
    damaged("", "not a table of predictions");
  Predictions all;
  while (read_row(in, row, file)) {
    WrongImage image;
    image.row = all.images++;
    if (row.size() != 4 || !read_probability(row[3], image.probability))
      damaged(fmt::format(", row {}", all.images), "not a name, two classes and a probability");
    if (row[1] == row[2]) continue;
    ++all.wrong;
    image.name = std::move(row[0]);
    image.label = std::move(row[1]);
    image.predicted = std::move(row[2]);
    // A heap whose first image is the least confident one.
    all.confident.push_back(std::move(image));
    std::push_heap(all.confident.begin(), all.confident.end(), more_confident);
    if (all.confident.size() <= most) continue;
    std::pop_heap(all.confident.begin(), all.confident.end(), more_confident);
    all.confident.pop_back();
  }
  std::sort_heap(all.confident.begin(), all.confident.end(), more_confident);
  return all;
}

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxClasses = 60;  ///< per bar chart
constexpr std::size_t kMaxInMatrix = 40;
constexpr std::size_t kMaxMistakes = 12;

/// Returns the confusion matrix; empty if it is missing or not square.
const auto& confusion_of(const Summary& evaluation) {
  static const decltype(evaluation.confusion) none;
  const auto& counts = evaluation.confusion;
  const bool square = std::all_of(counts.begin(), counts.end(),
                                  [&](const auto& row) { return row.size() == counts.size(); });
  return square ? counts : none;
}

std::vector<std::string> class_names(const Summary& evaluation, std::size_t count) {
  std::vector<std::string> names;
  for (const auto& [name, accuracy] : evaluation.per_class) names.push_back(name);
  for (std::size_t i = names.size(); i < count; ++i) names.push_back(std::to_string(i));
  names.resize(count);
  return names;
}

/// Returns training and test loss over the epochs, then the losses read back at single steps.
std::vector<Figure> loss_figures(const JsonLines& epochs, const StepTable& steps) {
  std::vector<Figure> all = curves(
      {.id = "loss",
       .title = "Loss",
       .caption = "Training: the mean over the epoch's samples, while the model learns. Test: at "
                  "its end.",
       .y_label = "cross-entropy, nats"},
      epochs, {{"train", "train_loss", 1}, {"test", "test_loss", 1}});
  Figure single{.id = "step-loss",
                .title = "Loss per step",
                .caption = "The losses that were read (train.log_every).",
                .x_label = "step",
                .y_label = "cross-entropy, nats",
                .series = {{.name = "train"}}};
  if (steps.reduced.width() > 1)
    single.caption =
        fmt::format("Means of the losses that were read (train.log_every) within {} steps.",
                    steps.reduced.width());
  for (const StepSum& sum : steps.reduced.sums()) {
    if (sum.losses == 0) continue;
    single.series[0].x.push_back(sum.middle());
    single.series[0].y.push_back(sum.loss_sum / static_cast<double>(sum.losses));
  }
  if (single.series[0].y.size() >= 2) all.push_back(std::move(single));
  return all;
}

/// Returns accuracy on the training and test images over the epochs.
std::vector<Figure> accuracy_figure(const JsonLines& epochs) {
  return curves({.id = "accuracy",
                 .title = "Accuracy",
                 .caption = "Training: the epoch's samples as augmented, counted while the model "
                            "learns. Test: at its end.",
                 .y_label = "%"},
                epochs,
                {{"train top-1", "train_top1", 100},
                 {"test top-1", "top1", 100},
                 {"test top-5", "top5", 100}});
}

/// Returns `evaluation`'s per_class accuracy. If there are very many classes, shows the lowest.
std::vector<Figure> class_figure(const Summary& evaluation) {
  Named<double> classes;
  for (const auto& [name, accuracy] : evaluation.per_class)
    if (std::isfinite(accuracy)) classes.emplace_back(name, 100 * accuracy);
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

/// Returns the confusion matrix if it is small, with the class names of per_class.
std::vector<Figure> confusion_figure(const Summary& evaluation) {
  const auto& counts = confusion_of(evaluation);
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
    figure.series.push_back(
        {.name = figure.categories[i], .y = {counts[i].begin(), counts[i].end()}});
  return {std::move(figure)};
}

/// Returns the most frequent mistakes.
std::vector<ReportTable> confusion_table(const Summary& evaluation) {
  const auto& counts = confusion_of(evaluation);
  const auto names = class_names(evaluation, counts.size());
  struct Mistake {
    std::size_t label, predicted;
    std::uint64_t count;
    double share;
  };
  std::vector<Mistake> mistakes;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto all =
        static_cast<double>(std::accumulate(counts[i].begin(), counts[i].end(), std::uint64_t{0}));
    for (std::size_t j = 0; j < counts.size(); ++j)
      if (i != j && counts[i][j] > 0)
        mistakes.push_back({i, j, counts[i][j], static_cast<double>(counts[i][j]) / all});
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

/// Returns the last recorded evaluation: the summary's or an epoch's, whose line has its keys.
Summary last_evaluation(const Summary& summary, const JsonLines& epochs) {
  if (!summary.per_class.empty()) return summary;
  for (auto epoch = epochs.rbegin(); epoch != epochs.rend(); ++epoch)
    if (Summary line = summary_from(*epoch); !line.per_class.empty()) return line;
  return summary;
}

}  // namespace

void add_model(const fs::path& run, const Summary& summary, const JsonLines& epochs,
               const StepTable& steps, Report& report) {
  append(report.figures, loss_figures(epochs, steps));
  append(report.figures, accuracy_figure(epochs));
  const Summary evaluation = last_evaluation(summary, epochs);
  std::vector<Figure> classes = class_figure(evaluation);
  if (!classes.empty() && evaluation.confusion.empty())
    report.notes.push_back("no confusion matrix was recorded: millrace eval " + run.string() +
                           " prints one");
  append(report.figures, std::move(classes));
  append(report.figures, confusion_figure(evaluation));
  for (ReportTable& table : confusion_table(evaluation)) report.tables.push_back(std::move(table));
}

}  // namespace millrace::study
