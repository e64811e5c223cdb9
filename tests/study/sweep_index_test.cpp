// Records of runs and the index over them: which runs finished, which are the same, and that the
// index is made from them alone.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "millrace/error.h"
#include "study/sweep/sweep_record.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

class Index : public testing::Test {
 protected:
  Index() {
    std::string pattern = (fs::temp_directory_path() / "millrace-index-XXXXXX").string();
    sweep_ = mkdtemp(pattern.data());
    fs::create_directories(runs());
  }
  ~Index() override { fs::remove_all(sweep_); }
  fs::path runs() const { return sweep_ / "runs"; }
  fs::path file() const { return sweep_ / "index.sqlite"; }

  SweepRecord begin(const std::string& name, const std::string& key) {
    SweepRecord record{.name = name,
                       .key = key,
                       .binary = "b",
                       .data = "d",
                       .session = "s",
                       .overrides = {"loader.workers=1", "output.mean=[1,2]"},
                       .repeat = 2,
                       .seed = std::uint64_t{1} << 52,
                       .begun = 1.5e9 + 0.1,
                       .ended = NAN,
                       .noise = {0.1, 0.2, NAN, 4, 5},
                       .finished = false,
                       .figures = {}};
    write_record(runs(), record);
    return record;
  }
  void summary(const std::string& name, const std::string& text) {
    fs::create_directories(runs() / name);
    std::ofstream(runs() / name / "summary.json") << text;
  }
  void finish(const std::string& name, double rate = 1.0 / 3) {
    char text[256];
    snprintf(text, sizeof text,
             "{\"wall_s\": 2.5, \"images_per_s\": %.17g, \"top1\": null, \"interrupted\": false}",
             rate);
    summary(name, text);
  }
  /// Returns the first column of the first row.
  std::string ask(const std::string& sql) const {
    sqlite3* database = nullptr;
    sqlite3_open(file().c_str(), &database);
    std::string answer;
    sqlite3_exec(
        database, sql.c_str(),
        [](void* to, int, char** columns, char**) {
          *static_cast<std::string*>(to) = columns[0] == nullptr ? "NULL" : columns[0];
          return 0;
        },
        &answer, nullptr);
    sqlite3_close(database);
    return answer;
  }

  fs::path sweep_;
};

TEST_F(Index, FindsFinishedRunsAlone) {
  begin("001-a-r1", "aaaa");
  begin("002-b-r1", "bbbb");
  begin("003-c-r1", "cccc");
  begin("004-d-r1", "dddd");
  finish("001-a-r1");
  summary("002-b-r1", R"({"wall_s": 1, "interrupted": true})");
  summary("003-c-r1", R"({"wall_s": 1, "error": "disk full"})");
  summary("004-d-r1", R"({"wall_s": 1, "imag)");
  const SweepIndex index(sweep_);
  EXPECT_TRUE(index.find("aaaa"));
  for (const char* key : {"bbbb", "cccc", "dddd", "eeee"}) EXPECT_FALSE(index.find(key)) << key;
  EXPECT_EQ(index.finished(), 1u);
  EXPECT_EQ(index.unfinished(), (std::vector<std::string>{"002-b-r1", "003-c-r1", "004-d-r1"}));
  EXPECT_EQ(index.largest_number(), 4u);
}

TEST_F(Index, GivesBackWhatTheFilesSay) {
  const SweepRecord written = begin("017-a", "aaaa");
  finish("017-a", 0.1 + 0.2);
  const SweepRecord read = *SweepIndex(sweep_).find("aaaa");
  EXPECT_EQ(read.name, written.name);
  EXPECT_EQ(read.overrides, written.overrides);
  EXPECT_EQ(read.seed, written.seed);
  EXPECT_EQ(read.repeat, 2u);
  EXPECT_EQ(read.begun, written.begun);
  EXPECT_TRUE(std::isnan(read.ended));
  EXPECT_EQ(read.noise.others, 0.2);
  EXPECT_TRUE(std::isnan(read.noise.load_average));
  EXPECT_EQ(read.figures.images_per_s, 0.1 + 0.2) << "to the last bit";
  EXPECT_EQ(read.figures.wall_s, 2.5);
  EXPECT_TRUE(std::isnan(read.figures.top1));
  EXPECT_TRUE(std::isnan(read.figures.load_s));
}

