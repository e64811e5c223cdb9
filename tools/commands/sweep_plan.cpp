// Plans, claims, runs and collects the blocks of a sweep.
#include "tools/commands/sweep_plan.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/record_file.h"
#include "millrace/error.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"
#include "study/records/signature.h"
#include "tools/terminal/terminal.h"
#include "tools/version.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using EntryKind = study::BlockEntry::Kind;
using study::Pulse;

constexpr int kFormat = 1;  ///< of plan.json and of the blocks' folders: raise it when they change
constexpr const char* kPlanFile = "plan.json";

/// Returns the start of a program's hash, for messages.
std::string short_hash(const std::string& binary) { return binary.substr(0, 8); }

/// Throws UsageError if the block is being run. Returns the number of the entry to claim it with.
int free_entry(const SweepPlan& plan, std::uint64_t block, const study::BlockEntry& last,
               std::chrono::milliseconds patience) {
  if (last.kind != EntryKind::claim) return last.number + 1;
  const auto [pulse, waited] = plan.log(block).watch(last, patience, [] { return !interrupted(); });
  if (interrupted())
    throw Error(Exit::interrupted, fmt::format("interrupted before block {} was claimed", block));
  if (pulse == Pulse::beating)
    throw BlockTaken(fmt::format("block {} of {} is being run by {}", block, plan.path.string(),
                                 last.owner.text()),
                     "every block is run once: millrace sweep --status " +
                         shell_word(plan.path.string()) + " shows the others");
  if (pulse == Pulse::left) return last.number + 1;
  say(fmt::format("block {}: {} {}; taking it over", block, last.owner.text(),
                  pulse == Pulse::gone
                      ? "has ended without a result"
                      : fmt::format("has shown no heartbeat for {:g} s",
                                    std::chrono::duration<double>(waited).count())));
  return last.number + 1;
}

/// Returns what a published entry says about a block's runs.
Json result_of(const SweepRunner& runner, std::uint64_t block) {
  const std::uint64_t repeat = block - 1;
  Json runs = Json::array();
  for (const auto& cell : runner.records({&repeat, 1}))
    for (const study::SweepRecord& record : cell) runs.push_back(record.name);
  Json refusals = Json::array();
  for (std::size_t cell = 0; cell < runner.refusals().size(); ++cell)
    if (!runner.refusals()[cell].empty())
      refusals.push_back({{"cell", cell}, {"reason", runner.refusals()[cell]}});
  return {{"runs", std::move(runs)}, {"refusals", std::move(refusals)}};
}

/// Reports why an attempt has no result; the error itself is what the caller reports.
void give_up(study::BlockClaim& claim, const std::string& reason) {
  try {
    claim.give_up(reason);
  } catch (const std::exception& error) {
    say(error.what());
  }
}

RunError overtaken(const SweepPlan& plan, std::uint64_t block, const study::BlockClaim& claim) {
  const auto entries = plan.log(block).entries();
  const auto next = static_cast<std::size_t>(claim.number());
  return RunError(
      fmt::format(
          "block {} was taken over by {}: the runs of this process do not count", block,
          next < entries.size() ? entries[next].owner.text() : std::string("another process")),
      "it had shown no heartbeat for too long; --patience sets how long others wait");
}

/// Returns the host that has run the block whose claim or result this is.
std::string host_of(const study::BlockEntry& entry) {
  const std::string other = study::text_at(entry.all, {"host"});
  return other.empty() ? entry.owner.host : other;
}

/// Returns the latest attempt whose complete runs were neither published nor taken over. Later
/// attempts may have failed to take them.
std::optional<study::BlockEntry> complete_attempt(const study::BlockLog& log) {
  auto entries = log.entries();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    std::error_code error;
    if (entry->kind == EntryKind::claim && log.has_left(*entry) &&
        fs::is_directory(log.attempt(entry->attempt) / "runs", error))
      return std::move(*entry);
  }
  return {};
}

/// Takes the complete runs of an attempt that could not be published.
void adopt(const SweepPlan& plan, std::uint64_t block, const study::BlockEntry& complete,
           const study::BlockClaim& claim) {
  const fs::path from = plan.log(block).attempt(complete.attempt) / "runs";
  std::error_code error;
  fs::rename(from, claim.folder() / "runs", error);  // which is empty
  if (error)
    throw RunError(
        fmt::format("{} cannot be moved to {}: {}", from.string(), claim.folder().string(),
                    error.message()),
        "check the folders and their write permissions; then --block publishes the runs");
  say(fmt::format("block {}: publishing the runs that {} has completed", block,
                  complete.owner.text()));
}

/// Leaves complete runs that cannot be published to the next claimant. Returns the error to report.
RunError unpublished(const SweepPlan& plan, std::uint64_t block, study::BlockClaim& claim,
                     const std::string& reason) {
  const bool left = claim.leave();
  if (!left) give_up(claim, reason);
  return RunError(fmt::format("block {} is complete, but not published: {}", block, reason),
                  fmt::format("fix that (is the disk full?), then {}: millrace sweep {} --block {}",
                              left ? "publish its runs without repeating them" : "run it again",
                              shell_word(plan.path.string()), block));
}

