// Ops on pairs of samples that paste objects of each onto the other. A plugin's table has no such
// function, because plugins see no objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "millrace/millrace.h"
#include "millrace/millrace.hpp"

namespace millrace::augment {

/// Draws which objects are pasted onto sample `to` of a pair, 0 or 1: sets the places of those of
/// the other one's objects in `picked` to 1. `self` is the op's instance.
using Picker = void (*)(const void* self, std::size_t to, std::span<std::uint8_t> picked,
                        Call& call);

/// Registers the picker of a built-in unit before main() begins.
struct Pasting {
  Pasting(const millrace_unit& unit, Picker picker);
};

/// Returns the picker of a unit, or null if it pastes nothing.
Picker picker_of(const millrace_unit& unit);

}  // namespace millrace::augment
