// Tests which room may include which (one direction, as docs/architecture.md shows), and that files
// which see LibTorch do not see fmt: the wheel ships fmt's headers, newer than the system's, so the
// same include line would mean another library there.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
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

/// A room, and what it may use besides include/millrace.
struct Room {
  std::string name;
  std::vector<std::string> uses;  ///< folders
  std::string space;              ///< its namespace in millrace; empty: millrace itself
};

/// The picture of docs/architecture.md, from bottom to top.
const std::vector<Room>& rooms() {
  static const std::vector<Room> all{
      {"include", {}, ""},
      {"base", {"base"}, "base"},
      {"measure", {"base", "measure"}, "measure"},
      {"predict", {"measure", "predict"}, "predict"},
      {"recipe", {"base", "recipe"}, "recipe"},
      {"plugins", {"base", "plugins"}, "plugins"},
      {"pipeline", {"base", "measure", "recipe", "plugins/host", "pipeline"}, "pipeline"},
      {"augment", {"base", "recipe", "plugins/host", "pipeline", "augment"}, "augment"},
      {"probe", {"base", "plugins/host", "augment", "probe"}, "probe"},
      {"study", {"base", "measure", "predict", "recipe", "pipeline", "study"}, "study"},
      {"models", {"base", "pipeline", "models"}, "train"},
      {"strategies",
       {"base", "measure", "recipe", "pipeline", "augment", "models", "strategies"},
       "train"},
      {"tools",
       {"base", "measure", "predict", "recipe", "plugins/host", "pipeline", "augment", "models",
        "strategies", "probe", "study", "tools"},
       "tools"},
      {"library",
       {"augment/plan", "models", "pipeline/setup", "plugins/host", "strategies/trainer",
        "study/sweep", "tools/commands"},
       ""},
      {"python/ext",
       {"base", "measure", "predict", "recipe", "plugins/host", "pipeline", "augment", "probe",
        "python/ext"},
       "python"},
      {"python/program", {"tools"}, "tools"}};
  return all;
}

bool is_source(const fs::path& file) {
  static const std::set<std::string> endings{".h", ".hpp", ".cpp", ".cu"};
  return endings.contains(file.extension().string());
}

/// Returns the sources of a room.
std::vector<fs::path> sources_of(const Room& room) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(kSource / room.name))
    if (entry.is_regular_file() && is_source(entry.path())) files.push_back(entry.path());
  return files;
}

/// Returns the folder of a file of this project, or "" for another file.
std::string folder_of(const std::string& name) {
  return fs::exists(kSource / name) ? fs::path(name).parent_path().string() : "";
}

TEST(IncludeRule, RoomsLookOneWay) {
  int seen = 0;
  for (const Room& room : rooms()) {
    for (const fs::path& file : sources_of(room)) {
      for (const std::string& name : includes_of(file)) {
        if (folder_of(name).empty()) continue;
        ++seen;
        EXPECT_TRUE(
            std::any_of(room.uses.begin(), room.uses.end(),
                        [&](const std::string& other) { return name.starts_with(other + "/"); }))
            << file << " includes " << name;
      }
    }
  }
  EXPECT_GE(seen, 100) << "the rule looks at nothing";
}

TEST(IncludeRule, FoldersDoNotIncludeEachOther) {
  std::map<std::string, std::set<std::string>> above;  // a folder, and what includes it
  std::map<std::string, std::set<std::string>> below;
  for (const Room& room : rooms())
    for (const fs::path& file : sources_of(room))
      for (const std::string& name : includes_of(file)) {
        const std::string from = fs::relative(file, kSource).parent_path().string();
        const std::string to = folder_of(name);
        if (to.empty() || to == from) continue;
        below[from].insert(to);
        above[to].insert(from);
        above.try_emplace(from);
      }
  EXPECT_GE(above.size(), 20u) << "the rule looks at nothing";
  // Takes away, again and again, the folders that nobody left includes: what remains is a cycle.
  for (bool took = true; took;) {
    took = false;
    for (auto at = above.begin(); at != above.end();) {
      if (!at->second.empty()) {
        ++at;
        continue;
      }
      for (const std::string& to : below[at->first]) above[to].erase(at->first);
      at = above.erase(at);
      took = true;
    }
  }
  for (const auto& [folder, users] : above) {
    std::string text;
    for (const std::string& user : users) text += " " + user;
    ADD_FAILURE() << folder << " lies on a cycle of includes, or below one: used by" << text;
  }
}

TEST(IncludeRule, RoomsCompileTheirOwnSources) {
  int lists = 0;
  for (const Room& room : rooms()) {
    for (const auto& entry : fs::recursive_directory_iterator(kSource / room.name)) {
      if (entry.path().filename() != "CMakeLists.txt") continue;
      ++lists;
      std::ifstream in(entry.path());
      for (std::string word; in >> word;) {
        while (word.ends_with(')')) word.pop_back();
        if (!is_source(word)) continue;
        EXPECT_TRUE(!word.starts_with("${CMAKE_SOURCE_DIR}") &&
                    !word.starts_with("${PROJECT_SOURCE_DIR}") &&
                    word.find("../") == std::string::npos)
            << entry.path() << " compiles " << word;
      }
    }
  }
  EXPECT_GE(lists, 8) << "the rule looks at nothing";
}

TEST(IncludeRule, RoomsDefineNamesInTheirOwnNamespace) {
  // Forward declarations of the public interface.
  const std::set<std::string> declared{"include millrace::measure", "include millrace::pipeline",
                                       "include millrace::testing"};
  int spaces = 0;
  for (const Room& room : rooms()) {
    for (const fs::path& file : sources_of(room)) {
      std::ifstream in(file);
      for (std::string line; std::getline(in, line);) {
        if (!line.starts_with("namespace millrace")) continue;
        const std::string space = line.substr(10, line.find(' ', 10) - 10);
        ++spaces;
        const bool own = space == "millrace" ||
                         (space + "::").starts_with("millrace::" + room.space + "::") ||
                         declared.contains(room.name + " " + space);
        EXPECT_TRUE(own) << file << " defines names in " << space;
      }
      // A function of another room, defined from outside its namespace: `int tools::cores() {`.
      std::ifstream again(file);
      for (std::string line; std::getline(again, line);) {
        const std::size_t call = line.find('(');
        if (line.starts_with(' ') || !line.ends_with('{') || call == std::string::npos) continue;
        const std::size_t begin = line.rfind(' ', call) + 1;
        const std::string name = line.substr(begin, call - begin);
        for (const Room& other : rooms())
          EXPECT_TRUE(other.space.empty() || other.space == room.space ||
                      !name.starts_with(other.space + "::"))
              << file << " defines " << name;
      }
    }
  }
  EXPECT_GE(spaces, 100) << "the rule looks at nothing";
}

TEST(IncludeRule, TheDataPlaneAndTheToolsDontSeeTorch) {
  for (const char* room : {"include", "base", "measure", "predict", "recipe", "plugins", "pipeline",
                           "augment", "probe", "study", "tools", "library"}) {
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
