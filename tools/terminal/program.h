// The program that is built from tools/: millrace, or pymillrace of the Python package, which
// trains nothing. Each defines these in a file of its own.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"

namespace millrace::tools {

struct Program {
  const char* name;
  const char* about;    ///< the first line of --help
  const char* example;  ///< shown when no command was given
  bool trains;          ///< can train a model, so that `train` may be proposed
};

const Program& this_program();

/// Start of the program: when main() began, on both clocks, and with which arguments.
struct ProgramStart {
  base::Clock::Reading time;
  std::vector<std::string> arguments = {};  ///< words after the program's name
};

/// Returns `text` with this program's name before those of its commands that the text proposes to
/// run: messages are written for millrace.
std::string in_own_name(std::string text);

}  // namespace millrace::tools
