// millrace completion: shell functions that ask the program itself what may come next, and the
// manual page.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/recipe.h"
#include "tools/commands/commands.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"
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
.B 5
a budget of pymillrace watch is exceeded
.TP
.B 6
it is undecided whether one is exceeded
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

namespace {

constexpr std::string_view kBash = R"script(# bash completion for millrace
_millrace() {
  local word=${COMP_LINE:0:COMP_POINT}
  mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" completion words "$word" 2>/dev/null)
  # bash takes key=value for three words and replaces the last of them.
  word=${word##*[[:space:]]}
  if [[ $COMP_WORDBREAKS == *=* && $word == *=* ]]; then
    COMPREPLY=("${COMPREPLY[@]#"${word%=*}="}")
  fi
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _millrace millrace
)script";

constexpr std::string_view kZsh = R"script(#compdef millrace
# zsh completion for millrace
_millrace() {
  local -a found keys others
  found=(${(f)"$(${(Q)words[1]} completion words "${(j: :)words[1,CURRENT]}" 2>/dev/null)"})
  keys=(${(M)found:#*=})
  others=(${found:#*=})
  if (( $#keys )); then compadd -S '' -a keys; fi
  if (( $#others )); then compadd -a others; fi
  if (( ! $#found )); then
    compset -P '*='
    _files
  fi
}
if [[ ${funcstack[1]} == _millrace ]]; then _millrace "$@"; else compdef _millrace millrace; fi
)script";

constexpr std::string_view kFish = R"script(# fish completion for millrace
complete -c millrace -a '(millrace completion words (commandline -cp | string collect) 2>/dev/null)'
)script";

bool is_command(const CLI::App* app) { return !app->get_group().empty(); }

/// The command of `app` that is called `name`, or null.
const CLI::App* command_of(const CLI::App& app, std::string_view name) {
  for (const CLI::App* command : app.get_subcommands(is_command))
    if (command->get_name() == name) return command;
  return nullptr;
}

/// The option of `command` that takes its value from the word after `word`, or null.
const CLI::Option* option_before_value(const CLI::App& command, std::string_view word) {
  if (!word.starts_with('-')) return nullptr;
  const CLI::Option* option = command.get_option_no_throw(std::string(word));
  return option != nullptr && option->get_items_expected_max() > 0 ? option : nullptr;
}

/// "TEXT:{grid,paired}" -> grid, paired: values that CLI11 writes into an option's help.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

bool takes_recipe_keys(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name(true);
    if (option->get_positional() && (name == "recipe" || name == "overrides")) return true;
  }
  return false;
}

void add_values(const std::string& key, const Param& param, std::vector<std::string>& words) {
  for (const std::string& choice : param.choices) words.push_back(key + "=" + choice);
  if (param.type == Param::Type::boolean)
    words.insert(words.end(), {key + "=true", key + "=false"});
  if (!param.word.empty()) words.push_back(key + "=" + param.word);
}

/// Keys as KEY=, and KEY=VALUE for a key that `last` completes. Parameters of augmentations are
/// left out until `last` names augment.: there are more of them than of all other keys.
void add_recipe_keys(std::string_view last, std::vector<std::string>& words) {
  const std::string_view typed = last.substr(0, last.find('='));
  const bool has_value = typed.size() < last.size();
  for (const Param& key : recipe_keys()) {
    if (!has_value)
      words.push_back(key.name + "=");
    else if (key.name == typed)
      add_values(key.name, key, words);
  }
  for (const OpDeclaration& op : op_declarations()) {
    words.push_back("augment+=" + op.name);
    if (!last.starts_with("augment.")) continue;
    const std::string prefix = "augment." + op.name + ".";
    std::vector<Param> params = op.params;
    params.push_back(Param::boolean("enabled", true, ""));
    for (const Param& param : params) {
      if (!has_value)
        words.push_back(prefix + param.name + "=");
      else if (prefix + param.name == typed)
        add_values(prefix + param.name, param, words);
    }
  }
}

/// Sections and keys for `keys PREFIX`.
void add_prefixes(std::vector<std::string>& words) {
  for (const Param& key : recipe_keys()) {
    words.push_back(key.name);
    if (const std::size_t dot = key.name.find('.'); dot != std::string::npos)
      words.push_back(key.name.substr(0, dot));
  }
  for (const OpDeclaration& op : op_declarations()) words.push_back("augment." + op.name);
}

void add_recipes(std::vector<std::string>& words) {
  std::error_code ignored;
  for (const auto& folder : recipe_folders())
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
      if (entry.path().extension() == ".toml") words.push_back(entry.path().stem().string());
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : line) {
    const bool space = c == ' ' || c == '\t' || c == '\n';
    if (!space && !inside) words.emplace_back();
    if (!space) words.back() += c;
    inside = !space;
  }
  if (!inside) words.emplace_back();
  return words;
}

/// Returns what may stand where the last word of `line` begins, sorted. `line` is a command line up
/// to the cursor, the program's name included. Nothing: a file, or a value of the user's own.
std::set<std::string> completions(const CLI::App& app, const std::string& line) {
  std::vector<std::string> typed = words_of(line);
  const std::string last = typed.back();
  typed.pop_back();
  const CLI::App* command = &app;
  bool has_recipe = false;
  std::string before;
  for (std::size_t i = 1; i < typed.size(); ++i) {
    // After `launch -n 2 --` comes another command of the program.
    const CLI::App& parent = command->get_prefix_command() ? app : *command;
    if (const CLI::App* next = command_of(parent, typed[i]); next != nullptr) {
      command = next;
    } else if (option_before_value(*command, before) == nullptr) {
      has_recipe |= !typed[i].starts_with('-') && typed[i].find('=') == std::string::npos;
    }
    before = typed[i];
  }

  std::vector<std::string> words;
  if (const CLI::Option* option = option_before_value(*command, before); option != nullptr) {
    words = choices_of(*option);
  } else if (last.starts_with('-')) {
    for (const CLI::Option* known : command->get_options()) {
      if (known->get_group().empty()) continue;  // hidden
      for (const std::string& name : known->get_lnames()) words.push_back("--" + name);
      for (const std::string& name : known->get_snames()) words.push_back("-" + name);
    }
  } else if (command->get_prefix_command()) {
    words.emplace_back("train");
  } else {
    for (const CLI::App* sub : command->get_subcommands(is_command))
      words.push_back(sub->get_name());
    if (takes_recipe_keys(*command)) {
      add_recipe_keys(last, words);
      if (!has_recipe && command->get_option_no_throw("recipe") != nullptr) add_recipes(words);
    }
    if (command->get_option_no_throw("prefix") != nullptr) add_prefixes(words);
  }
  std::erase_if(words, [&](const std::string& word) { return !word.starts_with(last); });
  return {words.begin(), words.end()};
}

}  // namespace

void add_completion(CLI::App& app, Command& chosen) {
  auto* completion =
      app.add_subcommand("completion", "completion for bash, zsh and fish; the manual page");
  completion->require_subcommand(0, 1);  // main() names what is missing
  completion->footer(
      "Example:\n  millrace completion bash > ~/.local/share/bash-completion/completions/millrace");
  const auto prints = [&](const char* name, const char* help, auto text) {
    completion->add_subcommand(name, help)->callback([text, &chosen] {
      chosen = [text](const ProgramStart&) {
        print("{}", text());
        return Exit::done;
      };
    });
  };
  prints("bash", "the function for bash", [] { return kBash; });
  prints("zsh", "the function for zsh, a file _millrace in $fpath", [] { return kZsh; });
  prints("fish", "the command for fish", [] { return kFish; });
  prints("man", "the manual page, for man -l", [&app] { return manual_page(app); });

  auto* words = completion->add_subcommand("words", "what may come next, for the functions above");
  words->group("");  // not listed
  auto line = std::make_shared<std::string>();
  words->add_option("line", *line, "the command line up to the cursor");
  words->callback([line, &app, &chosen] {
    chosen = [line, &app](const ProgramStart&) {
      for (const std::string& word : completions(app, *line)) print("{}\n", word);
      return Exit::done;
    };
  });
}

}  // namespace millrace::tools
