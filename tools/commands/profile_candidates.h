// The changes that millrace profile considers.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "study/analysis/whatif.h"
#include "tools/commands/profile.h"

namespace millrace::tools {

/// A change that was validated: its recipe loads and its chain compiles.
struct Candidate {
  study::Change change;
  Recipe recipe;
  RunLength length{};
  std::vector<std::string> packed{};  ///< overrides that read the packed sample, once there is one
};

/// Lists changes of one recipe.
class CandidateList {
 public:
  /// `words` are the arguments of `recipe`; `probed` is what probes of the loader read.
  CandidateList(std::vector<std::string> words, const Recipe& recipe,
                std::shared_ptr<const Reader> reader, std::shared_ptr<const Reader> probed)
      : words_(std::move(words)),
        recipe_(recipe),
        reader_(std::move(reader)),
        probed_(std::move(probed)) {}

  /// Returns the changes that the recipe suggests, unless only `given` ones are asked for, and
  /// those of `texts`: "key=value key=value", or a way to pack the set. Adds what must be probed to
  /// `model`. Throws UsageError for a text that cannot be run.
  std::vector<Candidate> list(const std::vector<std::string>& texts, bool given,
                              ProfileModel& model) const;

 private:
  Recipe recipe_with(const std::vector<std::string>& overrides) const;
  study::ChangeFacts facts() const;
  /// Packs a few samples in each way, which shows their size and, once probed, their cost.
  void list_packings(std::vector<study::Packing> ways, bool given, ProfileModel& model,
                     std::vector<Candidate>& candidates) const;

  std::vector<std::string> words_;
  const Recipe& recipe_;
  std::shared_ptr<const Reader> reader_, probed_;
};

}  // namespace millrace::tools
