// Settings in which the rows of a sweep, or runs that are compared, differ besides their keys: they
// are part of every comparison.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
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

/// Finds the settings in which some of the runs differs from the first, though none of `keys`, the
/// recipe's keys that differ between them, sets it. `runs` may hold empty settings, of runs that
/// are still going: these differ in nothing.
std::vector<Confounder> confounders(const std::vector<Settings>& runs,
                                    const std::set<std::string>& keys);

/// Returns "threads differ" or "host differs".
std::string differ_text(const std::vector<std::string>& settings);

/// Returns the remark on a confounder: which values rows have, and what makes them equal.
std::string remark_on(const Confounder& confounder, const SweepDesign& design);

/// Returns the same for runs that differ in `keys`.
std::string remark_on(const Confounder& confounder, const std::set<std::string>& keys);

/// Returns whether there are keys, and all are of the loader and its storage, and no batch size:
/// they leave the time of an update as it is.
bool are_of_the_loader(const std::set<std::string>& keys);

/// Returns whether all keys of the sweep are of the loader and its storage, and no batch size: they
/// leave the time of an update as it is.
bool sweeps_loader_alone(const SweepDesign& design);

}  // namespace millrace::study
