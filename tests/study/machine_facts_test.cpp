// The machine's facts in summaries and reports.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "study/analysis/machine.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

class MachineFactsTest : public testing::Test {
 protected:
  MachineFactsTest() {
    std::string pattern = (fs::temp_directory_path() / "millrace-machine-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~MachineFactsTest() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

  fs::path root_;
};

TEST_F(MachineFactsTest, AreReadFromProc) {
  write("proc/cpuinfo",
        "processor\t: 0\nmodel name\t: AMD EPYC 9555 64-Core Processor  \nprocessor\t: 1\n");
  write("proc/meminfo", "MemTotal:        8047988 kB\nMemFree:          100000 kB\n");
  write("proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: \t\t NVIDIA L4\nIRQ: 1\n");
  write("proc/driver/nvidia/gpus/0000:1b:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 0\n");
  const MachineFacts facts = machine_facts(root_.string());
  EXPECT_EQ(facts.cpu, "AMD EPYC 9555 64-Core Processor");
  EXPECT_EQ(facts.memory_bytes, 8047988ull * 1024);
  EXPECT_EQ(facts.gpus, (std::vector<std::string>{"NVIDIA H200", "NVIDIA L4"})) << "by bus id";
}

TEST_F(MachineFactsTest, AreEmptyWhereProcSaysNothing) {
  write("proc/cpuinfo", "processor\t: 0\nCPU architecture: 8\n");
  const MachineFacts facts = machine_facts(root_.string());
  EXPECT_EQ(facts.cpu, "");
  EXPECT_EQ(facts.memory_bytes, 0u);
  EXPECT_TRUE(facts.gpus.empty());
}

TEST(MachineLine, SaysWhatTheSummaryHas) {
  using Json = nlohmann::ordered_json;
  Json summary{{"cpu", "Xeon"}, {"cores", 2}, {"memory_bytes", 8.3e9}};
  EXPECT_EQ(machine_line(summary_from(summary)), "Xeon, 2 cores, 8.3 GB memory");
  summary["gpus"] = {"NVIDIA H200", "NVIDIA H200", "NVIDIA L4"};
  EXPECT_EQ(machine_line(summary_from(summary)),
            "Xeon, 2 cores, 8.3 GB memory, 2 x NVIDIA H200, NVIDIA L4");
  EXPECT_EQ(machine_line(summary_from(Json{{"cpu", nullptr}, {"cores", 1}})), "1 core");
  EXPECT_EQ(machine_line({}), "");
}

}  // namespace
}  // namespace millrace::study
