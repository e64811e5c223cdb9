// train.tensorboard: the run's curves as event files, also after resumption.
#include <cstring>
#include <stdexcept>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

struct Event {
  std::uint64_t step = 0;
  bool start = false;  ///< start of a session
  std::map<std::string, double> scalars;
};

/// Parses protobuf messages, limited to the fields of scalar Events.
class Wire {
 public:
  explicit Wire(std::string bytes) : bytes_(std::move(bytes)) {}
  bool more() const { return at_ < bytes_.size(); }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.at(at_++));
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string take(std::size_t size) {
    if (at_ + size > bytes_.size()) throw std::runtime_error("a message is cut short");
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

std::pair<std::string, double> scalar_in(const std::string& bytes) {
  Wire value(bytes);
  std::pair<std::string, double> scalar;
  while (value.more()) {
    if (value.varint() == (1 << 3 | 2)) {
      scalar.first = value.take(value.varint());
    } else {
      float number = 0;
      std::memcpy(&number, value.take(sizeof number).data(), sizeof number);
      scalar.second = static_cast<double>(number);
    }
  }
  return scalar;
}

Event event_in(const std::string& bytes) {
  Wire event(bytes);
  Event found;
  while (event.more()) {
    const std::uint64_t key = event.varint();
    if ((key & 7) == 1) {
      event.take(8);  // wall time
    } else if (key == (2 << 3 | 0)) {
      found.step = event.varint();
    } else {
      Wire inner(event.take(event.varint()));
      found.start |= key == (7 << 3 | 2);
      while (key == (5 << 3 | 2) && inner.more()) {
        inner.varint();
        found.scalars.insert(scalar_in(inner.take(inner.varint())));
      }
    }
  }
  return found;
}

class TensorBoard : public ProgramTest {
 protected:
  std::vector<fs::path> files(const std::string& run) const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(in(run)))
      if (entry.path().filename().string().starts_with("events.out.tfevents."))
        found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
  }
  /// Returns all events except the one that begins each file.
  std::vector<Event> events(const std::string& run) const {
    std::vector<Event> found;
    for (const fs::path& file : files(run)) {
      const std::string bytes = read_file(file);
      for (std::size_t at = 0; at < bytes.size();) {
        std::uint64_t length = 0;
        std::memcpy(&length, bytes.substr(at, sizeof length).data(), sizeof length);
        const std::string event = bytes.substr(at + 12, length);
        if (at > 0)
          found.push_back(event_in(event));
        else
          EXPECT_NE(event.find("brain.Event:2"), std::string::npos);
        at += 16 + length;
      }
    }
    return found;
  }
  /// Returns step -> value as TensorBoard shows them: a session's start discards later steps that
  /// it writes again.
  std::map<std::uint64_t, double> curve(const std::string& run, const std::string& tag) const {
    std::map<std::uint64_t, double> points;
    for (const Event& event : events(run)) {
      if (event.start) points.erase(points.lower_bound(event.step), points.end());
      if (event.scalars.contains(tag)) points[event.step] = event.scalars.at(tag);
    }
    return points;
  }
};

TEST_F(TensorBoard, IsWrittenOnlyWhenAskedFor) {
  ASSERT_TRUE(succeeded(run(simulated("without"))));
  EXPECT_TRUE(files("without").empty());
  ASSERT_TRUE(succeeded(run(simulated("with", {"train.tensorboard=true", "train.epochs=2"}))));
  ASSERT_EQ(files("with").size(), 1u);
  const auto epochs = parse_json_lines(read_file(in("with") / "metrics.jsonl"));
  ASSERT_EQ(epochs.size(), 2u);
  for (const char* key : {"load_s", "update_s", "other_s", "images_per_s"}) {
    const auto points = curve("with", std::string("time/") + key);
    ASSERT_EQ(points.size(), 2u) << key;
    EXPECT_FLOAT_EQ(points.at(10), epochs[0][key].get<float>()) << key;
    EXPECT_FLOAT_EQ(points.at(20), epochs[1][key].get<float>()) << key;
  }
  for (const auto& [part, seconds] : epochs[1]["blame"].items())
    EXPECT_FLOAT_EQ(curve("with", "blame/" + part + "_s").at(20), seconds.get<float>()) << part;
  EXPECT_TRUE(curve("with", "train/loss").empty()) << "there is no model";
}

TEST_F(TensorBoard, HasLossesAndAccuracy) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(run(training(
      "run", {"train.tensorboard=true", "train.epochs=2", "loader.batch=30", "eval.every=1"}))));
  const auto epochs = parse_json_lines(read_file(in("run") / "metrics.jsonl"));
  const std::map<std::string, std::string> keys{
      {"train/loss", "train_loss"}, {"train/top1", "train_top1"}, {"train/lr", "lr"},
      {"test/loss", "test_loss"},   {"test/top1", "top1"},        {"test/top5", "top5"}};
  for (const auto& [tag, key] : keys) {
    const auto points = curve("run", tag);
    ASSERT_EQ(points.size(), 2u) << tag;
    EXPECT_FLOAT_EQ(points.at(7), epochs[0][key].get<float>()) << tag;
    EXPECT_FLOAT_EQ(points.at(14), epochs[1][key].get<float>()) << tag;
  }
  EXPECT_EQ(curve("run", "train/step_loss").size(), 14u);
}

TEST_F(TensorBoard, ARunThatWasTakenUpShowsEveryStepOnce) {
  MILLRACE_NEEDS_TORCH();
  const Arguments keys{"train.tensorboard=true", "train.epochs=3", "loader.batch=30",
                       "train.checkpoint_every=3", "eval.every=1"};
  ASSERT_TRUE(succeeded(run(training("whole", keys))));
  {
    Child child(training("killed", keys + Arguments{"debug.log_ms=30"}));
    ASSERT_TRUE(child.says("records in"));
    sleep_ms(500);
    child.send(SIGKILL);
    child.wait();
  }
  ASSERT_TRUE(
      succeeded(run({"train", "--resume", "--run", in("killed").string(), "debug.log_ms=0"})));
  EXPECT_EQ(files("killed").size(), 2u);
  EXPECT_EQ(curve("whole", "train/step_loss").size(), 21u);
  for (const char* tag : {"train/loss", "test/loss", "train/step_loss"}) {
    auto whole = curve("whole", tag);
    auto killed = curve("killed", tag);
    // The interrupted epoch's figures at the step before, and its loss, are discarded.
    const std::uint64_t from = summary("killed")["resumed_from_step"];
    EXPECT_GT(from, 0u);
    whole.erase(from);
    killed.erase(from);
    EXPECT_EQ(whole, killed) << tag;
  }
}

TEST_F(TensorBoard, OnlyTheFirstRankWrites) {
  MILLRACE_NEEDS_TORCH();
  const Arguments arguments = training(
      "run", {"train.tensorboard=true", "train.strategy=ddp", "loader.batch=30", "train.steps=4"});
  ASSERT_TRUE(succeeded(run(Arguments{"launch", "-n", "2", "--"} + arguments)));
  EXPECT_EQ(files("run").size(), 1u);
  EXPECT_EQ(curve("run", "train/step_loss").size(), 4u);
  EXPECT_EQ(curve("run", "train/loss").size(), 1u);
}

}  // namespace
}  // namespace millrace::program_test
