// Work of millrace plugins: lists units, checks plugins, and writes new ones from templates.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/host/registry.h"
#include "probe/probe.h"

namespace millrace::tools {

// Lists units and their parameters, as JSON and as text.

/// Returns {"plugins": [...], "units": [...]}: everything built in or loaded, including the shipped
/// decoders.
nlohmann::ordered_json list_json();
/// Returns the kinds of units: geometric, pixel, ..., reader.
const std::vector<std::string>& unit_kinds();
/// Leaves only units of `kind` in the list. Throws UsageError with the nearest kind.
void keep_kind(nlohmann::ordered_json& list, const std::string& kind);
/// Returns the list as text, each plugin followed by its units; plugins without any are left out.
std::string list_text(const nlohmann::ordered_json& list);

/// Returns one plugin with all declarations of its units.
nlohmann::ordered_json info_json(const plugins::PluginEntry& plugin);
/// Returns the unit with that name. Throws UsageError with the nearest name.
nlohmann::ordered_json info_json(const std::string& unit);
/// Returns either kind of info as text.
std::string info_text(const nlohmann::ordered_json& info);

// millrace plugins check: tries a plugin in a child process, so that nothing it does can harm this
// one (contract Plugin tools).

struct CheckOptions : probe::Options {
  std::string file;    ///< path of the plugin
  std::string sample;  ///< image for its decoders; empty: they get no valid one
  std::string path;    ///< data set for its readers; empty: they open none
  std::string split = "train";
  double timeout_s = 10;  ///< time-out per check
};

struct CheckReport {
  std::vector<probe::CheckLine> lines;
  std::vector<probe::CheckCost> costs;
  std::size_t failed() const;
};

/// Runs all checks. A plugin that crashes or hangs fails only that check, and the next ones run in
/// a new child. Calls `line` with each result. Throws DataError for a missing sample, RunError if
/// no child can be started, and an Error once options.stop is set.
CheckReport check_plugin(const CheckOptions& options,
                         const std::function<void(const probe::CheckLine&)>& line = {});

/// Add the steps of decoders and of readers.
void add_decoder_steps(std::vector<probe::Step>& steps, const millrace_unit& unit,
                       const CheckOptions& options,
                       const std::function<void(const probe::CheckCost&)>& cost);
void add_reader_steps(std::vector<probe::Step>& steps, const millrace_unit& unit,
                      const CheckOptions& options,
                      const std::function<void(const probe::CheckCost&)>& cost);

/// Files that `plugins new` starts from: plugins/templates/, embedded by the build.
struct Template {
  std::string_view name;  ///< "pixel.cpp", "pixel_test.cpp", "CMakeLists.txt", "README.md"
  std::string_view text;
};

extern const std::span<const Template> kTemplates;

// millrace plugins new: writes a plugin's project that builds and passes its test (contract Plugin
// tools).

/// Returns the values of `--kind`.
const std::vector<std::string>& project_kinds();

/// Writes `parent`/NAME with CMakeLists.txt, NAME.cpp, NAME_test.cpp and README.md. Throws
/// UsageError for an invalid unit name or an existing folder, RunError if it cannot be written.
std::filesystem::path write_project(const std::string& name, const std::string& kind,
                                    const std::filesystem::path& parent);

}  // namespace millrace::tools
