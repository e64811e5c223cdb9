// Ranks keys by what people vary and by what they explain.
#include "study/report/run_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

namespace millrace::study {
namespace {

/// Keys that people vary, in the order of their columns; those with a dot at the end stand for all
/// keys of a section.
constexpr auto kVaried = std::to_array<std::string_view>({"model.name",
                                                          "model.",
                                                          "data.path",
                                                          "data.reader",
                                                          "data.split",
                                                          "loader.batch",
                                                          "loader.batch_per_rank",
                                                          "train.lr",
                                                          "train.optimizer",
                                                          "train.schedule",
                                                          "train.epochs",
                                                          "train.steps",
                                                          "loader.workers",
                                                          "augment",
                                                          "augment.",
                                                          "eval_augment",
                                                          "train.strategy",
                                                          "train.ranks",
                                                          "train.replicas",
                                                          "train.device",
                                                          "train.amp"});

constexpr const char* kMissing = "-";  ///< a value that config_table() has not found

constexpr double kExplains = 0.5;          ///< share of the variance of a result
constexpr std::size_t kFewRuns = 3;        ///< up to here each difference is varied
constexpr std::size_t kMaxOfRest = 5;      ///< keys named in a run's rest
constexpr std::size_t kLongestValue = 40;  ///< characters of a value in a run's rest

std::size_t place_of(std::string_view key) {
  const auto at = std::find_if(kVaried.begin(), kVaried.end(), [&](std::string_view known) {
    return key == known || (known.ends_with('.') && key.starts_with(known));
  });
  return static_cast<std::size_t>(at - kVaried.begin());
}

/// Returns a value without the quotes of TOML.
std::string plain(const std::string& value) {
  const bool quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return quoted ? value.substr(1, value.size() - 2) : value;
}

struct Key {
  std::string name{};
  std::vector<std::string> values{};  ///< per run
  std::string usual{};                ///< the most frequent value, the first of several
  bool varied = false;                ///< not by one odd run alone
  std::size_t place = 0;
  double explains = 0;  ///< share of the variance of the result that it explains best
};

/// Returns the share of the variance of `result` that the groups of equal values explain, adjusted
/// for their number: values that no two runs share explain nothing.
double explained(const std::vector<std::string>& values, const std::vector<double>& result) {
  std::map<std::string, std::pair<double, double>> groups;  // sum and count
  double sum = 0, squares = 0, count = 0;
  for (std::size_t run = 0; run < values.size(); ++run) {
    if (!std::isfinite(result[run])) continue;
    auto& [group_sum, group_count] = groups[values[run]];
    group_sum += result[run];
    group_count += 1;
    sum += result[run];
    squares += result[run] * result[run];
    count += 1;
  }
  const double within = count - static_cast<double>(groups.size());
  const double total = count > 0 ? squares - sum * sum / count : 0;
  if (groups.size() < 2 || within < 1 || !(total > 1e-12 * squares)) return 0;
  double between = -sum * sum / count;
  for (const auto& [value, group] : groups) between += group.first * group.first / group.second;
  return 1 - (1 - between / total) * (count - 1) / within;
}

Key key_of(const std::vector<std::string>& row, const std::vector<std::vector<double>>& results) {
  Key key{.name = row[0], .place = place_of(row[0])};
  // Runs of another version lack keys; a run without augmentations lacks their chain.
  const bool is_chain = key.name == "augment" || key.name == "eval_augment";
  std::map<std::string, std::size_t> counts;
  std::size_t known = 0;
  for (std::size_t run = 1; run < row.size(); ++run) {
    key.values.push_back(plain(row[run]));
    if (row[run] == kMissing && !is_chain) continue;
    ++counts[key.values.back()];
    ++known;
  }
  key.usual =
      *std::max_element(key.values.begin(), key.values.end(),
                        [&](const auto& a, const auto& b) { return counts[a] < counts[b]; });
  key.varied = key.values.size() <= kFewRuns || known > counts[key.usual] + 1;
  for (const auto& result : results)
    key.explains = std::max(key.explains, explained(key.values, result));
  return key;
}

/// Returns whether the key belongs to an augmentation that some runs lack: the chain says that.
bool is_part_of_chain(const Key& key) {
  const bool augments = key.name.starts_with("augment.") || key.name.starts_with("eval_augment.");
  return augments && std::find(key.values.begin(), key.values.end(), kMissing) != key.values.end();
}

bool is_column(const Key& key) {
  if (!key.varied || is_part_of_chain(key)) return false;
  return key.place < kVaried.size() || key.explains >= kExplains || key.values.size() <= kFewRuns;
}

std::string rest_of(std::size_t run, const std::vector<Key>& others) {
  std::string text;
  std::size_t count = 0;
  for (const Key& key : others) {
    if (!key.varied && key.values[run] == key.usual) continue;
    if (is_part_of_chain(key) || key.values[run] == kMissing || ++count > kMaxOfRest) continue;
    const std::string& value = key.values[run];
    text += fmt::format(
        "{}{}={}", text.empty() ? "" : ", ", key.name,
        value.size() > kLongestValue ? "..." + value.substr(value.size() - kLongestValue) : value);
  }
  if (count > kMaxOfRest) text += fmt::format(" and {} more", count - kMaxOfRest);
  return text;
}

}  // namespace

RunColumns run_columns(const ReportTable& keys, const std::vector<std::vector<double>>& results,
                       std::size_t most) {
  std::vector<Key> all;
  for (const auto& row : keys.rows) all.push_back(key_of(row, results));
  std::stable_sort(all.begin(), all.end(), [](const Key& a, const Key& b) {
    if (is_column(a) != is_column(b)) return is_column(a);
    if (a.place != b.place) return a.place < b.place;
    return a.explains > b.explains;
  });
  const auto end =
      std::find_if(all.begin(), all.end(), [](const Key& key) { return !is_column(key); });
  const auto columns = std::min(most, static_cast<std::size_t>(end - all.begin()));
  const std::vector<Key> others(all.begin() + static_cast<std::ptrdiff_t>(columns), all.end());
  RunColumns chosen;
  for (std::size_t key = 0; key < columns; ++key) chosen.keys.push_back(all[key].name);
  const std::size_t runs = keys.header.size() - 1;
  for (std::size_t run = 0; run < runs; ++run) {
    std::vector<std::string> cells;
    for (std::size_t key = 0; key < columns; ++key) cells.push_back(all[key].values[run]);
    chosen.cells.push_back(std::move(cells));
    chosen.rest.push_back(rest_of(run, others));
  }
  return chosen;
}

}  // namespace millrace::study
