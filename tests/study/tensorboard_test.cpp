// Event files have the bytes of TensorBoard's own writer (tests/golden/make_tensorboard.py).
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "millrace/error.h"
#include "study/records/event_file.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

std::string hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

TEST(TensorBoard, ChecksumsOfTheStandard) {
  // RFC 3720, appendix B.4, and the check value in catalogues of CRCs.
  std::string up, down;
  for (int i = 0; i < 32; ++i) up += static_cast<char>(i), down += static_cast<char>(31 - i);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(up), 0x46DD794Eu);
  EXPECT_EQ(crc32c(down), 0x113FDB5Cu);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(TensorBoard, RecordsAreThoseOfItsOwnWriter) {
  std::ifstream in(MILLRACE_GOLDEN "/tensorboard.json");
  const auto golden = nlohmann::json::parse(in);
  ASSERT_GE(golden["events"].size(), 8u);
  for (const auto& one : golden["events"]) {
    const double wall_time = one["wall_time"];
    std::string event;
    if (one.contains("version")) {
      event = version_event(wall_time);
    } else if (one.contains("start")) {
      event = start_event(wall_time, one["start"]);
    } else {
      std::vector<Scalar> scalars;
      for (const auto& scalar : one["scalars"]) scalars.push_back({scalar[0], scalar[1]});
      event = scalars_event(wall_time, one["step"], scalars);
    }
    EXPECT_EQ(hex(tf_record(event)), one["record"].get<std::string>()) << one;
  }
}

class EventFileTest : public testing::Test {
 protected:
  EventFileTest()
      : folder_(fs::temp_directory_path() / ("event_file_test_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~EventFileTest() override { fs::remove_all(folder_); }

  /// Returns the events in a file, after checking each frame's length and checksums.
  static std::vector<std::string> events(const fs::path& file) {
    std::ostringstream out;
    out << std::ifstream(file, std::ios::binary).rdbuf();
    const std::string bytes = out.str();
    std::vector<std::string> found;
    for (std::size_t at = 0; at < bytes.size();) {
      std::uint64_t length = 0;
      if (at + 16 > bytes.size()) throw std::runtime_error("a record is cut short");
      std::memcpy(&length, bytes.data() + at, sizeof length);
      const std::string event = bytes.substr(at + 12, length);
      if (bytes.compare(at, 16 + length, tf_record(event)) != 0)
        throw std::runtime_error("a record is damaged");
      found.push_back(event);
      at += 16 + length;
    }
    return found;
  }
  /// Returns the bytes after the wall time, which takes a key and eight bytes.
  static std::string timeless(const std::string& event) { return event.substr(9); }

  fs::path folder_;
};

TEST_F(EventFileTest, HoldsVersionStartAndScalars) {
  const std::vector<Scalar> scalars{{"train/loss", 0.5}, {"test/top1", 0.25}};
  EventFile file(folder_, 7);
  EXPECT_EQ(events(file.path()).size(), 2u) << "TensorBoard must find a sound file at once";
  file.scalars(8, scalars);
  file.scalars(9, {});
  file.flush();
  const auto found = events(file.path());
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(timeless(found[0]), timeless(version_event(0)));
  EXPECT_EQ(timeless(found[1]), timeless(start_event(0, 7)));
  EXPECT_EQ(timeless(found[2]), timeless(scalars_event(0, 8, scalars)));
}

TEST_F(EventFileTest, AnotherProcessGetsALaterName) {
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i)  // within one second, in the same process
    names.push_back(EventFile(folder_, 1).path().filename().string());
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end())) << "TensorBoard reads them in that order";
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  std::ofstream(folder_ / "events.out.tfevents.9999999990.elsewhere.1") << "";
  EXPECT_TRUE(EventFile(folder_, 1)
                  .path()
                  .filename()
                  .string()
                  .starts_with("events.out.tfevents.9999999991."))
      << "also where the clock was set back";
}

TEST_F(EventFileTest, AFolderThatIsNotThereIsTold) {
  try {
    EventFile(folder_ / "nowhere", 1);
    FAIL() << "nothing was thrown";
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("nowhere"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos);
  }
}

}  // namespace
}  // namespace millrace::study
