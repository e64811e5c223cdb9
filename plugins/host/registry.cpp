// The registry of all units: built in, shipped and loaded.
#include "plugins/host/registry.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <list>

#include "base/text.h"
#include "millrace/error.h"
#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "plugins/host/unit.h"

namespace millrace::plugins {
namespace {

namespace fs = std::filesystem;

bool is_augmentation(const millrace_unit& unit) {
  return unit.reader == nullptr && unit.decoder == nullptr;
}

/// Tables registered before main() begins, in no fixed order.
std::vector<const millrace_plugin_table*>& built_in_tables() {
  static std::vector<const millrace_plugin_table*> all;
  return all;
}

class Registry {
 public:
  Registry() {
    auto& tables = built_in_tables();
    std::stable_partition(tables.begin(), tables.end(), [](const millrace_plugin_table* table) {
      return !is_augmentation(*table->units[0]);
    });
    for (const auto* table : tables) add({table, ""});
  }

  void add(const PluginEntry& entry) {
    const std::string& file = entry.file.empty() ? "built in" : entry.file;
    check_plugin_table(*entry.table, file);
    for (const PluginEntry& other : plugins_) check_new(entry, other);
    check_reader_names(entry);
    plugins_.push_back(entry);
    std::vector<OpDeclaration> declarations = declarations_.back();
    const std::span units(entry.table->units, entry.table->unit_count);
    std::vector<const millrace_unit*> own;
    for (const millrace_unit* unit : units) {
      if (unit->decoder != nullptr) own.push_back(unit);
      if (unit->reader != nullptr) readers_.push_back(unit);
      if (!is_augmentation(*unit)) continue;
      augmentations_.push_back(unit);
      declarations.push_back(to_declaration(*unit));
    }
    decoders_.insert(decoders_.begin(), own.begin(), own.end());
    const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
    std::sort(declarations.begin(), declarations.end(), by_name);
    declarations_.push_back(std::move(declarations));
  }

  std::vector<PluginEntry> plugins_;
  std::vector<const millrace_unit*> augmentations_;
  /// Every list so far, as recipes keep using an earlier one.
  std::list<std::vector<OpDeclaration>> declarations_{{}};
  std::vector<const millrace_unit*> decoders_;
  std::vector<const millrace_unit*> readers_;

