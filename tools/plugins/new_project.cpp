// Fills the templates of a plugin's project.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/text.h"
#include "millrace/error.h"
#include "tools/plugins/plugins.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

/// Converts "dark_corners" to "DarkCorners".
std::string class_name(const std::string& name) {
  std::string text;
  bool up = true;
  for (const char c : name) {
    if (c == '_') {
      up = true;
      continue;
    }
    text += up ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    up = false;
  }
  return text;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

void check_name(const std::string& name) {
  // Names that CMake reserves for targets.
  constexpr std::string_view kTaken[] = {"all",     "clean", "help",    "install",
                                         "package", "test",  "millrace"};
  if (std::find(std::begin(kTaken), std::end(kTaken), name) != std::end(kTaken))
    throw UsageError(fmt::format("plugins new: {} is a name reserved by CMake or millrace", name),
                     fmt::format("choose another: my_{}", name));
  const auto is_good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  const bool good = !name.empty() && name.front() >= 'a' && name.front() <= 'z' &&
                    name.size() <= 64 && std::all_of(name.begin(), name.end(), is_good);
  if (good) return;
  std::string better;
  for (const char c : name)
    better += std::isalnum(static_cast<unsigned char>(c)) != 0
                  ? static_cast<char>(std::tolower(static_cast<unsigned char>(c)))
                  : '_';
  const std::size_t letter = better.find_first_of("abcdefghijklmnopqrstuvwxyz");
  throw UsageError(fmt::format("plugins new: '{}' is not a valid unit name", name),
                   fmt::format("use lower case letters, digits and _, beginning with a letter: {}",
                               letter == std::string::npos ? "my_op" : better.substr(letter, 64)));
}

}  // namespace

const std::vector<std::string>& project_kinds() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> kinds;
    for (const Template& file : kTemplates) {
      const std::string name(file.name);
      if (name.ends_with("_test.cpp"))
        kinds.push_back(name.substr(0, name.size() - std::strlen("_test.cpp")));
    }
    return kinds;
  }();
  return all;
}

fs::path write_project(const std::string& name, const std::string& kind, const fs::path& parent) {
  check_name(name);
  const auto& kinds = project_kinds();
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
    throw UsageError(fmt::format("plugins new: unknown kind '{}'", kind),
                     fmt::format("did you mean {}? the kinds are {}", base::nearest(kind, kinds),
                                 fmt::join(kinds, ", ")));
  fs::path folder = parent / name;
  std::error_code failed;
  if (fs::exists(folder, failed))
    throw UsageError(fmt::format("plugins new: {} already exists", folder.string()),
                     "choose another name, or another folder with --dir");
  fs::create_directories(folder, failed);
  if (failed)
    throw RunError(fmt::format("plugins new: {}: {}", folder.string(), failed.message()),
                   "choose a writable folder: --dir DIR");
  for (const Template& file : kTemplates) {
    std::string to(file.name);
    if (to == kind + ".cpp") {
      to = name + ".cpp";
    } else if (to == kind + "_test.cpp") {
      to = name + "_test.cpp";
    } else if (to.ends_with(".cpp")) {
      continue;  // belongs to another kind
    }
    std::string text = replaced(std::string(file.text), "example_" + kind, name);
    text = replaced(text, "Example" + class_name(kind), class_name(name));
    text = replaced(text, kind + ".cpp", name + ".cpp");
    text = replaced(replaced(text, "@NAME@", name), "@KIND@", kind);
    std::ofstream out(folder / to, std::ios::binary);
    out << text;
    if (!out.flush())
      throw RunError(fmt::format("plugins new: {} cannot be written: {}", (folder / to).string(),
                                 std::strerror(errno)),
                     "free some space or choose another folder: --dir DIR");
  }
  return folder;
}

}  // namespace millrace::tools
