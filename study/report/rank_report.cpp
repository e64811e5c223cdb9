// Compares the ranks and the replicas of a run.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "study/records/run_files.h"
#include "study/report/figures.h"
#include "study/report/reports.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

RankRecord rank_in(const Summary& summary, int rank) {
  for (const RankRecord& one : summary.ranks)
    if (one.rank == rank) return one;
  return {};
}

/// Returns the count and its share of `all`; "-" for both if the count is not known.
std::vector<std::string> share_of(double count, double all) {
  if (!std::isfinite(count)) return {"-", "-"};
  return {with_thousands(count), all > 0 ? fmt::format("{:.1f}%", 100 * count / all) : "-"};
}

/// Returns the sum of the known counts.
double sum_of(const std::vector<double>& counts) {
  double sum = 0;
  for (const double count : counts) sum += std::isfinite(count) ? count : 0;
  return sum;
}

/// Adds a column of the ranks' GPU utilisation, if any was recorded.
void add_utilization(const std::vector<RankSteps>& ranks, const Summary& summary,
                     ReportTable& table) {
  std::vector<double> shares;
  for (const RankSteps& one : ranks)
    shares.push_back(to_number(rank_in(summary, one.rank).gpu_utilization));
  if (std::none_of(shares.begin(), shares.end(), [](double share) { return std::isfinite(share); }))
    return;
  table.header.emplace_back("GPU utilisation");
  for (std::size_t i = 0; i < shares.size(); ++i)
    table.rows[i].push_back(std::isfinite(shares[i]) ? fmt::format("{:.1f}%", 100 * shares[i])
                                                     : "-");
}

}  // namespace

void add_replicas(const Summary& summary, Report& report) {
  const std::vector<double> counts(summary.replica_images.begin(), summary.replica_images.end());
  ReportTable table{.id = "replicas",
                    .title = "Replicas",
                    .caption = "Training samples that each replica was given by this process.",
                    .header = {"replica", "images", "of all"}};
  for (const double count : counts) {
    table.rows.push_back({std::to_string(table.rows.size())});
    for (std::string& cell : share_of(count, sum_of(counts)))
      table.rows.back().push_back(std::move(cell));
  }
  if (!table.rows.empty()) report.tables.push_back(std::move(table));
}

std::vector<int> other_ranks(const fs::path& run) {
  std::vector<int> ranks;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run, error)) {
    const std::string name = entry.path().filename().string();
    int rank = 0, end = 0;
    if (std::sscanf(name.c_str(), "steps.rank%d.csv%n", &rank, &end) == 1 &&
        end == static_cast<int>(name.size()))
      ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

namespace {

/// Returns the largest of the kinds, "-" if none is positive.
std::string largest_of(const BlamedOnRecord& seconds) {
  std::pair<double, const char*> largest{0, "-"};
  for (const auto& [value, name] :
       {std::pair(seconds.load, "load"), std::pair(seconds.update, "update"),
        std::pair(seconds.other, "other")})
    if (value > largest.first) largest = {*value, name};
  return largest.second;
}

constexpr double kNoWait = 0.01;  ///< part of a run up to which waits for the network are normal

/// Names the rank that the others have waited for, and why, or the network.
void add_straggler(const Summary& summary, Report& report) {
  if (!summary.straggler_rank) return;
  const std::string late = std::to_string(*summary.straggler_rank);
  const std::string on = summary.straggler_on.value_or("");
  const double network = to_number(summary.network_wait_s);
  const double wall = to_number(summary.wall_s);
  const std::string rank = "rank " + late + (on.empty() || on == "network" ? "" : " (" + on + ")");
  const std::string link = network <= kNoWait * wall ? "none" : "the network, no rank";
  report.facts.emplace_back("straggler", on == "network" ? link : rank);
  if (std::isfinite(network))
    report.facts.emplace_back("waits for the network", fmt::format("{:.3f} s per rank", network));
}

}  // namespace

void add_ranks(const std::vector<RankSteps>& ranks, const Summary& summary, Report& report) {
  ReportTable table{
      .id = "ranks",
      .title = "Ranks",
      .caption =
          "images: training samples that the rank was given by its process. waited for: "
          "seconds that the other ranks spent waiting for this one.",
      .header = {"rank", "host", "images", "of all", "steps", "load s", "update s",
                 "of it peer_wait s", "other s", "waited for, s", "because of"}};
  std::vector<double> images;
  for (const RankSteps& one : ranks) images.push_back(to_number(rank_in(summary, one.rank).images));
  Figure figure{
      .id = "rank-time",
      .title = "Time per rank",
      .caption = "A rank with much peer_wait waits for the others; the straggler has little.",
      .kind = FigureKind::stacked_bar,
      .x_label = "rank",
      .y_label = "seconds",
      .series = {{.name = "load"}, {.name = "update"}, {.name = "peer_wait"}}};
  for (const auto& [rank, steps] : ranks) {
    const RankRecord told = rank_in(summary, rank);
    const double load = in_seconds(steps->all.load_ns());
    const double update = in_seconds(steps->all.update_ns());
    const double wait =
        in_seconds(steps->all.ns[static_cast<std::size_t>(measure::Span::peer_wait)]);
    const double blamed = to_number(told.blamed_wait_s);
    std::vector<std::string> given = share_of(images[table.rows.size()], sum_of(images));
    table.rows.push_back(
        {std::to_string(rank), told.host.value_or(""), given[0], given[1],
         with_thousands(static_cast<double>(steps->all.steps)), fmt::format("{:.3f}", load),
         fmt::format("{:.3f}", update), fmt::format("{:.3f}", wait),
         fmt::format("{:.3f}", in_seconds(steps->all.other_ns())),
         std::isfinite(blamed) ? fmt::format("{:.3f}", blamed) : "-", largest_of(told.blamed_on)});
    figure.categories.push_back(std::to_string(rank));
    figure.series[0].y.push_back(load);
    figure.series[1].y.push_back(update - wait);
    figure.series[2].y.push_back(wait);
    if (rank > 0 && steps->cut)
      report.notes.push_back(
          fmt::format("steps.rank{}.csv ends in an incomplete row, which is left out", rank));
  }
  add_utilization(ranks, summary, table);
  const double expected = to_number(summary.world_size);
  if (expected > static_cast<double>(table.rows.size()))
    report.notes.push_back(
        fmt::format("only the tables of {} of {:.0f} ranks are here; the others are on "
                    "their hosts",
                    table.rows.size(), expected));
  add_straggler(summary, report);
  report.tables.push_back(std::move(table));
  append(report.figures, shown(std::move(figure)));
}

}  // namespace millrace::study
