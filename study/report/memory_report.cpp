// Draws the memory of a watched loop from memory.csv.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

#include "millrace/error.h"
#include "study/records/run_files.h"
#include "study/report/figures.h"
#include "study/report/reports.h"

namespace millrace::study {
namespace {

constexpr std::size_t kMostPoints = 400;
constexpr std::size_t kMostSamples = 4'000'000;  // one per second for 46 days
constexpr double kMiB = 1 << 20;

}  // namespace

std::vector<Figure> memory_figure(const std::filesystem::path& run) {
  const std::filesystem::path file = run / "memory.csv";
  std::vector<std::array<double, 3>> samples;  // seconds, bytes of the trainer and of the workers
  double free = std::numeric_limits<double>::infinity(), free_shared = free;
  read_numbers(
      file,
      {"time_s", "trainer_bytes", "workers_bytes", "free_memory_bytes", "free_shared_memory_bytes"},
      [&](const std::vector<double>& row) {
        if (samples.size() == kMostSamples)
          throw DataError(file.string() + " has more samples than a run takes",
                          "remove it to get a report without it");
        samples.push_back({row[0], row[1], row[2]});
        free = std::min(free, row[3]);
        free_shared = std::min(free_shared, row[4]);
      });
  if (samples.empty()) return {};
  Figure figure{
      .id = "memory",
      .title = "Memory",
      .caption = fmt::format("Proportional set sizes without pages of files; of the workers, their "
                             "sum. At the least {:.0f} MiB of memory were free, and {:.0f} MiB of "
                             "shared memory.",
                             free / kMiB, free_shared / kMiB),
      .kind = FigureKind::line,
      .x_label = "s since the recording began",
      .y_label = "MiB"};
  figure.series = {{.name = "trainer"}, {.name = "workers"}};
  for (const Group& group : groups_of(samples.size(), kMostPoints))
    for (std::size_t i = 0; i < figure.series.size(); ++i) {
      double most = 0;
      for (std::size_t at = group.begin; at < group.end; ++at)
        most = std::max(most, samples[at][i + 1]);
      figure.series[i].x.push_back(samples[group.begin][0]);
      figure.series[i].y.push_back(most / kMiB);
    }
  if (samples.size() > kMostPoints)
    figure.caption += " Of neighbouring samples the highest is shown.";
  return shown(std::move(figure));
}

}  // namespace millrace::study
