// Settings in which the rows of a sweep differ besides its keys: they are part of every comparison.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace millrace::study {

struct SweepDesign;
struct SweepRecord;

/// Settings of a finished run by their names in summary.json: values that the recipe left open,
/// such as the threads that train.threads=0 stands for, and the machine.
using Settings = std::map<std::string, std::string>;

/// Returns the settings in a run's summary.json, without those that it lacks. On a device other
/// than the CPU, LibTorch's threads are none.
Settings settings_in(const nlohmann::ordered_json& summary);

/// A setting in which some row differs from its reference, though no key of the sweep sets it.
struct Confounder {
  std::string setting;              ///< its name in summary.json
  std::string key;                  ///< of the recipe; empty: no key sets it
  std::vector<std::string> values;  ///< by row; "-" where nothing ran, "varies" if runs differ
  std::vector<bool> differs;        ///< by row: from its reference in the same block
};

/// Finds the confounders of a sweep whose runs are given by cell and repeat. `references` holds the
/// row that each row is compared with.
std::vector<Confounder> confounders(const SweepDesign& design,
                                    const std::vector<std::vector<SweepRecord>>& runs,
                                    const std::vector<std::size_t>& references);

/// Returns "threads differ" or "host differs".
std::string differ_text(const std::vector<std::string>& settings);

/// Returns the remark on a confounder: which values rows have, and what makes them equal.
std::string remark_on(const Confounder& confounder, const SweepDesign& design);

/// Returns whether all keys of the sweep are of the loader and its storage, and no batch size: they
/// leave the time of an update as it is.
bool sweeps_loader_alone(const SweepDesign& design);

}  // namespace millrace::study
