// Finds archives, and assigns their folders to splits and classes.
#include "pipeline/readers/tar_files.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "base/folder.h"
#include "base/open_file.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"

namespace millrace::pipeline {

// Finds archives by file, folder or pattern.
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxNames = 1'000'000;

std::optional<std::uint64_t> number_of(std::string_view digits) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || status != std::errc() || end != digits.data() + digits.size())
    return std::nullopt;
  return value;
}

/// Returns the alternatives of one pair of braces: 000..003 counts with as many digits, a,b lists.
std::vector<std::string> alternatives(const std::string& text, const std::string& pattern) {
  if (const std::size_t dots = text.find(".."); dots != std::string::npos) {
    const auto first = number_of(std::string_view(text).substr(0, dots));
    const auto last = number_of(std::string_view(text).substr(dots + 2));
    if (!first || !last || *last < *first || *last - *first >= kMaxNames)
      throw DataError(fmt::format("{}: {{{}}} is not a range of numbers", pattern, text),
                      "write {000..003}, the smaller number first");
    std::vector<std::string> numbers;
    for (std::uint64_t n = *first; n <= *last; ++n)
      numbers.push_back(fmt::format("{:0{}}", n, dots));
    return numbers;
  }
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::vector<std::string> matching(const std::string& pattern) {
  glob_t found{};
  const int status = glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> names;
  if (status == 0) names.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  std::sort(names.begin(), names.end());
  return names;
}

bool has_wildcard(const std::string& path) {
  return path.find_first_of("*?[") != std::string::npos;
}

std::vector<std::string> tars_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.ends_with(".tar") && !name.starts_with('.')) files.push_back(folder + "/" + name);
  }
  if (error)
    throw DataError(fmt::format("{}: cannot be listed: {}", folder, error.message()),
                    "check the folder's permissions and the disk");
  std::sort(files.begin(), files.end());
  return files;
}

/// Returns whether a file belongs to a split: "train-000.tar" and "train.tar" belong to train,
/// "training.tar" does not.
bool belongs(const std::string& file, const std::string& split) {
  const std::string name = fs::path(file).filename();
  if (!name.starts_with(split)) return false;
  const char next = name[split.size()];
  return !(next >= 'a' && next <= 'z') && !(next >= 'A' && next <= 'Z');
}

constexpr const char* kSplits[] = {"train", "test"};

TarFiles in_folder(const std::string& path, const std::string& split) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& folder) {
    for (const std::string& file : tars_in(folder)) names.push_back(file.substr(path.size() + 1));
  };
  add(path);
  for (const char* any : kSplits)
    for (const std::string& name : split_names(any))
      if (base::is_folder(path + "/" + name)) add(path + "/" + name);
  TarFiles found = files_of_split(names, path, split);
  for (std::string& file : found.files) file = path + "/" + file;
  return found;
}

}  // namespace

TarFiles files_of_split(const std::vector<std::string>& names, const std::string& path,
                        const std::string& split) {
  const auto chosen = [&](const auto& rule) {
    std::vector<std::string> files;
    std::copy_if(names.begin(), names.end(), std::back_inserter(files), rule);
    return files;
  };
  const auto all = chosen([](const std::string& file) { return file.find('/') == file.npos; });
  bool has_splits = false;
  for (const char* any : kSplits)
    for (const std::string& name : split_names(any)) {
      const std::string folder = name + "/";
      const auto inside = chosen([&](const std::string& file) {
        return file.starts_with(folder) && file.find('/', folder.size()) == file.npos;
      });
      has_splits |= !inside.empty();
      if (any == split && !inside.empty()) return {inside, path, true};
      const auto named = chosen([&](const std::string& file) {
        return file.find('/') == file.npos && belongs(file, name);
      });
      has_splits |= !named.empty();
      if (any == split && !named.empty()) return {named, path, true};
    }
  if (all.empty() && !has_splits)
    throw DataError(fmt::format("{}: no archives (*.tar)", path),
                    "check data.path; `millrace data pack` makes archives of a folder");
  if (has_splits)
    throw MissingSplit(fmt::format("{}: no archives for split '{}' (looked for {}*.tar)", path,
                                   split, fmt::join(split_names(split), "*.tar, ")),
                       "call them by their split: train-000.tar, test-000.tar");
  return {all, path, false};
}

std::vector<std::string> expand_braces(const std::string& pattern) {
  std::vector<std::string> done, left{pattern};
  while (!left.empty()) {
    const std::string text = std::move(left.back());
    left.pop_back();
    const std::size_t open = text.find('{');
    const std::size_t close = open == std::string::npos ? open : text.find('}', open);
    if (close == std::string::npos) {
      done.push_back(text);
      continue;
    }
    const auto words = alternatives(text.substr(open + 1, close - open - 1), pattern);
    if (left.size() + done.size() + words.size() > kMaxNames)
      throw DataError(fmt::format("{}: over a million names", pattern), "use fewer archives");
    for (auto word = words.rbegin(); word != words.rend(); ++word)
      left.push_back(text.substr(0, open) + *word + text.substr(close + 1));
  }
  return done;
}

TarFiles find_tars(const std::string& path, const std::string& split) {
  if (base::is_folder(path)) return in_folder(path, split);
  if (path.empty() || base::exists(path) || (path.find('{') == path.npos && !has_wildcard(path))) {
    base::open_regular(path);  // report unreadable files before looking inside any
    return {{path}, fs::path(path).parent_path(), false};
  }
  TarFiles found;
  for (const std::string& name : expand_braces(path)) {
    if (!has_wildcard(name)) {
      found.files.push_back(name);
      continue;
    }
    const auto names = matching(name);
    found.files.insert(found.files.end(), names.begin(), names.end());
  }
  if (found.files.empty())
    throw DataError(fmt::format("{}: no file matches", path), "check data.path");
  found.folder = fs::path(found.files.front()).parent_path();
  return found;
}

// Assigns an archive's folders to splits and classes.
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

TarClasses classify_folders(const std::vector<std::string>& folders, const std::string& split,
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
