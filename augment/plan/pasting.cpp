// Registers the ops that paste objects.
#include "augment/plan/pasting.h"

#include <utility>
#include <vector>

namespace millrace::augment {
namespace {

using Entry = std::pair<const millrace_unit*, Picker>;

std::vector<Entry>& registered() {
  static std::vector<Entry> all;
  return all;
}

}  // namespace

Pasting::Pasting(const millrace_unit& unit, Picker picker) {
  registered().emplace_back(&unit, picker);
}

Picker picker_of(const millrace_unit& unit) {
  for (const auto& [one, picker] : registered())
    if (one == &unit) return picker;
  return nullptr;
}

}  // namespace millrace::augment
