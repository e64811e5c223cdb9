// Contract Determinism: the bytes of batches depend on the recipe, the data, the seed and the
// epoch, and not on settings of speed.
#include <algorithm>
#include <fstream>
#include <set>

#include "tests/program/datasets.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kImage = 28 * 28;

class Determinism : public ProgramTest {
 protected:
  std::string hash(const Arguments& more) {
    const Result result = run(bench(Arguments{"--hash", "--json"} + more));
    EXPECT_TRUE(succeeded(result));
    const Json json = parse_json(result.out);
    return json.is_object() ? json["batch_hash"].get<std::string>() : "";
  }
  /// Returns the output of `bench overhead --dump` with loader.batch=32.
  std::string dump(const Arguments& more) {
    const Arguments base{"bench",           "overhead", "data.path=" + data(),
                         "loader.batch=32", "--dump",   in("dump").string()};
    EXPECT_TRUE(succeeded(run(base + more)));
    EXPECT_TRUE(no_temporaries(in("")));
    return read_file(in("dump"));
  }
  std::string images() { return read_file(fs::path(data()) / kTrainImages).substr(kImageHeader); }
  std::string labels() { return read_file(fs::path(data()) / kTrainLabels).substr(kLabelHeader); }
  static std::multiset<std::string> samples(const std::string& dumped, std::size_t count) {
    std::multiset<std::string> all;
    for (std::size_t i = 0; i < count; ++i)
      all.insert(dumped.substr(i * kImage, kImage) + dumped.substr(count * kImage + i, 1));
    return all;
  }
};

TEST_F(Determinism, HashDependsOnNothingThatIsAboutSpeed) {
  const std::string first = hash({"loader.workers=0"});
  ASSERT_EQ(first.size(), 16u);
  for (const char* workers : {"0", "1", "2", "4"})
    for (const char* prefetch : {"1", "8"})
      for (const char* grain : {"1", "7", "0"}) {
        const Arguments more{std::string("loader.workers=") + workers,
                             std::string("loader.prefetch=") + prefetch,
                             std::string("loader.grain=") + grain};
        ASSERT_EQ(hash(more), first)
            << workers << " workers, prefetch " << prefetch << ", grain " << grain;
      }
}

TEST_F(Determinism, SamplersDependOnNothingThatIsAboutSpeed) {
  std::ofstream weights(in("weights.txt"));
  for (std::size_t i = 0; i < labels().size(); ++i) weights << i % 5 << "\n";
  weights.close();
  const std::string file = "sampler.weights=" + in("weights.txt").string();
  std::set<std::string> hashes{hash({"loader.batch=32"})};
  for (const Arguments& sampler : std::vector<Arguments>{
           {"sampler.kind=weighted"},
           {"sampler.kind=weighted", file},
           {"sampler.kind=weighted", file, "sampler.replacement=false", "sampler.samples=100"},
           {"sampler.kind=balanced"},
           {"sampler.kind=repeat"},
           {"sampler.kind=sequential"},
           {"data.fold=2/5"},
           {"data.fold=2/5", "data.split=test"},
           {"data.fraction=0.5", "sampler.kind=balanced"}}) {
    const Arguments all = Arguments{"loader.batch=32", "bench.epochs=2"} + sampler;
    const std::string first = hash(all + Arguments{"loader.workers=0"});
    EXPECT_EQ(first, hash(all + Arguments{"loader.workers=3", "loader.prefetch=1", "loader.grain=5",
                                          "loader.io_threads=2"}))
        << sampler.back();
    EXPECT_TRUE(hashes.insert(first).second) << sampler.back() << " changed nothing";
  }
  EXPECT_EQ(hash({"sampler.kind=sequential"}), hash({"loader.shuffle=none"}));
}

TEST_F(Determinism, SizesOfEpochsDependOnNothingThatIsAboutSpeed) {
  const Arguments crop{"augment+=random_resized_crop{size=20}"};
  const Arguments sizes = crop + Arguments{"output.sizes=[12,20,16]", "output.milestones=[1,3]"};
  const std::string first = hash(sizes + Arguments{"bench.epochs=4", "loader.workers=0"});
  EXPECT_EQ(first, hash(sizes + Arguments{"bench.epochs=4", "loader.workers=3", "loader.grain=5",
                                          "loader.prefetch=9"}));
  EXPECT_NE(first, hash(crop + Arguments{"bench.epochs=4"}));
  const std::string one = hash(crop + Arguments{"augment.random_resized_crop.size=12"});
  EXPECT_EQ(hash(sizes), one);
}

TEST_F(Determinism, HashDependsOnWhatTheBatchesHold) {
  std::set<std::string> hashes{hash({})};
  for (const Arguments& more : std::vector<Arguments>{{"seed=1"},
                                                      {"bench.epochs=2"},
                                                      {"loader.batch=31"},
                                                      {"loader.shuffle=none"},
                                                      {"loader.shuffle=window:20"},
                                                      {"loader.drop_last=true"},
                                                      {"data.split=test"},
                                                      {"output.dtype=u8"},
                                                      {"output.std=[0.5]"},
                                                      {"augment.random_affine.degrees=14"},
                                                      {"bench.first_batch=1"}}) {
    const bool added = hashes.insert(hash(more)).second;
    EXPECT_TRUE(added) << more[0] << " changed nothing";
  }
}

TEST_F(Determinism, EpochsDiffer) {
  // The second epoch alone is the rest of a run of both.
  EXPECT_NE(hash({"bench.epochs=2", "bench.first_batch=7"}), hash({}));
}

