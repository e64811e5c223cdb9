// Files of records: what may be opened, how much of it is read, and what may be written.
#include "base/record_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/atomic_file.h"
#include "millrace/error.h"

namespace millrace::base {
namespace {

namespace fs = std::filesystem;

class RecordFile : public testing::Test {
 protected:
  RecordFile()
      : folder_(fs::temp_directory_path() / ("record_file_test_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~RecordFile() override { fs::remove_all(folder_); }
  fs::path in(const std::string& name) const { return folder_ / name; }
  fs::path with(const std::string& name, const std::string& text) const {
    std::ofstream(in(name), std::ios::binary) << text;
    return in(name);
  }
  /// Makes one of each thing that is no regular file.
  void make_others() const {
    ASSERT_EQ(mkfifo(in("fifo").c_str(), 0600), 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, in("socket").c_str(), sizeof address.sun_path - 1);
    const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    ASSERT_EQ(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    fs::create_symlink("/dev/zero", in("device"));
    fs::create_directory(in("folder"));
  }
  static std::string message(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

 private:
  fs::path folder_;
};

TEST_F(RecordFile, OnlyRegularFilesAreOpened) {
  make_others();
  const auto refusal = [&](const std::string& name) {
    return message([&] { open_record(in(name)); });
  };
  EXPECT_EQ(refusal("fifo"), in("fifo").string() + ": a FIFO, not a regular file");
  EXPECT_EQ(refusal("socket"), in("socket").string() + ": a socket, not a regular file");
  EXPECT_EQ(refusal("device"), in("device").string() + ": a device, not a regular file");
  EXPECT_EQ(refusal("folder"), in("folder").string() + ": a folder, not a regular file");
  EXPECT_THROW(open_record(in("fifo")), DataError);
}

TEST_F(RecordFile, AMissingFileIsAStreamThatIsNotOpen) {
  fs::create_symlink("nowhere", in("dangling"));
  for (const char* name : {"none", "dangling", "none/below"}) {
    std::ifstream stream = open_record(in(name));
    EXPECT_FALSE(stream);
    EXPECT_FALSE(stream.is_open());
    EXPECT_EQ(read_record(in(name)), "");
  }
}

TEST_F(RecordFile, ReadsTheWholeFile) {
  std::string text(200'000, 'x');
  text[70'000] = '\0';
  EXPECT_EQ(read_record(with("whole", text)), text);
  fs::create_symlink("whole", in("link"));
  EXPECT_EQ(read_record(in("link")), text);
}

TEST_F(RecordFile, MemoryIsBounded) {
  const fs::path large = with("large", "");
  fs::resize_file(large, kLargestRecord + 1);
  EXPECT_NE(message([&] { read_record(large); }).find("more than 64 MiB"), std::string::npos);
  std::ifstream stream = open_record(large);
  std::string line;
  EXPECT_NE(message([&] { read_line(stream, line, large); }).find("a line of more than 16 MiB"),
            std::string::npos);
}

TEST_F(RecordFile, HolesAreNotRead) {
  const fs::path sparse = with("sparse", "begin");
  fs::resize_file(sparse, std::uintmax_t{100} << 30);
  EXPECT_NE(message([&] { open_record(sparse); }).find("sparse file"), std::string::npos);
}

TEST_F(RecordFile, LinesAreThoseOfGetline) {
  const std::string long_line(4095, 'a'), longer(4096, 'b'), longest(10'000, 'c');
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("a"), std::string("a\n\nb"),
        long_line + "\n" + longer + "\n" + longest, longer + "\n", long_line, longest + "\n\n"}) {
    const fs::path file = with("lines", text);
    std::ifstream mine = open_record(file), its(file);
    std::string line, expected;
    for (;;) {
      const bool more = static_cast<bool>(std::getline(its, expected));
      ASSERT_EQ(read_line(mine, line, file), more);
      if (!more) break;
      EXPECT_EQ(line, expected);
      EXPECT_EQ(mine.eof(), its.eof());
    }
  }
}

TEST_F(RecordFile, WritesToItsOwnFilesOnly) {
  make_others();
  const fs::path outside = with("outside", "kept");
  fs::create_symlink(outside, in("link"));
  fs::create_hard_link(outside, in("name"));
  for (const char* name : {"fifo", "socket", "device", "folder", "link", "name"})
    EXPECT_THROW(open_own(in(name), O_WRONLY | O_TRUNC), UsageError) << name;
  EXPECT_EQ(read_record(outside), "kept");
  EXPECT_NE(message([&] { open_own(in("link"), O_WRONLY); }).find("a link"), std::string::npos);
  EXPECT_NE(message([&] { open_own(in("name"), O_WRONLY); }).find("2 names"), std::string::npos);
  EXPECT_TRUE(open_own(in("new"), O_WRONLY));
  EXPECT_TRUE(open_own(in("new"), O_WRONLY));
  EXPECT_THROW(open_own(in("none/below"), O_WRONLY), RunError);
}

TEST_F(RecordFile, ATemporaryIsNeverWrittenThroughALink) {
  const fs::path outside = with("outside", "kept");
  const std::string temporary = "file.tmp-" + std::to_string(::getpid());
  fs::create_symlink(outside, in(temporary));
  {
    AtomicFile file(in("file"));
    file.write(std::as_bytes(std::span("new", 3)));
    file.commit();
  }
  EXPECT_EQ(read_record(outside), "kept");
  EXPECT_EQ(read_record(in("file")), "new");
  with(temporary, "left by a killed process of that id");
  AtomicFile(in("file")).replace();
  EXPECT_EQ(read_record(in("file")), "");
}

TEST_F(RecordFile, AFileNameIsOneComponent) {
  for (const char* good : {"a", "step-5", "...", "a b", "-x"}) EXPECT_TRUE(is_file_name(good));
  for (const std::string_view bad : {"", ".", "..", "/", "a/b", "/etc", "../x"})
    EXPECT_FALSE(is_file_name(bad)) << bad;
  EXPECT_FALSE(is_file_name(std::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace millrace::base
