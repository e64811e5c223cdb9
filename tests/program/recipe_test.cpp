// Recipes and overrides: each mistake is one line that names it and the nearest valid name.
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

class RecipeFace : public ProgramTest {};

TEST_F(RecipeFace, MistypedKeyGetsTheNearestName) {
  EXPECT_TRUE(refused(run(bench({"loader.wrokers=4"})), 2,
                      {"loader.wrokers", "did you mean loader.workers?"}));
  EXPECT_TRUE(refused(run(simulated("run", {"tain.epochs=4"})), 2,
                      {"tain.epochs", "did you mean train.epochs?"}));
  EXPECT_FALSE(fs::exists(in("run")));
}

TEST_F(RecipeFace, MistypedAugmentationGetsTheNearestName) {
  EXPECT_TRUE(refused(run(bench({"augment.random_afine.degrees=4"})), 2,
                      {"random_afine", "did you mean augment.random_affine"}));
  EXPECT_TRUE(refused(run(bench({"augment.random_affine.degres=4"})), 2,
                      {"degres", "did you mean augment.random_affine.degrees?"}));
  EXPECT_TRUE(refused(run(bench({"augment+=hflop"})), 2, {"hflop", "did you mean hflip?"}));
  EXPECT_TRUE(refused(run(bench({"augment+=hflip@before:nobody"})), 2, {"nobody"}));
}

TEST_F(RecipeFace, WorkersBelowZeroAreRefused) {
  EXPECT_TRUE(refused(run(bench({"loader.workers=-1"})), 2, {"loader.workers", "-1"}));
}

TEST_F(RecipeFace, BadValuesAreRefusedWithWhatIsExpected) {
  struct Case {
    std::string text, what, expected;
  };
  const std::vector<Case> cases{
      {"loader.workers=many", "many", "whole number"},
      {"loader.workers=1.5", "1.5", "whole number"},
      {"loader.workers=", "loader.workers", "whole number"},
      {"loader.batch=0", "loader.batch", "0"},
      {"loader.batch=99999999999999999999", "loader.batch", "whole number"},
      {"loader.drop_last=maybe", "maybe", "true or false"},
      {"train.lr=nan", "train.lr", "nan"},
      {"train.momentum=1.5", "train.momentum", "1.5"},
      {"data.reader=idy", "idy", "idx"},
      {"output.dtype=f23", "f23", "f32"},
      {"output.mean=[0.5,0.5]", "output.mean has 2 numbers", "one a channel"},
      {"loader.shuffle=globl", "globl", "global"},
      {"loader.shuffle=window:0", "window:0", "window"},
      {"resample=twice", "twice", "once"},
      {"data.fold=6/5", "data.fold=6/5", "K/N"},
      {"data.fraction=0", "data.fraction", "0"},
      {"sampler.repeats=5", "sampler.repeats", "sampler.kind=repeat"},
      {"sampler.samples=1000000", "sampler.samples", "each is drawn once"},
  };
  for (const auto& [text, what, expected] : cases)
    EXPECT_TRUE(refused(run(bench({text})), 2, {what, expected})) << text;
}

TEST_F(RecipeFace, UnknownDeviceIsRefused) {
  EXPECT_TRUE(
      refused(run(training("run", {"train.device=cdua"})), 2, {"cdua", "did you mean cuda?"}));
  EXPECT_FALSE(fs::exists(in("run")));
}

TEST_F(RecipeFace, CudaGraphsAreRefusedWhereThereAreNone) {
  const std::string graphs = "train.cuda_graphs=on";
  const auto refuses = [&](const Arguments& with, const std::string& what) {
    Arguments all{graphs};
    all.insert(all.end(), with.begin(), with.end());
    return refused(run(training("run", all)), 2,
                   {graphs + " with " + what, "train.cuda_graphs=off"});
  };
  EXPECT_TRUE(refuses({}, "train.device=cpu"));
  EXPECT_TRUE(refuses({"train.device=simulated"}, "train.device=simulated"));
  EXPECT_TRUE(refuses({"train.device=cuda", "train.strategy=data_parallel"},
                      "train.strategy=data_parallel"));
  EXPECT_TRUE(refused(
      run(training("run", {graphs, "train.device=cuda", "train.strategy=ddp", "train.ranks=2"})), 2,
      {graphs + " with train.strategy=ddp", "set train.cuda_graphs=step"}));
  EXPECT_TRUE(refuses({"train.device=cuda", "train.accumulate=2"}, "train.accumulate=2"));
  EXPECT_TRUE(refused(run(training("run", {"train.cuda_graphs=step"})), 2,
                      {"train.cuda_graphs=step with train.device=cpu"}));
  EXPECT_TRUE(refused(run(training("run", {graphs, "train.device=cdua"})), 2, {"mean cuda?"}));
  EXPECT_FALSE(fs::exists(in("run")));
}

