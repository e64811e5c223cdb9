// Names of a split's files, and the error for a set without that split.
#pragma once

#include <string>
#include <vector>

#include "millrace/error.h"

namespace millrace::pipeline {

/// Thrown if the set exists, but this split of it does not.
struct MissingSplit : DataError {
  using DataError::DataError;
};

/// Returns the names of a split; the first that exists is used: "test", "val", "valid".
inline std::vector<std::string> split_names(const std::string& split) {
  if (split == "test") return {"test", "val", "valid"};
  return {split};
}

}  // namespace millrace::pipeline