/// Publishes a block whose runs are complete. Throws RunError if it was taken over, or if the
/// result cannot be written; the next claimant then publishes the runs.
void publish(const SweepPlan& plan, std::uint64_t block, const Json& result,
             study::BlockClaim& claim) {
  try {
    if (claim.publish(result)) return;
  } catch (const std::exception& error) {
    if (claim.is_overtaken()) throw overtaken(plan, block, claim);
    throw unpublished(plan, block, claim, error.what());
  }
  throw overtaken(plan, block, claim);
}

/// Moves one run to the sweep's own runs, where it replaces an earlier one of the same block. An
/// interrupted call may have moved some of its parts.
void move_run(const fs::path& from, const fs::path& to, const std::string& name) {
  // The record comes last: the index takes notice of a run by its record.
  for (const char* part : {"", ".log", ".json"}) {
    const fs::path source = from / (name + part);
    std::error_code error;
    if (!fs::exists(source, error)) continue;
    fs::remove_all(to / (name + part), error);
    if (!error) fs::rename(source, to / (name + part), error);
    if (error)
      throw RunError(fmt::format("{} cannot be moved to {}: {}", source.string(), to.string(),
                                 error.message()),
                     "check the folders and their write permissions");
  }
  if (!fs::exists(to / (name + ".json")))
    throw DataError(fmt::format("run {} is missing, though its block is published", name),
                    fmt::format("remove {} to have the block run again",
                                from.parent_path().parent_path().string()));
}

}  // namespace

study::BlockLog SweepPlan::log(std::uint64_t block) const {
  return study::BlockLog(path / "blocks" / fmt::format("{:04}", block));
}

std::uint64_t SweepPlan::number_of(const std::string& text) const {
  std::uint64_t block = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), block);
  if (error != std::errc() || end != text.data() + text.size() || block == 0 || block > size())
    throw UsageError(
        fmt::format("--block {}: {} has the blocks 1 to {}", text, path.string(), size()),
        fmt::format("millrace sweep {} --plan --repeats N plans more of them",
                    shell_word(path.string())));
  return block;
}

bool is_planned(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path / kPlanFile, error);
}

SweepPlan read_plan(const fs::path& path) {
  const fs::path file = path / kPlanFile;
  if (!is_planned(path))
    throw UsageError(fmt::format("{} is not the directory of a planned sweep", path.string()),
                     "make one: millrace sweep RECIPE key=a,b,c --repeats N --plan --run DIR");
  const std::string text = base::read_record(file);
  const Json json = study::parse_json(text);
  SweepPlan plan;
  try {
    const int format = json.at("format");
    if (format != kFormat)
      throw UsageError(
          fmt::format("{} was planned by another version of millrace ({}, format {}; "
                      "this one reads format {})",
                      path.string(), study::text_at(json, {"version"}), format, kFormat),
          "use that version for this directory, or plan the sweep again with --run DIR");
    plan = {.path = fs::absolute(path).lexically_normal(),
            .blocks = json.at("blocks"),
            .version = json.at("version"),
            .binary = json.at("binary"),
            .folder = json.at("folder"),
            .note = json.at("note"),
            .is_ours = study::is_signed(path, kPlanFile, text)};
  } catch (const nlohmann::json::exception&) {
    throw DataError(fmt::format("{} is damaged", file.string()),
                    "plan the sweep again in another directory");
  }
  if (!plan.path.has_filename()) plan.path = plan.path.parent_path();
  return plan;
}

SweepPlan write_plan(const fs::path& path, SweepIdentities& identities, std::uint64_t blocks,
                     const std::string& note) {
  identities.plan(blocks);
  SweepPlan plan{.path = fs::absolute(path).lexically_normal(),
                 .blocks = {},
                 .version = fmt::format("{} ({})", kVersion, kGit),
                 .binary = SweepKeys().binary(),
                 .folder = fs::current_path().string(),
                 .note = note,
                 .is_ours = true};
  for (std::uint64_t block = 0; block < blocks; ++block)
    plan.blocks.push_back(identities.block(block));
  if (is_planned(path)) {
    const SweepPlan old = read_plan(path);
    if (old.is_ours) plan.folder = old.folder;
    if (old.size() > blocks ||
        !std::equal(old.blocks.begin(), old.blocks.end(), plan.blocks.begin()))
      throw UsageError(fmt::format("{} has another plan of {} blocks", path.string(), old.size()),
                       "a plan can only get more blocks; choose another directory: --run DIR");
  }
  fs::create_directories(path / "blocks");
  const Json json{{"format", kFormat},     {"version", plan.version}, {"binary", plan.binary},
                  {"folder", plan.folder}, {"note", plan.note},       {"blocks", plan.blocks}};
  study::write_signed(path, kPlanFile, study::to_text(json, 2) + "\n");
  return plan;
}

