// Collects and writes the trace of --trace.
#include "tools/training/trace_argument.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "millrace/error.h"
#include "study/records/trace.h"
#include "tools/terminal/console.h"

namespace millrace::tools {

void TraceArgument::add_to(CLI::App& command) {
  command.add_option("--trace", file_, "write a timeline for ui.perfetto.dev to FILE.json")
      ->type_name("FILE.json");
}

std::unique_ptr<pipeline::Timeline> TraceArgument::start(const ProgramStart& start) const {
  if (file_.empty()) return nullptr;
  if (!file_.ends_with(".json"))
    throw UsageError(fmt::format("--trace {}: the file name must end in .json", file_),
                     "give --trace FILE.json");
  return std::make_unique<pipeline::Timeline>(start.time.ticks, start.time.steady_ns);
}

void TraceArgument::finish(const pipeline::Timeline& timeline, const std::string& device,
                           int rank) const {
  std::filesystem::path file = file_;
  if (rank > 0) file.replace_extension(fmt::format(".rank{}.json", rank));
  std::error_code ignored;  // write_trace() reports a folder that cannot be made
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), ignored);
  study::write_trace(timeline, {"millrace", device}, file);
  say(fmt::format("timeline: {}{}", file.string(),
                  timeline.left_out() > 0
                      ? fmt::format(" ({} later records did not fit)", timeline.left_out())
                      : ""));
}

}  // namespace millrace::tools
