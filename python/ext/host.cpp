#include "python/ext/host.h"

#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <utility>

#include "millrace/error.h"
#include "plugins/host/registry.h"

namespace millrace::python {
namespace {

std::mutex g_saying;
std::vector<std::string> g_remarks;

void say(const std::string& text) {
  const std::lock_guard lock(g_saying);
  g_remarks.push_back(text);
}

void load(const std::string& paths, const std::string& from) {
  for (const std::string& file : plugins::plugin_files(paths, from))
    if (plugins::loaded_plugin(file) == nullptr) plugins::add_plugin(file);
}

/// Loads plugins that the call itself names. A recipe file may come from a stranger, so its own
/// plugins.path is rejected; the program's list of trusted plugins does not apply here.
void load_named_plugins(const recipe::PluginsPath& path) {
  constexpr const char* kKey = "plugins.path";
  if (path.value.empty()) return;
  if (path.from != kKey)
    throw UsageError(
        fmt::format("{} names plugins, which this call does not ask for", path.from),
        fmt::format("they are native code; if you trust them, pass \"{}={}\"", kKey, path.value));
  load(path.value, path.from);
}

std::string load_plugins_of_environment() {
  const char* value = std::getenv(plugins::kPluginVariable);
  if (value == nullptr || *value == 0) return "";
  load(value, plugins::kPluginVariable);
  return value;
}

}  // namespace

std::vector<std::string> take_remarks() {
  const std::lock_guard lock(g_saying);
  return std::exchange(g_remarks, {});
}

const pipeline::Host& host() {
  static const pipeline::Host host{say, load_named_plugins, load_plugins_of_environment, {}};
  return host;
}

}  // namespace millrace::python
