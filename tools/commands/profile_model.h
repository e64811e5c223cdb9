// Cost model of a recipe: the replay's input from the recipe's settings and demands measured once.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/recipe.h"
#include "study/analysis/ceilings.h"
#include "study/analysis/replay.h"
#include "study/analysis/whatif.h"
#include "tools/commands/profile_probe.h"

namespace millrace::tools {

/// Measured demand of loading, for one LoaderProbe::key_of().
struct LoaderDemand {
  study::StageDemand stages;
  double inline_s = 0;  ///< seconds per sample, on the trainer's own thread
};

class ProfileModel {
 public:
  ProfileModel(const Recipe& recipe, std::shared_ptr<const Reader> reader);

  /// Adds a recipe to be predicted, whose loader must be probed too.
  void add(const Recipe& recipe);
  /// Measures everything added, in `rounds` interleaved rounds.
  void probe(double seconds, int rounds);

  /// Set the device's demands: its time per step by batch size, without other load. `threads`: CPU
  /// threads that it keeps busy; 0: it takes no CPU.
  void set_device(int threads) { update_threads_ = threads; }
  void set_update(std::int64_t batch, double seconds) { update_s_[batch] = seconds; }
  /// Limits the trainer's cost of taking a batch to what a measured step took beyond its update.
  void limit_take(double seconds) { take_s_ = std::min(take_s_, std::max(0.0, seconds)); }
  /// Sets the trainer's own seconds per step, and an I/O thread's CPU seconds per sample (0:
  /// unknown).
  void set_host(double host_s, double io_read_s);
  /// Fits the slowdown of updates beside a busy loader, so that the replay of `recipe` has the
  /// measured update.
  void fit_crowding(const Recipe& recipe, double measured_update_s);

  study::ReplayInput input(const Recipe& recipe) const;
  study::ReplayInput input(const Recipe& recipe, const study::Change& change) const;
  const LoaderDemand& demand(const Recipe& recipe) const;
  /// Returns the workers' StageDemand for `recipe`.
  const study::StageDemand& stages(const Recipe& recipe) const { return demand(recipe).stages; }

  double crowding_stage() const { return crowding_stage_; }
  double crowding_update() const { return crowding_update_; }
  double spread() const { return spread_; }
  double wake_s() const { return wake_s_; }
  double take_s() const { return take_s_; }

 private:
  std::shared_ptr<const Reader> reader_;
  std::string base_key_;
  std::map<std::string, LoaderProbe> probes_;
  std::map<std::string, LoaderDemand> demands_;
  std::map<std::int64_t, double> update_s_;
  std::vector<double> sizes_, weights_;
  int update_threads_ = 0;
  double host_s_ = 0, io_read_s_ = 0, wake_s_ = 0, take_s_ = 0, spread_ = 0;
  double crowding_stage_ = 1, crowding_update_ = 1;
};

}  // namespace millrace::tools
