// Values of recipe keys with fixed choices as enumerations. Each room compares the texts of its own
// keys in one place.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "millrace/recipe.h"

namespace millrace::recipe {

/// Returns the value of a key of type choice. Throws std::logic_error if a declared choice has no
/// value here.
template <typename Enum>
Enum choice_of(const Recipe& recipe, const char* key,
               std::initializer_list<std::pair<std::string_view, Enum>> choices) {
  const std::string& text = recipe.text(key);
  for (const auto& [name, value] : choices)
    if (name == text) return value;
  throw std::logic_error(std::string(key) + "=" + text + " has no meaning");
}

}  // namespace millrace::recipe
