// Image folders: one folder per class, one file per sample. The bytes stay encoded.
#pragma once

#include <memory>

#include "millrace/reader.h"

namespace millrace::pipeline {

std::unique_ptr<Reader> open_folder(const DataOptions& options);

}  // namespace millrace::pipeline
