// Compares the settings that runs recorded with the keys that their sweep set.
#include "study/sweep/confounders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/text.h"
#include "study/records/run_files.h"
#include "study/sweep/design.h"
#include "study/sweep/sweep_record.h"

namespace millrace::study {
namespace {

struct Setting {
  const char* name;
  const char* key = nullptr;    ///< of the recipe, that takes the recorded value
  const char* other = nullptr;  ///< another key that sets it
};
constexpr Setting kSettings[] = {{"threads", "train.threads"},
                                 {"workers", "loader.workers"},
                                 {"io_threads", "loader.io_threads"},
                                 {"prefetch", "loader.prefetch"},
                                 {"batch", "loader.batch", "loader.batch_per_rank"},
                                 {"accumulate", "train.accumulate"},
                                 {"amp", "train.amp"},
                                 {"ops", "model.ops"},
                                 {"strategy", "train.strategy"},
                                 {"device", nullptr, "train.device"},  // the record names the model
                                 {"world_size", "train.ranks"},
                                 {"simd"},
                                 {"host"}};
constexpr std::size_t kMaxValues = 6;  ///< that a remark lists by row

/// Returns the keys that cells set differently. A recipe stands for all keys and is named "".
std::set<std::string> swept_keys(const SweepDesign& design) {
  std::map<std::string, std::size_t> cells;  // that have the word
  for (const SweepCell& cell : design.cells)
    for (const std::string& word :
         std::set<std::string>(cell.overrides.begin(), cell.overrides.end()))
      ++cells[word];
  std::set<std::string> keys;
  for (const auto& [word, count] : cells) {
    if (count == design.cells.size()) continue;
    const std::size_t sign = word.find_first_of("+=");
    keys.insert(sign == std::string::npos ? "" : word.substr(0, sign));
  }
  return keys;
}

bool is_swept(const Setting& setting, const std::set<std::string>& keys) {
  const auto has = [&](const char* key) {
    return key != nullptr && (keys.contains(key) || keys.contains(""));
  };
  return has(setting.key) || has(setting.other);
}

/// Returns the setting of a run; "-" if it recorded none.
std::string value_of(const SweepRecord& run, const std::string& setting) {
  const auto found = run.settings.find(setting);
  return found == run.settings.end() ? "-" : found->second;
}

/// Returns the device in "2 ranks, each cpu (1 thread)": "cpu".
std::string device_in(const std::string& text) {
  constexpr std::string_view kEach = ", each ";
  const std::size_t each = text.find(kEach);
  const std::string one = each == std::string::npos ? text : text.substr(each + kEach.size());
  return one.substr(0, one.find(" ("));
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

/// Returns the value that all rows can have: the smallest number, or the first row's text.
std::string common_value(const std::vector<std::string>& values) {
  std::string least;
  for (const std::string& value : values) {
    if (value == "-" || value == "varies") continue;
    const bool smaller =
        is_number(value) && is_number(least) && std::stoi(value) < std::stoi(least);
    if (least.empty() || smaller) least = value;
  }
  return least;
}

}  // namespace

Settings settings_in(const nlohmann::ordered_json& summary) {
  Settings settings;
  if (!summary.is_object()) return settings;
  for (const Setting& one : kSettings)
    if (const std::string text = text_at(summary, {one.name}); !text.empty())
      settings[one.name] = base::abridged(text);
  if (const auto found = settings.find("device"); found != settings.end()) {
    found->second = device_in(found->second);
    if (found->second != "cpu") settings.erase("threads");  // LibTorch's, which then train nothing
  }
  return settings;
}

std::vector<Confounder> confounders(const SweepDesign& design,
                                    const std::vector<std::vector<SweepRecord>>& runs,
                                    const std::vector<std::size_t>& references) {
  const std::set<std::string> keys = swept_keys(design);
  std::vector<Confounder> found;
  for (const Setting& setting : kSettings) {
    if (is_swept(setting, keys)) continue;
    Confounder one{setting.name, setting.key == nullptr ? "" : setting.key, {}, {}};
    for (std::size_t row = 0; row < runs.size(); ++row) {
      const auto& other = runs[references[row]];
      std::set<std::string> values;
      bool differs = false;
      for (std::size_t repeat = 0; repeat < runs[row].size(); ++repeat) {
        const std::string value = value_of(runs[row][repeat], setting.name);
        values.insert(value);
        differs |= repeat < other.size() && value != value_of(other[repeat], setting.name);
      }
      one.values.push_back(values.empty() ? "-" : values.size() == 1 ? *values.begin() : "varies");
      one.differs.push_back(differs);
    }
    if (std::find(one.differs.begin(), one.differs.end(), true) != one.differs.end())
      found.push_back(std::move(one));
  }
  return found;
}

std::string differ_text(const std::vector<std::string>& settings) {
  const bool plural = settings.size() > 1 || settings[0].ends_with('s');
  return fmt::format("{} {}", fmt::join(settings, ", "), plural ? "differ" : "differs");
}

namespace {

std::string remark_text(const Confounder& confounder, const std::string& compared) {
  std::vector<std::string> values = confounder.values;
  if (values.size() > kMaxValues) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
  }
  const std::string common = common_value(confounder.values);
  return fmt::format("{} too ({}), so a comparison mixes both effects{}",
                     differ_text({confounder.setting}), fmt::join(values, ", "),
                     confounder.key.empty() || common.empty()
                         ? ""
                         : fmt::format("; set {} to compare {} alone",
                                       base::shell_word(confounder.key + "=" + common), compared));
}

}  // namespace

std::string remark_on(const Confounder& confounder, const SweepDesign& design) {
  return remark_text(confounder,
                     design.columns.size() == 1 && design.columns[0].find('.') != std::string::npos
                         ? design.columns[0]
                         : "the rows' own keys");
}

std::vector<Confounder> confounders(const std::vector<Settings>& runs,
                                    const std::set<std::string>& keys) {
  std::vector<Confounder> found;
  const Settings* first = nullptr;
  for (const Settings& run : runs)
    if (first == nullptr && !run.empty()) first = &run;
  if (first == nullptr) return found;
  const auto value_in = [](const Settings& run, const char* name) {
    const auto at = run.find(name);
    return at == run.end() ? std::string("-") : at->second;
  };
  for (const Setting& setting : kSettings) {
    if (is_swept(setting, keys)) continue;
    Confounder one{setting.name, setting.key == nullptr ? "" : setting.key, {}, {}};
    for (const Settings& run : runs) {
      one.values.push_back(value_in(run, setting.name));
      one.differs.push_back(!run.empty() && one.values.back() != value_in(*first, setting.name));
    }
    if (std::find(one.differs.begin(), one.differs.end(), true) != one.differs.end())
      found.push_back(std::move(one));
  }
  return found;
}

std::string remark_on(const Confounder& confounder, const std::set<std::string>& keys) {
  return remark_text(confounder, keys.size() == 1 ? *keys.begin() : "the runs' own keys");
}

bool are_of_the_loader(const std::set<std::string>& keys) {
  return !keys.empty() && std::all_of(keys.begin(), keys.end(), [](const std::string& key) {
    return (key.starts_with("loader.") && !key.starts_with("loader.batch")) ||
           key.starts_with("data.storage.");
  });
}

bool sweeps_loader_alone(const SweepDesign& design) {
  return are_of_the_loader(swept_keys(design));
}

}  // namespace millrace::study
