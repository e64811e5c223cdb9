#include "pipeline/units/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "pipeline/error.h"
#include "pipeline/suggest.h"
#include "pipeline/units/builtin.h"
#include "pipeline/units/plugin_file.h"
#include "pipeline/units/unit.h"

namespace millrace {
namespace {

bool is_augmentation(const millrace_unit& unit) {
  return unit.reader == nullptr && unit.decoder == nullptr;
}

class Registry {
 public:
  Registry() {
    for (const auto* table : {&kBuiltInDecoders, &kBuiltInAugmentations}) add({table, ""});
  }

  void add(PluginEntry entry) {
    const std::string& file = entry.file.empty() ? "built in" : entry.file;
    check_plugin_table(*entry.table, file);
    for (const PluginEntry& other : plugins_) check_new(entry, other);
    plugins_.push_back(entry);
    const std::span units(entry.table->units, entry.table->unit_count);
    std::vector<const millrace_unit*> own;
    for (const millrace_unit* unit : units) {
      if (unit->decoder != nullptr) own.push_back(unit);
      if (!is_augmentation(*unit)) continue;
      augmentations_.push_back(unit);
      declarations_.push_back(to_declaration(*unit));
    }
    decoders_.insert(decoders_.begin(), own.begin(), own.end());
    const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
    std::sort(declarations_.begin(), declarations_.end(), by_name);
  }

  std::vector<PluginEntry> plugins_;
  std::vector<const millrace_unit*> augmentations_;
  std::vector<OpDeclaration> declarations_;
  std::vector<const millrace_unit*> decoders_;

 private:
  static void check_new(const PluginEntry& entry, const PluginEntry& other) {
    const auto where = other.file.empty() ? std::string("millrace itself") : other.file;
    const auto refuse = [&](const std::string& what) {
      throw DataError(
          fmt::format("{}: plugin refused: {} is there already, from {}", entry.file, what, where),
          "rename it, or take one of the two out of plugins.path");
    };
    if (std::string_view(entry.table->id) == other.table->id)
      refuse(fmt::format("a plugin with the id '{}'", entry.table->id));
    for (std::size_t i = 0; i < entry.table->unit_count; ++i)
      for (std::size_t j = 0; j < other.table->unit_count; ++j)
        if (std::string_view(entry.table->units[i]->name) == other.table->units[j]->name)
          refuse(fmt::format("a unit '{}'", entry.table->units[i]->name));
  }
};

Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

std::span<const PluginEntry> plugins() { return registry().plugins_; }

void add_plugin(const std::string& file) {
  std::error_code none;
  for (const PluginEntry& known : plugins())
    if (!known.file.empty() && std::filesystem::equivalent(known.file, file, none)) return;
  registry().add({&load_plugin(file), file});
}

const millrace_unit& augmentation(std::string_view name) {
  std::vector<std::string> names;
  for (const millrace_unit* unit : registry().augmentations_) {
    if (name == unit->name) return *unit;
    names.emplace_back(unit->name);
  }
  throw UsageError(fmt::format("there is no augmentation {}", name),
                   fmt::format("did you mean {}? there are {}", nearest(std::string(name), names),
                               fmt::join(names, ", ")));
}

std::span<const OpDeclaration> op_declarations() { return registry().declarations_; }

std::span<const millrace_unit* const> decoders() { return registry().decoders_; }

}  // namespace millrace
