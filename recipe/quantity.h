// Units of values: "5MB/s", "20ms", "2GiB".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace::recipe {

/// Returns the number in `text`, converted to `unit`. The number may carry that unit or another one
/// of the same kind: bytes (MB is 10^6, MiB is 2^20), bytes per second, and times. A number without
/// a unit is taken to be in `unit`. Returns nothing for any other text.
std::optional<double> quantity_in(std::string_view unit, std::string_view text);

/// Returns the units that a value in `unit` may carry, "ns, us, ms, s, min, h"; empty if it has no
/// other than `unit` itself.
std::string units_like(std::string_view unit);

}  // namespace millrace::recipe
