// Folders, and whether a path exists.
#pragma once

#include <string>

#include "base/private_api.h"

namespace millrace::base {

/// Throws DataError unless `path` is a folder; the hint says how to make a data set of `kind`, as
/// `millrace data make` names it.
MILLRACE_PRIVATE_API void require_folder(const std::string& path, const std::string& kind);

/// Return true if `path` exists (as anything, or as a folder).
MILLRACE_PRIVATE_API bool exists(const std::string& path);
MILLRACE_PRIVATE_API bool is_folder(const std::string& path);

}  // namespace millrace::base
