// Recipe keys of a plugin's reader.
#pragma once

#include <span>
#include <string>

#include "millrace/param.h"

namespace millrace::pipeline {

/// Registers a plugin's reader: a choice of data.reader, and a key data.READER.NAME for each of its
/// parameters. Existing recipes do not see them.
void add_reader_keys(const std::string& reader, std::span<const Param> params);

}  // namespace millrace::pipeline
