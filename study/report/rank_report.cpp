// Compares the ranks and the replicas of a run.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "study/records/run_files.h"
#include "study/report/figures.h"
#include "study/report/reports.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json rank_in(const Json& summary, int rank) {
  if (summary.is_object() && summary.contains("ranks") && summary["ranks"].is_array())
    for (const Json& one : summary["ranks"])
      if (number_at(one, {"rank"}) == rank) return one;
  return nullptr;
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
void add_utilization(const std::vector<RankSteps>& ranks, const Json& summary, ReportTable& table) {
  std::vector<double> shares;
  for (const RankSteps& one : ranks)
    shares.push_back(number_at(rank_in(summary, one.rank), {"gpu_utilization"}));
  if (std::none_of(shares.begin(), shares.end(), [](double share) { return std::isfinite(share); }))
    return;
  table.header.emplace_back("GPU utilisation");
  for (std::size_t i = 0; i < shares.size(); ++i)
    table.rows[i].push_back(std::isfinite(shares[i]) ? fmt::format("{:.1f}%", 100 * shares[i])
                                                     : "-");
}

}  // namespace

void add_replicas(const Json& summary, Report& report) {
  if (!summary.is_object() || !summary.contains("replica_images")) return;
  std::vector<double> counts;
  for (const Json& count : summary["replica_images"])
    counts.push_back(count.is_number() ? count.get<double>() : NAN);
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

/// Returns the key of the largest number in an object, "-" if none is positive.
std::string largest_in(const Json& object, const char* key) {
  std::string name = "-";
  double largest = 0;
  if (object.is_object() && object.contains(key) && object[key].is_object())
    for (const auto& [part, value] : object[key].items())
      if (value.is_number() && value.get<double>() > largest) {
        largest = value;
        name = part;
      }
  return name;
}

constexpr double kNoWait = 0.01;  ///< part of a run up to which waits for the network are normal

/// Names the rank that the others have waited for, and why, or the network.
void add_straggler(const Json& summary, Report& report) {
  const std::string late = text_at(summary, {"straggler_rank"});
  if (late.empty()) return;
  const std::string on = text_at(summary, {"straggler_on"});
  const double network = number_at(summary, {"network_wait_s"});
  const double wall = number_at(summary, {"wall_s"});
  const std::string rank = "rank " + late + (on.empty() || on == "network" ? "" : " (" + on + ")");
  const std::string link = network <= kNoWait * wall ? "none" : "the network, no rank";
  report.facts.emplace_back("straggler", on == "network" ? link : rank);
  if (std::isfinite(network))
    report.facts.emplace_back("waits for the network", fmt::format("{:.3f} s per rank", network));
}

}  // namespace

void add_ranks(const std::vector<RankSteps>& ranks, const Json& summary, Report& report) {
  ReportTable table{
      .id = "ranks",
      .title = "Ranks",
      .caption =
          "images: training samples that the rank was given by its process. waited for: "
          "seconds that the other ranks spent waiting for this one.",
      .header = {"rank", "host", "images", "of all", "steps", "load s", "update s",
                 "of it peer_wait s", "other s", "waited for, s", "because of"}};
  std::vector<double> images;
  for (const RankSteps& one : ranks)
    images.push_back(number_at(rank_in(summary, one.rank), {"images"}));
  Figure figure{
      .id = "rank-time",
      .title = "Time per rank",
      .caption = "A rank with much peer_wait waits for the others; the straggler has little.",
      .kind = FigureKind::stacked_bar,
      .x_label = "rank",
      .y_label = "seconds",
      .series = {{.name = "load"}, {.name = "update"}, {.name = "peer_wait"}}};
  for (const auto& [rank, steps] : ranks) {
    const Json told = rank_in(summary, rank);
    const double load = in_seconds(steps->all.load_ns());
    const double update = in_seconds(steps->all.update_ns());
    const double wait =
        in_seconds(steps->all.ns[static_cast<std::size_t>(measure::Span::peer_wait)]);
    const double blamed = number_at(told, {"blamed_wait_s"});
    std::vector<std::string> given = share_of(images[table.rows.size()], sum_of(images));
    table.rows.push_back({std::to_string(rank), text_at(told, {"host"}), given[0], given[1],
                          with_thousands(static_cast<double>(steps->all.steps)),
                          fmt::format("{:.3f}", load), fmt::format("{:.3f}", update),
                          fmt::format("{:.3f}", wait),
                          fmt::format("{:.3f}", in_seconds(steps->all.other_ns())),
                          std::isfinite(blamed) ? fmt::format("{:.3f}", blamed) : "-",
                          largest_in(told, "blamed_on")});
    figure.categories.push_back(std::to_string(rank));
    figure.series[0].y.push_back(load);
    figure.series[1].y.push_back(update - wait);
    figure.series[2].y.push_back(wait);
    if (rank > 0 && steps->cut)
      report.notes.push_back(
          fmt::format("steps.rank{}.csv ends in an incomplete row, which is left out", rank));
  }
  add_utilization(ranks, summary, table);
  const double expected = number_at(summary, {"world_size"});
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
