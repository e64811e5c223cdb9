// SQLite statements of the index.
#include "study/sweep/sweep_index.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "millrace/error.h"
#include "study/records/run_directory.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;  ///< schema version: raise it when columns change
constexpr const char* kTable = R"(
  CREATE TABLE runs(
    name TEXT PRIMARY KEY, stamp TEXT NOT NULL, key TEXT NOT NULL, binary TEXT, data TEXT,
    session TEXT, overrides TEXT, repeat INTEGER, seed INTEGER, begun REAL, ended REAL,
    finished INTEGER NOT NULL, load_s_per_step REAL, update_s_per_step REAL, load_s REAL,
    update_s REAL, wall_s REAL, images_per_s REAL, top1 REAL, threads REAL, steal REAL,
    others REAL, load_average REAL, mhz_begin REAL, mhz_end REAL) WITHOUT ROWID;
  CREATE INDEX runs_by_key ON runs(key);)";
constexpr const char* kInsert =
    "INSERT OR REPLACE INTO runs VALUES"
    "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
constexpr double Noise::*kNoise[] = {&Noise::steal, &Noise::others, &Noise::load_average,
                                     &Noise::mhz_begin, &Noise::mhz_end};

/// A fault of the index file found by SQLite; the index is then rebuilt.
struct Failure : RunError {
  explicit Failure(const std::string& what)
      : RunError("index.sqlite: " + what, "remove it: it will be rebuilt from the runs") {}
};

void check(sqlite3* database, int code) {
  if (code != SQLITE_OK && code != SQLITE_ROW && code != SQLITE_DONE)
    throw Failure(sqlite3_errmsg(database));
}

void execute(sqlite3* database, const char* sql) {
  check(database, sqlite3_exec(database, sql, nullptr, nullptr, nullptr));
}

class Statement {
 public:
  Statement(sqlite3* database, const char* sql) : database_(database) {
    check(database, sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr));
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& operator<<(const std::string& text) {
    check(database_, sqlite3_bind_text(statement_, ++bound_, text.data(),
                                       static_cast<int>(text.size()), SQLITE_TRANSIENT));
    return *this;
  }
  Statement& operator<<(double value) {  // NaN becomes NULL
    check(database_, sqlite3_bind_double(statement_, ++bound_, value));
    return *this;
  }
  Statement& operator<<(std::uint64_t value) {
    check(database_, sqlite3_bind_int64(statement_, ++bound_, static_cast<sqlite3_int64>(value)));
    return *this;
  }
  bool next() {
    const int code = sqlite3_step(statement_);
    check(database_, code);
    column_ = 0;
    return code == SQLITE_ROW;
  }
  std::string text() {
    const auto* bytes = sqlite3_column_text(statement_, column_++);
    return bytes == nullptr ? "" : reinterpret_cast<const char*>(bytes);
  }
  double number() {
    const int column = column_++;
    return sqlite3_column_type(statement_, column) == SQLITE_NULL
               ? std::numeric_limits<double>::quiet_NaN()
               : sqlite3_column_double(statement_, column);
  }
  std::uint64_t integer() {
    return static_cast<std::uint64_t>(sqlite3_column_int64(statement_, column_++));
  }

 private:
  sqlite3* database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
  int column_ = 0;
};

/// Returns a stamp that changes when the file does.
std::string stamp_of(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error) return "-";
  return fmt::format("{}@{}", size, fs::last_write_time(file, error).time_since_epoch().count());
}

std::vector<std::string> names_in(const fs::path& runs) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(runs, error))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  return names;
}

}  // namespace

void SweepIndex::Close::operator()(sqlite3* database) const { sqlite3_close(database); }

SweepIndex::SweepIndex(fs::path sweep) : sweep_(std::move(sweep)) {
  const fs::path file = sweep_ / "index.sqlite";
  for (int attempt = 0;; ++attempt) {
    try {
      rebuilt_ = open();
      refresh();
      return;
    } catch (const Failure& failure) {
      database_.reset();
      if (attempt > 0)
        throw RunError(fmt::format("{}: {}", file.parent_path().string(), failure.what()),
                       "free some space, or choose another place: --run DIR");
      std::error_code error;
      fs::remove(file, error);
      for (const char* part : {"-journal", "-wal", "-shm"}) fs::remove(file.string() + part, error);
    }
  }
}

