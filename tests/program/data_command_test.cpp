// millrace data: the sets it makes are valid and usable, and it lists defects of damaged sets.
#include "tests/program/datasets.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class DataCommand : public ProgramTest {
 protected:
  Arguments digits(const std::string& name, const Arguments& more = {}) {
    return Arguments{"data",    "make", "digits", in(name).string(),
                     "--train", "100",  "--test", "30"} +
           more;
  }
};

TEST_F(DataCommand, DigitsAreSoundAndCanBeLoaded) {
  const Result made = run(digits("set", {"--json"}));
  ASSERT_TRUE(succeeded(made));
  EXPECT_EQ(parse_json(made.out)["train"], 100);
  EXPECT_EQ(parse_json(made.out)["test"], 30);
  EXPECT_TRUE(no_temporaries(in("set")));
  const Result verified = run({"data", "verify", in("set").string(), "--classes", "10"});
  ASSERT_TRUE(succeeded(verified));
  EXPECT_NE(verified.out.find("sound"), std::string::npos) << verified.out;
  EXPECT_TRUE(succeeded(run({"bench", "mnist-lenet", "data.path=" + in("set").string()})));
  EXPECT_TRUE(succeeded(run({"bench", "mnist-lenet", "data.path=" + in("set").string(),
                             "data.split=test", "loader.batch=30"})));
}

TEST_F(DataCommand, SeedDecidesTheBytes) {
  ASSERT_TRUE(succeeded(run(digits("one", {"--seed", "3"}))));
  ASSERT_TRUE(succeeded(run(digits("two", {"--seed", "3"}))));
  ASSERT_TRUE(succeeded(run(digits("three", {"--seed", "4"}))));
  EXPECT_TRUE(read_file(in("one") / kTrainImages) == read_file(in("two") / kTrainImages));
  EXPECT_TRUE(read_file(in("one") / kTrainLabels) == read_file(in("two") / kTrainLabels));
  EXPECT_FALSE(read_file(in("one") / kTrainImages) == read_file(in("three") / kTrainImages));
}

TEST_F(DataCommand, AnotherSetIsNotWrittenOver) {
  ASSERT_TRUE(succeeded(run(digits("set", {"--seed", "3"}))));
  const std::string before = read_file(in("set") / kTrainImages);
  EXPECT_TRUE(succeeded(run(digits("set", {"--seed", "3"})))) << "it is what would be written";
  const Result other = run(digits("set", {"--seed", "4"}));
  EXPECT_TRUE(refused(other, 1, {in("set").string(), "--force"}));
  EXPECT_TRUE(read_file(in("set") / kTrainImages) == before);
  EXPECT_TRUE(succeeded(run(digits("set", {"--seed", "4", "--force"}))));
  EXPECT_FALSE(read_file(in("set") / kTrainImages) == before);
}

TEST_F(DataCommand, FullDiskLeavesNoPartialSet) {
  RunOptions options;
  options.max_file_bytes = 50'000;
  EXPECT_TRUE(refused(run(digits("set"), options), 1, {in("set").string()}));
  EXPECT_FALSE(fs::exists(in("set") / kTrainImages));
  EXPECT_TRUE(no_temporaries(in("")));
}

TEST_F(DataCommand, PhotosAreSoundAndCanBeLoaded) {
  const std::string set = in("photos").string();
  const Result made =
      run({"data", "make", "photos", set, "--count", "10", "--classes", "2", "--json"});
  ASSERT_TRUE(succeeded(made));
  const Json json = parse_json(made.out);
  EXPECT_EQ(json["train"].get<int>() + json["test"].get<int>(), 10);
  EXPECT_TRUE(succeeded(run({"data", "verify", set})));
  const Result bench = run({"bench", "data.reader=folder", "data.path=" + set, "loader.batch=4",
                            "augment+=random_crop{size=64,pad_if_needed=true}", "--json"});
  ASSERT_TRUE(succeeded(bench));
  EXPECT_EQ(parse_json(bench.out)["images"], json["train"]);
  EXPECT_GT(parse_json(bench.out)["per_stage"]["decode"]["cpu_s"], 0.0);
}

