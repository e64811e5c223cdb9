// Tests DALI's index files: they give the same set as a walk, and one that is damaged or another
// archive's is noticed and named.
#include "pipeline/readers/dali_index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/descriptor.h"
#include "millrace/reader.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"
#include "tools/data/data.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::bytes_from;
using test::expect_data_error;
using test::read_bytes;
using test::TarBuilder;
using test::TempFolder;

/// Builds an archive, and its index as wds2idx writes it.
class Indexed {
 public:
  /// Adds a member. With `listed`, the index names it so; `first`: it begins a sample.
  Indexed& add(const std::string& name, const Bytes& bytes, bool first, std::string listed = {}) {
    if (name.size() > 99) tar_.long_name(name);
    tar_.add(name, bytes);
    if (listed.empty()) listed = name;
    const std::size_t dot = listed.find('.', listed.rfind('/') + 1);
    lines_ += first ? (samples_++ > 0 ? "\n" : "") : " ";
    lines_ += fmt::format("{} {} {}", dot == listed.npos ? listed : listed.substr(dot + 1),
                          tar_.last() + 512, bytes.size());
    if (named_) lines_ += " " + listed;
    return *this;
  }
  /// Leaves names out of the index.
  Indexed& unnamed() {
    named_ = false;
    return *this;
  }
  TarBuilder& tar() { return tar_; }
  std::string index() const {
    return fmt::format("{} {}\n{}\n", named_ ? "v1.2" : "v1.1", samples_, lines_);
  }
  /// Writes NAME.tar and NAME.idx, and returns the archive's path.
  std::string write(const TempFolder& folder, const std::string& name) const {
    const std::string path = folder.write(name + ".tar", tar_.end());
    folder.write(name + ".idx", bytes_from(index()));
    return path;
  }

 private:
  TarBuilder tar_;
  std::string lines_;
  int samples_ = 0;
  bool named_ = true;
};

Indexed labelled(int count, std::size_t size = 700, bool named = true) {
  Indexed set;
  if (!named) set.unnamed();
  for (int i = 0; i < count; ++i)
    set.add(fmt::format("{:04}.jpg", i), Bytes(size, 1), true)
        .add(fmt::format("{:04}.cls", i), bytes_from(std::to_string(i % 3)), false);
  return set;
}

std::unique_ptr<Reader> open_set(const std::string& path, IndexUse use,
                                 std::string* warning = nullptr) {
  DataOptions options;
  options.reader = "tar";
  options.path = path;
  options.index = use;
  if (warning != nullptr) options.warn = [warning](const std::string& text) { *warning += text; };
  return open_reader(options);
}

void expect_same_as_the_walk(const std::string& file) {
  const auto walked = open_set(file, IndexUse::off), listed = open_set(file, IndexUse::require);
  test::expect_same_samples(*walked, *listed);
  EXPECT_EQ(walked->info().fingerprint, listed->info().fingerprint);
  EXPECT_EQ(walked->info().classes, listed->info().classes);
  for (std::uint64_t i = 0; i < std::min(walked->info().count, listed->info().count); ++i)
    EXPECT_EQ(walked->name(i), listed->name(i));
}

TEST(DaliIndex, ReadsWhatWds2idxWrites) {
  // The output of DALI 2.4's tools/wds2idx.py for an archive of 0.jpg, 0.cls, 1.cls and 1.jpg.
  const DaliIndex index = parse_dali_index(
      "x", "v1.2 2\njpg 512 700 0.jpg cls 2048 1 0.cls\ncls 3072 1 1.cls jpg 4096 3 1.jpg\n");
  ASSERT_EQ(index.members.size(), 4u);
  EXPECT_EQ(index.members[1].data, 2048u);
  EXPECT_EQ(index.members[1].size, 1u);
  EXPECT_EQ(index.members[3].name, "1.jpg");
  EXPECT_EQ(index.members[3].ending, "jpg");
  // Names with blanks, and without a dot: their ending is the whole name.
  const DaliIndex odd = parse_dali_index(
      "x", "v1.2 3\njpg 1024 700 cat/my 1.jpg\ndog/readme 6656 0 dog/readme\njpg 7168 1 z.jpg\n");
  ASSERT_EQ(odd.members.size(), 3u);
  EXPECT_EQ(odd.members[0].name, "cat/my 1.jpg");
  EXPECT_EQ(odd.members[1].name, "dog/readme");
  const DaliIndex older = parse_dali_index("x", "v1.1 1\njpg 512 700 cls 2048 1\n");
  ASSERT_EQ(older.members.size(), 2u);
  EXPECT_EQ(older.members[1].data, 2048u);
  EXPECT_EQ(older.members[1].name, "");
}