bool SweepIndex::open() {
  sqlite3* database = nullptr;
  const int code = sqlite3_open((sweep_ / "index.sqlite").c_str(), &database);
  database_.reset(database);
  check(database, code);
  sqlite3_busy_timeout(database, 5000);  // another process may be reading
  // The index can be rebuilt, so writes need not reach the disk.
  execute(database, "PRAGMA synchronous=OFF");
  Statement version(database, "PRAGMA user_version");
  version.next();
  if (version.integer() == kVersion) {
    Statement sound(database, "PRAGMA quick_check(1)");
    if (!sound.next() || sound.text() != "ok") throw Failure("damaged");
    return false;
  }
  execute(database, "BEGIN; DROP TABLE IF EXISTS runs");
  execute(database, kTable);
  execute(database, fmt::format("PRAGMA user_version={}; COMMIT", kVersion).c_str());
  return true;
}

void SweepIndex::refresh() {
  sqlite3* const database = database_.get();
  std::map<std::string, std::string> known;
  {
    Statement all(database, "SELECT name, stamp FROM runs");
    while (all.next()) {
      std::string name = all.text();
      known[std::move(name)] = all.text();
    }
  }
  execute(database, "BEGIN");
  for (const std::string& name : names_in(sweep_ / "runs")) {
    const fs::path runs = sweep_ / "runs";
    const std::string stamp =
        stamp_of(runs / (name + ".json")) + " " + stamp_of(runs / name / "summary.json");
    const auto before = known.find(name);
    const bool same = before != known.end() && before->second == stamp;
    if (before != known.end()) known.erase(before);
    if (!same) store(read_record(runs, name), stamp);
  }
  for (const auto& [name, stamp] : known) {
    Statement gone(database, "DELETE FROM runs WHERE name=?");
    (gone << name).next();
  }
  execute(database, "COMMIT");
}

void SweepIndex::store(const SweepRecord& r, const std::string& stamp) {
  Statement row(database_.get(), kInsert);
  row << r.name << stamp << r.key << r.binary << r.data << r.session
      << to_text(nlohmann::ordered_json(r.overrides)) << r.repeat << r.seed << r.begun << r.ended
      << std::uint64_t{r.finished};
  for (const FigureName& one : kFigures) row << r.figures.*one.figure;
  for (const auto part : kNoise) row << r.noise.*part;
  row.next();
}

std::optional<SweepRecord> SweepIndex::find(const std::string& key) const {
  Statement row(database_.get(),
                "SELECT * FROM runs WHERE key=? AND finished=1 ORDER BY name LIMIT 1");
  if (!(row << key).next()) return {};
  SweepRecord r;
  r.name = row.text();
  row.text();  // the stamp
  r.key = row.text();
  r.binary = row.text();
  r.data = row.text();
  r.session = row.text();
  r.overrides = nlohmann::ordered_json::parse(row.text()).get<std::vector<std::string>>();
  r.repeat = row.integer();
  r.seed = row.integer();
  r.begun = row.number();
  r.ended = row.number();
  r.finished = row.integer() != 0;
  for (const FigureName& one : kFigures) r.figures.*one.figure = row.number();
  for (const auto part : kNoise) r.noise.*part = row.number();
  return r;
}

std::uint64_t SweepIndex::largest_number() const {
  Statement row(database_.get(), "SELECT max(CAST(name AS INTEGER)) FROM runs");
  row.next();
  return row.integer();
}

std::uint64_t SweepIndex::finished() const {
  Statement row(database_.get(), "SELECT count(*) FROM runs WHERE finished=1");
  row.next();
  return row.integer();
}

std::vector<std::string> SweepIndex::unfinished() const {
  Statement row(database_.get(), "SELECT name FROM runs WHERE finished=0 ORDER BY name");
  std::vector<std::string> names;
  while (row.next()) names.push_back(row.text());
  return names;
}

}  // namespace millrace::study
