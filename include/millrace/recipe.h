// A recipe: a TOML file, or the name of a shipped one, with key=value overrides on top, checked
// against the declared keys. A loaded recipe is complete: every key has a value.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "millrace/export.h"
#include "millrace/param.h"

namespace millrace {

/// Declares an augmentation, so that recipes can be checked.
struct OpDeclaration {
  std::string name;
  std::string help;
  bool random = false;  ///< depends on random draws, so evaluation leaves it out
  std::vector<Param> params;
};

/// One entry of [[augment]].
struct OpSpec {
  std::string op;
  std::string id;  ///< name in overrides and key of its draws; default: op, then op#2, ...
  bool enabled = true;
  Params params;
  bool operator==(const OpSpec&) const = default;
};

/// Returns the declarations of all augmentations registered so far, sorted by name. The list stays
/// valid until the program ends.
MILLRACE_EXPORT std::span<const OpDeclaration> op_declarations();

/// Returns the declarations of all recipe keys except those of augmentations, in the order of
/// config.toml.
MILLRACE_EXPORT std::span<const Param> recipe_keys();

/// A checked recipe. Reading from several threads is safe; set() needs exclusive access. The
/// accessors by key throw std::out_of_range for an unknown key.
class MILLRACE_EXPORT Recipe {
 public:
  /// Makes a recipe with all defaults and no augmentation. `ops` declares the known augmentations
  /// and must outlive the recipe.
  explicit Recipe(std::span<const OpDeclaration> ops);

  /// Loads `recipe`, a file or the name of a shipped recipe in one of `folders`; an empty string
  /// means all defaults. Then applies `overrides`, which are key=value texts. Throws UsageError
  /// that names the file and line, or the override.
  static Recipe load(std::span<const OpDeclaration> ops, const std::string& recipe,
                     std::span<const std::string> overrides,
                     std::span<const std::filesystem::path> folders);

  /// Applies one override: key=value, or [eval.]augment+=op{name=value,...}[@before:ID|@after:ID].
  /// Throws UsageError.
  void set(const std::string& override_text);

  bool boolean(const std::string& key) const { return values_.boolean(key); }
  std::int64_t integer(const std::string& key) const { return values_.integer(key); }
  double number(const std::string& key) const { return values_.number(key); }
  const std::string& text(const std::string& key) const { return values_.text(key); }
  const std::vector<double>& numbers(const std::string& key) const { return values_.numbers(key); }
  const Value& at(const std::string& key) const { return values_.at(key); }
  /// Returns the value of any key as TOML, augment.ID.NAME included. Throws UsageError for an
  /// unknown key.
  std::string value(const std::string& key) const;

  /// Returns the entries of [[augment]] in order.
  const std::vector<OpSpec>& augment() const { return augment_; }
  /// Returns the entries of [[eval.augment]] if the recipe has any, otherwise the ops of
  /// [[augment]] that draw nothing.
  std::vector<OpSpec> eval_augment() const;

  /// Returns "mnist-lenet", or the file's stem; "custom" without a recipe.
  const std::string& name() const { return name_; }
  /// Returns the whole recipe as TOML, defaults included. Loading it gives an equal recipe.
  std::string to_toml() const;

 private:
  Recipe(std::span<const OpDeclaration> ops, std::span<const Param> keys);
  void read(const std::string& recipe, std::span<const std::string> overrides,
            std::span<const std::filesystem::path> folders);
  void load_file(const std::filesystem::path& file);
  void set_op(std::vector<OpSpec>& chain, const std::string& prefix, const std::string& key,
              const std::string& text);
  void append_op(std::vector<OpSpec>& chain, const std::string& prefix, const std::string& text);
  const OpDeclaration& declaration(const std::string& op, const std::string& where) const;
  [[noreturn]] void refuse_key(const std::string& key, const std::string& where) const;

  std::span<const OpDeclaration> ops_;
  std::span<const Param> keys_;
  Params values_;
  std::vector<OpSpec> augment_;
  std::vector<OpSpec> eval_augment_;
  bool has_eval_augment_ = false;
  std::string name_ = "custom";
};

}  // namespace millrace
