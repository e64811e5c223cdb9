// Declared parameters, as `keys` and `recipe` print them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "millrace/param.h"

namespace millrace::tools {

/// Returns a value with the unit of its parameter: "20.0 ms", "\"auto\"".
std::string value_text(const Param& param, const Value& value);

/// Returns a value as JSON of the same type.
nlohmann::ordered_json value_json(const Value& value);

/// Returns the whole declaration: key, type, default, unit, min, max, choices and help.
nlohmann::ordered_json key_json(const Param& param);

}  // namespace millrace::tools
