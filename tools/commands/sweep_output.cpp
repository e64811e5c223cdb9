// Lays out blocks of a table, remarks and notes.
#include "tools/commands/sweep_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "study/records/run_directory.h"
#include "study/report/report_text.h"
#include "study/sweep/sweep_text.h"
#include "tools/terminal/console.h"
#include "tools/terminal/output.h"

namespace millrace::tools {
namespace {

/// Returns a block's lines, each remark below its row.
std::string block_text(const study::TextBlock& block, std::size_t width) {
  std::string text =
      block.heading.empty() ? "\n" : "\n" + wrapped(block.heading, width, "", "") + "\n";
  std::istringstream lines(to_table(block.rows));
  std::size_t row = 0;
  for (std::string line; std::getline(lines, line); ++row) {
    text += line + "\n";
    if (!block.remarks[row].empty())
      text += wrapped(block.remarks[row], width, "  ", "    ") + "\n";
  }
  return text;
}

}  // namespace

void print_table(const study::SweepTable& table, const std::filesystem::path& sweep, bool wide) {
  const std::size_t width = terminal_columns();
  const study::TerminalTable shown = study::terminal_table(table, width, wide);
  if (!table.design.title.empty()) print("\n{}\n", wrapped(table.design.title, width));
  for (const study::TextBlock& block : shown.blocks) print("{}", block_text(block, width));
  if (!shown.legend.empty()) print("\n");
  for (const std::string& line : shown.legend) print("{}\n", wrapped(line, width));
  print("\n");
  if (!shown.left_out.empty())
    print("{}\n",
          wrapped(fmt::format("more columns by --wide or in {}: {}", (sweep / "table.csv").string(),
                              fmt::join(shown.left_out, ", ")),
                  width));
  for (const auto& note : study::text_notes(table)) print("{}\n", wrapped(note, width));
}

void write_tables(const study::SweepTable& table, const std::filesystem::path& sweep) {
  study::write_file(sweep / "table.csv", study::csv(study::csv_table(table)));
  study::write_file(sweep / "runs.csv", study::csv(study::csv_runs(table)));
}

}  // namespace millrace::tools
