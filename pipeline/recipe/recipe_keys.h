// Recipe keys that come with a plugin's reader.
#pragma once

#include <span>
#include <string>

#include "millrace/param.h"

namespace millrace::pipeline {

/// Makes a plugin's reader known: a choice of data.reader, and a key data.READER.NAME for each of
/// its parameters. Recipes made before go on without them.
void add_reader_keys(const std::string& reader, std::span<const Param> params);

}  // namespace millrace::pipeline
