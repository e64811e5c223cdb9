// Reads study files.
#include "study/sweep/study_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "base/text.h"
#include "millrace/error.h"
#include "recipe/recipe_file.h"
#include "study/sweep/sweep_table.h"

namespace millrace::study {
namespace {

constexpr const char* kHint = "docs/how-to/sweeps.md describes study files";

/// Reads the keys of one table by their names.
class TableReader {
 public:
  using Reader = std::function<void(const toml::node&, const std::string& where)>;

  TableReader(const toml::table& table, std::string file) : table_(table), file_(std::move(file)) {}

  TableReader& key(const char* name, Reader read) {
    readers_[name] = std::move(read);
    return *this;
  }
  TableReader& text(const char* name, std::string& to) {
    return key(name, [&to](const toml::node& node, const std::string& where) {
      to = text_of(node, where);
    });
  }
  TableReader& texts(const char* name, std::vector<std::string>& to) {
    return key(name, [&to](const toml::node& node, const std::string& where) {
      to = texts_of(node, where);
    });
  }
  /// Reads "key=value key=value".
  TableReader& overrides(const char* name, std::vector<std::string>& to) {
    return key(name, [&to](const toml::node& node, const std::string& where) {
      to = cell_words(text_of(node, where), where);
    });
  }
  /// Reads every key of the table. Throws UsageError for unknown ones.
  void read() const {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      const std::string where = fmt::format("{}:{}: {}", file_, node.source().begin.line, name);
      const auto reader = readers_.find(name);
      if (reader == readers_.end()) {
        std::vector<std::string> names;
        for (const auto& [known, unused] : readers_) names.push_back(known);
        throw UsageError(where + ": unknown key",
                         fmt::format("did you mean {}? {}", base::nearest(name, names), kHint));
      }
      reader->second(node, where);
    }
  }

  static std::string text_of(const toml::node& node, const std::string& where) {
    const auto text = node.value_exact<std::string>();
    if (!text) throw UsageError(where + ": expected a text in quotes", kHint);
    return *text;
  }
  static std::vector<std::string> texts_of(const toml::node& node, const std::string& where) {
    const toml::array* array = node.as_array();
    if (array == nullptr) throw UsageError(where + ": expected a list of texts", kHint);
    std::vector<std::string> texts;
    for (const auto& one : *array) texts.push_back(text_of(one, where));
    return texts;
  }

 private:
  const toml::table& table_;
  std::string file_;
  std::map<std::string, Reader> readers_;
};

/// Checks that a name is a figure's, for columns and published figures.
void check_figure(const std::string& name, const std::string& where) {
  try {
    static_cast<void>(sweep_metric(name));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: no figure is called {}", where, name), error.hint());
  }
}

std::map<std::string, SourceFigure> source_of(const toml::node& node, const std::string& where) {
  const toml::table* table = node.as_table();
  if (table == nullptr) throw UsageError(where + ": expected { figure = value }", kHint);
  std::map<std::string, SourceFigure> source;
  for (const auto& [key, value] : *table) {
    const std::string name(key.str());
    check_figure(name, where);
    if (const auto number = value.value<double>())
      source[name] = *number;
    else
      source[name] = TableReader::text_of(value, where);
  }
  return source;
}

StudyRow row_of(const toml::table& table, const std::string& file) {
  StudyRow row;
  TableReader reader(table, file);
  reader.text("name", row.name).text("group", row.group);
  reader.key("keys", [&](const toml::node& node, const std::string& where) {
    row.keys = cell_words(TableReader::text_of(node, where), where, true);
  });
  reader.overrides("short", row.brief);
  reader.key("source", [&](const toml::node& node, const std::string& where) {
    row.source = source_of(node, where);
  });
  reader.read();
  if (row.name.empty())
    throw UsageError(
        fmt::format("{}:{}: a [[row]] without a name", file, table.source().begin.line), kHint);
  return row;
}

void read_rows(const toml::node& node, const std::string& where, const std::string& file,
               std::vector<StudyRow>& rows) {
  const toml::array* array = node.as_array();
  if (array == nullptr || !array->is_homogeneous(toml::node_type::table))
    throw UsageError(where + ": rows are tables: [[row]]", kHint);
  for (const auto& one : *array) {
    rows.push_back(row_of(*one.as_table(), file));
    const auto same = [&](const StudyRow& row) {
      return &row != &rows.back() && row.name == rows.back().name && row.group == rows.back().group;
    };
    if (std::any_of(rows.begin(), rows.end(), same))
      throw UsageError(fmt::format("{}: two rows are called {}", where, rows.back().name), kHint);
  }
}

void read_table(const toml::node& node, const std::string& where,
                const std::function<void(const toml::table&)>& read) {
  if (node.as_table() == nullptr) throw UsageError(where + ": expected a table", kHint);
  read(*node.as_table());
}

void read_data(const toml::table& table, const std::string& file, Study& study) {
  TableReader(table, file).text("real", study.real_data).text("make", study.made_data).read();
}

void read_short(const toml::table& table, const std::string& file, Study& study) {
  TableReader reader(table, file);
  reader.overrides("keys", study.brief).texts("data", study.brief_data).read();
}

/// Says what --short changes. Rows of different groups may have one name and change alike.
std::string short_note(const Study& study) {
  std::vector<std::string> changes;
  if (!study.brief.empty()) changes.push_back(fmt::format("{}", fmt::join(study.brief, " ")));
  for (const StudyRow& row : study.rows) {
    if (row.brief.empty()) continue;
    std::string change = fmt::format("{}: {}", row.name, fmt::join(row.brief, " "));
    if (std::find(changes.begin(), changes.end(), change) == changes.end())
      changes.push_back(std::move(change));
  }
  return fmt::format("--short: less of everything, so compare no figure with the source's: {}",
                     fmt::join(changes, "; "));
}

toml::table parsed(const std::string& text, const std::string& where) {
  if (const std::size_t line = recipe::line_nested_too_deep(text); line > 0)
    throw UsageError(
        fmt::format("{}:{}: more than {} levels of brackets", where, line, recipe::kDeepestToml),
        kHint);
  try {
    return toml::parse(text, where);
  } catch (const toml::parse_error& error) {
    throw UsageError(
        fmt::format("{}:{}: {}", where, error.source().begin.line, error.description()), kHint);
  }
}

}  // namespace

