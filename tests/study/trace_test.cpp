// Exported timelines as a viewer reads them: the file parses, slices nest, steps cover the run, and
// every work unit's arrow leads to the step that took its batch.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "augment/plan/plan.h"
#include "study/records/trace_file.h"
#include "tests/pipeline/numbered.h"
#include "tests/study/explained_run.h"

namespace millrace::study {
namespace {

using Json = nlohmann::json;

struct Slice {
  std::string name;
  std::int64_t begin = 0, end = 0;  ///< in ns
  Json args;
};

struct Arrow {
  int track = 0;
  std::int64_t at = 0;
};

std::int64_t ns(const Json& us) { return std::llround(us.get<double>() * 1e3); }

/// Contents of a file in the Trace Event Format.
struct Trace {
  explicit Trace(const std::filesystem::path& file) {
    std::ifstream in(file);
    all = Json::parse(in);
    for (const Json& event : all["traceEvents"]) {
      EXPECT_TRUE(event.contains("pid"));
      const std::string phase = event["ph"];
      const int track = event.value("tid", 0);
      if (phase == "M" && event["name"] == "thread_name") tracks[event["args"]["name"]] = track;
      if (phase == "X")
        slices[track].push_back({event["name"], ns(event["ts"]), ns(event["ts"]) + ns(event["dur"]),
                                 event.value("args", Json())});
      if (phase == "b") requests += 1;
      if (phase == "s") starts[event["id"]] = {track, ns(event["ts"])};
      if (phase == "f") {
        EXPECT_EQ(event["bp"], "e");
        ends[event["id"]] = {track, ns(event["ts"])};
      }
    }
  }
  const std::vector<Slice>& on(const std::string& track) { return slices[tracks.at(track)]; }
  /// Returns the innermost slice at an arrow's moment, to which an importer binds it.
  const Slice* at(const Arrow& arrow) {
    const Slice* found = nullptr;
    for (const Slice& slice : slices[arrow.track])
      if (slice.begin <= arrow.at && arrow.at < slice.end &&
          (found == nullptr || slice.end - slice.begin <= found->end - found->begin))
        found = &slice;
    return found;
  }
  /// Returns the slice at that moment whose name starts with `name`.
  const Slice* at(const Arrow& arrow, const std::string& name) {
    for (const Slice& slice : slices[arrow.track])
      if (slice.begin <= arrow.at && arrow.at < slice.end && slice.name.starts_with(name))
        return &slice;
    return nullptr;
  }

  Json all;
  std::map<std::string, int> tracks;
  std::map<int, std::vector<Slice>> slices;
  std::map<std::uint64_t, Arrow> starts, ends;
  int requests = 0;
};

/// Checks slices in the order of the file, as an importer reads them: each begins after the
/// previous one or lies inside an open one.
void expect_nested(std::vector<Slice> slices) {
  std::stable_sort(slices.begin(), slices.end(),
                   [](const Slice& a, const Slice& b) { return a.begin < b.begin; });
  std::vector<Slice> open;
  for (const Slice& slice : slices) {
    while (!open.empty() && open.back().end <= slice.begin) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(slice.end, open.back().end) << slice.name << " sticks out of " << open.back().name;
    }
    open.push_back(slice);
  }
}

bool is_update(const std::string& span) {
  const auto found = std::find(measure::kSpanNames.begin(), measure::kSpanNames.end(), span);
  return found != measure::kSpanNames.end() &&
         measure::is_update(static_cast<measure::Span>(found - measure::kSpanNames.begin()));
}

std::shared_ptr<const augment::Plan> plan() {
  return std::make_shared<augment::Plan>(std::vector<OpSpec>{}, Source{{6, 5}, 1}, OutputOptions{},
                                         Resample::once);
}

class TraceTest : public testing::Test {
 protected:
  TraceTest() : file_(testing::TempDir() + "/trace_test_" + std::to_string(::getpid()) + ".json") {}
  ~TraceTest() override { std::filesystem::remove(file_); }

  Trace traced(LoaderOptions options, std::size_t capacity = 4096) {
    options.batch = 16;
    options.epochs = 2;
    measure::Timeline timeline(base::Clock::now(), base::Clock::steady_ns(), capacity);
    run_ =
        explained_run(std::make_shared<pipeline::Numbered>(100), plan(), options, 0.3, &timeline);
    write_trace(timeline, {"test", "device"}, file_);
    left_out_ = timeline.left_out();
    return Trace(file_);
  }

