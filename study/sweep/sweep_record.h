// The runs of a sweep, as their files describe them, and the index over them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "study/analysis/machine.h"
#include "study/sweep/confounders.h"

namespace millrace::study {

// One run of a sweep, as its files describe it. The sweep writes runs/NAME.json with the run's
// identity before it starts, and again after it ended. The run itself writes runs/NAME/summary.json
// when it finishes; of a command, which may write none, runs/NAME.json holds the figures too. All
// other data of a sweep derive from these files.

/// A finished run's figures; NaN if the summary lacks one.
struct SweepFigures {
  double load_s_per_step = 0;
  double update_s_per_step = 0;
  double load_s = 0;
  double update_s = 0;
  double wall_s = 0;
  double images_per_s = 0;
  double top1 = 0;     ///< NaN without a model
  double threads = 0;  ///< LibTorch's threads; equal to the workers unless train.threads is set
};

/// A figure's name in summary.json, and its member.
struct FigureName {
  const char* name;
  double SweepFigures::*figure;
};
inline constexpr FigureName kFigures[] = {{"load_s_per_step", &SweepFigures::load_s_per_step},
                                          {"update_s_per_step", &SweepFigures::update_s_per_step},
                                          {"load_s", &SweepFigures::load_s},
                                          {"update_s", &SweepFigures::update_s},
                                          {"wall_s", &SweepFigures::wall_s},
                                          {"images_per_s", &SweepFigures::images_per_s},
                                          {"top1", &SweepFigures::top1},
                                          {"threads", &SweepFigures::threads}};

/// Figures that a table shows beside kFigures where runs have them.
///   epoch_s            seconds of load and update for as many images as the training set has
///   host_bytes         peak_rss_bytes of all ranks together
///   peak_device_bytes  as in summary.json; NaN where no device reported any
///   cpu_utilization    CPU time of the run's processes, per core and second of the run
///   gpu_utilization    as in summary.json; of several ranks, their mean
///   speedup            images_per_s over that of the same block's reference; from sweep_table()
inline constexpr const char* kMoreFigures[] = {
    "epoch_s",         "speedup",         "host_bytes", "peak_device_bytes",
    "cpu_utilization", "gpu_utilization", "train_top1", "test_loss"};

/// Everything that a run's result depends on. Runs with equal identities are not repeated.
struct RunIdentity {
  std::string config;  ///< the whole recipe, without its seed
  std::string binary;  ///< hash of the program and its libraries
  std::string data;    ///< fingerprints of the data sets
  std::uint64_t seed = 0;
  std::uint64_t copy = 0;  ///< distinguishes runs that a design asks for more than once

  /// Returns 32 hexadecimal digits.
  std::string key() const;
};

/// Figures of a command's run, which the sweep measures or reads.
struct CommandFigures {
  double wall_s = 0;
  double cores = 0;                         ///< that the command may use
  std::map<std::string, double> metrics{};  ///< by SweepMetric::name, without wall_s
};

struct SweepRecord {
  std::string name;  ///< name of the run's directory, and of its file without .json
  std::string key;
  std::string binary;
  std::string data;
  std::string session;  ///< identifies the start of the program that ran it
  std::vector<std::string> overrides;
  std::uint64_t repeat = 0;
  std::uint64_t seed = 0;
  double begun = 0;  ///< seconds since 1970
  double ended = 0;  ///< NaN if the sweep was killed before the run ended
  Noise noise;       ///< disturbances during the run
  bool finished = false;
  SweepFigures figures;                     ///< if finished
  double cpu_s = 0;                         ///< CPU seconds of the run's processes; NaN if unknown
  std::map<std::string, double> more{};     ///< figures other than kFigures, from add_figures()
  Settings settings{};                      ///< from add_figures(); a command's run has none
  std::optional<CommandFigures> command{};  ///< of a command's run that has finished

  /// Returns a figure of kFigures or `more`; NaN if there is none.
  double figure(const std::string& wanted) const;
};

/// Writes runs/NAME.json, without `figures` and `finished`, which the run itself records. Throws
/// RunError.
void write_record(const std::filesystem::path& runs, const SweepRecord& record);
/// Reads runs/NAME.json and, if the run finished, its summary. Throws DataError for a damaged
/// record.
SweepRecord read_record(const std::filesystem::path& runs, const std::string& name);
/// Returns the folder that a command's run may fill: {run}.
std::filesystem::path command_folder(const std::filesystem::path& runs, const std::string& name);
/// Returns the number at a path whose parts are separated by dots; NaN if there is none. A key may
/// contain dots itself, as a class's name may.
double number_at_path(const nlohmann::ordered_json& json, const std::string& path);
/// Reads figures of a finished run into `more`: kMoreFigures, and `names`, which are paths in its
/// summary.json such as per_class.7 or spans.forward. NaN where the summary has no such number.
/// Also reads its settings.
void add_figures(const std::filesystem::path& runs, SweepRecord& record,
                 std::span<const std::string> names);

}  // namespace millrace::study

// Index over the runs of a sweep, in SQLite (index.sqlite), for questions in SQL. It is derived
// from the runs' own files and rebuilt by every process: opening a database runs what its schema
// says and what its journal names, and the sweep's directory may be a stranger's.

struct sqlite3;

namespace millrace::study {

class SweepIndex {
 public:
  /// Replaces `sweep`/index.sqlite by an index over `sweep`/runs. Throws RunError if it cannot be
  /// written. Without `file` the index is kept in memory: no other process then reads it, and the
  /// file system needs no locks.
  explicit SweepIndex(std::filesystem::path sweep, bool file = true);

  /// Reads directories that changed, and forgets those that are gone.
  void refresh();
  /// Returns the finished run with that identity.
  std::optional<SweepRecord> find(const std::string& key) const;
  /// Returns the largest number of all runs, finished or not. Names begin with it, zero-padded.
  std::uint64_t largest_number() const;
  /// Returns the number of finished runs of any identity.
  std::uint64_t finished() const;
  /// Returns the names of runs that were begun and did not finish.
  std::vector<std::string> unfinished() const;

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };

  void store(const SweepRecord& record, const std::string& stamp);

  std::filesystem::path sweep_;
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace millrace::study