 private:
  [[noreturn]] static void refuse(const PluginEntry& entry, const std::string& what,
                                  const std::string& file) {
    throw DataError(fmt::format("{}: plugin refused: {} is already loaded from {}", entry.file,
                                what, file.empty() ? "millrace itself" : file),
                    "rename it, or take one of the two out of plugins.path");
  }
  /// Throws unless data.NAME.PARAM are new keys.
  static void check_reader_names(const PluginEntry& entry) {
    for (std::size_t i = 0; i < entry.table->unit_count; ++i) {
      if (entry.table->units[i]->reader == nullptr) continue;
      const std::string name = entry.table->units[i]->name;
      for (const ReaderDeclaration& reader : built_in_readers())
        if (reader.name == name) refuse(entry, fmt::format("a reader '{}'", name), "");
      for (const Param& key : recipe_keys())
        if (key.name == "data." + name || key.name.starts_with("data." + name + "."))
          throw DataError(fmt::format("{}: plugin refused: a reader named '{}' would collide with "
                                      "the recipe key {}",
                                      entry.file, name, key.name),
                          "rename the reader");
    }
  }
  static void check_new(const PluginEntry& entry, const PluginEntry& other) {
    const auto refuse = [&](const std::string& what) { Registry::refuse(entry, what, other.file); };
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

BuiltIn::BuiltIn(const millrace_plugin_table& table) { built_in_tables().push_back(&table); }

std::span<const PluginEntry> plugins() { return registry().plugins_; }

const PluginEntry* loaded_plugin(const std::string& file) {
  std::error_code none;
  for (const PluginEntry& known : plugins())
    if (!known.file.empty() && fs::equivalent(known.file, file, none)) return &known;
  return nullptr;
}

PluginEntry add_plugin(const std::string& file) {
  if (const PluginEntry* known = loaded_plugin(file)) return *known;
  // With a slash in it, dlopen takes the name for a path and does not search for a library.
  PluginEntry entry{&load_plugin(fs::path(file).has_parent_path() ? file : "./" + file), file};
  registry().add(entry);
  return entry;
}

void add_table(const millrace_plugin_table& table, const std::string& origin) {
  registry().add({&table, origin});
}

std::vector<std::string> plugin_files(const std::string& paths, const std::string& from) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin <= paths.size();) {
    const std::size_t end = std::min(paths.find(':', begin), paths.size());
    const std::string path = paths.substr(begin, end - begin);
    begin = end + 1;
    if (path.empty()) continue;
    std::error_code failed;
    if (!fs::exists(path, failed))
      throw DataError(fmt::format("{}: {} does not exist", from, path),
                      "give folders of plugins, or .so files, ':' between them");
    if (!fs::is_directory(path, failed)) {
      all.push_back(path);
      continue;
    }
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(path, failed))
      if (entry.path().extension() == ".so") files.push_back(entry.path().string());
    if (failed || files.empty())
      throw DataError(fmt::format("{}: {}: {}", from, path,
                                  failed ? failed.message() : "no plugin (*.so) in this folder"),
                      "is it built? give the folder that its .so file lies in");
    std::sort(files.begin(), files.end());
    all.insert(all.end(), files.begin(), files.end());
  }
  return all;
}

namespace {

/// Returns the path of the shipped plugin, relative to the library that holds this function:
/// plugins/ beside it, millrace/plugins/ if it is installed among other libraries, or lib/plugins/
/// if a test linked it into its executable.
std::string shipped_file() {
  Dl_info self{};
  fs::path folder = ".";
  if (dladdr(reinterpret_cast<void*>(&shipped_file), &self) != 0 && self.dli_fname != nullptr)
    folder = fs::path(self.dli_fname).parent_path();
  constexpr const char* kFile = "plugins/millrace_imgcodecs.so";
  std::error_code none;
  for (const char* below : {"millrace", "lib"})
    if (const fs::path file = folder / below / kFile; fs::exists(file, none)) return file.string();
  return (folder / kFile).string();
}

std::atomic<const PluginEntry*> shipped{nullptr};

}  // namespace

std::string shipped_folder() { return fs::path(shipped_file()).parent_path().string(); }

const PluginEntry& shipped_decoders() {
  static const PluginEntry entry = [] {
    const std::string file = shipped_file();
    if (std::error_code none; !fs::exists(file, none))
      throw DataError("images other than JPEG need " + file + ", which is missing",
                      "install or build millrace again, or convert the images to JPEG");
    return PluginEntry{&load_plugin(file), file};
  }();
  if (shipped.load(std::memory_order_relaxed) == nullptr)
    shipped.store(&entry, std::memory_order_release);
  return entry;
}

std::vector<PluginEntry> plugins_in_use() {
  std::vector<PluginEntry> all(plugins().begin(), plugins().end());
  const PluginEntry* more = shipped.load(std::memory_order_acquire);
  const auto is_it = [&](const PluginEntry& entry) { return entry.table == more->table; };
  if (more != nullptr && std::none_of(all.begin(), all.end(), is_it)) all.push_back(*more);
  return all;
}

const millrace_unit& augmentation(std::string_view name) {
  std::vector<std::string> names;
  for (const millrace_unit* unit : registry().augmentations_) {
    if (name == unit->name) return *unit;
    names.emplace_back(unit->name);
  }
  throw UsageError(fmt::format("unknown augmentation {}", name),
                   fmt::format("did you mean {}? known: {}; plugins.path=DIR adds those of plugins",
                               base::nearest(name, names), fmt::join(names, ", ")));
}

std::span<const millrace_unit* const> plugin_readers() { return registry().readers_; }

std::span<const millrace_unit* const> decoders() { return registry().decoders_; }

}  // namespace millrace::plugins

namespace millrace {

std::span<const OpDeclaration> op_declarations() {
  return plugins::registry().declarations_.back();
}

}  // namespace millrace
