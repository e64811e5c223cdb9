// Tests that only tools/terminal/output.cpp writes to stdout and stderr: a stream that cannot be
// written must not end a run, and a name must not control the terminal.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

TEST(OutputRule, OneFileWrites) {
  const fs::path source = MILLRACE_SOURCE_DIR;
  int seen = 0;
  for (const char* room :
       {"base", "pipeline", "augment", "models", "strategies", "study", "tools"}) {
    for (const auto& entry : fs::recursive_directory_iterator(source / room)) {
      const fs::path& file = entry.path();
      if (file.extension() != ".cpp" && file.extension() != ".h") continue;
      if (file == source / "tools/terminal/output.cpp") continue;
      if (file == source / "strategies/bench/model_steps.cpp")
        continue;  // a benchmark's C interface
      ++seen;
      std::ifstream in(file);
      for (std::string line; std::getline(in, line);)
        for (const char* call :
             {"fmt::print(", "std::cout", "std::cerr", "std::clog", "std::printf(", "fprintf(",
              "std::puts(", "std::fputs(", "perror("})
          EXPECT_EQ(line.find(call), std::string::npos) << file << " writes by itself: " << line;
    }
  }
  EXPECT_GE(seen, 200) << "the rule looks at nothing";
}

}  // namespace
}  // namespace millrace::tools
