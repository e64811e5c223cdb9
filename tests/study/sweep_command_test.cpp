// Tests of the figures that a sweep reads from a command's output.
#include "study/sweep/sweep_command.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "millrace/error.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

class SweepCommandMetric : public testing::Test {
 protected:
  SweepCommandMetric() {
    std::string pattern = (fs::temp_directory_path() / "millrace-metric-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = pattern;
  }
  ~SweepCommandMetric() override { fs::remove_all(folder_); }

  double number(const std::string& expression, const std::string& output) const {
    std::ofstream(folder_ / "out") << output;
    return number_in_output(command_metric(expression), folder_ / "out", folder_ / "err");
  }
  static UsageError refusal(const std::string& expression) {
    try {
      command_metric(expression);
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error;
    }
    ADD_FAILURE() << expression << " was taken";
    return UsageError("");
  }

  fs::path folder_;
};

TEST_F(SweepCommandMetric, IsTheLastMatchWithinALine) {
  EXPECT_EQ(number("[0-9]+", "1 2\n3 4\nend\n"), 4);
  EXPECT_EQ(number("loss=([0-9.]+)", "loss=0.5\rloss=0.25\rdone"), 0.25);
  EXPECT_EQ(number("^(\\d+)", "7 8\n"), 7);
  EXPECT_EQ(number("(\\d+)$", "7 8\n"), 8);
  EXPECT_EQ(number("a*([0-9])", "aaa1a2"), 2);
  EXPECT_EQ(number("(?:x|y)=([0-9]+)\\b", "\xff y=12 \xfe"), 12);
  EXPECT_EQ(number("\xc3\xb6=([0-9]+)", "\xc3\xb6=3"), 3);
  EXPECT_EQ(number("([0-9]+)", std::string(10'000, '1') + " 5"), 5);
  EXPECT_THROW(number("loss=([0-9.]+)", "nothing"), UsageError);
  EXPECT_THROW(number("[0-9]*", "12 x"), UsageError);  // the last match is empty
}

TEST_F(SweepCommandMetric, TakesTimeInProportionToTheOutput) {
  const std::string hostile(4000, 'a');
  for (const char* expression :
       {"(a+)+b|=([0-9]+)", "(a|aa)+b|=([0-9]+)", "(a*)*b|=([0-9]+)", "(.*)*(.*)*(.*)*b|=([0-9]+)"})
    EXPECT_THROW(number(expression, hostile + "\n"), UsageError) << expression;
}

TEST_F(SweepCommandMetric, RefusesWhatCouldTakeAnyTimeOrMemory) {
  for (const char* expression : {"loss(?==)=([0-9]+)", "(?!x)[0-9]+", "(?<=x)[0-9]+", "(a)\\1"}) {
    const UsageError error = refusal(expression);
    EXPECT_NE(std::string(error.what()).find(expression), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find("look-ahead"), std::string::npos) << error.hint();
  }
  EXPECT_NE(std::string(refusal("([0-9]+").what()).find("regular expression"), std::string::npos);
  refusal("(((a{100}){100}){100})");
  refusal(std::string(100'000, '('));
}

}  // namespace
}  // namespace millrace::study
