// Tests that files of a run are opened in one way (base/record_file.h), by the sources that
// docs/reference/records.md lists: whoever opens one in another way may hang on a FIFO, and a
// reader that nobody lists has no test with a hostile file.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

const fs::path kTree = MILLRACE_SOURCE_DIR;

/// Folders whose sources a user runs.
const std::vector<std::string> kProduct{"include",  "base",    "measure", "recipe",     "plugins",
                                        "pipeline", "augment", "models",  "strategies", "study",
                                        "tools",    "library", "python"};

/// Sources that open files in their own way, and why none of these is a file of a run.
const std::map<std::string, std::string> kOwnWay{
    {"base/atomic_file.cpp", "new files that get their name when complete, and their folders"},
    {"base/open_file.cpp", "data sets"},
    {"base/record_file.cpp", "opens the files of a run for everyone else"},
    {"measure/scheduler_wait.cpp", "/proc"},
    {"pipeline/readers/data_set.cpp", "names of classes beside a data set"},
    {"pipeline/readers/folder.cpp", "images of a data set"},
    {"pipeline/readers/storage.cpp", "/proc and /sys"},
    {"pipeline/remote/credentials.cpp", "the user's credentials"},
    {"pipeline/remote/shard_cache.cpp", "the cache, without following links"},
    {"pipeline/remote/shard_list.cpp", "the cache's list, without following links"},
    {"plugins/examples/npy.cpp", "images of a data set"},
    {"plugins/templates/reader.cpp", "a data set"},
    {"plugins/templates/reader_test.cpp", "a data set of its own"},
    {"measure/data_loader/clock.cpp", "/proc"},
    {"measure/data_loader/lock_watch.cpp",
     "stalls of the run that it records, without following links"},
    {"measure/data_loader/record_ring.cpp", "memory of the trainer, below /proc"},
    {"measure/data_loader/threads.cpp", "/proc"},
    {"strategies/trainer/checkpoint.cpp", "folders, to sync them"},
    {"study/analysis/machine.cpp", "/proc and /sys"},
    {"study/records/signature.cpp", "the user's key, without following links"},
    {"study/sweep/block_log.cpp", "/proc, and a heartbeat that must not exist yet"},
    {"tools/commands/bench_meter.cpp", "a new file that the command line names"},
    {"tools/commands/command_doctor.cpp", "/proc and /sys, and a new file without a name"},
    {"tools/commands/command_recipe.cpp", "shipped recipes"},
    {"tools/commands/sweep_runner.cpp", "the program's own files"},
    {"tools/data/output_files.cpp", "new files of a data set"},
    {"tools/data/tar_writer.cpp", "a new archive"},
    {"tools/launch/child.cpp", "/dev/null, /proc, and output that must not exist yet"},
    {"tools/launch/local_launcher.cpp", "/dev/null"},
    {"tools/plugins/check.cpp", "/dev/null"},
    {"tools/plugins/grants.cpp", "the user's list of trusted plugins"},
    {"tools/plugins/new_project.cpp", "new files of a plugin's project"},
    {"tools/terminal/output.cpp", "/dev/null"},
};

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Returns C++ without comments. A text that holds "//", such as an address, ends there.
std::string without_comments(const std::string& text) {
  std::string code;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) code += line.substr(0, line.find("//")) + "\n";
  return code;
}

/// Returns the product's sources, as paths below the source folder, with their code.
const std::map<std::string, std::string>& product_sources() {
  static const std::map<std::string, std::string> all = [] {
    const std::set<std::string> endings{".h", ".hpp", ".cpp", ".cu"};
    std::map<std::string, std::string> found;
    for (const std::string& room : kProduct)
      for (const auto& entry : fs::recursive_directory_iterator(kTree / room))
        if (entry.is_regular_file() && endings.contains(entry.path().extension().string()))
          found[fs::relative(entry.path(), kTree).string()] =
              without_comments(text_of(entry.path()));
    return found;
  }();
  return all;
}

/// Returns whether code opens files of a run. `in_base`: it may leave out the namespace.
bool opens_records(const std::string& code, bool in_base = false) {
  static const std::string names = R"(((find|open|read)_record|open_own)\b)";
  static const std::regex call("\\bbase::" + names + R"(|\busing namespace (millrace::)?base\b)");
  static const std::regex unqualified("\\b" + names);
  return std::regex_search(code, in_base ? unqualified : call);
}

/// Returns whether code opens files without base/record_file.h. A stream that open_record()
/// returns opens none.
bool opens_itself(const std::string& code) {
  static const std::string stream = R"(\b(basic_)?([io]?fstream|filebuf)\b(<[^<>]*>)?)";
  static const std::regex named(stream + R"(\s*\w*\s*[({]\s*(?!const\b)[^)}\s])");
  static const std::regex unnamed(stream), later(R"([.>]open\()");
  static const std::regex call(
      R"(\bf(re)?open(64)?\s*\(|\bSYS_(open|creat)|)"
      R"((^|[^\w.>])(open(at2?)?(64)?|creat)\s*\([^;{}]{0,200}\bO_[A-Z]+)");
  const auto has = [&](const std::regex& pattern) { return std::regex_search(code, pattern); };
  const bool streams = code.find("stream") != code.npos || code.find("filebuf") != code.npos;
  return (streams && (has(named) || (has(unnamed) && has(later)))) ||
         ((code.find("open") != code.npos || code.find("creat(") != code.npos) && has(call));
}

/// Row of the table of readers in docs/reference/records.md.
struct ReaderRow {
  std::vector<std::string> names, sources, tests;
};