TEST_F(DataCommand, VerifyNamesWhatIsWrong) {
  const fs::path images = fs::path(data()) / kTrainImages;
  cut(images, 0.5);
  patch(fs::path(data()) / kTestLabels, kLabelHeader + 7, 200);
  const Result result = run({"data", "verify", data(), "--classes", "10"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.out.find(images.string()), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(kTestLabels), std::string::npos) << result.out;
  EXPECT_EQ(count_of("\n" + result.err, "\nmillrace: "), 1u) << result.err;
}

TEST_F(DataCommand, VerifyListsAllAsJson) {
  write_photos(in("photos"), 6);
  for (const char* name : {"ape/12.jpg", "cat/13.jpg"}) cut(in("photos/train") / name, 0.5);
  fs::create_directories(in("photos/train/dog"));
  const Result result = run({"data", "verify", in("photos").string(), "--json"});
  EXPECT_EQ(result.exit_code, 3);
  const Json json = parse_json(result.out);
  EXPECT_EQ(json["sound"], false);
  for (const char* name : {"ape/12.jpg", "cat/13.jpg", "train/dog"})
    EXPECT_NE(json["problems"].dump().find(name), std::string::npos) << name << " in " << json;
}

TEST_F(DataCommand, VerifyOfNothingIsBadData) {
  EXPECT_TRUE(
      refused(run({"data", "verify", in("nowhere").string()}), 3, {in("nowhere").string()}));
  fs::create_directories(in("empty"));
  EXPECT_EQ(run({"data", "verify", in("empty").string()}).exit_code, 3);
}

/// Returns the words of the command after "next: ", without the program's name.
Arguments next_command(const std::string& out) {
  std::string line = out.substr(out.find("next: millrace ") + 15);
  line = line.substr(0, line.find('\n'));
  Arguments words{""};
  bool quoted = false;
  for (const char c : line) {
    if (c == '\'')
      quoted = !quoted;
    else if (c == ' ' && !quoted)
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

TEST_F(DataCommand, TheProposedNextCommandWorks) {
  const std::string digits_in = in("my digits").string();
  const std::string photos_in = in("photos").string();
  for (const Arguments& make :
       {Arguments{"data", "make", "digits", digits_in, "--train", "40", "--test", "20"},
        Arguments{"data", "make", "objects", in("objects").string(), "--train", "40", "--test",
                  "20"},
        Arguments{"data", "make", "photos", photos_in, "--count", "20"},
        Arguments{"data", "pack", photos_in, in("tars").string()},
        Arguments{"data", "pack", photos_in, in("one.tar").string(), "--split", "test"}}) {
    const Result made = run(make);
    ASSERT_TRUE(succeeded(made));
    ASSERT_NE(made.out.find("next: millrace "), std::string::npos) << made.out;
    Arguments next = next_command(made.out);
    if (next[0] == "train") next.insert(next.end(), {"train.device=simulated", "train.steps=1"});
    EXPECT_TRUE(succeeded(run(next))) << made.out;
  }
}

TEST_F(DataCommand, TheProposedCommandTrainsAModelOnPhotos) {
  MILLRACE_NEEDS_TORCH();
  const std::string set = in("my photos").string();
  const Result made = run({"data", "make", "photos", set, "--count", "4", "--classes", "2"});
  ASSERT_TRUE(succeeded(made));
  Arguments next = next_command(made.out);
  ASSERT_EQ(next[0], "train") << made.out;
  EXPECT_EQ(next[1], "imagenet-rrc") << made.out;
  EXPECT_EQ(next[2], "data.path=" + set) << made.out;
  next.insert(next.end(), {"--run", in("run").string()});
  ASSERT_TRUE(succeeded(run(next)));
  EXPECT_EQ(summary("run")["model"], "resnet18");
  EXPECT_EQ(summary("run")["steps"], 1);
  EXPECT_TRUE(summary("run")["top1"].is_number());
}

TEST_F(DataCommand, ASetThatFillsTheRecipesBatchKeepsIt) {
  for (const auto& [train, changed] : {std::pair{"50", false}, std::pair{"49", true}}) {
    const std::string set = in(train).string();
    const Result made = run({"data", "make", "objects", set, "--train", train, "--test", "10"});
    ASSERT_TRUE(succeeded(made));
    ASSERT_NE(made.out.find("next: millrace train cifar10-lenet"), std::string::npos) << made.out;
    EXPECT_EQ(made.out.find(" loader.batch=49\n") != std::string::npos, changed) << made.out;
    EXPECT_EQ(made.out.find("loader.batch") != std::string::npos, changed) << made.out;
  }
}

TEST_F(DataCommand, ADamagedFileOfTheRecipesNameEndsNothing) {
  write_file(in("mnist-lenet"), "no recipe [");
  const Result made = run(digits("set"));  // in that folder
  ASSERT_TRUE(succeeded(made));
  EXPECT_NE(made.out.find("next: millrace train mnist-lenet"), std::string::npos) << made.out;
}

TEST_F(DataCommand, AMissingSetIsAnsweredWithItsOwnKind) {
  const std::string none = "data.path=" + in("none").string();
  EXPECT_TRUE(refused(run({"bench", "imagenet-rrc", none}), 3, {"none"}));
  EXPECT_NE(run({"bench", "imagenet-rrc", none}).err.find("data make photos"), std::string::npos);
  EXPECT_NE(run({"bench", "cifar10-lenet", none}).err.find("data make objects"), std::string::npos);
  EXPECT_NE(run({"bench", "mnist-lenet", none}).err.find("data make digits"), std::string::npos);
  const std::string with_blank = in("no set").string();
  EXPECT_NE(run({"bench", "mnist-lenet", "data.path=" + with_blank})
                .err.find("data make digits '" + with_blank + "'"),
            std::string::npos)
      << "as the shell needs it";
}

TEST_F(DataCommand, FarMoreClassesThanTheDataHasIsAWarning) {
  const Result many = run(bench({"model.classes=100"}));
  EXPECT_TRUE(succeeded(many));
  EXPECT_NE(many.err.find("warning: model.classes=100, but "), std::string::npos) << many.err;
  EXPECT_EQ(run(bench({"model.classes=12"})).err.find("warning"), std::string::npos);
}

TEST_F(DataCommand, MistakesAreUsageErrors) {
  EXPECT_TRUE(refused(run({"data", "make", "digitz", in("set").string()}), 2, {"digitz"}));
  EXPECT_TRUE(refused(run(digits("set", {"--train", "-5"})), 2, {"--train"}));
  EXPECT_TRUE(refused(run({"data", "make", "digits"}), 2, {"dir"}));
  EXPECT_FALSE(fs::exists(in("set")));
}

}  // namespace
}  // namespace millrace::program_test
