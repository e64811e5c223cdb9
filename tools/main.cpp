// millrace: the program. Commands live in command_*.cpp.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <new>

#include "tools/commands.h"
#include "tools/console.h"
#include "tools/interrupt.h"
#include "tools/version.h"

namespace {

using namespace millrace;

Exit run(int argc, char** argv, const ProgramStart& start) {
  CLI::App app{"millrace: trains vision models and says where each step's time goes", "millrace"};
  app.set_version_flag("--version", fmt::format("millrace {} ({})", kVersion, kGit));
  app.require_subcommand(1);
  Command chosen;
  add_train(app, chosen);
  add_eval(app, chosen);
  add_bench(app, chosen);
  add_sweep(app, chosen);
  add_data(app, chosen);
  add_doctor(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error);
      return Exit::done;
    }
    std::string what = error.what();
    const auto line_end = what.find('\n');
    throw UsageError(what.substr(0, line_end), "millrace --help lists the commands, millrace COMMAND "
                                               "--help their options");
  }
  return chosen(start);
}

}  // namespace

void millrace::add_common(CLI::App& command) {
  command.add_flag("-q,--quiet", verbosity().quiet, "errors only on stderr");
  command.add_flag("-v,--verbose", verbosity().verbose, "the loss every train.log_every steps");
  command.add_flag("--json", verbosity().json, "one JSON document on stdout, nothing else there");
}

int main(int argc, char** argv) {
  const ProgramStart start{Clock::now(), Clock::steady_ns()};
  catch_interrupts();
  Exit exit = Exit::failed;
  try {
    exit = run(argc, argv, start);
  } catch (const Error& error) {
    print_error(error);
    exit = error.exit();
  } catch (const std::bad_alloc&) {
    print_error(RunError("out of memory", "lower loader.batch or loader.prefetch"));
  } catch (const std::exception& error) {
    print_error(RunError(error.what()));
  }
  std::fflush(nullptr);
  // Tearing down LibTorch and thread pools would cost time that no record shows.
  _exit(static_cast<int>(exit));
}
