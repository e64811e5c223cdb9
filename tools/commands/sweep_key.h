// What a run's result depends on besides its recipe: the program and the data set.
#pragma once

#include <map>
#include <string>

#include "millrace/recipe.h"
#include "study/sweep/sweep_record.h"

namespace millrace::tools {

/// Names the runs of one sweep; files are read once.
class SweepKeys {
 public:
  /// Hashes the program, its own libraries beside it, and the plugins that are loaded.
  SweepKeys();

  /// Of a run of `recipe` with `seed`; `copy` stays 0. Opens the data sets: throws as open_data().
  study::RunIdentity identity(const Recipe& recipe, std::uint64_t seed);

 private:
  std::string fingerprints(const Recipe& recipe);

  std::string binary_;
  std::map<std::string, std::string> fingerprints_;  ///< by the keys that choose a data set
};

}  // namespace millrace::tools
