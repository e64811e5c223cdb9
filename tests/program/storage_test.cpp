// Sources of samples as a user asks for them: readers, caches, emulated storage, data pack.
#include <algorithm>

#include "tests/program/datasets.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class Storage : public ProgramTest {
 protected:
  static constexpr int kEach = 12;

  void SetUp() override { write_photos(in("photos"), kEach); }
  Arguments bench_of(const std::string& reader, const fs::path& path, const Arguments& more = {}) {
    return Arguments{"bench",  "data.reader=" + reader, "data.path=" + path.string(), "--json",
                     "--hash", "loader.batch=5"} +
           more;
  }
  Json json_of(const Arguments& arguments) {
    const Result result = run(arguments);
    EXPECT_TRUE(succeeded(result));
    return parse_json(result.out);
  }
};

TEST_F(Storage, EveryReaderCacheAndThreadGivesTheSameHash) {
  ASSERT_TRUE(
      succeeded(run({"data", "pack", in("photos").string(), in("tar").string(), "--shards", "3"})));
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(in("photos/train")))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::string manifest = "path,label\n";
  for (const fs::path& file : files)
    manifest += file.string() + "," + file.parent_path().filename().string() + "\n";
  write_file(in("list.csv"), manifest);
  const Json folder = json_of(bench_of("folder", in("photos")));
  EXPECT_EQ(folder["images"], 3 * kEach);
  EXPECT_EQ(folder["io_threads"], 0);
  const std::pair<const char*, fs::path> sets[] = {
      {"folder", in("photos")}, {"tar", in("tar")}, {"manifest", in("list.csv")}};
  for (const auto& [reader, path] : sets)
    for (const Arguments& more :
         {Arguments{"loader.workers=0"}, Arguments{"loader.io_threads=3"},
          Arguments{"data.cache=ram", "-q"}, Arguments{"data.cache=cold", "-q"},
          Arguments{"data.storage.latency=1", "data.storage.bandwidth=50"}}) {
      const Json json = json_of(bench_of(reader, path, more));
      EXPECT_EQ(json["batch_hash"], folder["batch_hash"]) << reader << " " << more.front();
      EXPECT_EQ(json["images"], 3 * kEach);
    }
}

TEST_F(Storage, ATarSetHasOneHashWithAndWithoutItsIndex) {
  ASSERT_TRUE(
      succeeded(run({"data", "pack", in("photos").string(), in("tar").string(), "--shards", "2"})));
  const Json folder = json_of(bench_of("folder", in("photos")));
  for (const char* index : {"data.index=require", "data.index=off"})
    for (const char* workers : {"loader.workers=1", "loader.workers=2"})
      EXPECT_EQ(json_of(bench_of("tar", in("tar"), {index, workers}))["batch_hash"],
                folder["batch_hash"])
          << index << " " << workers;

  fs::remove(in("tar/train-000001.tar.index"));
  EXPECT_TRUE(refused(run(bench_of("tar", in("tar"), {"data.index=require"})), 3,
                      {"train-000001.tar", "has no index"}));
  const Result indexed = run({"data", "index", in("tar").string(), "--json"});
  EXPECT_TRUE(succeeded(indexed));
  EXPECT_EQ(parse_json(indexed.out)["shards"].size(), 2u);
  json_of(bench_of("tar", in("tar"), {"data.index=require"}));
  const Result shown = run({"data", "index", in("tar").string(), "--show"});
  EXPECT_TRUE(succeeded(shown));
  const Json document = parse_json(shown.out);
  std::size_t samples = 0;
  for (const Json& shard : document["shards"]) samples += shard["samples"].size();
  EXPECT_EQ(samples, 3u * kEach);

  fs::copy_file(in("tar/train-000000.tar.index"), in("tar/train-000001.tar.index"),
                fs::copy_options::overwrite_existing);
  EXPECT_TRUE(refused(run(bench_of("tar", in("tar"))), 3,
                      {"train-000001.tar.index", "belongs to another archive, train-000000.tar"}));
  const Result verified = run({"data", "verify", in("tar").string()});
  EXPECT_EQ(verified.exit_code, 3);
  EXPECT_EQ(count_of(verified.out, "belongs to another archive"), 1u) << verified.out;
}

