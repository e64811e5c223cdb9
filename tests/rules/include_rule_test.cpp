// Tests which room may include which (one direction, as docs/architecture.md shows), and that files
// which see LibTorch do not see fmt: the wheel ships fmt's headers, newer than the system's, so the
// same include line would mean another library there.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = MILLRACE_SOURCE_DIR;

/// Returns the include names of a file as written: "include/millrace/error.h", "torch/torch.h".
std::vector<std::string> includes_of(const fs::path& file) {
  std::vector<std::string> names;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t directive = line.find_first_not_of(" \t#");
    if (!line.starts_with("#") || directive == std::string::npos ||
        line.compare(directive, 7, "include") != 0)
      continue;
    const std::size_t begin = line.find_first_of("<\"");
    const std::size_t end = line.find_last_of(">\"");
    if (begin < end && end != std::string::npos)
      names.push_back(line.substr(begin + 1, end - begin - 1));
  }
  return names;
}

/// Returns all names that `file` includes, through files of this project.
std::set<std::string> reach_of(const fs::path& file) {
  std::set<std::string> seen;
  std::vector<fs::path> open{file};
  while (!open.empty()) {
    const fs::path next = open.back();
    open.pop_back();
    for (const std::string& name : includes_of(next))
      if (seen.insert(name).second)
        for (const fs::path& folder : {kSource, kSource / "include"})
          if (fs::exists(folder / name)) open.push_back(folder / name);
  }
  return seen;
}

bool is_in(const std::string& name, std::initializer_list<const char*> folders) {
  for (const char* folder : folders)
    if (name.starts_with(folder)) return true;
  return false;
}

/// Returns the files of models/, strategies/ and tests/torch/.
std::vector<fs::path> sources() {
  std::vector<fs::path> files;
  for (const char* room : {"models", "strategies", "tests/torch"})
    for (const auto& entry : fs::recursive_directory_iterator(kSource / room))
      if (entry.path().extension() == ".h" || entry.path().extension() == ".cpp")
        files.push_back(entry.path());
  return files;
}

TEST(IncludeRule, RoomsLookOneWay) {
  // The picture of docs/architecture.md, from bottom to top.
  const std::vector<std::pair<std::string, std::vector<std::string>>> may{
      {"include", {}},
      {"base", {"base"}},
      {"plugins", {"base", "pipeline/recipe", "plugins"}},
      {"pipeline", {"base", "plugins/host", "pipeline"}},
      {"augment", {"base", "plugins/host", "pipeline", "augment"}},
      {"study", {"base", "plugins/host", "pipeline", "study"}},
      {"models", {"base", "pipeline", "models"}},
      {"strategies", {"base", "pipeline", "models", "strategies"}}};
  const std::set<std::string> rooms{"base",   "plugins",    "pipeline", "augment", "study",
                                    "models", "strategies", "tools",    "tests",   "bench"};
  int seen = 0;
  for (const auto& [room, allowed] : may) {
    for (const auto& entry : fs::recursive_directory_iterator(kSource / room)) {
      if (!entry.is_regular_file()) continue;
      for (const std::string& name : includes_of(entry.path())) {
        if (!rooms.contains(name.substr(0, name.find('/')))) continue;
        ++seen;
        EXPECT_TRUE(
            std::any_of(allowed.begin(), allowed.end(),
                        [&](const std::string& other) { return name.starts_with(other + "/"); }))
            << entry.path() << " includes " << name;
      }
    }
  }
  EXPECT_GE(seen, 100) << "the rule looks at nothing";
}

TEST(IncludeRule, TheDataPlaneAndTheToolsDontSeeTorch) {
  for (const char* room : {"include", "base", "plugins", "pipeline", "augment", "study", "tools"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kSource / room)) {
      if (!entry.is_regular_file()) continue;
      for (const std::string& name : reach_of(entry.path())) {
        EXPECT_FALSE(is_in(name, {"torch/", "ATen/", "c10/"})) << entry.path() << " sees " << name;
      }
    }
  }
}

TEST(IncludeRule, WhoSeesTorchDoesNotSeeFmt) {
  int with_torch = 0;
  for (const fs::path& file : sources()) {
    const std::set<std::string> reach = reach_of(file);
    bool torch = false;
    std::string fmt;
    for (const std::string& name : reach) {
      torch |= is_in(name, {"torch/", "ATen/", "c10/"});
      if (is_in(name, {"fmt/"})) fmt = name;
    }
    with_torch += torch;
    EXPECT_TRUE(!torch || fmt.empty()) << file << " sees LibTorch and " << fmt;
  }
  EXPECT_GE(with_torch, 8) << "the rule looks at nothing";
}

TEST(IncludeRule, ModelsAndTheirStrategiesNeverNameFmt) {
  for (const fs::path& file : sources()) {
    const bool torch_free_room =
        file.parent_path().filename() == "trainer" || file.parent_path().filename() == "control";
    if (torch_free_room) continue;  // the trainer lives there too; the test above separates them
    for (const std::string& name : includes_of(file))
      EXPECT_FALSE(is_in(name, {"fmt/"})) << file << " includes " << name;
  }
}

}  // namespace
}  // namespace millrace::tools