  std::filesystem::path file_;
  ExplainedRun run_;
  std::uint64_t left_out_ = 0;
};

TEST_F(TraceTest, SlicesNestAndStepsCoverTheRun) {
  for (const int workers : {0, 2}) {
    LoaderOptions options;
    options.workers = workers;
    Trace trace = traced(options);
    for (const auto& [track, slices] : trace.slices) expect_nested(slices);
    int steps = 0;
    std::int64_t covered = 0;
    std::int64_t in_spans = 0;
    for (const Slice& slice : trace.on("trainer")) {
      if (slice.name.starts_with("step ")) {
        EXPECT_EQ(slice.name, "step " + std::to_string(++steps));
        EXPECT_EQ(slice.args["epoch"], (steps - 1) / 7 + 1);
        covered += slice.end - slice.begin;
      } else if (std::count(measure::kSpanNames.begin(), measure::kSpanNames.end(), slice.name) >
                 0) {
        in_spans += slice.end - slice.begin;
      }
    }
    EXPECT_EQ(steps, 14);
    const double run = measure::SpanSeconds(run_.spans).total();
    const double setup =
        base::Clock::seconds(run_.spans[static_cast<std::size_t>(measure::Span::setup)]);
    EXPECT_NEAR(static_cast<double>(in_spans) * 1e-9, run, 1e-6) << "spans are all of the run";
    EXPECT_NEAR(static_cast<double>(covered) * 1e-9, run - setup, 0.01 * run);
    EXPECT_EQ(trace.on("device").size(), 14u);
    EXPECT_EQ(trace.all["otherData"]["left_out_records"], 0);
  }
}

TEST_F(TraceTest, ArrowsLeadFromEveryUnitToItsStep) {
  for (const int workers : {0, 2}) {
    LoaderOptions options;
    options.workers = workers;
    options.grain = workers == 0 ? 0 : 5;
    Trace trace = traced(options);
    ASSERT_EQ(trace.starts.size(), trace.ends.size());
    std::map<std::uint64_t, std::uint64_t> samples;  // by batch
    for (const auto& [id, start] : trace.starts) {
      const Slice* unit = trace.at(start, "batch ");
      const Slice* innermost = trace.at(trace.ends.at(id));
      const Slice* step = trace.at(trace.ends.at(id), "step ");
      ASSERT_TRUE(unit != nullptr && innermost != nullptr && step != nullptr) << id;
      // On a slow host that need not be the device's.
      for (const Slice& other : trace.on("trainer")) {
        if (other.begin < step->begin || other.end > step->end || !is_update(other.name)) continue;
        EXPECT_LE(other.end - other.begin, innermost->end - innermost->begin + 2)  // ns, rounded
            << "the longest span that works with the batch: " << other.name;
      }
      EXPECT_TRUE(is_update(innermost->name)) << innermost->name;
      const std::uint64_t batch = std::stoull(unit->name.substr(6));
      EXPECT_EQ(step->name, "step " + std::to_string(batch + 1));
      EXPECT_LE(unit->begin, innermost->begin)
          << "an importer takes the earlier one for the source";
      samples[batch] += unit->args["samples"].get<std::uint64_t>();
    }
    EXPECT_EQ(samples.size(), 14u);
    for (const auto& [batch, count] : samples) EXPECT_EQ(count, batch % 7 == 6 ? 4u : 16u);
  }
}

TEST_F(TraceTest, StagesLieInsideTheirUnitsWithTheirBytes) {
  LoaderOptions options;
  options.workers = 2;
  Trace trace = traced(options);
  std::uint64_t units = 0, read = 0, written = 0;
  for (const char* worker : {"train worker 0", "train worker 1"}) {
    for (const Slice& slice : trace.on(worker)) {
      units += slice.name.starts_with("batch ");
      if (slice.name == "read") read += slice.args["bytes"].get<std::uint64_t>();
      if (slice.name == "augment") written += slice.args["bytes"].get<std::uint64_t>();
    }
  }
  EXPECT_GE(units, 14u);
  EXPECT_EQ(read, 2 * 100 * pipeline::Numbered::kBytes);
  EXPECT_EQ(written, 2 * 100 * pipeline::Numbered::kBytes * sizeof(float));
}

TEST_F(TraceTest, IoThreadsAndStorageHaveTracks) {
  LoaderOptions options;
  options.workers = 1;
  options.io_threads = 2;
  options.storage = std::make_shared<pipeline::StorageModel>(pipeline::StorageOptions{1e6, 0, 0});
  Trace trace = traced(options);
  EXPECT_EQ(trace.requests, 200);
  EXPECT_TRUE(trace.tracks.contains("emulated storage"));
  std::set<std::pair<int, int>> read;
  for (const char* thread : {"train I/O thread 0", "train I/O thread 1"}) {
    expect_nested(trace.on(thread));
    for (const Slice& slice : trace.on(thread))
      read.emplace(slice.args["batch"], slice.args["place"]);
  }
  EXPECT_EQ(read.size(), 200u) << "every sample once";
}

TEST_F(TraceTest, MemoryIsBounded) {
  LoaderOptions options;
  options.workers = 1;
  options.grain = 1;
  Trace trace = traced(options, 50);
  EXPECT_GT(left_out_, 0u);
  EXPECT_EQ(trace.all["otherData"]["left_out_records"], left_out_);
  int units = 0;
  for (const Slice& slice : trace.on("train worker 0")) units += slice.name.starts_with("batch ");
  EXPECT_EQ(units, 50);
  expect_nested(trace.on("train worker 0"));
}

TEST_F(TraceTest, ALoaderAloneShowsItsCaller) {
  measure::Timeline timeline(base::Clock::now(), base::Clock::steady_ns(), 4096);
  LoaderOptions options;
  options.workers = 1;
  options.batch = 16;
  options.timeline = timeline.add_loader("bench", 1, 0);
  {
    Loader loader(std::make_shared<pipeline::Numbered>(100), plan(), options);
    while (loader.next()) {
    }
  }
  write_trace(timeline, {"test", ""}, file_);
  Trace trace(file_);
  for (const auto& [track, slices] : trace.slices) expect_nested(slices);
  EXPECT_EQ(trace.on("caller").size(), 14u) << "a wait and a batch, seven times";
  for (const auto& [id, end] : trace.ends) {
    const Slice* target = trace.at(end);
    ASSERT_NE(target, nullptr);
    EXPECT_EQ(target->name, trace.at(trace.starts.at(id), "batch ")->name);
  }
  EXPECT_FALSE(trace.ends.empty());
}

}  // namespace
}  // namespace millrace::study
