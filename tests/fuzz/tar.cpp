// Fuzzes tar archives: every member, then the index of samples, their names and other members.
#include <algorithm>

#include "pipeline/readers/tar_index.h"
#include "pipeline/readers/tar_members.h"
#include "tests/data/tar_builder.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {

Corpus corpus() {
  test::TarBuilder samples;
  samples.long_name(std::string(110, 'n') + ".jpg").add("x", Bytes(700, 1));
  samples.long_name(std::string(110, 'n') + ".cls").add("x", "1");
  samples.pax("path", "p.jpg").add("x", Bytes(3)).add("p.json", R"({"label": 3})");
  samples.add("q.png", Bytes(5)).add("q.cls", "2").add("q.txt", "text");
  samples.add("r.txt", "").add("r.TXT", "again").add("r.jpg", Bytes(900, 3)).add("r.cls", "0");
  test::TarBuilder folders;
  folders.add("./", "", '5').add("./cat/", "", '5').add("./cat/a.jpg", Bytes(20, 7));
  folders
      .header("b.jpg", 4, '0',
              std::string_view("ustar\0"
                               "00",
                               8),
              "dog")
      .contents(Bytes(4));
  folders.pax("size", "5").add("dog/c.png", Bytes(5));
  test::TarBuilder links;
  links.add("a.jpg", "x").add("a.cls", "0").add("link.txt", "", '2').add("device", "", '3');
  return {{samples.end(), folders.end(), links.end(), Bytes(1024)},
          {"ustar", ".jpg", ".cls", ".json", "PaxHeaders", "path=", "size=", "../", "/",
           "77777777777", "\x80", std::string(1, '\0'), "{\"label\": ", "12 path=ab\n"}};
}

/// Reads a sample with its members and, if it is wanted, its mask, as readers do.
void find_members(const pipeline::WantedMembers& wanted, std::span<const std::uint8_t> archive,
                  const pipeline::TarIndex::Entry& entry, const pipeline::TarSurroundings& around,
                  Buffer& scratch) {
  const pipeline::TarGroup group(entry, around);
  require(group.begin() + group.size() <= archive.size(), "a group lies in the archive");
  std::ranges::copy(archive.subspan(group.begin(), group.size()), group.reserve(scratch, wanted));
  const Sample sample = group.find(wanted, scratch);
  require(std::ranges::equal(sample.bytes, archive.subspan(entry.data, entry.size)),
          "a sample is its image");
  for (const Member& member : sample.members)
    require(!member || (member->data() >= scratch.data() &&
                        member->data() + member->size() <= scratch.data() + group.size()),
            "a member lies in the group");
  require(wanted.mask || sample.mask.empty(), "a mask is asked for");
  require(sample.mask.empty() ||
              (sample.mask.data() >= scratch.data() &&
               sample.mask.data() + sample.mask.size() <= scratch.data() + group.size()),
          "a mask lies in the group");
}

pipeline::WantedMembers wanted(const std::string& masks) {
  DataOptions options;
  options.members = {"txt", "json", "cls"};
  options.masks = masks;
  return pipeline::WantedMembers(options);
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  const std::span<const std::uint8_t> bytes(data, size);
  fuzz::accepts(Exit::data, [&] {
    pipeline::TarWalk walk("x", bytes);
    pipeline::TarMember member;
    std::uint64_t end = 0;
    while (walk.next(member)) {
      fuzz::require(member.start >= end && member.data > member.start, "members lie in order");
      fuzz::require(member.data <= size && member.size <= size - member.data,
                    "a member lies in the archive");
      end = member.data + member.size;
    }
  });
  fuzz::accepts(Exit::data, [&] {
    const pipeline::TarIndex index = pipeline::index_tar("x", bytes);
    for (const pipeline::TarIndex::Entry& entry : index.samples) {
      fuzz::require(
          entry.data <= size && entry.size <= size - entry.data && entry.back <= entry.data,
          "a sample lies in the archive");
      fuzz::require(entry.folder < index.folders.size() || index.folders.empty(),
                    "its folder is there");
      fuzz::require(!pipeline::tar_name("x", bytes, entry).empty(), "a sample has a name");
    }
    const auto around = pipeline::all_surroundings(index, size);
    Buffer scratch;
    for (std::size_t i = 0; i < around.size(); ++i)
      for (const char* mask : {"", "cls"})
        fuzz::accepts(Exit::data, [&] {
          fuzz::find_members(fuzz::wanted(mask), bytes, index.samples[i], around[i], scratch);
        });
  });
  return 0;
}
