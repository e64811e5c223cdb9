#include "study/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "pipeline/error.h"
#include "pipeline/sampler.h"
#include "pipeline/suggest.h"

namespace millrace {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// "1.23" or, of several, "1.23 [1.20 .. 1.31]".
std::string spread(const std::vector<SweepFigures>& runs,
                   const std::function<double(const SweepFigures&)>& figure,
                   const std::function<std::string(double)>& print) {
  std::vector<double> values;
  for (const auto& run : runs) values.push_back(figure(run));
  if (values.empty() || std::isnan(values.front())) return "-";
  if (values.size() == 1) return print(values.front());
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return fmt::format("{} [{} .. {}]", print(median(values)), print(*low), print(*high));
}

double metric_of(const SweepFigures& figures, const std::string& metric) {
  if (metric == "images_per_s") return figures.images_per_s;
  if (metric == "wall_s") return figures.wall_s;
  if (metric == "load_s") return figures.load_s;
  if (metric == "update_s") return figures.update_s;
  const std::vector<std::string> names{"images_per_s", "wall_s", "load_s", "update_s"};
  throw UsageError(
      "--metric " + metric + " is not measured",
      "did you mean " + nearest(metric, names) + "? images_per_s, wall_s, load_s or update_s");
}

}  // namespace

SweepAxis parse_axis(const std::string& text) {
  const auto equals = text.find('=');
  SweepAxis axis{text.substr(0, equals), {}};
  const std::string list = text.substr(equals + 1);
  std::string value;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && depth == 0)) {
      if (value.empty())
        throw UsageError(text + ": an empty value", "separate values by single commas: key=a,b,c");
      axis.values.push_back(std::move(value));
      value.clear();
      continue;
    }
    if (list[i] == '[' || list[i] == '{') ++depth;
    if (list[i] == ']' || list[i] == '}') --depth;
    value += list[i];
  }
  return axis;
}

std::vector<std::vector<std::string>> grid(const std::vector<SweepAxis>& axes) {
  std::vector<std::vector<std::string>> cells{{}};
  for (const auto& axis : axes) {
    std::vector<std::vector<std::string>> longer;
    for (const auto& cell : cells) {
      for (const auto& value : axis.values) {
        longer.push_back(cell);
        longer.back().push_back(axis.key + "=" + value);
      }
    }
    cells = std::move(longer);
  }
  return cells;
}

std::vector<SweepRun> interleaved(std::size_t cells, std::uint64_t repeats, std::uint64_t seed) {
  std::vector<SweepRun> runs;
  for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) {
    const Sampler order(cells, {Shuffle::Kind::global, 0}, seed,
                        static_cast<std::uint32_t>(repeat));
    for (std::size_t i = 0; i < cells; ++i) runs.push_back({order(i), repeat});
  }
  return runs;
}

std::vector<std::vector<std::string>> sweep_table(
    const std::vector<SweepAxis>& axes, const std::vector<std::vector<SweepFigures>>& cells,
    const std::string& metric) {
  static_cast<void>(metric_of({}, metric));
  std::vector<std::vector<std::string>> rows{{}};
  std::vector<SweepAxis> varied;
  std::copy_if(axes.begin(), axes.end(), std::back_inserter(varied),
               [](const SweepAxis& axis) { return axis.values.size() > 1; });
  for (const auto& axis : varied) rows[0].push_back(axis.key);
  if (varied.empty()) rows[0].emplace_back("run");
  for (const char* name : {"threads", "load ms/step", "update ms/step", "load s", "update s",
                           "total s", "images/s", "top-1"})
    rows[0].emplace_back(name);
  rows[0].push_back(metric + " ratio");

  const auto combinations = grid(varied);
  const auto fixed = [](int digits) {
    return [digits](double value) { return fmt::format("{:.{}f}", value, digits); };
  };
  for (std::size_t i = 0; i < cells.size(); ++i) {
    std::vector<std::string> row;
    for (const auto& override_text : combinations[i])
      row.push_back(override_text.substr(override_text.find('=') + 1));
    if (varied.empty()) row.emplace_back("1");
    const auto& runs = cells[i];
    row.push_back(runs.empty() ? "-" : fixed(0)(runs.front().threads));
    row.push_back(spread(
        runs, [](auto& r) { return 1e3 * r.load_s_per_step; }, fixed(4)));
    row.push_back(spread(
        runs, [](auto& r) { return 1e3 * r.update_s_per_step; }, fixed(4)));
    row.push_back(spread(
        runs, [](auto& r) { return r.load_s; }, fixed(3)));
    row.push_back(spread(
        runs, [](auto& r) { return r.update_s; }, fixed(3)));
    row.push_back(spread(
        runs, [](auto& r) { return r.wall_s; }, fixed(2)));
    row.push_back(spread(
        runs, [](auto& r) { return r.images_per_s; }, fixed(0)));
    row.push_back(spread(
        runs, [](auto& r) { return 100 * r.top1; },
        [](double value) { return fmt::format("{:.2f}%", value); }));
    std::vector<double> ratios;  // within a block both cells met the same machine
    for (std::size_t r = 0; r < std::min(runs.size(), cells[0].size()); ++r)
      ratios.push_back(metric_of(runs[r], metric) / metric_of(cells[0][r], metric));
    row.push_back(ratios.empty() ? "-" : fmt::format("{:.3f}", median(ratios)));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace millrace
