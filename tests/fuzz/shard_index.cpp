// Fuzzes the indexes of archives and of sets, as they are and with their checksums put right, so
// that mutations get past these.
#include "pipeline/readers/shard_index.h"

#include "base/located_sample.h"
#include "pipeline/readers/set_index.h"
#include "tests/data/tar_builder.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {
namespace {

Bytes bytes_of(const std::vector<std::byte>& bytes) {
  Bytes out;
  for (const std::byte byte : bytes) out.push_back(static_cast<std::uint8_t>(byte));
  return out;
}

void check(std::span<const std::uint8_t> bytes) {
  accepts(Exit::data, [&] {
    const pipeline::ShardIndex index = pipeline::parse_shard_index("x", bytes, true);
    require(index.tar.name_at.size() == index.tar.samples.size(), "each sample has a name");
    for (std::size_t i = 0; i < index.tar.samples.size(); ++i) {
      const pipeline::TarIndex::Entry& entry = index.tar.samples[i];
      require(entry.size == base::kTooLong || entry.data + entry.size <= index.stamp.size,
              "a sample lies in the archive");
      require(entry.back <= entry.data, "its header lies in the archive");
      require(entry.folder < index.tar.folders.size(), "its folder is there");
      require(index.tar.name_at[i] < index.tar.names.size(), "its name is there");
    }
  });
  accepts(Exit::data, [&] {
    for (const pipeline::SetIndex::Shard& shard : pipeline::parse_set_index("x", bytes).shards) {
      require(!shard.name.empty() && shard.name[0] != '/', "names are relative");
      require(shard.unlabelled <= shard.samples, "numbers of samples agree");
    }
  });
}

}  // namespace

Corpus corpus() {
  test::TarBuilder tar;
  tar.add("a/1.jpg", Bytes(20, 7)).add("a/1.cls", "3").add("b/2.png", Bytes(5)).add("b/2.cls", "2");
  pipeline::IndexTarOptions names;
  names.names = true;
  pipeline::ShardIndex index;
  index.shard = "train-000.tar";
  index.stamp.size = tar.end().size();
  index.tar = pipeline::index_tar("x", tar.end(), names);
  pipeline::SetIndex set;
  for (const char* name : {"train/0.tar", "test/0.tar"}) {
    set.shards.emplace_back();
    set.shards.back().name = name;
    set.shards.back().size = 4096;
    set.shards.back().samples = 2;
    set.shards.back().folders = {"a", "b"};
  }
  set.classes = {"cat", "dog"};
  return {{bytes_of(to_bytes(index)), bytes_of(to_bytes(set))},
          {"MRIDX", "MRSET", "../", "/", std::string(1, '\0'), std::string(8, '\xff')}};
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  fuzz::check({data, size});
  fuzz::Bytes sealed(data, data + size);
  pipeline::seal_shard_index(sealed);
  fuzz::check(sealed);
  sealed.assign(data, data + size);
  pipeline::seal_set_index(sealed);
  fuzz::check(sealed);
  return 0;
}
