// Loads a recipe from TOML, applies overrides and writes it back.
#include "millrace/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "base/record_file.h"
#include "base/text.h"
#include "millrace/error.h"
#include "recipe/key_hints.h"
#include "recipe/recipe_file.h"

namespace millrace {
namespace {

const Param* find(std::span<const Param> params, const std::string& name) {
  const auto found = std::find_if(params.begin(), params.end(),
                                  [&](const Param& param) { return param.name == name; });
  return found == params.end() ? nullptr : &*found;
}

/// Returns a TOML node as a Value. Throws UsageError for types that no key takes.
Value to_value(const toml::node& node, const std::string& where) {
  if (const auto value = node.value_exact<bool>()) return *value;
  if (const auto value = node.value_exact<std::int64_t>()) return *value;
  if (const auto value = node.value_exact<double>()) return *value;
  if (const auto value = node.value_exact<std::string>()) return *value;
  if (const auto* array = node.as_array()) {
    std::vector<double> values;
    for (const auto& element : *array) {
      const auto number = element.value<double>();
      if (!number) throw UsageError(where + ": a list holds numbers only");
      values.push_back(*number);
    }
    return values;
  }
  throw UsageError(where + ": neither a value nor a list of numbers");
}

std::string location(const toml::node& node, const std::filesystem::path& file) {
  return fmt::format("{}:{}", file.string(), node.source().begin.line);
}

/// Returns an id for `op` that the chain does not use yet: a second random_affine becomes
/// random_affine#2.
std::string unused_id(const std::vector<OpSpec>& chain, const std::string& op) {
  const auto taken = [&](const std::string& id) {
    return std::any_of(chain.begin(), chain.end(), [&](const OpSpec& o) { return o.id == id; });
  };
  std::string id = op;
  for (int n = 2; taken(id); ++n) id = fmt::format("{}#{}", op, n);
  return id;
}

std::string op_list(std::span<const OpDeclaration> ops) {
  std::vector<std::string> names;
  for (const auto& op : ops) names.push_back(op.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Recipe::Recipe(std::span<const OpDeclaration> ops, std::span<const Param> keys)
    : ops_(ops), keys_(keys), values_(keys) {}

void Recipe::read(const std::string& recipe, std::span<const std::string> overrides,
                  std::span<const std::filesystem::path> folders) {
  if (!recipe.empty()) {
    const std::filesystem::path file = recipe::find_recipe(recipe, folders);
    name_ = file.stem().string();
    load_file(file);
    if (const std::string& from = text("recipe"); from != "custom") name_ = from;
  }
  for (const std::string& override_text : overrides) set(override_text);
  values_.set("recipe", name_);
}

void Recipe::load_file(const std::filesystem::path& file) {
  std::ifstream in = base::open_record(file);
  if (!in) throw UsageError(file.string() + ": cannot be read", "check its permissions");
  const std::string text = base::read_record(in, file);
  if (const std::size_t line = recipe::line_nested_too_deep(text); line > 0)
    throw UsageError(fmt::format("{}:{}: more than {} levels, of a key's parts or of brackets",
                                 file.string(), line, recipe::kDeepestToml),
                     "a recipe is a TOML file: [section], key = value");
  toml::table table;
  try {
    table = toml::parse(text, file.string());
  } catch (const toml::parse_error& error) {
    throw UsageError(
        fmt::format("{}:{}: {}", file.string(), error.source().begin.line, error.description()),
        "a recipe is a TOML file: [section], key = value");
  }

  const auto read_ops = [&](const toml::node& node, std::vector<OpSpec>& chain) {
    const auto* array = node.as_array();
    if (array == nullptr)
      throw UsageError(location(node, file) + ": augment must be a list: [[augment]]");
    for (const auto& element : *array) {
      const std::string where = location(element, file);
      const auto* entry = element.as_table();
      if (entry == nullptr) throw UsageError(where + ": every [[augment]] is a table");
      const auto op = (*entry)["op"].value<std::string>();
      if (!op)
        throw UsageError(where + ": an [[augment]] without op = \"NAME\"", "ops: " + op_list(ops_));
      const OpDeclaration& declared = declaration(*op, where);
      OpSpec spec{declared.name, "", true, Params(declared.params)};
      for (const auto& [key, value] : *entry) {
        const std::string name(key.str());
        const std::string at = location(value, file);
        if (name == "op") continue;
        if (name == "id" && value.is_string()) {
          spec.id = *value.value<std::string>();
          if (spec.id.empty())
            throw UsageError(at + ": id is empty", "remove it: the op's name is then its id");
        } else if (name == "enabled" && value.is_boolean()) {
          spec.enabled = *value.value<bool>();
        } else if (const Param* param = find(declared.params, name)) {
          spec.params.set(name, checked(*param, to_value(value, at), at));
        } else {
          std::vector<std::string> names{"id", "enabled"};
          for (const auto& p : declared.params) names.push_back(p.name);
          throw UsageError(fmt::format("{}: {} has no parameter {}", at, declared.name, name),
                           fmt::format("did you mean {}? it has {}", base::nearest(name, names),
                                       fmt::join(names, ", ")));
        }
      }
      if (spec.id.empty()) spec.id = unused_id(chain, spec.op);
      if (spec.id != unused_id(chain, spec.id))
        throw UsageError(fmt::format("{}: two augmentations with the id {}", where, spec.id),
                         "give one of them an id of its own: id = \"NAME\"");
      chain.push_back(std::move(spec));
    }
  };

  const auto read_table = [&](const auto& self, const toml::table& from,
                              const std::string& prefix) -> void {
    for (const auto& [key, node] : from) {
      const std::string path = prefix + std::string(key.str());
      const std::string where = location(node, file);
      if (path == "augment") {
        read_ops(node, augment_);
      } else if (path == "eval.augment") {
        has_eval_augment_ = true;
        read_ops(node, eval_augment_);
      } else if (const Param* param = find(keys_, path)) {
        values_.set(path, checked(*param, to_value(node, where), where));
      } else if (const auto* nested = node.as_table()) {
        self(self, *nested, path + ".");
      } else {
        refuse_key(path, where);
      }
    }
  };
  read_table(read_table, table, "");
}

void Recipe::set(const std::string& text) {
  if (text.starts_with("augment+=")) return append_op(augment_, "augment.", text.substr(9));
  if (text.starts_with("eval.augment+=")) {
    has_eval_augment_ = true;
    return append_op(eval_augment_, "eval.augment.", text.substr(14));
  }
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError(fmt::format("{} is not of the form key=value", text),
                     "for example loader.workers=4");
  const std::string key = text.substr(0, equals);
  const std::string value = text.substr(equals + 1);
  if (const Param* param = find(keys_, key)) {
    values_.set(key, parse_value(*param, value, text));
  } else if (key.starts_with("augment.")) {
    set_op(augment_, "augment.", key, value);
  } else if (key.starts_with("eval.augment.")) {
    set_op(eval_augment_, "eval.augment.", key, value);
  } else {
    refuse_key(key, text);
  }
}

void Recipe::set_op(std::vector<OpSpec>& chain, const std::string& prefix, const std::string& key,
                    const std::string& text) {
  const std::string where = key + "=" + text;
  const std::string rest = key.substr(prefix.size());
  const auto dot = rest.rfind('.');
  std::vector<std::string> ids;
  for (auto& spec : chain) {
    ids.push_back(spec.id);
    if (dot == std::string::npos || spec.id != rest.substr(0, dot)) continue;
    const std::string name = rest.substr(dot + 1);
    if (name == "enabled") {
      spec.enabled =
          std::get<bool>(parse_value(Param::boolean("enabled", true, "op is run"), text, where));
      return;
    }
    const auto& params = declaration(spec.op, where).params;
    if (const Param* param = find(params, name)) {
      spec.params.set(name, parse_value(*param, text, where));
      return;
    }
    std::vector<std::string> names{"enabled"};
    for (const auto& param : params) names.push_back(param.name);
    throw UsageError(
        fmt::format("{}: {} has no parameter {}", where, spec.op, name),
        fmt::format("did you mean {}{}.{}?", prefix, spec.id, base::nearest(name, names)));
  }
  if (ids.empty())
    throw UsageError(where + ": this recipe has no augmentation",
                     "add one: augment+=" + rest.substr(0, dot) + "{...}");
  throw UsageError(
      fmt::format("{}: this recipe's chain has no {}", where, rest.substr(0, dot)),
      fmt::format("did you mean {}{}.NAME? the chain: {}; augment+=OP adds one", prefix,
                  base::nearest(rest.substr(0, dot), ids), fmt::join(ids, ", ")));
}

void Recipe::append_op(std::vector<OpSpec>& chain, const std::string& prefix,
                       const std::string& text) {
  const std::string where = prefix.substr(0, prefix.size() - 1) + "+=" + text;
  const auto at = text.rfind('@');
  const std::string body = text.substr(0, at);
  const auto brace = body.find('{');
  const std::string op = body.substr(0, brace);
  const OpDeclaration& declared = declaration(op, where);
  OpSpec spec{declared.name, unused_id(chain, declared.name), true, Params(declared.params)};

  auto place = chain.end();
  if (at != std::string::npos) {
    const std::string anchor = text.substr(at + 1);
    const auto colon = anchor.find(':');
    const std::string side = anchor.substr(0, colon);
    const std::string id = colon == std::string::npos ? "" : anchor.substr(colon + 1);
    place = std::find_if(chain.begin(), chain.end(), [&](const OpSpec& o) { return o.id == id; });
    if ((side != "before" && side != "after") || place == chain.end())
      throw UsageError(where + ": no such place in the chain", "@before:ID or @after:ID");
    if (side == "after") ++place;
  }
  auto inserted = chain.insert(place, std::move(spec));
  if (brace == std::string::npos) return;

  if (!body.ends_with('}')) throw UsageError(where + ": a { without its }", "op{name=value,...}");
  const std::string list = body.substr(brace + 1, body.size() - brace - 2);
  std::size_t start = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {  // commas inside brackets belong to a value
    if (i < list.size() && (list[i] == '[' || list[i] == '{')) ++depth;
    if (i < list.size() && (list[i] == ']' || list[i] == '}')) --depth;
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    const std::string part = list.substr(start, i - start);
    start = i + 1;
    if (part.empty()) continue;
    const auto equals = part.find('=');
    if (equals == std::string::npos) throw UsageError(where + ": " + part + " is not name=value");
    if (part.substr(0, equals) == "id") {
      const std::string id = part.substr(equals + 1);
      if (id.empty() || !base::is_utf8(id) || id != unused_id(chain, id))
        throw UsageError(where + ": an id must be unused, non-empty and UTF-8",
                         "without id=, it is " + inserted->id);
      inserted->id = id;
    } else {
      const std::string key = prefix + inserted->id + "." + part.substr(0, equals);
      set_op(chain, prefix, key, part.substr(equals + 1));
    }
  }
}

const OpDeclaration& Recipe::declaration(const std::string& op, const std::string& where) const {
  std::vector<std::string> names;
  for (const auto& declared : ops_) {
    if (declared.name == op) return declared;
    names.push_back(declared.name);
  }
  // Without quotes, the shell makes op{a=1,b=2} into two words: opa=1 and opb=2.
  std::string begins;
  for (const std::string& name : names)
    if (op.starts_with(name) && name.size() > begins.size()) begins = name;
  if (!begins.empty() && op.find('=') != std::string::npos)
    throw UsageError(fmt::format("{}: unknown augmentation {}", where, op),
                     fmt::format("the shell takes unquoted braces apart; quote the word: "
                                 "'augment+={}{{NAME=VALUE,NAME=VALUE}}'",
                                 begins));
  throw UsageError(fmt::format("{}: unknown augmentation {}", where, op),
                   fmt::format("did you mean {}? known: {}; plugins.path=DIR adds those of plugins",
                               base::nearest(op, names), fmt::join(names, ", ")));
}

void Recipe::refuse_key(const std::string& key, const std::string& where) const {
  std::vector<std::string> names;
  for (const auto& param : keys_) names.push_back(param.name);
  for (const auto& spec : augment_) names.push_back("augment." + spec.id + ".enabled");
  throw UsageError(fmt::format("{}: unknown key {}", where, key), recipe::hint_for_key(key, names));
}

std::string Recipe::value(const std::string& key) const {
  if (find(keys_, key) != nullptr) return millrace::to_toml(values_.at(key));
  for (const auto& spec : augment_) {
    const std::string prefix = "augment." + spec.id + ".";
    if (!key.starts_with(prefix)) continue;
    const std::string name = key.substr(prefix.size());
    if (name == "enabled") return spec.enabled ? "true" : "false";
    if (find(declaration(spec.op, key).params, name) != nullptr)
      return millrace::to_toml(spec.params.at(name));
  }
  refuse_key(key, key);
}

std::vector<OpSpec> Recipe::eval_augment() const {
  if (has_eval_augment_) return eval_augment_;
  std::vector<OpSpec> chain;
  for (const auto& spec : augment_)
    if (!declaration(spec.op, spec.op).random) chain.push_back(spec);
  return chain;
}

std::string Recipe::to_toml() const {
  std::string text = "# millrace recipe, complete: millrace train THIS_FILE repeats the run\n";
  std::string section;
  for (const auto& param : keys_) {
    const auto dot = param.name.rfind('.');
    const std::string in = dot == std::string::npos ? "" : param.name.substr(0, dot);
    if (in != section) {
      text += fmt::format("\n[{}]\n", section = in);
      if (in == "eval" && has_eval_augment_ && eval_augment_.empty()) text += "augment = []\n";
    }
    text += fmt::format("{} = {}\n", param.name.substr(dot + 1),
                        millrace::to_toml(values_.at(param.name)));
  }
  const auto write = [&](const std::vector<OpSpec>& chain, const std::string& header) {
    for (const auto& spec : chain) {
      text += fmt::format("\n[[{}]]\nop = {}\nid = {}\nenabled = {}\n", header,
                          millrace::to_toml(spec.op), millrace::to_toml(spec.id), spec.enabled);
      for (const auto& param : declaration(spec.op, spec.op).params)
        text += fmt::format("{} = {}\n", param.name, millrace::to_toml(spec.params.at(param.name)));
    }
  };
  write(augment_, "augment");
  write(eval_augment_, "eval.augment");
  return text;
}

}  // namespace millrace
