// Tests of the cache of archives: its limit, its owners, and processes that share it.
#include "pipeline/remote/shard_cache.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/folder.h"
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
    files += entry.path().extension() != "";  // beside the lock and the list
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

/// Makes a folder that a cache may have. Its files were last used long ago.
class ForeignFiles {
 public:
  explicit ForeignFiles(std::string folder) : folder_(std::move(folder)) {
    mkdir(folder_.c_str(), 0700);
  }
  void add(const std::string& name, const std::string& text = "0123456789") const {
    std::ofstream(path(name)) << text;
    const timespec then[2] = {{1, 0}, {1, 0}};
    utimensat(AT_FDCWD, path(name).c_str(), then, 0);
  }
  void mkfifo(const std::string& name) const { ASSERT_EQ(::mkfifo(path(name).c_str(), 0600), 0); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string text(const std::string& name) const {
    const test::Bytes bytes = test::read_bytes(path(name));
    return {bytes.begin(), bytes.end()};
  }
  std::size_t count() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

constexpr const char* kList = "millrace-shards";
constexpr const char* kHeader = "files that this shard cache of millrace wrote\n";
const std::string kSomeName = "0123456789abcdef0123456789abcdef";

TEST(ShardCacheFiles, OthersStayWhateverTheirNames) {
  const TempFolder folder;
  const ForeignFiles files(folder.path("cache"));
  ShardCache cache({files.folder(), 25});
  cache.get("one", 10, writes("0123456789"), {});
  const std::vector<std::string> others{"thesis-backup.tar", "draft.part", kSomeName + ".tar",
                                        kSomeName + ".part", kSomeName};
  for (const std::string& name : others) files.add(name);
  for (const char* key : {"two", "three", "four"}) cache.get(key, 10, writes("0123456789"), {});
  for (const std::string& name : others) EXPECT_EQ(files.text(name), "0123456789") << name;
  EXPECT_FALSE(base::exists(cache.path_of("one")));  // eviction went on, without their bytes
  EXPECT_FALSE(base::exists(cache.path_of("two")));
  EXPECT_TRUE(base::exists(cache.path_of("three")));
}

TEST(ShardCacheFiles, FoldersWithOthersAreRefusedUntouched) {
  const TempFolder folder;
  int number = 0;
  const auto refuses = [&](const std::string& wanted, const auto& prepare) {
    const ForeignFiles files(folder.path(std::to_string(number++)));
    prepare(files);
    const std::size_t before = files.count();
    test::expect_error(Exit::usage, {files.folder(), wanted},
                       [&] { ShardCache({files.folder()}); });
    EXPECT_EQ(files.count(), before);
  };
  refuses("thesis-backup.tar", [](const ForeignFiles& f) { f.add("thesis-backup.tar"); });
  refuses("notes", [](const ForeignFiles& f) { f.add("lock", ""), f.add("notes"); });
  // Tools name files by their MD5, too; every version of the cache makes its lock first.
  refuses(kSomeName, [](const ForeignFiles& f) { f.add(kSomeName + ".tar"); });
  refuses("0123", [](const ForeignFiles& f) { f.add("lock", ""), f.add("0123.part"); });
  refuses("lock", [](const ForeignFiles& f) { f.mkfifo("lock"); });
  refuses(kSomeName, [](const ForeignFiles& f) {
    f.add("lock", "");
    symlink("/dev/null", f.path(kSomeName + ".tar").c_str());
  });
  refuses(kSomeName, [](const ForeignFiles& f) {
    f.add("lock", "");
    mkdir(f.path(kSomeName + ".tar").c_str(), 0700);
  });
  refuses(kList, [](const ForeignFiles& f) { f.mkfifo(kList); });
  refuses(kList, [](const ForeignFiles& f) { f.add(kList, "milk\nbread\n"); });
  refuses(kList, [](const ForeignFiles& f) {
    f.add("other", kHeader);
    symlink("other", f.path(kList).c_str());
  });
  refuses(kList, [](const ForeignFiles& f) {
    f.add(kList, kHeader);
    std::filesystem::resize_file(f.path(kList), std::uintmax_t{1} << 33);  // a hole
  });
}

TEST(ShardCacheFiles, CachesOfVersionsWithoutListsAreTakenOver) {
  const TempFolder folder;
  const ForeignFiles files(folder.path("cache"));
  files.add("lock", "");
  files.add(kSomeName + ".tar");
  files.add("fedcba9876543210fedcba9876543210.part");
  files.add(kSomeName + "-12-0123456789abcdef-0.part");
  ShardCache cache({files.folder(), 15});
  cache.get("one", 10, writes("0123456789"), {});
  EXPECT_FALSE(base::exists(files.path(kSomeName + ".tar")));
  EXPECT_FALSE(base::exists(files.path("fedcba9876543210fedcba9876543210.part")));
  EXPECT_TRUE(base::exists(cache.path_of("one")));
}

TEST(ShardCacheFiles, HostileListsNameNothingOutsideTheFolder) {
  const TempFolder folder;
  const ForeignFiles files(folder.path("cache")), beside(folder.path("beside"));
  beside.add("x.tar");
  beside.add(kSomeName + ".tar");
  files.add("x.tar");
  files.add(kList, kHeader + ("../beside/x\n../beside/" + kSomeName + "\n") + beside.path("x") +
                       "\nx\n\n" + kSomeName + "/../../beside/x\n" + std::string(100'000, 'a'));
  ShardCache cache({files.folder(), 15});
  cache.get("one", 10, writes("0123456789"), {});
  cache.get("two", 10, writes("0123456789"), {});
  EXPECT_FALSE(base::exists(cache.path_of("one")));
  EXPECT_EQ(beside.count(), 2u);
  EXPECT_EQ(files.text("x.tar"), "0123456789");
}

TEST(ShardCacheFiles, AListThatAKillOrAFullDiskCutIsContinued) {
  const TempFolder folder;
  for (const std::string& left : {std::string(), std::string(kHeader).substr(0, 7),
                                  std::string(kHeader), kHeader + kSomeName.substr(0, 9)}) {
    const ForeignFiles files(folder.path("cut at " + std::to_string(left.size())));
    files.add("lock", "");
    files.add(kList, left);
    ShardCache cache({files.folder(), 15});
    cache.get("one", 10, writes("0123456789"), {});
    cache.get("two", 10, writes("0123456789"), {});
    EXPECT_FALSE(base::exists(cache.path_of("one"))) << left;
    EXPECT_TRUE(base::exists(cache.path_of("two"))) << left;
  }
}

TEST(ShardCacheFiles, OthersAreNeitherWrittenNorReplaced) {
  const TempFolder folder;
  const ForeignFiles files(folder.path("cache"));
  ShardCache cache({files.folder()});
  cache.get("one", 10, writes("0123456789"), {});
  const std::string name = std::filesystem::path(cache.path_of("two")).stem().string();
  for (const char* ending : {".part", ".tar"}) {
    files.add(name + ending, "a thesis");
    test::expect_error(Exit::failed, {name + ending, "no cache of millrace wrote it"},
                       [&] { cache.get("two", 10, writes("0123456789"), {}); });
    EXPECT_EQ(files.text(name + ending), "a thesis");
    std::filesystem::remove(files.path(name + ending));
  }
}

TEST(ShardCacheFiles, TheListForgetsWhatIsGone) {
  const TempFolder folder;
  const ForeignFiles files(folder.path("cache"));
  std::string list = kHeader;
  for (int i = 0; i < 2000; ++i) list += fmt::format("{:032x}\n", i);
  files.add(kList, list);
  files.add(fmt::format("{:032x}.tar", 7));
  ShardCache cache({files.folder(), 25});
  cache.get("one", 10, writes("0123456789"), {});
  EXPECT_LT(files.text(kList).size(), 200u);
  cache.get("two", 10, writes("0123456789"), {});
  EXPECT_FALSE(base::exists(files.path(fmt::format("{:032x}.tar", 7))));  // was still listed
  EXPECT_TRUE(base::exists(cache.path_of("one")));
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
