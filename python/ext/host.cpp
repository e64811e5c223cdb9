// Defines the functions of tools/ that tools/training/pipeline_setup.cpp calls. The program's own
// definitions print to its terminal and read its command line.
#include "python/ext/host.h"

#include <fmt/format.h>
#include <sched.h>

#include <cstdlib>
#include <mutex>
#include <utility>

#include "millrace/error.h"
#include "recipe/recipe_file.h"
#include "plugins/host/registry.h"
#include "tools/plugins/grants.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace {
namespace {

std::mutex g_saying;
std::vector<std::string> g_remarks;

void load(const std::string& paths, const std::string& from) {
  for (const std::string& file : plugins::plugin_files(paths, from))
    if (plugins::loaded_plugin(file) == nullptr) plugins::add_plugin(file);
}

}  // namespace

std::vector<std::string> python::take_remarks() {
  const std::lock_guard lock(g_saying);
  return std::exchange(g_remarks, {});
}

std::atomic<bool>& tools::interrupted() {
  static std::atomic<bool> never{false};  // Python handles its signals itself
  return never;
}

void tools::say(const std::string& text) {
  const std::lock_guard lock(g_saying);
  g_remarks.push_back(text);
}

int tools::cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/// Loads plugins that the call itself names. A recipe file may come from a stranger, so its own
/// plugins.path is rejected; the program's list of trusted plugins does not apply here.
void tools::load_asked_plugins(const recipe::PluginsPath& path) {
  constexpr const char* kKey = "plugins.path";
  if (path.value.empty()) return;
  if (path.from != kKey)
    throw UsageError(
        fmt::format("{} names plugins, which this call does not ask for", path.from),
        fmt::format("they are native code; if you trust them, pass \"{}={}\"", kKey, path.value));
  load(path.value, path.from);
}

std::string tools::load_plugins_of_environment() {
  const char* value = std::getenv(kPluginVariable);
  if (value == nullptr || *value == 0) return "";
  load(value, kPluginVariable);
  return value;
}

}  // namespace millrace
