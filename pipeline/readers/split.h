// What a split's files are called, and the error of a set that has no such split.
#pragma once

#include <string>
#include <vector>

#include "millrace/error.h"

namespace millrace::pipeline {

/// The set is there, but not this split of it.
struct MissingSplit : DataError {
  using DataError::DataError;
};

/// The names of a split; the first one that is there counts: "test", "val", "valid".
inline std::vector<std::string> split_names(const std::string& split) {
  if (split == "test") return {"test", "val", "valid"};
  return {split};
}

}  // namespace millrace::pipeline