TEST_F(Index, FollowsTheDirectories) {
  SweepIndex index(sweep_);
  EXPECT_EQ(index.finished(), 0u);
  begin("001-a", "aaaa");
  index.refresh();
  EXPECT_FALSE(index.find("aaaa"));
  finish("001-a");
  index.refresh();
  EXPECT_TRUE(index.find("aaaa"));
  fs::remove_all(runs() / "001-a");
  index.refresh();
  EXPECT_FALSE(index.find("aaaa")) << "without its directory it is not finished";
  fs::remove(runs() / "001-a.json");
  index.refresh();
  EXPECT_TRUE(index.unfinished().empty());
}

TEST_F(Index, IsMadeAnewWhateverHasItsName) {
  begin("001-a", "aaaa");
  finish("001-a");
  const auto is_made = [&] {
    const SweepIndex index(sweep_);
    return index.find("aaaa") && ask("SELECT count(*) FROM runs") == "1";
  };
  EXPECT_TRUE(is_made());
  EXPECT_TRUE(is_made()) << "beside one of an earlier process";
  std::ofstream(file(), std::ios::trunc) << "this is no database, whatever its name says. " << 4711;
  EXPECT_TRUE(is_made());

  EXPECT_EQ(ask("PRAGMA user_version=1; DROP TABLE runs; CREATE VIEW runs AS WITH RECURSIVE n(name)"
                " AS (VALUES('x') UNION ALL SELECT name || 'x' FROM n) SELECT * FROM n; SELECT 1"),
            "1");
  EXPECT_TRUE(is_made()) << "a view that never ends";

  fs::remove(file());
  ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
  EXPECT_TRUE(is_made());

  fs::remove(file());
  std::ofstream(sweep_ / "other") << "kept";
  fs::create_symlink(sweep_ / "other", file());
  EXPECT_TRUE(is_made());
  EXPECT_EQ(fs::file_size(sweep_ / "other"), 4u) << "written through a link";

  for (const char* part : {"-journal", "-wal", "-shm"})
    std::ofstream(file().string() + part) << "of a process that was killed, or a stranger's";
  EXPECT_TRUE(is_made());
}

TEST_F(Index, AFileThatNamesAFolderAboveIsNoRun) {
  std::ofstream(runs() / "...json") << "{}";  // its stem is ".."
  std::ofstream(runs() / "..json") << "{}";
  EXPECT_TRUE(SweepIndex(sweep_).unfinished().empty());
}

TEST_F(Index, AnswersQuestionsInSql) {
  begin("001-a", "aaaa");
  begin("002-b", "bbbb");
  finish("001-a");
  const SweepIndex index(sweep_);
  EXPECT_EQ(ask("SELECT count(*) FROM runs"), "2");
  EXPECT_EQ(ask("SELECT wall_s FROM runs WHERE finished"), "2.5");
  EXPECT_EQ(ask("SELECT json_extract(overrides, '$[0]') FROM runs WHERE key='bbbb'"),
            "loader.workers=1");
}

TEST_F(Index, SaysWhichRecordIsDamaged) {
  std::ofstream(runs() / "001-a.json") << "{\"key\": 1}";
  EXPECT_THROW(SweepIndex{sweep_}, DataError);
}

TEST(RunIdentity, DependsOnAllOfItsParts) {
  const RunIdentity one{"config", "binary", "data", 1, 0};
  EXPECT_EQ(one.key().size(), 32u);
  EXPECT_EQ(one.key(), (RunIdentity{"config", "binary", "data", 1, 0}.key()));
  for (const RunIdentity& other : {RunIdentity{"Config", "binary", "data", 1, 0},
                                   RunIdentity{"config", "Binary", "data", 1, 0},
                                   RunIdentity{"config", "binary", "Data", 1, 0},
                                   RunIdentity{"config", "binary", "data", 2, 0},
                                   RunIdentity{"config", "binary", "data", 1, 1}})
    EXPECT_NE(one.key(), other.key());
}

}  // namespace
}  // namespace millrace::study
