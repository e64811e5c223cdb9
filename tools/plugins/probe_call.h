// Shared by the steps that test augmentations: reproducible bytes, and the surroundings of a call.
#pragma once

#include <cstdint>
#include <memory>

#include "base/rng.h"
#include "tools/plugins/probe.h"

namespace millrace::tools {

/// Returns a reproducible byte.
inline std::uint8_t byte_of(std::uint64_t seed, std::uint64_t at) {
  return static_cast<std::uint8_t>(base::mix64(seed << 32 ^ at) >> 56);
}

/// A call's surroundings, with this input's draws. Members that may be null are null in some
/// placements.
struct Calling {
  Calling(const plugins::Unit& unit, const Input& input, const Placement& placement) {
    context.call.rng = base::stream({1, 0, input.seed}, base::op_id(unit.table().name));
    if (placement.row_padding == 0) return;
    context.call.report = [](millrace_call*, const char*, double) {};
    context.call.log = [](millrace_call*, const char*) {};
    context.call.cancelled = [](const millrace_call*) { return 0; };
  }
  void lend_scratch(std::size_t size, const Placement& placement) {
    if (size == 0) return;
    scratch = std::make_unique<Guarded>("the scratch", size, placement.near, placement.fill, 64);
    context.call.scratch = scratch->data();
    context.call.scratch_size = size;
  }
  void check() const {
    if (scratch != nullptr) scratch->check();
  }
  plugins::CallContext context;
  std::unique_ptr<Guarded> scratch;
};

}  // namespace millrace::tools