TEST_F(Determinism, TrainingSeesTheBatchesThatBenchSees) {
  ASSERT_TRUE(succeeded(run(simulated("one", {"--hash", "loader.batch=32"}))));
  EXPECT_EQ(summary("one")["batch_hash"], hash({}));
  ASSERT_TRUE(succeeded(
      run(simulated("two", {"--hash", "loader.batch=32", "train.epochs=2", "loader.workers=0"}))));
  EXPECT_EQ(summary("two")["batch_hash"], hash({"bench.epochs=2"}));
}

TEST_F(Determinism, TrainingAModelSeesThemToo) {
  MILLRACE_NEEDS_TORCH();
  const Arguments train{"train",           "mnist-lenet",     "data.path=" + data(),
                        "loader.batch=32", "train.epochs=2",  "--hash",
                        "--run",           in("run").string()};
  ASSERT_TRUE(succeeded(run(train)));
  EXPECT_EQ(summary("run")["batch_hash"], hash({"bench.epochs=2"}));
}

TEST_F(Determinism, TrainingAModelSeesTheSizesOfEpochs) {
  MILLRACE_NEEDS_TORCH();
  const Arguments sizes{"augment+=random_resized_crop{size=20}", "output.sizes=[12,20]",
                        "output.milestones=[1]"};
  const auto train = [&](const std::string& model, const char* side) {
    return Arguments{"train",
                     "mnist-lenet",
                     "data.path=" + data(),
                     "model.name=" + model,
                     "loader.batch=32",
                     "train.epochs=2",
                     "--hash",
                     fmt::format("eval.augment+=resize{{size=[{0},{0}]}}", side)} +
           sizes;
  };
  ASSERT_TRUE(succeeded(run(train("resnet18", "24") + Arguments{"--run", in("run").string()})));
  EXPECT_EQ(summary("run")["batch_hash"], hash(sizes + Arguments{"bench.epochs=2"}));
  EXPECT_TRUE(refused(run(train("lenet5", "20")), 2, {"output.sizes with model.name=lenet5"}));
  EXPECT_TRUE(refused(run(Arguments{"profile", "mnist-lenet", "data.path=" + data()} + sizes), 2,
                      {"output.sizes changes within the run"}));
}

TEST_F(Determinism, DumpInOrderIsTheFilesOwnBytes) {
  EXPECT_TRUE(dump({"loader.shuffle=none"}) == images() + labels());
  EXPECT_TRUE(dump({"loader.shuffle=none", "loader.workers=0", "bench.epochs=2"}) ==
              images() + labels())
      << "the first epoch alone is written";
  EXPECT_TRUE(dump({"loader.shuffle=none", "loader.drop_last=true"}) ==
              images().substr(0, 192 * kImage) + labels().substr(0, 192));
}

TEST_F(Determinism, ShuffledDumpHoldsEverySampleOnce) {
  const std::string plain = images() + labels();
  const std::string global = dump({});
  const std::string window = dump({"loader.shuffle=window:50"});
  EXPECT_EQ(samples(global, 200), samples(plain, 200));
  EXPECT_EQ(samples(window, 200), samples(plain, 200));
  EXPECT_TRUE(global != plain);
  EXPECT_TRUE(window != plain);
  EXPECT_TRUE(global != window);
}

TEST_F(Determinism, FirstBatchContinuesExactly) {
  const std::string whole = dump({});
  const std::string rest = dump({"bench.first_batch=3"});
  constexpr std::size_t kBefore = 3 * 32;
  EXPECT_TRUE(rest == whole.substr(kBefore * kImage, (200 - kBefore) * kImage) +
                          whole.substr(200 * kImage + kBefore));
}

TEST_F(Determinism, FirstBatchContinuesExactlyWithAugmentation) {
  const auto dumped = [&](const Arguments& more) {
    EXPECT_TRUE(succeeded(run(bench(Arguments{"--dump", in("dump").string()} + more))));
    return read_file(in("dump"));
  };
  const std::string whole = dumped({});
  const std::string rest = dumped({"bench.first_batch=5", "loader.workers=0"});
  constexpr std::size_t kFloats = kImage * 4;
  EXPECT_TRUE(rest ==
              whole.substr(160 * kFloats, 40 * kFloats) + whole.substr(200 * kFloats + 160));
}

TEST_F(Determinism, FirstBatchBehindTheEndIsRefusedOrEmpty) {
  const Result result = run(bench({"bench.first_batch=7", "--json"}));
  if (result.exit_code == 2) {
    EXPECT_NE(result.err.find("bench.first_batch"), std::string::npos) << result.err;
    return;
  }
  ASSERT_TRUE(succeeded(result));
  EXPECT_EQ(parse_json(result.out)["images"], 0);
}

TEST_F(Determinism, GzipHoldsTheSameSet) {
  const char* folder = std::getenv("MILLRACE_DATA");
  if (folder == nullptr || !fs::exists(fs::path(folder) / "mnist"))
    GTEST_SKIP() << "MILLRACE_DATA names no folder with mnist/ in it: real data is not tried";
  const std::string path = "data.path=" + (fs::path(folder) / "mnist").string();
  const Result result = run({"bench", "overhead", path, "data.split=test", "loader.shuffle=none",
                             "--dump", in("dump").string(), "--json"});
  ASSERT_TRUE(succeeded(result));
  EXPECT_EQ(parse_json(result.out)["images"], 10000);
  EXPECT_EQ(fs::file_size(in("dump")), 10000 * (kImage + 1));
  // The first labels of MNIST's test set.
  EXPECT_EQ(read_file(in("dump")).substr(10000 * kImage, 6), std::string("\7\2\1\0\4\1", 6));
}

}  // namespace
}  // namespace millrace::program_test
