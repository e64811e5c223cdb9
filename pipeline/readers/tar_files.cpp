// Finds archives by file, folder or pattern.
#include "pipeline/readers/tar_files.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "base/files.h"
#include "millrace/error.h"

namespace millrace::pipeline {
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
  bool has_splits = false;
  const std::vector<std::string> all = tars_in(path);
  for (const char* any : kSplits)
    for (const std::string& name : split_names(any)) {
      if (base::is_folder(path + "/" + name) && !tars_in(path + "/" + name).empty()) {
        has_splits = true;
        if (any == split) return {tars_in(path + "/" + name), path, true};
      }
      std::vector<std::string> files;
      std::copy_if(all.begin(), all.end(), std::back_inserter(files),
                   [&](const std::string& file) { return belongs(file, name); });
      has_splits |= !files.empty();
      if (any == split && !files.empty()) return {files, path, true};
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

}  // namespace

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

}  // namespace millrace::pipeline
