#include "tools/commands.h"
namespace millrace { void add_data(CLI::App&, Command&) {} }
