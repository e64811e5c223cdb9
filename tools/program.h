// The program that is built from tools/: millrace, or pymillrace of the Python package, which
// trains nothing. Each defines these in a file of its own.
#pragma once

#include <string>

#include "tools/commands/commands.h"

namespace millrace::tools {

struct Program {
  const char* name;
  const char* about;    ///< the first line of --help
  const char* example;  ///< shown when no command was given
};

const Program& this_program();

/// Adds the program's commands.
void add_commands(CLI::App& app, Command& chosen);

/// Returns `text` with this program's name before those of its commands that the text proposes to
/// run: messages are written for millrace.
std::string in_own_name(std::string text);

}  // namespace millrace::tools