TEST_F(RecipeFace, AlgorithmsChosenByTimeDoNotRepeatTheirBits) {
  EXPECT_TRUE(
      refused(run(training("run", {"train.cudnn_benchmark=true", "train.deterministic=true"})), 2,
              {"train.cudnn_benchmark=true with train.deterministic=true", "false"}));
}

TEST_F(RecipeFace, UnknownRecipeGetsTheNearestName) {
  EXPECT_TRUE(refused(run({"bench", "mnist-lent", "data.path=" + data()}), 2,
                      {"mnist-lent", "did you mean mnist-lenet?"}));
}

TEST_F(RecipeFace, TwoRecipesAreRefused) {
  EXPECT_TRUE(refused(run(bench({"overhead"})), 2, {"mnist-lenet", "overhead"}));
}

TEST_F(RecipeFace, NoDataPathIsRefused) { EXPECT_TRUE(refused(run({"bench"}), 2, {"data.path"})); }

TEST_F(RecipeFace, DepthIsBounded) {
  const auto many = [](const std::string& part, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += part;
    return text;
  };
  const std::vector<std::string> deep{
      many("a.", 50'000) + "a = 1\n",
      "[" + many("a . ", 50'000) + "a]\n",
      "[[" + many("\"a\".", 50'000) + "a]]\n",
      "x = " + many("[", 50'000) + many("]", 50'000) + "\n",
      "x = " + many("{a=", 50'000) + "1" + many("}", 50'000) + "\n",
      "x = [\"\"\"y\"\"\"\"\", {" + many("a.", 50'000) + "a = 1}]\n",
      "x = {a = 1, " + many("'a'.", 50'000) + "a = 1}\n"};
  for (const std::string& text : deep) {
    write_file(in("deep.toml"), "seed = 1\n" + text);
    EXPECT_TRUE(refused(run({"bench", in("deep.toml").string()}), 2, {"deep.toml:2", "levels"}))
        << text.substr(0, 30);
  }
  EXPECT_TRUE(refused(run(bench({many("a.", 50'000) + "a=1"})), 2, {"unknown key a.a."}));
  EXPECT_TRUE(refused(run(bench({"output.mean=" + many("[", 50'000)})), 2, {"output.mean"}));
  EXPECT_TRUE(refused(run(bench({"augment+=hflip{p=" + many("{", 50'000)})), 2, {"hflip"}));
  // Other commands read a run's own config.toml too.
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  write_file(in("run/config.toml"), deep[0]);
  EXPECT_TRUE(refused(run({"report", in("run").string()}), 3, {"config.toml:1", "levels"}));
}

TEST_F(RecipeFace, LongValuesAreShortenedInMessages) {
  const std::string value(1'000'000, 'A');
  for (const std::string& line :
       {"data.path = \"" + value + "\"", "loader.workers = \"" + value + "\"", value + " = 1",
        "data.reader = \"" + value + "\""}) {
    write_file(in("long.toml"), line + "\n");
    const Result result = run({"bench", in("long.toml").string()});
    EXPECT_TRUE(result.exit_code == 2 || result.exit_code == 3) << result.exit_code;
    EXPECT_LT(result.err.size(), 5000u) << line.substr(0, 20);
    EXPECT_NE(result.err.find("AAA[..."), std::string::npos) << result.err.substr(0, 5000);
    EXPECT_NE(result.err.find("...]AAA"), std::string::npos) << result.err.substr(0, 5000);
    EXPECT_EQ(lines_of(result.err).size(), 2u);
  }
  const Result given = run(bench({"loader.workers=" + value.substr(0, 100'000)}));
  EXPECT_TRUE(refused(given, 2, {"loader.workers=AAA", "whole number"}));
  EXPECT_LT(given.err.size(), 5000u);
}

TEST_F(RecipeFace, MistakeInAFileIsNamedWithItsLine) {
  write_file(in("mine.toml"), "seed = 3\n\n[loader]\nwokers = 2\n");
  EXPECT_TRUE(refused(run({"bench", in("mine.toml").string(), "data.path=" + data()}), 2,
                      {"mine.toml:4", "loader.wokers", "did you mean loader.workers?"}));
  write_file(in("mine.toml"), "[loader\nworkers = 2\n");
  EXPECT_TRUE(refused(run({"bench", in("mine.toml").string()}), 2, {"mine.toml:1"}));
  write_file(in("mine.toml"), "[loader]\nworkers = -1\n");
  EXPECT_TRUE(refused(run({"bench", in("mine.toml").string()}), 2,
                      {"mine.toml:2", "loader.workers", "-1"}));
}

TEST_F(RecipeFace, BatchLargerThanTheSetIsRefused) {
  EXPECT_TRUE(refused(run(bench({"loader.batch=201"})), 2, {"201", "200", "loader.batch"}));
  EXPECT_TRUE(succeeded(run(bench({"loader.batch=200"}))));
}

TEST_F(RecipeFace, BatchPerRankTakesTheBatchsPlace) {
  // A run that is not distributed has one rank.
  const Result per_rank = run(bench({"loader.batch_per_rank=50", "--json"}));
  ASSERT_TRUE(succeeded(per_rank));
  EXPECT_EQ(parse_json(per_rank.out)["batch"], 50);
  EXPECT_EQ(parse_json(per_rank.out)["batches"], 4);
}

TEST_F(RecipeFace, RefusedRunLeavesNoFolderAndMovesNoEarlierRun) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  const std::string before = read_file(in("run") / "summary.json");
  EXPECT_TRUE(refused(run(simulated("run", {"loader.batch=201"})), 2, {"201"}));
  EXPECT_FALSE(fs::exists(in("run.1"))) << "an earlier run was moved for a run that never began";
  ASSERT_TRUE(fs::exists(in("run") / "summary.json"));
  EXPECT_EQ(read_file(in("run") / "summary.json"), before);
  EXPECT_TRUE(refused(run(simulated("new", {"loader.batch=201"})), 2, {"201"}));
  EXPECT_FALSE(fs::exists(in("new")));
}

TEST_F(RecipeFace, ConfigOfARunRepeatsItsBatches) {
  const Arguments changes{"seed=7",
                          "augment.random_affine.degrees=33.3",
                          "augment+=hflip{p=0.25}@before:random_affine",
                          "output.mean=[0.125]",
                          "loader.shuffle=window:50",
                          "train.epochs=2",
                          "--hash"};
  ASSERT_TRUE(succeeded(run(simulated("first", changes))));
  ASSERT_TRUE(succeeded(run({"train", (in("first") / "config.toml").string(), "--hash", "--run",
                             in("second").string()})));
  const Json first = summary("first");
  const Json second = summary("second");
  EXPECT_EQ(first["batch_hash"], second["batch_hash"]);
  EXPECT_EQ(first["recipe"], second["recipe"]);
  EXPECT_EQ(first["steps"], second["steps"]);
  EXPECT_EQ(read_file(in("first") / "config.toml"), read_file(in("second") / "config.toml"));
  // The changes reached the pipeline: without one of them the bytes differ.
  ASSERT_TRUE(succeeded(run(simulated("third", {"seed=7", "train.epochs=2", "--hash"}))));
  EXPECT_NE(first["batch_hash"], summary("third")["batch_hash"]);
}

TEST_F(RecipeFace, SwitchedOffOpIsAsIfItWereNotThere) {
  const auto hash = [&](const Arguments& more) {
    const Result result = run(bench(Arguments{"--hash", "--json"} + more));
    EXPECT_TRUE(succeeded(result));
    return parse_json(result.out)["batch_hash"];
  };
  const Json plain = hash({"augment.random_affine.enabled=false"});
  EXPECT_NE(plain, hash({}));
  EXPECT_EQ(plain, hash({"augment.random_affine.enabled=false", "augment+=hflip",
                         "augment.hflip.enabled=false"}));
  // ... and the other ops' draws stay the same.
  EXPECT_EQ(hash({}), hash({"augment+=hflip@before:random_affine", "augment.hflip.enabled=false"}));
}

}  // namespace
}  // namespace millrace::program_test
