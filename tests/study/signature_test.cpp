// Signatures of run directories, and the key that makes them.
#include "study/records/signature.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/study/report_files.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

/// Gives the test a home of its own, and takes it away again.
class Signature : public testing::Test {
 protected:
  Signature() {
    for (const char* name : kNames) {
      const char* const value = std::getenv(name);
      if (value != nullptr) before_[name] = value;
      unsetenv(name);
    }
    live_in("home");
    fs::create_directories(in("run"));
  }
  ~Signature() override {
    for (const char* name : kNames)
      before_.contains(name) ? setenv(name, before_[name].c_str(), 1) : unsetenv(name);
  }
  fs::path in(const std::string& name) const { return folder_.path() / name; }
  void live_in(const std::string& name) const { setenv("XDG_STATE_HOME", in(name).c_str(), 1); }
  bool is_mine(const std::string& text, const std::string& name = "config.toml") const {
    return is_signed(in("run"), name, text);
  }

  static constexpr const char* kNames[] = {"XDG_STATE_HOME", "HOME", kRunKeyVariable};
  report_test::Folder folder_;
  std::map<std::string, std::string> before_;
};

TEST_F(Signature, HoldsForTheTextTheNameAndTheKey) {
  EXPECT_FALSE(is_mine("seed = 1\n"));
  write_signed(in("run"), "config.toml", "seed = 1\n");
  EXPECT_TRUE(is_mine("seed = 1\n"));
  EXPECT_FALSE(is_mine("seed = 2\n"));
  EXPECT_FALSE(is_mine("seed = 1\n", "plan.json"));
  live_in("another home");
  EXPECT_FALSE(is_mine("seed = 1\n")) << "no key";
  write_signed(in("run"), "design.json", "{}");
  EXPECT_TRUE(is_mine("{}", "design.json"));
  EXPECT_FALSE(is_mine("seed = 1\n")) << "another key";
  live_in("home");
  EXPECT_TRUE(is_mine("seed = 1\n")) << "other files' signatures are kept";
}

TEST_F(Signature, KeyIsReadableByItsOwnerAlone) {
  write_signed(in("run"), "config.toml", "a");
  const fs::path key = run_key_file();
  struct stat status {};
  ASSERT_EQ(stat(key.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(key.parent_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_EQ(std::distance(fs::directory_iterator(key.parent_path()), fs::directory_iterator()), 1);
  fs::permissions(key, fs::perms::others_read, fs::perm_options::add);
  EXPECT_FALSE(is_mine("a")) << "whoever read it could have signed";
}

TEST_F(Signature, OfTheTextBeforeHoldsUntilTheNextButOne) {
  write_signed(in("run"), "config.toml", "one");
  write_signed(in("run"), "config.toml", "two");
  EXPECT_TRUE(is_mine("one")) << "a process killed before it replaces the file leaves this";
  EXPECT_TRUE(is_mine("two"));
  write_signed(in("run"), "config.toml", "three");
  EXPECT_FALSE(is_mine("one"));
}

TEST_F(Signature, DamagedFileIsNone) {
  write_signed(in("run"), "config.toml", "a");
  for (const char* text : {"", "[]", "{\"files\": 1}", "{\"files\": {\"config.toml\": 7}}",
                           "{\"files\": {\"config.toml\": [null, {}, \"\"]}}"}) {
    std::ofstream(in("run") / kSignatureFile) << text;
    EXPECT_FALSE(is_mine("a")) << text;
  }
  write_signed(in("run"), "config.toml", "a");
  EXPECT_TRUE(is_mine("a"));
}

TEST_F(Signature, ComesFromTheEnvironmentWhereThereIsNoHome) {
  write_signed(in("run"), "config.toml", "a");
  share_run_key_with_children();
  unsetenv("XDG_STATE_HOME");
  EXPECT_TRUE(run_key_file().empty());
  EXPECT_TRUE(is_mine("a"));
  write_signed(in("run"), "config.toml", "b");
  EXPECT_TRUE(is_mine("b"));
  for (const char* key : {"", "abc", "../../etc/passwd"}) {
    setenv(kRunKeyVariable, key, 1);
    EXPECT_FALSE(is_mine("a")) << key;
  }
}

TEST_F(Signature, LinkedOrSpecialKeyIsNotUsed) {
  write_signed(in("run"), "config.toml", "a");
  const fs::path key = run_key_file();
  fs::rename(key, in("elsewhere"));
  fs::create_symlink(in("elsewhere"), key);
  EXPECT_FALSE(is_mine("a"));
  fs::remove(key);
  ASSERT_EQ(mkfifo(key.c_str(), 0600), 0);
  EXPECT_FALSE(is_mine("a")) << "and does not wait";
}

}  // namespace
}  // namespace millrace::study
