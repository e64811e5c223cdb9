// Twenty mistakes of newcomers and their answers: mistakes.txt is read by people, and compared
// here.
#include <cstdlib>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

constexpr const char* kGolden = MILLRACE_TESTS "/program/mistakes.txt";

/// The commands of a file: the lines that begin with "$ ".
std::vector<std::string> commands_of(const std::string& text) {
  std::vector<std::string> commands;
  for (const std::string& line : lines_of(text))
    if (line.starts_with("$ ")) commands.push_back(line.substr(2));
  return commands;
}

class Mistakes : public ProgramTest {
 protected:
  /// Runs a command line in bash, as a user types it, in a folder with a data set data/digits.
  /// Returns what it prints, and its exit code.
  std::string answer(const std::string& command) {
    write_file(in("typed"), "millrace() { " MILLRACE_BUILD "/millrace \"$@\"; }\ncd " +
                                in("").string() + "\nexport COLUMNS=80 NO_COLOR=1\n" + command +
                                " > answer 2>&1 < /dev/null\necho \"exit $?\" >> answer\n");
    EXPECT_EQ(std::system(("bash --norc " + in("typed").string()).c_str()), 0) << command;
    return "$ " + command + "\n" + read_file(in("answer"));
  }
};

TEST_F(Mistakes, TwentyOfNewcomersHaveTheirAnswers) {
  ASSERT_TRUE(succeeded(run(
      {"data", "make", "digits", in("data/digits").string(), "--train", "300", "--test", "100"})));
  const std::string golden = read_file(kGolden);
  const std::vector<std::string> commands = commands_of(golden);
  ASSERT_EQ(commands.size(), 20u);
  std::string answers = golden.substr(0, golden.find("$ "));
  for (const std::string& command : commands)
    answers += (command == commands.front() ? "" : "\n") + answer(command);
  EXPECT_EQ(answers, golden) << "if the answer is better now, take it over into " << kGolden;
}

}  // namespace
}  // namespace millrace::program_test