TEST_F(Storage, PackMakesImagesSmaller) {
  const Arguments pack{"data", "pack", in("photos").string(), in("tar").string()};
  EXPECT_TRUE(refused(run(pack + Arguments{"--quality", "50"}), 2, {"--quality"}));
  EXPECT_TRUE(refused(run(pack + Arguments{"--short-side", "0"}), 2, {"--short-side"}));
  const Result packed = run(pack + Arguments{"--short-side", "24", "--quality", "80"});
  ASSERT_TRUE(succeeded(packed));
  EXPECT_NE(
      packed.err.find("warning: resizing is lossy and changes batches: LeNet-5 on CIFAR-10 lost "),
      std::string::npos)
      << packed.err;
  const Result verified = run({"data", "verify", in("tar").string()});
  EXPECT_TRUE(succeeded(verified));
  EXPECT_EQ(count_of(verified.out, "24x24"), 1u) << verified.out;
}

TEST_F(Storage, RawPixelsReadInPlaceGiveTheHashOfTheirJpegs) {
  write_photos(in("large"), 4, 200);  // small images are copied
  ASSERT_TRUE(succeeded(
      run({"data", "pack", in("large").string(), in("raw").string(), "--format", "raw"})));
  const Arguments chain{"augment+=random_resized_crop{size=24}", "augment+=hflip"};
  const Json folder = json_of(bench_of("folder", in("large"), chain));
  for (const Arguments& more :
       {Arguments{"loader.workers=0"}, Arguments{"loader.workers=2"},
        Arguments{"loader.workers=2", "loader.io_threads=2"}, Arguments{"data.cache=ram", "-q"},
        Arguments{"data.cache=cold", "-q"}, Arguments{"data.storage.latency=1us"}})
    EXPECT_EQ(json_of(bench_of("tar", in("raw"), chain + more))["batch_hash"], folder["batch_hash"])
        << more.front();
}

TEST_F(Storage, RawPixelsGiveTheHashOfTheirJpegs) {
  const Arguments pack{
      "data",     "pack", in("photos").string(), in("raw").string(), "--format", "raw",
      "--shards", "2"};
  EXPECT_TRUE(refused(run(pack + Arguments{"--quality", "50"}), 2, {"--quality", "--format raw"}));
  EXPECT_TRUE(refused(run(pack + Arguments{"--format", "png"}), 2, {"--format"}));
  const Result packed = run(pack);
  ASSERT_TRUE(succeeded(packed));
  EXPECT_EQ(packed.err.find("lossy"), std::string::npos) << "no pixel is changed: " << packed.err;
  EXPECT_TRUE(succeeded(run({"data", "verify", in("raw").string()})));
  EXPECT_TRUE(succeeded(run({"inspect", "data.reader=tar", "data.path=" + in("raw").string(),
                             "--out", in("sheet.png").string()})));
  for (const char* shuffle : {"loader.shuffle=global", "loader.shuffle=window:7"}) {
    const Arguments chain{shuffle, "augment+=random_resized_crop{size=24}", "augment+=hflip"};
    const Json folder = json_of(bench_of("folder", in("photos"), chain));
    for (const Arguments& more :
         {Arguments{"data.index=require"}, Arguments{"data.index=off", "loader.workers=0"},
          Arguments{"loader.workers=2", "loader.io_threads=2"}, Arguments{"data.cache=ram", "-q"},
          Arguments{"data.cache=cold", "-q"}, Arguments{"decode.region=off"},
          Arguments{"decode.scale=dct"}}) {
      const Json json = json_of(bench_of("tar", in("raw"), chain + more));
      EXPECT_EQ(json["batch_hash"], folder["batch_hash"]) << shuffle << " " << more.front();
    }
    for (const char* level : {"scalar", "avx2", "avx512"}) {
      RunOptions options;
      options.env["MILLRACE_SIMD"] = level;
      const Result result = run(bench_of("tar", in("raw"), chain), options);
      if (result.exit_code == 2) continue;  // not supported by this processor
      EXPECT_EQ(parse_json(result.out)["batch_hash"], folder["batch_hash"]) << level;
    }
  }
  patch(in("raw/train-000000.tar"), 512 + 20, 0xff);  // the height in the first header
  const Result damaged = run(bench_of("tar", in("raw"), {"data.index=off"}));
  EXPECT_TRUE(refused(damaged, 3, {"raw image", "wrong checksum of its header"}));
  const Result verified = run({"data", "verify", in("raw").string()});
  EXPECT_EQ(verified.exit_code, 3);
  EXPECT_EQ(count_of(verified.out, "wrong checksum of its header"), 1u) << verified.out;
  EXPECT_EQ(count_of(verified.out, "the index does not match the archive"), 1u)
      << "indexes are checked although an image is bad: " << verified.out;
}

