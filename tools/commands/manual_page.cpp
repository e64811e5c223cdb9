#include "tools/commands/manual_page.h"

#include <fmt/format.h>

#include <string_view>

#include "tools/version.h"

namespace millrace::tools {
namespace {

/// Text as it is: roff reads backslashes, and lines that begin with a dot or a quote, as commands.
std::string escaped(std::string_view text) {
  std::string result;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) result += "\\&";
    line_begins = c == '\n';
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else
      result += c;
  }
  return result;
}

/// "-q, --quiet", "--run TEXT", "recipe".
std::string name_of(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  std::string names;
  for (const std::string& name : option.get_snames()) names += (names.empty() ? "-" : ", -") + name;
  for (const std::string& name : option.get_lnames())
    names += (names.empty() ? "--" : ", --") + name;
  const std::string type = option.get_items_expected_max() > 0 ? option.get_type_name() : "";
  return type.empty() ? names : names + " " + type;
}

void add_command(std::string& page, const CLI::App& command, const std::string& parents) {
  const std::string name = parents + command.get_name();
  page += fmt::format(".SS {}\n{}\n", escaped(name), escaped(command.get_description()));
  for (const CLI::Option* option : command.get_options()) {
    if (option->check_lname("help") || option->get_group().empty()) continue;
    page += fmt::format(".TP\n.B {}\n{}\n", escaped(name_of(*option)),
                        escaped(option->get_description()));
  }
  if (const std::string footer = command.get_footer(); !footer.empty())
    page += fmt::format(".PP\n.nf\n{}\n.fi\n", escaped(footer));
  for (const CLI::App* sub :
       command.get_subcommands([](const CLI::App* app) { return !app->get_group().empty(); }))
    add_command(page, *sub, name + " ");
}

constexpr std::string_view kExitStatus = R"(.SH EXIT STATUS
.TP
.B 0
done
.TP
.B 1
the run failed
.TP
.B 2
wrong usage or recipe
.TP
.B 3
bad data or plugin
.TP
.B 4
a needed device or backend is missing
.TP
.B 130
interrupted
)";

}  // namespace

std::string manual_page(const CLI::App& app) {
  std::string what = app.get_description();
  what = what.substr(what.find(": ") + 2);
  std::string page = fmt::format(
      ".TH MILLRACE 1 \"\" \"millrace {0}\" \"User Commands\"\n"
      ".SH NAME\nmillrace \\- {1}\n"
      ".SH SYNOPSIS\n.B millrace\n.I COMMAND\n[\\fIRECIPE\\fR] [\\fIkey\\fR=\\fIvalue\\fR ...] "
      "[\\fIoptions\\fR]\n"
      ".SH DESCRIPTION\nRECIPE is a TOML file or the name of a shipped recipe. key=value overrides "
      "any of its keys.\n.SH COMMANDS\n",
      kVersion, escaped(what));
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); }))
    add_command(page, *command, "");
  page += kExitStatus;
  return page;
}

}  // namespace millrace::tools
