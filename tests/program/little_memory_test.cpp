// A small address space (ulimit -v): whatever does not fit, the program ends with one line and a
// documented exit code.
#include <sys/resource.h>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

/// Limits the address space of children; memory of this process stays.
class AddressSpace {
 public:
  explicit AddressSpace(rlim_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpace() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

class LittleMemory : public ProgramTest {};

TEST_F(LittleMemory, IsSaidInOneLine) {
  MILLRACE_NEEDS_TORCH();
  // LibTorch's initialisers fail in some of them, its mappings or threads in others.
  int failed = 0;
  for (rlim_t megabytes = 350; megabytes <= 475; megabytes += 25) {
    Result result;
    {
      const AddressSpace limit(megabytes * 1'000'000);
      // Avoids convolutions, because oneDNN crashes without memory for its generated code.
      result = run(training("run" + std::to_string(megabytes), {"model.name=linear"}));
    }
    const std::string said = std::to_string(megabytes) + " MB: " + result.err;
    EXPECT_EQ(result.signal, 0) << said;
    if (result.exit_code == 0) continue;
    ++failed;
    EXPECT_TRUE(result.exit_code == 1 || result.exit_code == 4) << said;
    EXPECT_EQ(count_of("\n" + result.err, "\nmillrace: "), 1u) << said;
    EXPECT_EQ(count_of(result.err, "terminate called"), 0u) << said;
  }
  EXPECT_GT(failed, 0) << "LibTorch alone needs more than the least of them";
}

}  // namespace
}  // namespace millrace::program_test
