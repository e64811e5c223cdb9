// From a recipe to what the replay needs: the recipe's own settings, and demands measured once.
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

/// What loading demands, for one LoaderProbe::key_of().
struct LoaderDemand {
  study::StageDemand stages;
  double inline_s = 0;  ///< a sample, on the trainer's own thread
};

class ProfileModel {
 public:
  ProfileModel(const Recipe& recipe, std::shared_ptr<const Reader> reader);

  /// A recipe that predictions will be asked for: its loader is to be probed too.
  void add(const Recipe& recipe);
  /// Measures all that was added, in `rounds` interleaved rounds.
  void probe(double seconds, int rounds);

  /// The device's part: its time a step with nothing beside it, by batch size. `threads`: CPU
  /// threads that it keeps busy, 0 for one that takes no CPU.
  void set_device(int threads) { update_threads_ = threads; }
  void set_update(std::int64_t batch, double seconds) { update_s_[batch] = seconds; }
  /// The most that taking a batch can cost the trainer: what a measured step had beyond its update.
  void limit_take(double seconds) { take_s_ = std::min(take_s_, std::max(0.0, seconds)); }
  /// The trainer's own time a step, and CPU time of an I/O thread a sample (0: unknown).
  void set_host(double host_s, double io_read_s);
  /// How much longer an update takes beside a busy loader: fitted so that the replay of `recipe`
  /// has the update that was measured.
  void fit_crowding(const Recipe& recipe, double measured_update_s);

  study::ReplayInput input(const Recipe& recipe) const;
  study::ReplayInput input(const Recipe& recipe, const study::Change& change) const;
  const LoaderDemand& demand(const Recipe& recipe) const;
  /// StageDemand as the workers of `recipe` meet it.
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
