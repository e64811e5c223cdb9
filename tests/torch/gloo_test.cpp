// Gloo's code is LibTorch's alone. Our declarations of its types (strategies/torch/gloo) have
// neither layout nor functions, so our library must contain nothing of Gloo, which would replace
// the real code.
#include <gtest/gtest.h>
#include <stdio.h>

#include <array>
#include <memory>
#include <string>

namespace millrace::train {
namespace {

/// Returns a command's output.
std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  std::string text;
  std::array<char, 4096> part{};
  while (pipe && ::fgets(part.data(), part.size(), pipe.get()) != nullptr) text += part.data();
  return text;
}

TEST(Gloo, NoneOfItsCodeIsInOurLibrary) {
  const std::string nm = MILLRACE_NM;
  for (const char* which : {" --defined-only ", " --defined-only --dynamic "}) {
    const std::string symbols = output_of(nm + which + MILLRACE_TORCH_LIBRARY);
    ASSERT_NE(symbols.find("millrace_make_strategy"), std::string::npos)
        << "the test looks at nothing";
    // A mangled name in the namespace gloo, also within a vtable's or a template's.
    EXPECT_EQ(symbols.find("4gloo"), std::string::npos);
    for (const char* table : {"_ZTVN4c10d16ProcessGroupGloo", "_ZTIN4c10d16ProcessGroupGloo",
                              "_ZTVN4c10d7Backend", "_ZTVN4c10d5Store"})
      EXPECT_EQ(symbols.find(table), std::string::npos) << table;
  }
}

}  // namespace
}  // namespace millrace::train
