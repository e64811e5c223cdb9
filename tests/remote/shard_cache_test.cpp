// Tests of the cache of archives: its limit, its owners, and processes that share it.
#include "pipeline/remote/shard_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <utility>

#include "millrace/error.h"
#include "tests/data/support.h"
#include "tests/remote/fake_clock.h"

namespace millrace::pipeline {
namespace {

using test::FakeClock;
using test::TempFolder;

ShardCache::Fill writes(const std::string& text) {
  return [text](int file, const std::string&) {
    ASSERT_EQ(pwrite(file, text.data(), text.size(), 0), std::ssize(text));
  };
}

const ShardCache::Fill kNever = [](int, const std::string& path) {
  throw RunError(path + " must not be filled");
};

TEST(ShardCacheTest, KeepsItsLimitAndWhatIsInUse) {
  const TempFolder folder;
  FakeClock clock;
  ShardCache cache({folder.path("cache"), 25}, clock);
  cache.get("one", 10, writes("0123456789"), {});
  base::Descriptor two = cache.get("two", 10, writes("0123456789"), {});
  cache.get("three", 10, writes("0123456789"), {});  // in place of one, which nobody reads
  EXPECT_FALSE(base::exists(cache.path_of("one")));
  EXPECT_TRUE(base::exists(cache.path_of("two")));
  const base::Descriptor three = cache.get("three", 10, kNever, {});
  EXPECT_THROW(cache.get("four", 10, kNever, {}), RunError);  // both are in use
  EXPECT_THROW(cache.get("huge", 26, kNever, {}), RunError);
  bool asked = false;
  const base::Descriptor four = cache.get("four", 10, writes("0123456789"), [&] {
    two.close();
    return !std::exchange(asked, true);
  });
  EXPECT_FALSE(base::exists(cache.path_of("two")));
  EXPECT_EQ(cache.filled(), 4u);
}

TEST(ShardCacheTest, AFailedFillLeavesNothing) {
  const TempFolder folder;
  ShardCache cache({folder.path("cache")});
  EXPECT_THROW(cache.get("one", 10, kNever, {}), RunError);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("cache")))
    files += entry.path().filename() != "lock";
  EXPECT_EQ(files, 0);
}

TEST(ShardCacheTest, RefusesLinksAndOpenFolders) {
  const TempFolder folder;
  mkdir(folder.path("open").c_str(), 0700);
  chmod(folder.path("open").c_str(), 0755);  // whatever the umask is
  EXPECT_THROW(ShardCache({folder.path("open")}), RunError);
  symlink(folder.path("cache").c_str(), folder.path("link").c_str());
  ShardCache cache({folder.path("cache")});
  EXPECT_THROW(ShardCache({folder.path("link")}), RunError);
  EXPECT_THROW(ShardCache({folder.path("link") + "/"}), RunError);
  const mode_t mask = umask(022);
  EXPECT_NO_THROW(ShardCache({folder.path("fresh") + "//"}));
  umask(mask);
  folder.write("elsewhere", {1, 2, 3});
  symlink(folder.path("elsewhere").c_str(), cache.path_of("one").c_str());
  EXPECT_THROW(cache.get("one", 3, kNever, {}), RunError);
}

TEST(ShardCacheTest, RefusesWhatBelongsToAnotherUser) {
  if (geteuid() != 0)
    GTEST_SKIP() << "OWNERS OF A CACHE ARE NOT TESTED: only root can give files away";
  constexpr uid_t kNobody = 65534;
  const TempFolder folder;
  ShardCache cache({folder.path("cache")});
  cache.get("one", 3, writes("abc"), {});
  ASSERT_EQ(chown(cache.path_of("one").c_str(), kNobody, kNobody), 0);
  EXPECT_THROW(cache.get("one", 3, kNever, {}), RunError);
  ASSERT_EQ(chown(folder.path("cache").c_str(), kNobody, kNobody), 0);
  EXPECT_THROW(ShardCache({folder.path("cache")}), RunError);
}

TEST(ShardCacheTest, AWaiterTakesOverFromAKilledFetcher) {
  const TempFolder folder;
  for (int round = 0; round < 20; ++round) {
    const std::string key = "key " + std::to_string(round);
    ShardCache cache({folder.path("cache")});
    int begun[2];
    ASSERT_EQ(pipe(begun), 0);
    const pid_t child = fork();
    if (child == 0) {
      try {
        ShardCache own({folder.path("cache")});
        own.get(key, 10,
                [&](int file, const std::string&) {
                  if (pwrite(file, "broken", 6, 0) == 6 && write(begun[1], "x", 1) == 1) pause();
                },
                {});
      } catch (...) {
      }
      _exit(1);
    }
    close(begun[1]);
    char byte = 0;
    ASSERT_EQ(read(begun[0], &byte, 1), 1);
    kill(child, SIGKILL);
    const base::Descriptor file = cache.get(key, 10, writes("0123456789"), {});
    waitpid(child, nullptr, 0);
    close(begun[0]);
    EXPECT_EQ(test::read_bytes(cache.path_of(key)), test::bytes_from("0123456789"));
  }
}

TEST(ShardCacheTest, AWaitForAProcessThatHangsEnds) {
  const TempFolder folder;
  FakeClock clock;
  ShardCache cache({folder.path("cache")}, clock);
  std::string part = cache.path_of("one");
  part.replace(part.rfind(".tar"), 4, ".part");
  const auto locked = [](const std::string& path) {
    base::Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(flock(file.get(), LOCK_EX | LOCK_NB), 0);
    return file;
  };
  {
    const base::Descriptor filler = locked(part);
    EXPECT_THROW(cache.get("one", 10, kNever, {}), RunError);
  }
  const base::Descriptor guard = locked(folder.path("cache") + "/lock");
  EXPECT_THROW(cache.get("one", 10, kNever, {}), RunError);
}

TEST(ShardCacheTest, AWaiterGivesUpWhatTheFillerNeeds) {
  const TempFolder folder;
  ShardCache cache({folder.path("cache"), 25});
  base::Descriptor one = cache.get("one", 10, writes("0123456789"), {});
  int full[2];
  ASSERT_EQ(pipe(full), 0);
  const pid_t child = fork();
  if (child == 0) {
    one.close();
    try {
      ShardCache own({folder.path("cache"), 25, 60});
      bool told = false;
      own.get("two", 20, writes("01234567890123456789"), [&] {
        if (!std::exchange(told, true) && write(full[1], "x", 1) != 1) _exit(1);
        return false;
      });
      _exit(0);
    } catch (...) {
    }
    _exit(1);
  }
  close(full[1]);
  char byte = 0;
  EXPECT_EQ(read(full[0], &byte, 1), 1);  // the child has the file of two, and needs one's room
  close(full[0]);
  const auto let_go = [&] {
    const bool open = static_cast<bool>(one);
    one.close();
    return open;
  };
  try {
    EXPECT_TRUE(cache.get("two", 20, kNever, let_go));
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace millrace::pipeline