bool is_study(const std::string& text) {
  try {
    return recipe::line_nested_too_deep(text) == 0 && toml::parse(text).contains("row");
  } catch (const toml::parse_error&) {
    return false;
  }
}

Study parse_study(const std::string& text, const std::string& where) {
  const toml::table table = parsed(text, where);
  Study study;
  TableReader reader(table, where);
  reader.text("title", study.title).text("source", study.source).text("recipe", study.recipe);
  reader.text("repeats", study.repeats).text("metric", study.metric);
  reader.texts("notes", study.notes);
  reader.overrides("keys", study.keys);
  reader.key("columns", [&](const toml::node& node, const std::string& at) {
    study.columns = TableReader::texts_of(node, at);
    for (const std::string& name : study.columns) check_figure(name, at);
  });
  reader.key("data", [&](const toml::node& node, const std::string& at) {
    read_table(node, at, [&](const toml::table& data) { read_data(data, where, study); });
  });
  reader.key("short", [&](const toml::node& node, const std::string& at) {
    read_table(node, at, [&](const toml::table& brief) { read_short(brief, where, study); });
  });
  reader.key("row", [&](const toml::node& node, const std::string& at) {
    read_rows(node, at, where, study.rows);
  });
  reader.read();
  if (study.rows.empty()) throw UsageError(where + ": a study without a [[row]]", kHint);
  static_cast<void>(sweep_metrics(study.metric));
  return study;
}

SweepWords study_words(const Study& study, bool brief, const std::vector<std::string>& overrides) {
  SweepWords words{study.recipe, {.columns = {"row"}, .cells = {}, .title = study.title}};
  words.design.figures = study.columns;
  if (!study.source.empty()) words.design.notes.push_back("source: " + study.source);
  words.design.notes.insert(words.design.notes.end(), study.notes.begin(), study.notes.end());
  if (brief) words.design.notes.push_back(short_note(study));
  for (const StudyRow& row : study.rows) {
    SweepCell cell{{}, {row.name}, row.group, row.source};
    const bool own_recipe = !row.keys.empty() && !recipe::is_override(row.keys[0]);
    if (own_recipe) cell.overrides.push_back(row.keys[0]);
    const auto add = [&](const std::vector<std::string>& more, std::size_t from = 0) {
      cell.overrides.insert(cell.overrides.end(), more.begin() + static_cast<std::ptrdiff_t>(from),
                            more.end());
    };
    add(study.keys);
    add(row.keys, own_recipe ? 1 : 0);
    if (brief) {
      add(study.brief);
      add(row.brief);
    }
    add(overrides);
    words.design.cells.push_back(std::move(cell));
  }
  return words;
}

}  // namespace millrace::study
