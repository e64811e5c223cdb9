// Identity of a run: its recipe, the program and the data set.
#pragma once

#include <map>
#include <string>

#include "millrace/recipe.h"
#include "study/sweep/sweep_record.h"

namespace millrace::tools {

/// Computes the identities of one sweep's runs; reads each file once.
class SweepKeys {
 public:
  /// Hashes the program, its own libraries, and the loaded plugins.
  SweepKeys();

  /// Returns the identity of a run of `recipe` with `seed`; `copy` is 0. Opens the data sets, and
  /// throws as open_data() does.
  study::RunIdentity identity(const Recipe& recipe, std::uint64_t seed);

 private:
  std::string fingerprints(const Recipe& recipe);

  std::string binary_;
  std::map<std::string, std::string> fingerprints_;  ///< by the keys that select a data set
};

}  // namespace millrace::tools
