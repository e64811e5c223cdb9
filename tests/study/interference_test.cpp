// Disturbances during runs: read from a /proc of the test's own, and judged.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "study/analysis/machine.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

class Machine : public testing::Test {
 protected:
  Machine() {
    std::string pattern = (fs::temp_directory_path() / "millrace-noise-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~Machine() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  MachineSample sample() const { return sample_machine(root_.string()); }

  fs::path root_;
};

/// Returns a core that this process may use.
int own_core() {
  cpu_set_t allowed;
  EXPECT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int core = 0;
  while (core + 1 < CPU_SETSIZE && !CPU_ISSET(core, &allowed)) ++core;
  return core;
}

TEST_F(Machine, IsReadFromProc) {
  write("proc/stat", fmt::format("cpu  9100 9200 9300 9000 950 910 940 925 7 0\n"
                                 "cpu{} 100 200 300 1000 50 10 40 25 7 0\n"
                                 "cpu{} 9000 9000 9000 8000 900 900 900 900 0 0\n",
                                 own_core(), CPU_SETSIZE + 1));
  write("proc/loadavg", "1.25 0.5 0.25 2/100 123\n");
  write("proc/cpuinfo", "processor : 0\ncpu MHz\t\t: 2000.5\nprocessor : 1\ncpu MHz : 2999.5\n");
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const MachineSample s = sample();
  EXPECT_DOUBLE_EQ(s.busy_s, 650 / ticks) << "of its own cores";
  EXPECT_DOUBLE_EQ(s.steal_s, 25 / ticks);
  EXPECT_DOUBLE_EQ(s.total_s, 1725 / ticks);
  EXPECT_DOUBLE_EQ(s.load_average, 1.25);
  EXPECT_DOUBLE_EQ(s.mhz, 2500);
  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1800000\n");
  EXPECT_DOUBLE_EQ(sample().mhz, 1800) << "the governor knows better";
}

TEST_F(Machine, ThatSaysNothingIsUnknown) {
  const MachineSample s = sample();
  EXPECT_TRUE(std::isnan(s.busy_s));
  EXPECT_TRUE(std::isnan(s.mhz));
  const Noise noise = noise_between(s, s, 0);
  EXPECT_TRUE(std::isnan(noise.steal));
  EXPECT_TRUE(noise_warnings(std::vector<Noise>{noise}).empty());
  EXPECT_TRUE(std::isnan(noise_from(nlohmann::ordered_json::parse(to_json(noise).dump())).steal));
}

TEST(Noise, IsWhatTheRunDidNotUse) {
  const MachineSample begin{100, 10, 1000, 0.5, 2000}, end{112, 11, 1020, 3, 2100};
  const Noise noise = noise_between(begin, end, 8);
  EXPECT_DOUBLE_EQ(noise.steal, 1 / 20.0);
  EXPECT_DOUBLE_EQ(noise.others, 4 / 20.0);
  EXPECT_DOUBLE_EQ(noise.load_average, 0.5);
  EXPECT_DOUBLE_EQ(noise_between(begin, end, 13).others, 0) << "clocks differ by a tick";
  const Noise again = noise_from(to_json(noise));
  EXPECT_EQ(again.steal, noise.steal);
  EXPECT_EQ(again.mhz_end, 2100);
}

TEST(Noise, IsToldFromWhereItMatters) {
  const Noise quiet{0.005, 0.02, 0.1, 2000, 2050};
  EXPECT_TRUE(noise_warnings(std::vector<Noise>(5, quiet)).empty());
  std::vector<Noise> runs(5, quiet);
  runs[1].steal = 0.02;
  runs[2].steal = 0.034;
  runs[3].others = 0.5;
  runs[4].mhz_end = 2500;
  const auto warnings = noise_warnings(runs);
  ASSERT_EQ(warnings.size(), 3u);
  EXPECT_NE(warnings[0].find("steal) during 2 of 5 runs, at most 3.4%"), std::string::npos);
  EXPECT_NE(warnings[1].find("1 of 5 runs, at most 50.0%"), std::string::npos);
  EXPECT_NE(warnings[2].find("between 2000 and 2500 MHz"), std::string::npos);
}

TEST(Noise, AnOutlierLiesTenDeviationsAway) {
  const std::vector<double> values{10, 11, 9, 10.5, 9.5, 24, 26};
  // median 10.5, distances 0.5 0.5 1.5 0 1 13.5 15.5: MAD 1
  EXPECT_EQ(outliers(values), (std::vector<bool>{false, false, false, false, false, false, true}));
  EXPECT_EQ(outliers(std::vector<double>{1, 1, 1, 2}), std::vector<bool>(4, false));
  EXPECT_EQ(outliers(std::vector<double>{1, 100}), std::vector<bool>(2, false));
}

}  // namespace
}  // namespace millrace::study
