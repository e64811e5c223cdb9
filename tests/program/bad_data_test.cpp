// Missing or damaged data: exit code 3, one line that names the file, a hint, nothing else.
#include "tests/program/datasets.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class BadIdx : public ProgramTest {
 protected:
  fs::path file(const char* name) { return fs::path(data()) / name; }
  /// Expects that both loading and training reject it alike, before anything is written.
  void expect_refused(const std::vector<std::string>& parts) {
    EXPECT_TRUE(refused(run(bench()), 3, parts));
    EXPECT_TRUE(refused(run(simulated("run")), 3, parts));
    EXPECT_FALSE(fs::exists(in("run")));
  }
};

TEST_F(BadIdx, MissingFolder) {
  data();
  fs::remove_all(in("data"));
  write_file(in("other"), "a file");
  const std::string path = (in("nowhere")).string();
  EXPECT_TRUE(refused(run({"bench", "mnist-lenet", "data.path=" + path}), 3, {path}));
  EXPECT_TRUE(refused(run({"bench", "mnist-lenet", "data.path=" + in("other").string()}), 3,
                      {in("other").string(), "not a folder"}));
}

TEST_F(BadIdx, EmptyFolder) {
  fs::create_directories(in("data"));
  expect_refused({in("data").string(), kTrainImages});
}

TEST_F(BadIdx, MissingLabels) {
  fs::remove(file(kTrainLabels));
  expect_refused({kTrainLabels});
}

TEST_F(BadIdx, TruncatedImages) {
  cut(file(kTrainImages), 0.5);
  expect_refused({file(kTrainImages).string(), "truncated"});
}

TEST_F(BadIdx, TruncatedWithinTheHeader) {
  fs::resize_file(file(kTrainImages), 7);
  expect_refused({file(kTrainImages).string(), "truncated"});
  fs::resize_file(file(kTrainImages), 0);
  expect_refused({file(kTrainImages).string(), "truncated"});
}

TEST_F(BadIdx, TruncatedLabels) {
  cut(file(kTrainLabels), 0.9);
  expect_refused({file(kTrainLabels).string(), "truncated"});
}

TEST_F(BadIdx, TruncatedGzip) {
  // A gzip's first bytes and then nothing.
  fs::remove(file(kTrainImages));
  write_file(file(kTrainImages).string() + ".gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10));
  expect_refused({file(kTrainImages).string() + ".gz"});
}

TEST_F(BadIdx, WrongMagic) {
  patch(file(kTrainImages), 3, 0x01);
  expect_refused({file(kTrainImages).string(), "magic", "00000801"});
}

TEST_F(BadIdx, ImagesAndLabelsSwapped) {
  fs::rename(file(kTrainImages), in("images"));
  fs::rename(file(kTrainLabels), file(kTrainImages));
  fs::rename(in("images"), file(kTrainLabels));
  expect_refused({kTrainImages, "magic"});
}

TEST_F(BadIdx, LabelOutOfRange) {
  patch(file(kTrainLabels), kLabelHeader + 123, 10);
  expect_refused({file(kTrainLabels).string(), "label 10", "123"});
}

TEST_F(BadIdx, CountsThatDiffer) {
  std::string labels = read_file(file(kTrainLabels));
  labels.pop_back();
  labels[7] = static_cast<char>(199);
  write_file(file(kTrainLabels), labels);
  expect_refused({file(kTrainLabels).string(), "199", "200"});
}

TEST_F(BadIdx, HugeCountInTheHeaderIsNoAllocation) {
  for (std::size_t at = 4; at < 8; ++at) patch(file(kTrainImages), at, 0xff);
  expect_refused({file(kTrainImages).string(), "truncated"});
}

TEST_F(BadIdx, BrokenTestSplitShowsBeforeTheTraining) {
  MILLRACE_NEEDS_TORCH();
  cut(file(kTestImages), 0.5);
  EXPECT_TRUE(refused(run(training("run")), 3, {file(kTestImages).string(), "truncated"}));
  EXPECT_FALSE(fs::exists(in("run")));
}

class BadFolder : public ProgramTest {
 protected:
  static constexpr int kEach = 8;
  static constexpr int kAll = 3 * kEach;

  void SetUp() override { write_photos(in("photos"), kEach); }
  Arguments folder(const std::string& command, const Arguments& more = {}) {
    return Arguments{
               command,          "data.reader=folder",     "data.path=" + in("photos").string(),
               "loader.batch=6", "train.device=simulated", "simulated.update_ms=1"} +
           more;
  }
  Arguments train(const std::string& name, const Arguments& more = {}) {
    return folder("train", Arguments{"--run", in(name).string()} + more);
  }
  fs::path photo(const std::string& name) { return in("photos") / "train" / name; }
};

TEST_F(BadFolder, WholeFolderIsTakenWhole) {
  ASSERT_TRUE(succeeded(run(train("run"))));
  EXPECT_EQ(summary("run")["images"], kAll);
  EXPECT_EQ(summary("run")["failed"], 0);
  EXPECT_FALSE(fs::exists(in("run") / "quarantine.jsonl"));
}

TEST_F(BadFolder, EmptyClassFolder) {
  fs::create_directories(photo("dog"));
  write_file(photo("dog/notes.txt"), "no image");
  EXPECT_TRUE(refused(run(folder("bench")), 3, {photo("dog").string()}));
}

TEST_F(BadFolder, HalfAJpegEndsTheRun) {
  cut(photo("bee/12.jpg"), 0.5);
  EXPECT_TRUE(refused(run(folder("bench")), 3, {photo("bee/12.jpg").string(), "jpeg"}));
  EXPECT_TRUE(
      refused(run(folder("bench", {"loader.workers=0"})), 3, {photo("bee/12.jpg").string()}));
  EXPECT_TRUE(refused(run(train("run")), 3, {photo("bee/12.jpg").string()}, false));
  const Json s = summary("run");  // work done before the failure is kept
  EXPECT_NE(s["error"].get<std::string>().find("bee/12.jpg"), std::string::npos) << s["error"];
  const auto rows = lines_of(read_file(in("run") / "steps.csv")).size();
  EXPECT_EQ(rows, s["steps"].get<std::size_t>() + 1);
  EXPECT_TRUE(no_temporaries(in("run")));
}

TEST_F(BadFolder, OfSeveralTheSameOneIsNamedWhateverTheWorkers) {
  for (const char* name : {"ape/13.jpg", "bee/12.jpg", "cat/16.jpg"}) cut(photo(name), 0.5);
  const std::string first = run(folder("bench", {"loader.workers=0"})).err;
  for (const char* workers : {"1", "2", "4"})
    EXPECT_EQ(run(folder("bench", {std::string("loader.workers=") + workers})).err, first);
}

TEST_F(BadFolder, SkipGoesOnWithoutIt) {
  cut(photo("bee/12.jpg"), 0.5);
  const Result result = run(train("run", {"loader.on_error=skip", "train.epochs=2"}));
  ASSERT_TRUE(succeeded(result));
  EXPECT_EQ(summary("run")["failed"], 2);
  EXPECT_EQ(summary("run")["images"], 2 * (kAll - 1));
  EXPECT_EQ(summary("run")["steps"], 8);
  const auto lines = parse_json_lines(read_file(in("run") / "quarantine.jsonl"));
  ASSERT_EQ(lines.size(), 2u);
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(lines[epoch]["path"], photo("bee/12.jpg").string());
    EXPECT_EQ(lines[epoch]["sample"], kEach + 2);
    EXPECT_EQ(lines[epoch]["epoch"], epoch + 1);
    EXPECT_NE(lines[epoch]["reason"].get<std::string>().find("jpeg"), std::string::npos);
  }
}

