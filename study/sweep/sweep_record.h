// One run of a sweep as its files tell it: runs/NAME.json says what it was to be, written before it
// starts and again when it has ended; runs/NAME/summary.json, written by the run itself, that it
// finished. These files are the truth: whatever else a sweep keeps is made from them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "study/analysis/interference.h"

namespace millrace::study {

/// A finished run's figures. NaN where the summary has none.
struct SweepFigures {
  double load_s_per_step = 0;
  double update_s_per_step = 0;
  double load_s = 0;
  double update_s = 0;
  double wall_s = 0;
  double images_per_s = 0;
  double top1 = 0;     ///< NaN without a model
  double threads = 0;  ///< of LibTorch: they follow the workers unless train.threads is set
};

/// A figure's name in summary.json and its place.
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

/// What a run's result depends on. Equal identities are one run, which is never repeated.
struct RunIdentity {
  std::string config;  ///< the whole recipe, without its seed
  std::string binary;  ///< hash of the program and its libraries
  std::string data;    ///< fingerprints of the data sets
  std::uint64_t seed = 0;
  std::uint64_t copy = 0;  ///< counts what a design asks for more than once

  /// 32 hexadecimal digits.
  std::string key() const;
};

struct SweepRecord {
  std::string name;  ///< of the file without .json, and of the run's directory
  std::string key;
  std::string binary;
  std::string data;
  std::string session;  ///< which start of the program ran it
  std::vector<std::string> overrides;
  std::uint64_t repeat = 0;
  std::uint64_t seed = 0;
  double begun = 0;  ///< seconds since 1970
  double ended = 0;  ///< NaN where the sweep did not live to see it
  Noise noise;       ///< the same
  bool finished = false;
  SweepFigures figures;  ///< of a finished run
};

/// Writes runs/NAME.json; `figures` and `finished` are the run's own to say. Throws RunError.
void write_record(const std::filesystem::path& runs, const SweepRecord& record);
/// Reads runs/NAME.json and, where the run finished, its summary. Throws DataError for a record
/// that is damaged.
SweepRecord read_record(const std::filesystem::path& runs, const std::string& name);

}  // namespace millrace::study
