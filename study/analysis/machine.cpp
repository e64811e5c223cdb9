// Reads /proc and /sys: the machine's facts and its state, and turns disturbances into warnings.

#include "study/analysis/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "predict/interval.h"
#include "study/analysis/statistics.h"
#include "study/records/run_files.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

/// Returns the value of the first line "KEY : VALUE" in a file of /proc; empty if there is none.
std::string value_in(const fs::path& file, const std::string& key) {
  constexpr const char* kBlank = " \t";
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(kBlank, colon + 1);
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_last_not_of(kBlank) - begin + 1);
  }
  return "";
}

}  // namespace

MachineFacts machine_facts(const std::string& root) {
  MachineFacts facts;
  facts.cpu = value_in(root + "/proc/cpuinfo", "model name");
  constexpr std::uint64_t kKibibyte = 1024;  // written as "kB"
  facts.memory_bytes =
      kKibibyte *
      std::strtoull(value_in(root + "/proc/meminfo", "MemTotal").c_str(), nullptr, /*base=*/10);
  std::vector<fs::path> devices;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root + "/proc/driver/nvidia/gpus", none))
    devices.push_back(entry.path());
  std::sort(devices.begin(), devices.end());  // by PCI bus id
  for (const fs::path& device : devices)
    if (std::string model = value_in(device / "information", "Model"); !model.empty())
      facts.gpus.push_back(std::move(model));
  return facts;
}

std::string machine_line(const Summary& summary) {
  std::vector<std::string> parts;
  if (summary.cpu && !summary.cpu->empty()) parts.push_back(*summary.cpu);
  if (summary.cores)
    parts.push_back(fmt::format("{} core{}", *summary.cores, summary.cores == 1 ? "" : "s"));
  if (summary.memory_bytes)
    parts.push_back(fmt::format("{:.1f} GB memory", 1e-9 * to_number(summary.memory_bytes)));
  std::vector<std::pair<std::string, int>> gpus;  // models and their numbers
  for (const std::string& name : summary.gpus) {
    if (gpus.empty() || gpus.back().first != name) gpus.emplace_back(name, 0);
    ++gpus.back().second;
  }
  for (const auto& [name, count] : gpus)
    parts.push_back(count == 1 ? name : fmt::format("{} x {}", count, name));
  return fmt::format("{}", fmt::join(parts, ", "));
}

namespace {

/// Thresholds of the warnings: noise above them moves a comparison by a few percent.
constexpr double kSteal = 0.01;
constexpr double kOthers = 0.05;
constexpr double kFrequency = 0.05;
constexpr double kOutlier = 14.826;  ///< in MADs: ten standard deviations of a normal distribution

double mean_mhz(const std::string& root) {
  double sum = 0;
  int cores = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/sys/devices/system/cpu", error)) {
    double khz = 0;
    if (std::ifstream(entry.path() / "cpufreq/scaling_cur_freq") >> khz) {
      sum += khz / 1000;
      ++cores;
    }
  }
  if (cores > 0) return sum / cores;
  std::ifstream in(root + "/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with("cpu MHz") || colon == std::string::npos) continue;
    sum += std::strtod(line.c_str() + colon + 1, nullptr);
    ++cores;
  }
  return cores > 0 ? sum / cores : predict::kNaN;
}

/// Returns whether this process may use the core that /proc/stat calls `name`.
bool may_use(const std::string& name) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return name == "cpu";  // too many cores
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed) && name == fmt::format("cpu{}", core)) return true;
  return false;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// Returns text such as "3 of 20 runs, at most 4.1%", or "" if no run reaches `from`.
std::string how_often(std::span<const Noise> runs, double Noise::*part, double from) {
  std::size_t count = 0;
  double most = 0;
  for (const Noise& run : runs) {
    if (!(run.*part >= from)) continue;
    ++count;
    most = std::max(most, run.*part);
  }
  return count == 0 ? ""
                    : fmt::format("{} of {} runs, at most {:.1f}%", count, runs.size(), 100 * most);
}

}  // namespace

MachineSample sample_machine(const std::string& root) {
  MachineSample sample{predict::kNaN, predict::kNaN, predict::kNaN, predict::kNaN, mean_mhz(root)};
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  bool first = true;
  std::ifstream stat(root + "/proc/stat");
  for (std::string line; std::getline(stat, line);) {
    std::istringstream words(line);
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    words >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
    if (!words || !may_use(name)) continue;
    if (std::exchange(first, false)) sample.busy_s = sample.steal_s = sample.total_s = 0;
    const double busy = user + nice + system + irq + softirq;
    sample.busy_s += busy / ticks;
    sample.steal_s += steal / ticks;
    sample.total_s += (busy + steal + idle + iowait) / ticks;
  }
  double load = 0;
  if (std::ifstream(root + "/proc/loadavg") >> load) sample.load_average = load;
  return sample;
}

Noise noise_between(const MachineSample& begin, const MachineSample& end, double own_cpu_s) {
  const double total = end.total_s - begin.total_s;
  Noise noise{predict::kNaN, predict::kNaN, begin.load_average, begin.mhz, end.mhz};
  if (!(total > 0)) return noise;
  noise.steal = std::clamp((end.steal_s - begin.steal_s) / total, 0.0, 1.0);
  noise.others = std::clamp((end.busy_s - begin.busy_s - own_cpu_s) / total, 0.0, 1.0);
  return noise;
}

nlohmann::ordered_json to_json(const Noise& noise) {
  return {{"steal", noise.steal},
          {"others", noise.others},
          {"load_average", noise.load_average},
          {"mhz_begin", noise.mhz_begin},
          {"mhz_end", noise.mhz_end}};
}

Noise noise_from(const nlohmann::ordered_json& json) {
  const auto number = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_number() ? json[key].get<double>()
                                                                           : predict::kNaN;
  };
  return {number("steal"), number("others"), number("load_average"), number("mhz_begin"),
          number("mhz_end")};
}

std::vector<std::string> noise_warnings(std::span<const Noise> runs) {
  std::vector<std::string> warnings;
  if (const auto text = how_often(runs, &Noise::steal, kSteal); !text.empty())
    warnings.push_back("the host gave CPU time to other machines (steal) during " + text);
  if (const auto text = how_often(runs, &Noise::others, kOthers); !text.empty())
    warnings.push_back("other programs used the CPU during " + text + " of all cores");
  double slowest = std::numeric_limits<double>::infinity(), fastest = 0;
  for (const Noise& run : runs) {
    for (const double mhz : {run.mhz_begin, run.mhz_end}) {
      if (!(mhz > 0)) continue;
      slowest = std::min(slowest, mhz);
      fastest = std::max(fastest, mhz);
    }
  }
  if (fastest > slowest * (1 + kFrequency))
    warnings.push_back(
        fmt::format("the cores' clock changed between {:.0f} and {:.0f} MHz", slowest, fastest));
  return warnings;
}

std::vector<bool> outliers(std::span<const double> values) {
  std::vector<bool> found(values.size(), false);
  if (values.size() < 3) return found;
  const double middle = median({values.begin(), values.end()});
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - middle));
  const double spread = median(distances);
  for (std::size_t i = 0; i < values.size(); ++i)
    found[i] = spread > 0 && distances[i] > kOutlier * spread;
  return found;
}

}  // namespace millrace::study
