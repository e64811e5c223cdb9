// Fuzzes DALI's index files: whatever text is accepted for an archive gives the same list as the
// archive's walk.
#include "pipeline/readers/dali_index.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/data/tar_builder.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {
namespace {

/// An archive in memory that has a path.
struct Archive {
  Archive() {
    test::TarBuilder tar;
    const auto add = [&](const std::string& name, const Bytes& contents, bool first) {
      tar.add(name, contents);
      const std::string ending = name.substr(name.find('.') + 1);
      const auto place = fmt::format("{} {} {}", ending, tar.last() + 512, contents.size());
      named += (first ? "\n" : " ") + place + " " + name;
      unnamed += (first ? "\n" : " ") + place;
    };
    tar.add("a/", "", '5');
    add("a/1.jpg", Bytes(700, 1), true);
    add("a/1.cls", Bytes{'3'}, false);
    tar.add("a/.hidden", Bytes(5));
    add("b/2 x.png", Bytes(5), true);
    add("b/2 x.json", bytes_of("{\"label\": 2}"), false);
    tar.pax("path", "b/3.jpg");
    add("b/3.jpg", Bytes(3), true);
    add("b/3.cls", Bytes{'1'}, false);
    named = "v1.2 3" + named + "\n";
    unnamed = "v1.1 3" + unnamed + "\n";
    bytes = tar.end();
    const int file = memfd_create("archive", MFD_CLOEXEC);
    require(write(file, bytes.data(), bytes.size()) == std::ssize(bytes), "the archive is written");
    path = fmt::format("/proc/self/fd/{}", file);
    walked = pipeline::index_tar("x", bytes);
  }
  std::string named, unnamed, path;
  Bytes bytes;
  pipeline::TarIndex walked;
};

const Archive& archive() {
  static const Archive one;
  return one;
}

}  // namespace

Corpus corpus() {
  return {{bytes_of(archive().named), bytes_of(archive().unnamed)},
          {"v1.2 ", "v1.1 ", "jpg ", "cls ", " 512 ", "\n", "\r\n", "\\", "..", "/",
           "18446744073709551615", "4611686018427387904", std::string(1, '\0')}};
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::accepts(Exit::data, [&] {
    std::uint64_t end = 0;
    for (const auto& member : pipeline::parse_dali_index("x", text).members) {
      fuzz::require(member.data >= end + 512 && member.data % 512 == 0, "members lie in order");
      end = member.data + member.size;
      fuzz::require(end >= member.data, "no end lies behind 2^64");
    }
  });
  const fuzz::Archive& archive = fuzz::archive();
  fuzz::accepts(Exit::data, [&] {
    const pipeline::TarIndex listed =
        pipeline::list_by_dali_index(archive.path, "x", text, pipeline::DaliCheck::some);
    fuzz::require(listed.fingerprint == archive.walked.fingerprint, "names and sizes agree");
    fuzz::require(listed.folders == archive.walked.folders, "folders agree");
    fuzz::require(listed.samples.size() == archive.walked.samples.size(), "samples agree");
    for (std::size_t i = 0; i < listed.samples.size(); ++i) {
      const auto &one = listed.samples[i], &two = archive.walked.samples[i];
      fuzz::require(one.data == two.data && one.size == two.size && one.back == two.back &&
                        one.label == two.label && one.folder == two.folder,
                    "a sample agrees");
    }
  });
  return 0;
}
