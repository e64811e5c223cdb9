// Lists units and their parameters, as JSON and as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "plugins/host/registry.h"

namespace millrace::tools {

/// Returns {"plugins": [...], "units": [...]}: everything built in or loaded, including the shipped
/// decoders.
nlohmann::ordered_json list_json();
/// Returns the list as text, each plugin followed by its units.
std::string list_text(const nlohmann::ordered_json& list);

/// Returns one plugin with all declarations of its units.
nlohmann::ordered_json info_json(const plugins::PluginEntry& plugin);
/// Returns the unit with that name. Throws UsageError with the nearest name.
nlohmann::ordered_json info_json(const std::string& unit);
/// Returns either kind of info as text.
std::string info_text(const nlohmann::ordered_json& info);

}  // namespace millrace::tools
