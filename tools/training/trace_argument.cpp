// Declares --trace and writes the trace.
#include "tools/training/trace_argument.h"

#include <fmt/format.h>

#include "study/records/trace.h"
#include "tools/terminal/console.h"

namespace millrace::tools {

void TraceArgument::add_to(CLI::App& command, const std::string& where) {
  command
      .add_option_function<std::vector<std::string>>(
          "--trace",
          [this](const std::vector<std::string>& words) {
            asked_ = true;
            if (!words.empty()) file_ = words[0];
          },
          fmt::format("write a timeline for ui.perfetto.dev to FILE.json (default: {})", where))
      ->expected(0, 1)
      ->type_name("FILE.json");
}

std::unique_ptr<pipeline::Timeline> TraceArgument::start(const ProgramStart& start) const {
  if (!asked_) return nullptr;
  if (!file_.empty() && !file_.ends_with(".json"))
    throw UsageError(fmt::format("--trace {}: the file name must end in .json", file_),
                     "give --trace FILE.json, or put --trace last to use the default name");
  return std::make_unique<pipeline::Timeline>(start.ticks, start.ns);
}

void TraceArgument::finish(const pipeline::Timeline& timeline, const std::string& device,
                           std::filesystem::path unnamed, int rank) const {
  std::filesystem::path file = file_.empty() ? std::move(unnamed) : std::filesystem::path(file_);
  if (rank > 0) file.replace_extension(fmt::format(".rank{}.json", rank));
  study::write_trace(timeline, {"millrace", device}, file);
  say(fmt::format("timeline: {}{}", file.string(),
                  timeline.left_out() > 0
                      ? fmt::format(" ({} later records did not fit)", timeline.left_out())
                      : ""));
}

}  // namespace millrace::tools
