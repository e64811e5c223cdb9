// Which values of a run's recipe may reach outside of the run's directory.
//
// A run directory may come from a stranger. Its config.toml may say anything about the training
// itself; but a key that names a file, a folder or a server elsewhere counts only if this user's
// millrace has signed the file (study/records/signature.h) or the command line repeats the key.
#pragma once

#include <array>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/recipe.h"

namespace millrace::tools {

/// A recipe key, and what its value makes the program do.
struct ReachingKey {
  std::string_view name;
  std::string_view does;
};

/// The recipe keys whose values reach outside of a run's directory. Numbers and choices never do.
inline constexpr std::array kReachingKeys{
    ReachingKey{"data.path", "reads a data set, from a folder, a file or a server"},
    ReachingKey{"data.masks", "reads masks from a folder"},
    ReachingKey{"data.remote.cache", "writes archives that were fetched, and removes old ones"},
    ReachingKey{"data.subset", "reads a list of samples from a file"},
    ReachingKey{"sampler.weights", "reads the samples' weights from a file"},
    ReachingKey{"model.weights", "reads a file of weights"},
    ReachingKey{"plugins.path", "runs native code; tools/plugins/grants.h decides"},
};

/// The recipe keys of free text that reach nowhere. Any other free text counts as reaching outside,
/// such as a parameter of a plugin's reader or augmentation.
inline constexpr std::array<std::string_view, 6> kInertTexts{
    "recipe", "data.fold", "data.members", "targets.flip_pairs", "loader.shuffle", "train.device"};

/// Decides on the values of one run's recipe.
class Provenance {
 public:
  /// Reads `config`, the config.toml of a run, and its signature. `typed`: the key=value words of
  /// this command line. Throws DataError if the file is damaged.
  Provenance(const std::filesystem::path& config, std::vector<std::string> typed);

  /// Returns whether the command line or a signed record has given a key this value, as TOML.
  bool is_granted(const std::string& key, const std::string& toml) const;
  /// Returns whether a path lies in `folder`, links resolved. Addresses and missing files do not.
  static bool lies_in(const std::string& path, const std::filesystem::path& folder);

  /// Throws UsageError with the words to add if a value of `recipe`, which was loaded from the run
  /// and the command line, reaches outside of the run without being granted.
  void check(const Recipe& recipe) const;

 private:
  std::filesystem::path config_;
  std::filesystem::path run_;
  std::vector<std::string> typed_;
  std::set<std::pair<std::string, std::string>> signed_;  ///< keys and values as TOML
};

}  // namespace millrace::tools
