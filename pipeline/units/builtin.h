// What is built in, by the same tables that plugins export (contract P3).
#pragma once

#include "plugins/millrace.h"

namespace millrace {

extern const millrace_plugin_table kBuiltInDecoders;       ///< decoders/
extern const millrace_plugin_table kBuiltInAugmentations;  ///< augment/

}  // namespace millrace
