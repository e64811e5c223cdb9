// Words of a shell's command line, for commands that messages propose.
#pragma once

#include <string>
#include <string_view>

#include "base/private_api.h"

namespace millrace::base {

/// Returns `text` as one word of a shell's command line, quoted if it needs to be.
MILLRACE_PRIVATE_API std::string shell_word(std::string_view text);

}  // namespace millrace::base
