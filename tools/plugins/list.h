// What units there are and what they take, as JSON and for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "plugins/host/registry.h"

namespace millrace::tools {

/// {"plugins": [...], "units": [...]}: everything that is built in or loaded, the shipped decoders
/// included.
nlohmann::ordered_json list_json();
/// The same as text, a plugin and its units after the other.
std::string list_text(const nlohmann::ordered_json& list);

/// One plugin with all that its units declare.
nlohmann::ordered_json info_json(const plugins::PluginEntry& plugin);
/// One unit by its name, among all there are; throws UsageError with the nearest name.
nlohmann::ordered_json info_json(const std::string& unit);
/// Of either.
std::string info_text(const nlohmann::ordered_json& info);

}  // namespace millrace::tools
