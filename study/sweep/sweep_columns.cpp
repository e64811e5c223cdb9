// The list of figures and their presentation.
#include "study/sweep/sweep_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "predict/interval.h"

namespace millrace::study {
namespace {

constexpr FigureColumn kColumns[] = {
    {"load_s_per_step", "load ms/step", "load ms", 1e3, 4, "", 2},
    {"update_s_per_step", "update ms/step", "update ms", 1e3, 4, "", 3},
    {"load_s", "load s", "load s", 1, 3, "", kLeast},
    {"update_s", "update s", "update s", 1, 3, "", kLeast},
    {"wall_s", "total s", "total s", 1, 2, "", 5},
    {"images_per_s", "images/s", "images/s", 1, 0, "", kMetric},
    {"top1", "top-1", "top-1", 100, 2, "%", 4},
    {"epoch_s", "s/epoch", "s/epoch", 1, 3, "", 6},
    {"speedup", "speed-up", "speed-up", 1, 2, "x", kLeast},
    {"host_bytes", "host MB", "host MB", 1e-6, 0, "", kLeast},
    {"peak_device_bytes", "device MB", "GPU MB", 1e-6, 0, "", kLeast},
    {"cpu_utilization", "CPU", "CPU", 100, 0, "%", kLeast},
    {"gpu_utilization", "GPU", "GPU", 100, 0, "%", kLeast},
    {"train_top1", "train top-1", "train top-1", 100, 2, "%", kLeast},
    {"test_loss", "test loss", "test loss", 1, 4, "", kLeast}};

}  // namespace

std::span<const FigureColumn> figure_columns() { return kColumns; }

FigureColumn column_of(const std::string& name) {
  for (const FigureColumn& column : kColumns)
    if (name == column.figure) return column;
  const char* const title = name.c_str();
  if (is_share(name)) return {title, title, title, 100, 2, "%", kLeast};
  if (name.ends_with("_bytes")) return {title, title, title, 1e-6, 0, " MB", kLeast};
  return {title, title, title, 1, -1, "", kLeast};
}

std::string effect_title(const SweepTable& table, const SweepMetric& metric) {
  return fmt::format("{} {}", metric.name,
                     by_differences(table.runs, metric) ? "difference" : "ratio");
}

bool has_values(const SweepTable& table, const std::string& figure) {
  return std::any_of(table.rows.begin(), table.rows.end(), [&](const SweepRow& row) {
    return std::isfinite(row.figures.at(figure).mean);
  });
}

bool is_command(const SweepTable& table) { return !table.design.command.empty(); }

bool has_source(const SweepTable& table, const std::string& figure) {
  const auto& cells = table.design.cells;
  return std::any_of(cells.begin(), cells.end(),
                     [&](const SweepCell& cell) { return cell.source.contains(figure); });
}

std::string row_title(const SweepTable& table, std::size_t row) {
  const auto names = short_names(table.design.columns);
  const bool plain = names.size() == 1 && (names[0] == "combination" || names[0] == "row");
  std::string text = table.design.cells[row].group;
  for (std::size_t c = 0; c < names.size(); ++c)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", plain ? "" : names[c] + "=",
                        table.design.cells[row].labels[c]);
  return text;
}

std::vector<std::string> threads_of_rows(const SweepTable& table) {
  std::vector<std::string> cells;
  for (const auto& runs : table.runs) {
    const double threads = runs.empty() ? predict::kNaN : runs[0].figures.threads;
    cells.push_back(std::isfinite(threads) ? fmt::format("{:.0f}", threads) : "-");
  }
  return cells;
}

}  // namespace millrace::study
