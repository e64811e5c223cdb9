// Splits arguments into a recipe and its overrides.
#include "recipe/recipe_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/text.h"
#include "millrace/error.h"
#include "millrace/recipe.h"
#include "recipe/key_hints.h"
#include "recipe/recipe_file.h"

namespace millrace::recipe {
namespace {

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const Param& key : recipe_keys()) names.push_back(key.name);
  return names;
}

/// Returns the key that `word` names, itself or as other programs call it; empty if none.
std::string key_of(std::string_view word) {
  const std::vector<std::string> names = key_names();
  if (std::find(names.begin(), names.end(), word) != names.end()) return std::string(word);
  const std::string_view answer = answer_to_familiar(word);
  return is_key(answer) ? std::string(answer) : "";
}

[[noreturn]] void refuse_spaces(const std::string& given, const std::string& meant) {
  throw UsageError(fmt::format("{}: a key, '=' and a value are one word", given),
                   fmt::format("write it without spaces: {}", meant));
}

/// Throws if the words around `at` are one override with spaces around its '='.
void check_spaces(const std::vector<std::string>& words, std::size_t at) {
  const std::string& word = words[at];
  const std::string next = at + 1 < words.size() ? words[at + 1] : "";
  const bool next_is_value = !next.empty() && !is_override(next);
  if (word.starts_with('=')) {  // loader.workers =4 is found at its first word
    refuse_spaces(word, "key=value");
  } else if (!is_override(word)) {
    if (next == "=" && at + 2 < words.size())
      refuse_spaces(fmt::format("{} = {}", word, words[at + 2]), word + "=" + words[at + 2]);
    if (next.starts_with('=')) refuse_spaces(word + " " + next, word + next);
  } else if (word.ends_with('=') && next_is_value) {
    refuse_spaces(word + " " + next, word + next);
  }
}

/// Throws if a word that is not a recipe is a key, followed by its value.
void check_bare_key(const std::vector<std::string>& words, std::size_t at) {
  std::error_code ignored;
  if (std::filesystem::exists(words[at], ignored)) return;
  const std::string key = key_of(words[at]);
  if (key.empty()) return;
  const bool has_value = at + 1 < words.size() && !is_override(words[at + 1]);
  throw UsageError(fmt::format("{} is a recipe key, and needs its value in the same word", key),
                   fmt::format("write {}={}", key, has_value ? words[at + 1] : "VALUE"));
}

/// Returns the text without its digits.
std::string without_digits(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isdigit(c) != 0; });
  return text;
}

/// Throws if the shell has expanded data.path=shard-{000..003}.tar into one word per shard.
void check_shards(const std::vector<std::string>& words, std::size_t at) {
  if (at == 0 || !words[at].starts_with("data.path=") || !words[at].ends_with(".tar")) return;
  if (words[at] == words[at - 1] || without_digits(words[at]) != without_digits(words[at - 1]))
    return;
  throw UsageError(fmt::format("{} {}: data.path is one word", words[at - 1], words[at]),
                   "the shell takes unquoted braces apart; quote the word: "
                   "'data.path=shard-{000..003}.tar'");
}

}  // namespace

RecipeWords recipe_words(const std::vector<std::string>& arguments) {
  RecipeWords words;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    check_spaces(arguments, i);
    check_shards(arguments, i);
    if (is_override(arguments[i])) {
      words.overrides.push_back(arguments[i]);
      continue;
    }
    check_bare_key(arguments, i);
    if (!words.recipe.empty())
      throw UsageError(fmt::format("two recipes: {} and {}", words.recipe, arguments[i]),
                       "give one recipe, then overrides as key=value");
    words.recipe = arguments[i];
  }
  return words;
}

std::string override_for_option(std::string_view option, std::string_view value) {
  constexpr std::size_t kTypingError = 2;
  const std::string_view name =
      option.substr(std::min(option.find_first_not_of('-'), option.size()));
  std::string key(answer_to_familiar(name));
  if (!key.empty() && !is_key(key)) return key;
  if (key.empty()) {
    const std::vector<std::string> names = key_names();
    const std::string near = near_keys(name, names).front();
    const std::string last = near.substr(near.rfind('.') + 1);
    if (std::min(base::edit_distance(name, near), base::edit_distance(name, last)) > kTypingError ||
        name.size() <= kTypingError)
      return "";
    key = near;
  }
  return fmt::format("{}={}", key, value.empty() ? "VALUE" : value);
}

}  // namespace millrace::recipe
