// A recipe: a TOML file, or the name of a shipped one, with key=value changes on top, checked
// against the declared keys. What comes out is complete: every key has a value.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "millrace/param.h"

namespace millrace {

/// What a recipe must know of an augmentation to check it.
struct OpDeclaration {
  std::string name;
  std::string help;
  bool random = false;  ///< its result depends on draws, so evaluation leaves it out
  std::vector<Param> params;
};

/// One entry of [[augment]].
struct OpSpec {
  std::string op;
  std::string id;  ///< names the op in overrides and keys its draws; default: op, then op#2, ...
  bool enabled = true;
  Params params;
  bool operator==(const OpSpec&) const = default;
};

/// Declarations of all augmentations there are now, sorted by name. Valid for good.
std::span<const OpDeclaration> op_declarations();

/// All recipe keys but those of augmentations, in the order of config.toml.
std::span<const Param> recipe_keys();
class Recipe {
 public:
  /// All defaults, no augmentation. `ops`: the augmentations there are; must outlive the recipe.
  explicit Recipe(std::span<const OpDeclaration> ops);

  /// `recipe` is a file, or the name of a shipped recipe in one of `folders`; empty: all defaults.
  /// `overrides` are key=value texts. Throws UsageError with file and line or the override.
  static Recipe load(std::span<const OpDeclaration> ops, const std::string& recipe,
                     std::span<const std::string> overrides,
                     std::span<const std::filesystem::path> folders);

  /// One key=value, or [eval.]augment+=op{name=value,...}[@before:ID|@after:ID].
  void set(const std::string& override_text);

  bool boolean(const std::string& key) const { return values_.boolean(key); }
  std::int64_t integer(const std::string& key) const { return values_.integer(key); }
  double number(const std::string& key) const { return values_.number(key); }
  const std::string& text(const std::string& key) const { return values_.text(key); }
  const std::vector<double>& numbers(const std::string& key) const { return values_.numbers(key); }
  const Value& at(const std::string& key) const { return values_.at(key); }
  /// The value of any key, augment.ID.NAME included, as TOML; throws UsageError if there is none.
  std::string value(const std::string& key) const;

  const std::vector<OpSpec>& augment() const { return augment_; }
  /// [[eval.augment]] where it is given, else the ops of [[augment]] that draw nothing.
  std::vector<OpSpec> eval_augment() const;

  /// "mnist-lenet", or the file's stem; "custom" without a recipe.
  const std::string& name() const { return name_; }
  /// The whole recipe, defaults included; loading it gives the same recipe.
  std::string to_toml() const;

 private:
  void load_file(const std::filesystem::path& file);
  void set_op(std::vector<OpSpec>& chain, const std::string& prefix, const std::string& key,
              const std::string& text);
  void append_op(std::vector<OpSpec>& chain, const std::string& prefix, const std::string& text);
  const OpDeclaration& declaration(const std::string& op, const std::string& where) const;
  [[noreturn]] void refuse_key(const std::string& key, const std::string& where) const;

  std::span<const OpDeclaration> ops_;
  std::span<const Param> keys_ = recipe_keys();
  Params values_;
  std::vector<OpSpec> augment_;
  std::vector<OpSpec> eval_augment_;
  bool has_eval_augment_ = false;
  std::string name_ = "custom";
};

}  // namespace millrace
