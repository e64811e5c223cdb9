// Parses a sweep's axes and expands them to combinations.
#include "study/sweep/design.h"

#include <fmt/format.h>

#include <algorithm>

#include "millrace/error.h"
#include "pipeline/loader/shuffled_order.h"
#include "recipe/recipe_file.h"

namespace millrace::study {
namespace {

/// Splits at `separator` outside brackets and braces.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == separator && depth == 0) {
      parts.emplace_back();
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    parts.back() += c;
  }
  return parts;
}

std::string override_of(const SweepAxis& axis, std::size_t value) {
  return axis.key + "=" + axis.values[value];
}

std::vector<std::string> varied_keys(const std::vector<SweepAxis>& axes) {
  std::vector<std::string> keys;
  for (const auto& axis : axes)
    if (axis.values.size() > 1) keys.push_back(axis.key);
  return keys;
}

/// Names the columns. A sweep of one combination has a column too.
SweepDesign named(SweepDesign design) {
  if (!design.columns.empty()) return design;
  design.columns.emplace_back("run");
  for (auto& cell : design.cells) cell.labels.emplace_back("1");
  return design;
}

/// Returns the last `parts` parts of a key.
std::string last_parts(const std::string& key, int parts) {
  auto dot = std::string::npos;
  for (; parts > 0; --parts) {
    if (dot == 0) return key;
    dot = key.rfind('.', dot == std::string::npos ? dot : dot - 1);
    if (dot == std::string::npos) return key;
  }
  return key.substr(dot + 1);
}

}  // namespace

std::vector<std::string> short_names(const std::vector<std::string>& keys) {
  const auto least = [](const std::string& key) {
    return key.starts_with("augment.") || key.starts_with("eval.augment.") ? 2 : 1;
  };
  const auto is_ambiguous = [&](const std::string& name) {
    return std::count_if(keys.begin(), keys.end(), [&](const std::string& key) {
             return key == name || key.ends_with("." + name);
           }) > 1;
  };
  std::vector<std::string> names;
  for (const std::string& key : keys) {
    int parts = least(key);
    std::string name = last_parts(key, parts);
    while (name != key && is_ambiguous(name)) name = last_parts(key, ++parts);
    names.push_back(std::move(name));
  }
  return names;
}

SweepAxis parse_axis(const std::string& text) {
  const auto equals = text.find('=');
  SweepAxis axis{text.substr(0, equals), split(text.substr(equals + 1), ',')};
  for (const auto& value : axis.values)
    if (value.empty())
      throw UsageError(text + ": an empty value", "separate values by single commas: key=a,b,c");
  return axis;
}

SweepDesign grid_design(const std::vector<SweepAxis>& axes) {
  SweepDesign design{varied_keys(axes), {{}}};
  for (const auto& axis : axes) {
    std::vector<SweepCell> longer;
    for (const auto& cell : design.cells) {
      for (std::size_t i = 0; i < axis.values.size(); ++i) {
        longer.push_back(cell);
        longer.back().overrides.push_back(override_of(axis, i));
        if (axis.values.size() > 1) longer.back().labels.push_back(axis.values[i]);
      }
    }
    design.cells = std::move(longer);
  }
  return named(std::move(design));
}

SweepDesign paired_design(const std::vector<SweepAxis>& axes) {
  const SweepAxis* longest = nullptr;
  for (const auto& axis : axes) {
    if (axis.values.size() == 1) continue;
    if (longest != nullptr && axis.values.size() != longest->values.size())
      throw UsageError(fmt::format("--design paired: {} has {} values, {} has {}", longest->key,
                                   longest->values.size(), axis.key, axis.values.size()),
                       "give both as many, or leave out --design for every combination");
    if (longest == nullptr) longest = &axis;
  }
  SweepDesign design{varied_keys(axes), {}};
  design.cells.resize(longest == nullptr ? 1 : longest->values.size());
  for (std::size_t i = 0; i < design.cells.size(); ++i) {
    for (const auto& axis : axes) {
      const bool varied = axis.values.size() > 1;
      design.cells[i].overrides.push_back(override_of(axis, varied ? i : 0));
      if (varied) design.cells[i].labels.push_back(axis.values[i]);
    }
  }
  return named(std::move(design));
}

std::vector<std::string> cell_words(const std::string& text, const std::string& where,
                                    bool may_name_recipe) {
  std::vector<std::string> words;
  for (auto& word : split(text, ' ')) {
    if (word.empty()) continue;
    if (!recipe::is_override(word) && !(may_name_recipe && words.empty()))
      throw UsageError(fmt::format("{} '{}': {} is not key=value", where, text, word),
                       "for example 'loader.workers=2 loader.prefetch=8'");
    words.push_back(std::move(word));
  }
  return words;
}

SweepDesign list_design(const std::vector<SweepAxis>& axes, const std::vector<std::string>& cells) {
  SweepDesign design{{"combination"}, {}};
  std::vector<std::string> common;
  for (const auto& axis : axes) {
    if (axis.values.size() > 1)
      throw UsageError(fmt::format("{} has {} values beside --cell", axis.key, axis.values.size()),
                       "with --cell every other key has one value, which goes with all of them");
    common.push_back(override_of(axis, 0));
  }
  for (const auto& text : cells) {
    SweepCell cell{common, {}};
    std::string label;
    for (const auto& word : cell_words(text, "--cell")) {
      cell.overrides.push_back(word);
      label += (label.empty() ? "" : " ") + word;
    }
    cell.labels.push_back(label.empty() ? "(recipe)" : label);
    design.cells.push_back(std::move(cell));
  }
  return design;
}

SweepWords read_words(const std::vector<std::string>& words, const std::vector<std::string>& cells,
                      const std::string& kind) {
  SweepWords read;
  std::vector<SweepAxis> axes;
  for (const auto& text : words) {
    if (!recipe::is_override(text)) {
      if (!read.recipe.empty())
        throw UsageError(fmt::format("two recipes: {} and {}", read.recipe, text),
                         "one recipe, then keys as key=a,b,c");
      read.recipe = text;
    } else if (text.starts_with("augment+=") || text.starts_with("eval.augment+=")) {
      const auto equals = text.find('=');
      axes.push_back({text.substr(0, equals), {text.substr(equals + 1)}});
    } else {
      axes.push_back(parse_axis(text));
    }
  }
  read.design = !cells.empty()     ? list_design(axes, cells)
                : kind == "paired" ? paired_design(axes)
                                   : grid_design(axes);
  return read;
}

std::vector<SweepRun> interleaved(std::size_t cells, std::uint64_t repeats, std::uint64_t seed) {
  std::vector<SweepRun> runs;
  for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) {
    const pipeline::ShuffledOrder order(cells, {Shuffle::Kind::global, 0}, seed,
                                        static_cast<std::uint32_t>(repeat));
    for (std::size_t i = 0; i < cells; ++i) runs.push_back({order(i), repeat});
  }
  return runs;
}

}  // namespace millrace::study
