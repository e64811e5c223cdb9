// Tests faults that end a process while a plugin is loaded or called: truncated files are rejected
// before dlopen, and a fault in a data file is not blamed on the plugin.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "base/mapped_file_guard.h"
#include "millrace/error.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"
#include "tests/plugins/support.h"

namespace millrace::plugins {
namespace {

using namespace plugin_test;

TEST(CutShort, NoLengthEndsTheProcess) {
  std::ifstream in(example_plugin("vignette"), std::ios::binary);
  const Bytes whole{std::istreambuf_iterator<char>(in), {}};
  ASSERT_GT(whole.size(), 4096u);
  const Folder folder;
  std::size_t refused = 0;
  constexpr std::size_t kCuts = 60;
  for (std::size_t i = 0; i < kCuts; ++i) {
    const auto end = whole.begin() + static_cast<std::ptrdiff_t>(whole.size() * i / kCuts);
    const std::string file =
        folder.write("cut" + std::to_string(i) + ".so", Bytes(whole.begin(), end));
    try {
      load_plugin(file);  // sections that are not loaded may be missing
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(file), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GE(refused, kCuts / 3);
}

class LostPage : public testing::Test {
 protected:
  LostPage() : file_(memfd_create("data", MFD_CLOEXEC)) {
    size_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    EXPECT_EQ(ftruncate(file_, static_cast<off_t>(size_)), 0);
    memory_ = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file_, 0);
  }
  ~LostPage() override {
    munmap(memory_, size_);
    close(file_);
  }
  /// Reads, inside a unit, from a guarded file that has become empty.
  void read_inside_a_unit(base::GuardedRange* range) {
    ASSERT_EQ(ftruncate(file_, 0), 0);
    testing::internal::CaptureStderr();
    millrace_unit unit{};
    unit.name = "unit";
    {
      const UnitScope inside(unit);
      EXPECT_EQ(*static_cast<volatile const char*>(memory_), 0);
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_TRUE(base::is_damaged(range));
    base::unguard(range);
    restore_crash_handlers();
  }

  int file_;
  std::size_t size_ = 0;
  void* memory_ = nullptr;
};

TEST_F(LostPage, IsNoPluginsCrash) {
  install_crash_handlers();
  read_inside_a_unit(base::guard(memory_, size_));
}

TEST_F(LostPage, IsNoPluginsCrashWhereTheGuardCameFirst) {
  base::GuardedRange* range = base::guard(memory_, size_);
  install_crash_handlers();
  read_inside_a_unit(range);
}

}  // namespace
}  // namespace millrace::plugins
