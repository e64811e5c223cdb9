// Commands: each adds its subcommand to the program and returns an exit code when it runs.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "millrace/error.h"
#include "millrace/param.h"
#include "tools/terminal/program.h"

namespace millrace::tools {

using Command = std::function<Exit(const ProgramStart&)>;

/// Adds the commands of the program. Each program defines it in a file of its own.
void add_commands(CLI::App& app, Command& chosen);

/// Each declares its options on `app` and, if its command was called, stores the work in `chosen`.
void add_train(CLI::App& app, Command& chosen);
void add_eval(CLI::App& app, Command& chosen);
void add_bench(CLI::App& app, Command& chosen);
/// Adds `ops` to bench.
void add_bench_ops(CLI::App& bench, Command& chosen);
void add_inspect(CLI::App& app, Command& chosen);
void add_profile(CLI::App& app, Command& chosen);
void add_sweep(CLI::App& app, Command& chosen);
void add_report(CLI::App& app, Command& chosen);
void add_data(CLI::App& app, Command& chosen);
void add_plugins(CLI::App& app, Command& chosen);
void add_launch(CLI::App& app, Command& chosen);
void add_keys(CLI::App& app, Command& chosen);
void add_recipe(CLI::App& app, Command& chosen);
void add_doctor(CLI::App& app, Command& chosen);
/// Added last: it describes the commands that are there. `app` must outlive `chosen`.
void add_completion(CLI::App& app, Command& chosen);

/// Adds -q, -v and --json, which every command takes. `verbose` is the help of -v; a command
/// without one has nothing more to print and does not list it.
void add_common(CLI::App& command, const std::string& verbose = {});

/// Help of -v for commands that train.
inline constexpr const char* kVerboseTraining =
    "print the loss every train.log_every steps of each epoch";

// Declared parameters, as `keys` and `recipe` print them.

/// Returns a value with the unit of its parameter: "20.0 ms", "\"auto\"".
std::string value_text(const Param& param, const Value& value);

/// Returns a value as JSON of the same type.
nlohmann::ordered_json value_json(const Value& value);

/// Returns the whole declaration: key, type, default, unit, min, max, choices and help.
nlohmann::ordered_json key_json(const Param& param);

// The manual page, millrace.1, from the same declarations as --help.

/// Returns the page in man(7)'s macros: every command with its options and its example.
std::string manual_page(const CLI::App& app);

}  // namespace millrace::tools