TEST_F(BadFolder, AnEpochThatIsRecordedAgainHasTheSamplesItHad) {
  cut(photo("bee/12.jpg"), 0.5);
  ASSERT_TRUE(succeeded(run(train("run", {"loader.on_error=skip"}))));
  const auto epochs = parse_json_lines(read_file(in("run") / "metrics.jsonl"));
  fs::remove(in("run") / "summary.json");  // as if killed before it was written
  ASSERT_TRUE(succeeded(run({"train", "--resume", "--run", in("run").string()})));
  const auto again = parse_json_lines(read_file(in("run") / "metrics.jsonl"));
  ASSERT_EQ(again.size(), epochs.size());
  EXPECT_EQ(again.back()["images"], kAll - 1);
  EXPECT_EQ(again.back()["train_top1"], epochs.back()["train_top1"]);
}

TEST_F(BadFolder, ReplaceGoesOnWithAnother) {
  cut(photo("bee/12.jpg"), 0.5);
  ASSERT_TRUE(succeeded(run(train("run", {"loader.on_error=replace", "train.epochs=2"}))));
  EXPECT_EQ(summary("run")["images"], 2 * kAll);
  const auto lines = parse_json_lines(read_file(in("run") / "quarantine.jsonl"));
  EXPECT_EQ(summary("run")["failed"], lines.size());
  EXPECT_GE(lines.size(), 2u);  // more if the replacement draws it again
  for (const auto& line : lines) EXPECT_EQ(line["path"], photo("bee/12.jpg").string());
}

TEST_F(BadFolder, SkipAndReplaceGiveTheSameBatchesWhateverTheWorkers) {
  for (const char* name : {"ape/13.jpg", "bee/12.jpg", "cat/16.jpg"}) cut(photo(name), 0.5);
  for (const std::string mode : {"skip", "replace"}) {
    Json first;
    for (const char* workers : {"0", "1", "3"}) {
      const Result result = run(folder("bench", {"loader.on_error=" + mode, "--hash", "--json",
                                                 std::string("loader.workers=") + workers}));
      ASSERT_TRUE(succeeded(result));
      const Json json = parse_json(result.out);
      EXPECT_GE(json["failed"], 3);
      if (first.is_null()) first = json["batch_hash"];
      EXPECT_EQ(json["batch_hash"], first) << mode << ", " << workers << " workers";
    }
  }
}

TEST_F(BadFolder, SkipGoesOnWhereTheFirstFileIsTheBrokenOne) {
  cut(photo("ape/10.jpg"), 0.5);
  ASSERT_TRUE(succeeded(run(train("run", {"loader.on_error=skip"}))));
  EXPECT_EQ(summary("run")["failed"], 1);
  EXPECT_EQ(summary("run")["images"], kAll - 1);
}

TEST_F(BadFolder, TextNamedAsAnImageIsNamed) {
  write_file(photo("cat/99.jpg"), "this is no image\n");
  EXPECT_TRUE(refused(run(folder("bench")), 3, {photo("cat/99.jpg").string()}));
}

TEST_F(BadFolder, ImageBeyondMaxPixelsIsRefused) {
  EXPECT_TRUE(refused(run(folder("bench", {"data.max_pixels=2303"})), 3, {"48", "max_pixels"}));
  EXPECT_TRUE(succeeded(run(folder("bench", {"data.max_pixels=2304"}))));
}

}  // namespace
}  // namespace millrace::program_test
