// Assigns an archive's folders to splits and classes.
#include "pipeline/readers/tar_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/files.h"
#include "millrace/error.h"
#include "pipeline/readers/split.h"

namespace millrace::pipeline {
namespace {

using Parts = std::vector<std::string_view>;

Parts split_path(std::string_view path) {
  Parts parts;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (end > 0) parts.push_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

bool names_split(std::string_view part) {
  return part == "train" || part == "test" || part == "val" || part == "valid";
}

/// Returns the depth at which every folder names a split, or -1.
int split_depth(const std::vector<Parts>& folders) {
  for (std::size_t depth = 0;; ++depth) {
    const auto here = [&](const Parts& parts) { return depth < parts.size(); };
    if (!std::all_of(folders.begin(), folders.end(), here)) return -1;
    if (std::all_of(folders.begin(), folders.end(),
                    [&](const Parts& parts) { return names_split(parts[depth]); }))
      return static_cast<int>(depth);
  }
}

/// Returns the number of leading parts that all folders share.
std::size_t common_depth(const std::vector<Parts>& folders) {
  std::size_t depth = folders.front().size();
  for (const Parts& parts : folders) {
    const auto end =
        std::mismatch(parts.begin(), parts.end(), folders.front().begin(), folders.front().end());
    depth = std::min(depth, static_cast<std::size_t>(end.first - parts.begin()));
  }
  return depth;
}

}  // namespace

TarClasses sort_out_folders(const std::vector<std::string>& folders, const std::string& split,
                            bool of_split, bool by_label, const std::string& lone_class,
                            const std::string& path) {
  std::vector<Parts> all;
  for (const std::string& folder : folders) all.push_back(split_path(folder));
  const int depth = split_depth(all);
  std::string chosen = split;
  if (depth >= 0 && !of_split) {
    std::set<std::string_view> found;
    for (const Parts& parts : all) found.insert(parts[static_cast<std::size_t>(depth)]);
    const auto names = split_names(split);
    const auto name = std::find_if(names.begin(), names.end(), [&](const std::string& candidate) {
      return found.contains(candidate);
    });
    if (name == names.end())
      throw MissingSplit(
          fmt::format("{}: holds no split '{}', only {}", path, split, fmt::join(found, ", ")),
          "check data.split and eval.split");
    chosen = *name;
  } else if (!of_split && split != "train") {
    throw MissingSplit(
        fmt::format("{}: no split '{}': neither its files nor its folders name one", path, split),
        "give a folder with train*.tar and test*.tar");
  }
  TarClasses result;
  const auto is_chosen = [&](const Parts& parts) {
    return depth < 0 || of_split || parts[static_cast<std::size_t>(depth)] == chosen;
  };
  if (by_label) {
    for (const Parts& parts : all)
      result.of_folder.push_back(is_chosen(parts) ? 0 : TarClasses::kOtherSplit);
    return result;
  }
  const std::size_t skip = depth >= 0 ? static_cast<std::size_t>(depth) + 1 : common_depth(all);
  const auto lone = [&](const Parts& parts) { return parts.size() == skip; };
  const bool all_lone = std::all_of(all.begin(), all.end(), lone);
  std::set<std::string> classes;
  const auto class_of = [&](const Parts& parts) {
    if (!all_lone) return std::string(parts[skip]);
    return depth < 0 && skip > 0 ? std::string(parts.back()) : lone_class;
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all_lone && lone(all[i]))
      throw DataError(fmt::format("{}: images in '{}' stand outside the class folders", path,
                                  base::printable(folders[i])),
                      "give each a .cls, or a folder that names its class");
    if (is_chosen(all[i])) classes.insert(class_of(all[i]));
  }
  result.classes.assign(classes.begin(), classes.end());
  for (const Parts& parts : all)
    result.of_folder.push_back(
        is_chosen(parts)
            ? static_cast<std::int32_t>(
                  std::lower_bound(result.classes.begin(), result.classes.end(), class_of(parts)) -
                  result.classes.begin())
            : TarClasses::kOtherSplit);
  return result;
}

}  // namespace millrace::pipeline
