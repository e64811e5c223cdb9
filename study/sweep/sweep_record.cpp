// Reads and writes the records of single runs, and the index over them.

#include "study/sweep/sweep_record.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/record_file.h"
#include "millrace/error.h"
#include "predict/interval.h"
#include "study/analysis/statistics.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"
#include "study/records/summary.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json parse(const fs::path& file) { return parse_json(base::read_record(file)); }

/// Runs that ended by a signal or an error leave a summary too.
bool is_finished(const Summary& summary) {
  return summary.wall_s && !summary.error && summary.interrupted != true;
}

/// Returns a figure that is computed from several numbers of the summary; nothing for other names.
std::optional<double> derived_figure(const Summary& summary, const SweepRecord& record,
                                     const std::string& name) {
  double memory = 0, utilization = 0;  // of all ranks
  for (const RankRecord& rank : summary.ranks) {
    memory += to_number(rank.peak_rss_bytes);
    utilization += to_number(rank.gpu_utilization) / static_cast<double>(summary.ranks.size());
  }
  if (name == "epoch_s")
    return to_number(summary.dataset.samples) / to_number(summary.images_per_s);
  if (name == "host_bytes") return memory > 0 ? memory : to_number(summary.peak_rss_bytes);
  if (name == "gpu_utilization" && !summary.ranks.empty() && std::isfinite(utilization))
    return utilization;
  if (name == "cpu_utilization")
    return record.cpu_s / ((record.ended - record.begun) *
                           (record.command ? record.command->cores : to_number(summary.cores)));
  if (name == "peak_device_bytes" && summary.peak_device_bytes == 0) return predict::kNaN;
  return {};
}

Json to_json(const CommandFigures& figures) {
  Json json{{"wall_s", figures.wall_s}, {"cores", figures.cores}, {"metrics", Json::object()}};
  for (const auto& [name, value] : figures.metrics) json["metrics"][name] = value;
  return json;
}

std::optional<CommandFigures> command_figures(const Json& record) {
  const auto found = record.find("result");
  if (found == record.end()) return {};
  return CommandFigures{found->at("wall_s"), found->at("cores"),
                        found->at("metrics").get<std::map<std::string, double>>()};
}

/// Returns the summary that a run wrote. For a command, the sweep's own measurements replace what
/// it says of the same names; it may have written none.
Json summary_of(const fs::path& runs, const std::string& name,
                const std::optional<CommandFigures>& command) {
  if (!command) return parse(runs / name / "summary.json");
  Json summary = parse(command_folder(runs, name) / "summary.json");
  if (!is_complete(summary_from(summary))) summary = Json::object();
  summary["wall_s"] = command->wall_s;
  summary["cores"] = command->cores;
  return summary;
}

}  // namespace

fs::path command_folder(const fs::path& runs, const std::string& name) {
  return runs / name / "run";
}

double number_at_path(const Json& json, const std::string& path) {
  if (json.is_array() || json.is_object()) {
    const bool list = json.is_array();
    for (auto dot = path.size(); dot != std::string::npos;
         dot = dot == 0 ? std::string::npos : path.rfind('.', dot - 1)) {
      const std::string key = path.substr(0, dot);
      const Json* at = nullptr;
      if (!list && json.contains(key)) at = &json[key];
      if (list && !key.empty() && key.size() < 7 &&
          key.find_first_not_of("0123456789") == std::string::npos && std::stoul(key) < json.size())
        at = &json[std::stoul(key)];
      if (at == nullptr) continue;
      const double value = dot == path.size()
                               ? (at->is_number() ? at->get<double>() : predict::kNaN)
                               : number_at_path(*at, path.substr(dot + 1));
      if (std::isfinite(value)) return value;
    }
  }
  return predict::kNaN;
}

double SweepRecord::figure(const std::string& wanted) const {
  for (const FigureName& one : kFigures)
    if (wanted == one.name) return figures.*one.figure;
  const auto found = more.find(wanted);
  return found == more.end() ? predict::kNaN : found->second;
}

