// Reads /proc.
#include "study/records/machine_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

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

std::string machine_line(const nlohmann::ordered_json& summary) {
  std::vector<std::string> parts;
  if (std::string cpu = text_at(summary, {"cpu"}); !cpu.empty()) parts.push_back(std::move(cpu));
  if (const double cores = number_at(summary, {"cores"}); std::isfinite(cores))
    parts.push_back(fmt::format("{:.0f} core{}", cores, cores == 1 ? "" : "s"));
  if (const double bytes = number_at(summary, {"memory_bytes"}); std::isfinite(bytes))
    parts.push_back(fmt::format("{:.1f} GB memory", bytes * 1e-9));
  std::vector<std::pair<std::string, int>> gpus;  // models and their numbers
  if (summary.is_object() && summary.contains("gpus"))
    for (const auto& gpu : summary["gpus"]) {
      const std::string name = gpu.is_string() ? gpu.get<std::string>() : gpu.dump();
      if (gpus.empty() || gpus.back().first != name) gpus.emplace_back(name, 0);
      ++gpus.back().second;
    }
  for (const auto& [name, count] : gpus)
    parts.push_back(count == 1 ? name : fmt::format("{} x {}", count, name));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace millrace::study