/// Returns what stands between backquotes.
std::vector<std::string> backquoted(const std::string& cell) {
  static const std::regex quotes("`([^`]+)`");
  std::vector<std::string> texts;
  for (std::sregex_iterator at(cell.begin(), cell.end(), quotes), end; at != end; ++at)
    texts.push_back((*at)[1]);
  return texts;
}

std::vector<ReaderRow> readers() {
  std::vector<ReaderRow> rows;
  std::istringstream in(text_of(kTree / "docs/reference/records.md"));
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("| reader | source |")) inside = true;
    if (!line.starts_with("|")) inside = false;
    if (!inside || line.starts_with("| reader |") || line.starts_with("| ---")) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(1));
    for (std::string cell; std::getline(row, cell, '|');) cells.push_back(cell);
    cells.resize(4);
    rows.push_back({backquoted(cells[0]), backquoted(cells[1]), backquoted(cells[3])});
    std::erase_if(rows.back().sources, [](const std::string& word) {  // the reader that it uses
      return word.find('/') == std::string::npos;
    });
  }
  return rows;
}

TEST(RecordRule, TheReadersOfRecordsAreThoseThatTheDocumentLists) {
  std::set<std::string> listed;
  for (const ReaderRow& reader : readers())
    listed.insert(reader.sources.begin(), reader.sources.end());
  EXPECT_GE(listed.size(), 10u) << "the rule looks at nothing";
  for (const auto& [file, code] : product_sources()) {
    if (file.starts_with("base/record_file")) continue;
    const bool opens = opens_records(code, file.starts_with("base/"));
    EXPECT_EQ(opens, listed.erase(file) == 1)
        << file << (opens ? " opens files of a run" : " opens no file of a run")
        << ": see the table of readers in docs/reference/records.md";
  }
  for (const std::string& file : listed) ADD_FAILURE() << file << " is listed, and no source";
}

TEST(RecordRule, AReaderStandsInItsSourceAndItsTestExists) {
  std::string tests;
  for (const auto& entry : fs::recursive_directory_iterator(kTree / "tests"))
    if (entry.path().extension() == ".cpp") tests += text_of(entry.path());
  for (const ReaderRow& reader : readers()) {
    ASSERT_FALSE(reader.names.empty());
    EXPECT_FALSE(reader.tests.empty()) << reader.names[0] << " has no test with a hostile file";
    std::string code;
    for (const auto& [source, its] : product_sources())
      if (reader.sources.empty() ||
          std::count(reader.sources.begin(), reader.sources.end(), source))
        code += its;
    for (const std::string& name : reader.names)
      EXPECT_TRUE(name.find(' ') != std::string::npos ||  // a command
                  code.find(name.substr(name.rfind(':') + 1)) != code.npos)
          << name << " is not in its source";
    for (const std::string& test : reader.tests) {
      const std::size_t dot = test.find('.');
      ASSERT_NE(dot, std::string::npos) << test;
      const std::string name = test.substr(dot + 1, test.find('*') - dot - 1);
      const std::string suite = "(" + test.substr(0, dot) + ", ";
      EXPECT_NE(tests.find(suite + name + (test.ends_with('*') ? "" : ")")), tests.npos)
          << "there is no test " << test;
    }
  }
}

TEST(RecordRule, OtherSourcesOpenNoFilesInTheirOwnWay) {
  std::map<std::string, std::string> allowed = kOwnWay;
  for (const auto& [file, code] : product_sources()) {
    const bool opens = opens_itself(code);
    EXPECT_EQ(opens, allowed.erase(file) == 1)
        << file
        << (opens ? " opens files by itself: use base/record_file.h for those of a run, or say in "
                    "the list what else it opens"
                  : " opens no file: it needs no place in the list");
  }
  for (const auto& [file, reason] : allowed) ADD_FAILURE() << file << " is listed, and no source";
  EXPECT_GE(product_sources().size(), 300u) << "the rule looks at nothing";
}

TEST(RecordRule, FindsEachWayToOpenAFile) {
  for (const char* code :
       {"std::ifstream in(file);", "std::ifstream in{file, std::ios::binary};",
        "if (std::ifstream(entry.path() / \"x\") >> khz) {", "std::ofstream(file) << 1;",
        "std::fstream both(file);", "std::ifstream in;\nin.open(file);", "std::fopen(name, \"r\")",
        "std::basic_ifstream<char> in(file);", "std::filebuf buffer;\nbuffer.open(file);",
        "const int fd = ::open(file.c_str(),\n    O_RDONLY | O_CLOEXEC);",
        "file_(open(path_.c_str(), flags | O_CLOEXEC, 0644)) {", "openat(folder, name, O_RDONLY)",
        "syscall(SYS_openat2, folder, name)"})
    EXPECT_TRUE(opens_itself(code)) << code;
  for (const char* code :
       {"std::ifstream in = base::open_record(file);", "std::ifstream open_record(const X& file);",
        "std::string read_record(std::ifstream& in, const X& file);", "std::ifstream in_;",
        "base::open_own(path_, O_WRONLY | O_TRUNC);", "#include <fstream>",
        "set.open(path); flags = O_RDONLY;"})
    EXPECT_FALSE(opens_itself(code)) << code;
}

TEST(RecordRule, FindsEachReaderOfARecord) {
  EXPECT_TRUE(opens_records("base::open_own(path_, O_WRONLY | O_TRUNC);"));
  EXPECT_TRUE(opens_records("x = base::read_record(in, file);"));
  EXPECT_TRUE(opens_records("using base::open_record;"));
  EXPECT_FALSE(opens_records("study::read_record(runs, name);"));
}

}  // namespace
}  // namespace millrace::tools