std::string RunIdentity::key() const {
  const std::string text =
      fmt::format("{}\nbinary {}\ndata {}\nseed {}\ncopy {}\n", config, binary, data, seed, copy);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void write_record(const fs::path& runs, const SweepRecord& record) {
  Json json{{"key", record.key},
            {"binary", record.binary},
            {"data", record.data},
            {"session", record.session},
            {"overrides", record.overrides},
            {"repeat", record.repeat},
            {"seed", record.seed},
            {"begun", record.begun},
            {"ended", record.ended},
            {"noise", to_json(record.noise)},
            {"cpu_s", std::isfinite(record.cpu_s) ? Json(record.cpu_s) : Json(nullptr)}};
  if (record.command) json["result"] = to_json(*record.command);
  write_file(runs / (record.name + ".json"), to_text(json, 2) + "\n");
}

SweepRecord read_record(const fs::path& runs, const std::string& name) {
  const fs::path file = runs / (name + ".json");
  const Json json = parse(file);
  SweepRecord record;
  try {
    record = {.name = name,
              .key = json.at("key"),
              .binary = json.at("binary"),
              .data = json.at("data"),
              .session = json.at("session"),
              .overrides = json.at("overrides"),
              .repeat = json.at("repeat"),
              .seed = json.at("seed"),
              .begun = json.at("begun"),
              .ended = number_at(json, {"ended"}),
              .noise = noise_from(json.value("noise", Json())),
              .finished = false,
              .figures = {},
              .cpu_s = number_at(json, {"cpu_s"}),
              .more = {},
              .settings = {},
              .command = command_figures(json)};
  } catch (const nlohmann::json::exception&) {
    throw DataError(fmt::format("{} is damaged", file.string()),
                    "remove it and the run's folder beside it");
  }
  const Json summary = summary_of(runs, name, record.command);
  record.finished = record.command || is_finished(summary_from(summary));
  if (record.finished)
    for (const FigureName& one : kFigures)
      record.figures.*one.figure = number_at(summary, {one.name});
  return record;
}

void add_figures(const fs::path& runs, SweepRecord& record, std::span<const std::string> names) {
  const Json own = parse(runs / (record.name + ".json"));
  if (own.is_object()) record.command = command_figures(own);
  const Json summary = summary_of(runs, record.name, record.command);
  if (!summary.is_object()) return;
  record.cpu_s = number_at(own, {"cpu_s"});
  if (!record.command) record.settings = settings_in(summary);
  const Summary of = summary_from(summary);
  std::vector<std::string> wanted(std::begin(kMoreFigures), std::end(kMoreFigures));
  wanted.insert(wanted.end(), names.begin(), names.end());
  for (const std::string& name : wanted) {
    const std::optional<double> derived = derived_figure(of, record, name);
    record.more[name] = derived ? *derived : number_at_path(summary, name);
  }
  if (record.command)
    for (const auto& [name, value] : record.command->metrics) record.more[name] = value;
}

// SQLite statements of the index.

namespace {

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

void check(sqlite3* database, int code) {
  if (code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE) return;
  const char* const file = database == nullptr ? nullptr : sqlite3_db_filename(database, "main");
  throw RunError(fmt::format("{}: {}", file == nullptr || *file == 0 ? "the sweep's index" : file,
                             sqlite3_errmsg(database)),
                 "free some space, or choose another place: --run DIR");
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
    if (const std::string name = entry.path().stem().string();
        entry.path().extension() == ".json" && base::is_file_name(name))
      names.push_back(name);
  return names;
}

}  // namespace

void SweepIndex::Close::operator()(sqlite3* database) const { sqlite3_close(database); }

SweepIndex::SweepIndex(fs::path sweep, bool file) : sweep_(std::move(sweep)) {
  const std::string path = file ? (sweep_ / "index.sqlite").string() : ":memory:";
  if (file)
    for (const char* part : {"-journal", "-wal", "-shm", ""}) {
      std::error_code ignored;  // SQLite says what cannot be replaced
      fs::remove(path + part, ignored);
    }
  sqlite3* database = nullptr;
  const int code = sqlite3_open(path.c_str(), &database);
  database_.reset(database);
  check(database, code);
  sqlite3_busy_timeout(database, 5000);  // another process may be reading
  // The index can be made again, so writes need not reach the disk.
  execute(database, "PRAGMA synchronous=OFF");
  execute(database, kTable);
  refresh();
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