void require_same_program(const SweepPlan& plan) {
  const std::string binary = SweepKeys().binary();
  if (binary == plan.binary) return;
  throw UsageError(fmt::format("{} was planned with millrace {} (program {}), this is {} ({}), "
                               "program {}: mixed versions are refused",
                               plan.path.string(), plan.version, short_hash(plan.binary), kVersion,
                               kGit, short_hash(binary)),
                   "use the program that made the plan on every host, or plan the sweep again");
}

void require_planned(const SweepPlan& plan, SweepIdentities& identities, std::uint64_t block) {
  identities.plan(block);
  if (identities.block(block - 1) != plan.blocks[block - 1])
    throw UsageError(
        fmt::format("block {} of {} is no longer what was planned: a recipe or a data set differs",
                    block, plan.path.string()),
        "every host needs the same files; plan the sweep again if they have changed");
}

void run_block(const SweepPlan& plan, const Question& question, SweepIdentities& identities,
               std::uint64_t block, std::chrono::milliseconds patience) {
  const study::BlockLog log = plan.log(block);
  const auto is_done = [&](const std::optional<study::BlockEntry>& last) {
    if (!last || last->kind != EntryKind::result) return false;
    say(fmt::format("block {} is done: by {}", block, last->owner.text()));
    return true;
  };
  if (is_done(log.last())) return;
  require_planned(plan, identities, block);  // which may take long
  const auto last = log.last();
  if (is_done(last)) return;
  const int entry = last ? free_entry(plan, block, *last, patience) : 1;
  Json about{{"block", block}, {"version", plan.version}, {"binary", plan.binary}};
  const auto complete = complete_attempt(log);
  if (complete) about["host"] = host_of(*complete);
  auto claim = study::BlockClaim::take(log, entry, std::move(about));
  if (!claim) {
    const auto now = log.last();
    throw BlockTaken(fmt::format("block {} of {} has just been claimed by {}", block,
                                 plan.path.string(), now ? now->owner.text() : "another process"),
                     "every block is run once");
  }
  say(fmt::format("block {} of {}: attempt {} in {}", block, plan.size(), claim->number(),
                  claim->folder().string()));
  const auto heartbeat = [&] {
    if (claim->beat() && claim->is_overtaken()) interrupted() = true;  // ends the current run
  };
  Json result;
  bool is_complete = false;
  try {
    if (complete) adopt(plan, block, *complete, *claim);
    is_complete = complete.has_value();
    SweepRunner runner(claim->folder(), question, identities,
                       BlockAttempt{(block - 1) * question.recipes.size() + 1, heartbeat});
    runner.run(block, block - 1);
    is_complete = true;
    result = result_of(runner, block);
  } catch (const std::exception& error) {
    if (claim->is_overtaken()) throw overtaken(plan, block, *claim);
    if (is_complete && !interrupted()) throw unpublished(plan, block, *claim, error.what());
    if (!is_complete || !claim->leave())
      give_up(*claim, interrupted() ? "interrupted" : error.what());
    if (interrupted())
      throw Error(Exit::interrupted, fmt::format("interrupted in block {}", block),
                  fmt::format("run it again: millrace sweep {} --block {}",
                              shell_word(plan.path.string()), block));
    throw;
  }
  publish(plan, block, result, *claim);
  say(fmt::format("block {} is done", block));
}

CollectedBlocks collect_blocks(const SweepPlan& plan) {
  std::vector<std::pair<std::uint64_t, study::BlockEntry>> done;
  for (std::uint64_t block = 1; block <= plan.size(); ++block) {
    const auto last = plan.log(block).last();
    if (!last || last->kind != EntryKind::result) continue;
    const std::string binary = study::text_at(last->all, {"binary"});
    if (binary != plan.binary)
      throw UsageError(
          fmt::format("block {} of {} was run by program {} on host {}, and planned for {}: mixed "
                      "versions are refused",
                      block, plan.path.string(), short_hash(binary), last->owner.host,
                      short_hash(plan.binary)),
          fmt::format("remove {} to have it run again", plan.log(block).folder().string()));
    done.emplace_back(block, *last);
  }
  CollectedBlocks blocks{{}, {}, Json::array()};
  const fs::path to = plan.path / "runs";
  fs::create_directories(to);
  for (const auto& [block, entry] : done) {
    const study::BlockLog log = plan.log(block);
    try {
      for (const std::string name : entry.all.at("runs")) {
        if (!base::is_file_name(name))
          throw DataError(
              fmt::format("the result of block {} is damaged: {} is not a run", block, name),
              fmt::format("remove {} to have it run again", log.folder().string()));
        move_run(log.attempt(entry.attempt) / "runs", to, name);
      }
      for (const Json& one : entry.all.at("refusals"))
        blocks.refusals.emplace_back(one.at("cell"), one.at("reason"));
    } catch (const nlohmann::json::exception&) {
      throw DataError(fmt::format("the result of block {} is damaged", block),
                      fmt::format("remove {} to have it run again", log.folder().string()));
    }
    blocks.repeats.push_back(block - 1);
    blocks.where.push_back({{"block", block},
                            {"host", host_of(entry)},
                            {"attempt", entry.attempt},
                            {"version", study::text_at(entry.all, {"version"})}});
  }
  return blocks;
}

}  // namespace millrace::tools
