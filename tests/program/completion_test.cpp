// Shell completion and the manual page: what the program offers, and what bash makes of it.
#include <algorithm>
#include <cstdlib>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

class Completion : public ProgramTest {
 protected:
  static std::vector<std::string> words(const std::string& line) {
    const Result result = run({"completion", "words", line});
    EXPECT_TRUE(succeeded(result)) << line;
    return lines_of(result.out);
  }
  /// The commands that `millrace --help` lists.
  static std::vector<std::string> commands() {
    std::string help = run({"--help"}).out;
    help = help.substr(help.find("\nSubcommands:\n") + 14);
    std::vector<std::string> names;
    for (const std::string& line : lines_of(help))
      if (line.starts_with("  ") && line.at(2) != ' ')
        names.push_back(line.substr(2, line.find(' ', 2) - 2));
    EXPECT_GE(names.size(), 12u) << help;
    return names;
  }
  /// Returns the words that bash puts into COMPREPLY at the end of `line`.
  std::vector<std::string> bash(const std::string& line) {
    write_file(in("completion"), run({"completion", "bash"}).out);
    const std::string script = "source " + in("completion").string() +
                               "; COMP_WORDS=(" MILLRACE_BUILD "/millrace); COMP_LINE='" + line +
                               "'; COMP_POINT=${#COMP_LINE}; _millrace 2>/dev/null; "
                               "printf '%s\\n' \"${COMPREPLY[@]}\" >" +
                               in("reply").string();
    write_file(in("script"), script);
    EXPECT_EQ(std::system(("bash --norc " + in("script").string()).c_str()), 0);
    return lines_of(read_file(in("reply")));
  }
};

using Words = std::vector<std::string>;

bool holds(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST_F(Completion, OffersEveryCommandAndNoHiddenOne) {
  Words expected = commands();
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(words("millrace "), expected);
  EXPECT_FALSE(holds(words("millrace completion "), "words"));
}

TEST_F(Completion, OffersWhatBeginsLikeTheLastWord) {
  EXPECT_EQ(words("millrace tr"), Words{"train"});
  EXPECT_EQ(words("millrace data make "), (Words{"boxes", "digits", "objects", "photos"}));
  EXPECT_EQ(words("millrace train --re"), Words{"--resume"});
  EXPECT_EQ(words("millrace train nothing-like-it"), Words{});
  EXPECT_EQ(words("millrace sweep --design pa"), Words{"paired"});
}

TEST_F(Completion, OffersRecipesOnceAndTheirKeys) {
  EXPECT_EQ(words("millrace bench cifar10-crop"), Words{"cifar10-crop-flip"});
  EXPECT_EQ(words("millrace bench mnist-lenet cifar10-crop"), Words{});
  EXPECT_EQ(words("millrace bench --dump F cifar10-crop"), Words{"cifar10-crop-flip"});
  EXPECT_EQ(words("millrace bench mnist-lenet loader.on"), Words{"loader.on_error="});
  EXPECT_EQ(words("millrace bench loader.on_error="),
            (Words{"loader.on_error=fail", "loader.on_error=replace", "loader.on_error=skip"}));
  EXPECT_EQ(words("millrace bench augment.random_affine.deg"),
            Words{"augment.random_affine.degrees="});
  EXPECT_EQ(words("millrace sweep loader.drop_last=t"), Words{"loader.drop_last=true"});
  EXPECT_TRUE(holds(words("millrace eval runs/real "), "eval.batch="));
  EXPECT_TRUE(
      holds(words("millrace launch -n 2 -- train mnist-lenet train.str"), "train.strategy="));
  EXPECT_EQ(words("millrace doctor "), Words{});
}

TEST_F(Completion, BashTakesTheWords) {
  EXPECT_EQ(bash("millrace tr"), Words{"train"});
  EXPECT_EQ(bash("millrace train mnist-lenet data.reader=fo"), Words{"folder"});  // = splits words
  EXPECT_EQ(bash("millrace train mnist-lenet loader.work"), Words{"loader.workers="});
}

TEST_F(Completion, ScriptsNameTheProgram) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Result result = run({"completion", shell});
    ASSERT_TRUE(succeeded(result)) << shell;
    EXPECT_NE(result.out.find("completion words"), std::string::npos) << shell;
  }
  EXPECT_TRUE(run({"completion", "zsh"}).out.starts_with("#compdef millrace\n"));
  EXPECT_TRUE(refused(run({"completion"}), 2, {"bash", "zsh", "fish"}));
}

TEST_F(Completion, TheManualPageHasEveryCommandAndOption) {
  const Result page = run({"completion", "man"});
  ASSERT_TRUE(succeeded(page));
  for (const std::string& name : commands())
    EXPECT_NE(page.out.find("\n.SS " + name + "\n"), std::string::npos) << name;
  for (const char* text : {".TH MILLRACE 1", "\n.SS data make photos\n", "\\-\\-count",
                           "\\-\\-hash\\-from", "\n.SH EXIT STATUS\n"})
    EXPECT_NE(page.out.find(text), std::string::npos) << text;
  EXPECT_EQ(page.out.find(".SS completion words"), std::string::npos);
}

}  // namespace
}  // namespace millrace::program_test