TEST_F(Storage, SaysWhichThreadsReadAndWhatWasCold) {
  const Json cold = json_of(bench_of("folder", in("photos"), {"data.cache=cold", "-q"}));
  EXPECT_EQ(cold["io_threads"], 4);
  EXPECT_EQ(cold["cold"]["proven"].get<int>() + cold["cold"]["resident"].get<int>(), 3 * kEach + 1)
      << "each image, and the first one once more to learn its size";
  const Json inline_reads =
      json_of(bench_of("folder", in("photos"), {"data.storage.iops=5000", "loader.workers=0"}));
  EXPECT_EQ(inline_reads["io_threads"], 0);
  EXPECT_FALSE(inline_reads.contains("cold"));
  ASSERT_TRUE(succeeded(run({"train", "data.reader=folder", "data.path=" + in("photos").string(),
                             "loader.batch=6", "train.device=simulated", "simulated.update_ms=1",
                             "data.storage.latency=1", "--run", in("run").string()})));
  EXPECT_EQ(summary("run")["io_threads"], 4);
}

TEST_F(Storage, AnEmulatedDiskDecides) {
  // 36 reads, 20 ms each, four at a time: nine rounds.
  const Json slow =
      json_of(bench_of("folder", in("photos"), {"data.storage.latency=20", "loader.prefetch=8"}));
  EXPECT_GE(slow["wall_s"], 0.178);
  EXPECT_GE(slow["per_stage"]["read"]["wall_s"], 0.7);
  EXPECT_LE(slow["per_stage"]["read"]["cpu_s"], 0.2);
  EXPECT_EQ(slow["per_stage"]["read"]["calls"], 3 * kEach);
}

TEST_F(Storage, SyntheticNeedsNoPath) {
  const Json json = json_of({"bench", "overhead", "data.reader=synthetic",
                             "data.synthetic.count=1000", "data.synthetic.width=8",
                             "data.synthetic.height=4", "data.synthetic.channels=1", "--json"});
  EXPECT_EQ(json["images"], 1000);
  EXPECT_EQ(json["sample"]["width"], 8);
  EXPECT_EQ(json["sample"]["channels"], 1);
}

TEST_F(Storage, MistakesAreNamed) {
  EXPECT_TRUE(refused(run(bench_of("folder", in("photos"), {"data.cache=warm"})), 2,
                      {"data.cache", "warm"}));
  EXPECT_TRUE(refused(run(bench_of("tra", in("photos"))), 2, {"data.reader", "tra"}));
  EXPECT_TRUE(refused(run(bench_of("synthetic", "", {"data.cache=cold"})), 2, {"cold"}));
  write_file(in("cut.tar"), std::string(600, 'x'));
  EXPECT_TRUE(
      refused(run(bench_of("tar", in("cut.tar"))), 3, {in("cut.tar").string(), "not a tar"}));
  write_file(in("bad.csv"), "path,label\na.jpg\n");
  EXPECT_TRUE(
      refused(run(bench_of("manifest", in("bad.csv"))), 3, {in("bad.csv").string() + ":2"}));
}

TEST_F(Storage, PackReportsAndRefuses) {
  const Arguments pack{"data", "pack", in("photos").string(), in("tar").string()};
  const Result packed = run(pack + Arguments{"--json", "--shard-size", "0.05"});
  ASSERT_TRUE(succeeded(packed));
  const Json json = parse_json(packed.out);
  EXPECT_EQ(json["splits"][0]["count"], 3 * kEach);
  EXPECT_GT(json["splits"][0]["files"].size(), 1u);
  EXPECT_TRUE(succeeded(run({"data", "verify", in("tar").string()})));
  EXPECT_TRUE(refused(run(pack), 1, {in("tar").string(), "--force"}));
  EXPECT_TRUE(succeeded(run(pack + Arguments{"--force"})));
  RunOptions options;
  options.max_file_bytes = 20'000;
  const Arguments elsewhere{"data", "pack", in("photos").string(), in("full").string()};
  EXPECT_TRUE(refused(run(elsewhere, options), 1, {in("full").string()}));
  EXPECT_TRUE(fs::is_empty(in("full")));
  cut(in("tar/train-000000.tar"), 0.5);
  const Result verified = run({"data", "verify", in("tar").string()});
  EXPECT_EQ(verified.exit_code, 3);
  EXPECT_NE(verified.out.find("truncated"), std::string::npos) << verified.out;
}

}  // namespace
}  // namespace millrace::program_test