TEST(DaliIndex, GivesTheSameSetAsTheWalk) {
  const TempFolder folder;
  for (const bool named : {true, false}) {
    SCOPED_TRACE(named ? "v1.2" : "v1.1");
    expect_same_as_the_walk(labelled(300, 700, named).write(folder, "train-labels"));
    expect_same_as_the_walk(labelled(40, 9000, named).write(folder, "large"));

    // Folders as classes, what an index leaves out, and names that it does not spell out.
    Indexed set;
    if (!named) set.unnamed();
    set.tar().add("./", "", '5').add("./cat/", "", '5');
    set.add("./cat/my 1.jpg", Bytes(700, 1), true);
    set.tar().add("./cat/.hidden.jpg", Bytes(5000, 1)).add("cat/link.txt", "", '2');
    set.add("dog/" + std::string(120, 'n') + ".jpg", Bytes(3), true);
    set.add("dog/readme", Bytes(), true);
    set.add("dog/\303\251.jpg", Bytes(9), true, "dog/\\303\\251.jpg");
    for (int i = 0; i < 200; ++i) set.add(fmt::format("dog/{}.jpg", i), Bytes(4000, 7), true);
    set.tar().add(".trailer", Bytes(10));
    expect_same_as_the_walk(set.write(folder, "folders"));
  }
}

TEST(DaliIndex, YieldsToTheArchivesOwnIndex) {
  const TempFolder folder;
  const std::string file = labelled(10).write(folder, "a");
  tools::make_indexes(file, {});
  folder.write("a.idx", bytes_from("garbage"));
  std::string warning;
  EXPECT_EQ(open_set(file, IndexUse::require, &warning)->info().count, 10u);
  EXPECT_EQ(open_set(file, IndexUse::automatic, &warning)->info().count, 10u);
  EXPECT_EQ(warning, "");
}

/// Expects that the index of `file` is named as wrong and not used.
void expect_noticed(const std::string& file, const std::string& text, const std::string& why) {
  const std::string index = dali_index_path(file);
  std::ofstream(index, std::ios::binary | std::ios::trunc) << text;
  SCOPED_TRACE(text.substr(0, 80));
  expect_data_error({index, why}, [&] { open_set(file, IndexUse::require); });
  std::string warning;
  const auto reader = open_set(file, IndexUse::automatic, &warning);
  EXPECT_NE(warning.find(index), std::string::npos) << warning;
  EXPECT_EQ(reader->info().fingerprint, open_set(file, IndexUse::off)->info().fingerprint);
}

TEST(DaliIndex, WrongOnesAreNoticed) {
  const TempFolder folder;
  const Indexed set = labelled(20);
  const std::string file = set.write(folder, "a"), whole = set.index();
  for (std::size_t size = 0; size < whole.size(); size += size < 60 ? 1 : 37)
    expect_noticed(file, whole.substr(0, size), "");
  expect_noticed(file, "garbage", "not an index of DALI's");
  expect_noticed(file, std::string(4096, '\0'), "not an index of DALI's");
  expect_noticed(file, "v1.3" + whole.substr(4), "version v1.3; this program reads v1.1 and v1.2");
  expect_noticed(file, "v1.2 19" + whole.substr(7), "lists 20 samples and announces 19");
  expect_noticed(file, labelled(20, 9000).index(), "it lists more");
  expect_noticed(file, labelled(20, 600).index(), "it lists");
  expect_noticed(file, labelled(20, 100).index(), "does not fit the archive at byte");
  expect_noticed(file, labelled(19).index(), "it does not list '0019.jpg'");
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  expect_noticed(file, edited(" cls 2048 1 0000.cls", ""), "does not list '0000.cls'");
  expect_noticed(file, edited("0003.jpg", "0030.jpg"), "it lists '0030.jpg'");
  expect_noticed(file, edited("jpg 512", "jpg 513"), "no member can lie at byte 513");
  expect_noticed(file, edited("jpg 512", "jpg 0"), "no member can lie at byte 0");
  expect_noticed(file, edited("jpg 512", "jpg -512"), "'-512' is not an offset");
  expect_noticed(file, edited("512 700", "512 18446744073709551615"), "");
  expect_noticed(file, edited("512 700", "512 4611686018427387904"), "");
  expect_noticed(file, edited("jpg 512", "png 512"), "another ending");
}

/// Overwrites the name in a header, and mends its checksum.
void rename_member(const std::string& file, std::size_t header, const std::string& name) {
  TarBuilder other;
  other.header(name, 4000);
  const base::Descriptor open(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(pwrite(open.get(), other.raw().data(), 512, static_cast<off_t>(header)), 512);
}

TEST(DaliIndex, ComparesAllHeadersIfItIsOlderThanTheArchive) {
  const TempFolder folder;
  Indexed set;
  for (int i = 0; i < 1000; ++i) set.add(fmt::format("cat/{:04}.jpg", i), Bytes(4000, 7), true);
  const std::string file = set.write(folder, "a");
  rename_member(file, 7 * (512 + 4096), "cat/1234.jpg");
  const auto set_time = [](const std::string& path, std::time_t seconds) {
    const timespec times[] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  };
  set_time(file, 1'000'000);
  set_time(folder.path("a.idx"), 1'000'001);
  open_set(file, IndexUse::require);  // no header of that member is read
  set_time(folder.path("a.idx"), 999'999);
  expect_data_error({"a.idx", "the archive has 'cat/1234.jpg', it lists 'cat/0007.jpg'"},
                    [&] { open_set(file, IndexUse::require); });
  const std::vector<std::string> problems = tools::check_indexes(file);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("cat/1234.jpg"), std::string::npos) << problems[0];
}

}  // namespace
}  // namespace millrace::pipeline
