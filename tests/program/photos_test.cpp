// Encoded images through the program: planned, decoded by region, resumed and inspected.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "tests/program/datasets.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

class Photos : public ProgramTest {
 protected:
  Photos() { write_photos(in("photos"), 9); }
  Arguments photos(const std::string& command, const Arguments& more = {}) {
    return Arguments{command, "imagenet-rrc", "data.path=" + in("photos").string(),
                     "augment.random_resized_crop.size=24", "loader.batch=4"} +
           more;
  }
  std::string hash(const Arguments& more, const RunOptions& options = {}) {
    const Result result = run(photos("bench", Arguments{"--hash", "--json"} + more), options);
    EXPECT_TRUE(succeeded(result));
    const Json json = parse_json(result.out);
    return json.is_object() ? json["batch_hash"].get<std::string>() : "";
  }
};

TEST_F(Photos, TheHashIsTheSameHoweverTheyAreRead) {
  const std::string first = hash({"loader.workers=0"});
  ASSERT_EQ(first.size(), 16u);
  for (const char* workers : {"loader.workers=1", "loader.workers=2", "loader.workers=4"}) {
    EXPECT_EQ(hash({workers}), first) << workers;
    EXPECT_EQ(hash({workers, "loader.io_threads=3"}), first) << workers;
  }
  for (const char* key : {"decode.region=off", "data.cache=ram", "loader.grain=1"})
    EXPECT_EQ(hash({key}), first) << key;
  for (const char* level : {"scalar", "avx2", "avx512"}) {
    RunOptions options;
    options.env["MILLRACE_SIMD"] = level;
    const Result result = run(photos("bench", {"--hash", "--json"}), options);
    if (result.exit_code == 2) {  // not supported by this processor
      EXPECT_NE(result.err.find(level), std::string::npos) << result.err;
      continue;
    }
    EXPECT_EQ(parse_json(result.out)["batch_hash"], first) << level;
  }
  EXPECT_NE(hash({"seed=1"}), first);
}

TEST_F(Photos, MembersOfArchivesChangeNoImageAndTrainNothing) {
  ASSERT_TRUE(succeeded(run({"data", "pack", in("photos"), in("packed")})));
  const Arguments packed{"data.reader=tar", "data.path=" + in("packed").string()};
  EXPECT_EQ(hash(packed + Arguments{"data.members=cls"}), hash({}));
  EXPECT_TRUE(refused(run({"bench", "imagenet-rrc", packed[0], packed[1], "data.members=.cls"}), 2,
                      {"data.members=.cls", "data.members=txt,json"}));
  EXPECT_TRUE(refused(run(photos("bench", {"data.members=cls"})), 2,
                      {"data.reader=folder reads no members of archives"}));
  EXPECT_TRUE(refused(run({"train", "imagenet-rrc", packed[0], packed[1], "data.members=cls"}), 2,
                      {"data.members", "training needs a class"}));
}

TEST_F(Photos, ARunResumedInTheMiddleGivesTheRest) {
  for (const char* shuffle :
       {"loader.shuffle=global", "loader.shuffle=window:5", "loader.shuffle=none"})
    for (const char* from : {"1", "5", "9"}) {
      const std::string whole = hash({shuffle, "bench.epochs=2", "--hash-from", from});
      EXPECT_EQ(hash({shuffle, "bench.epochs=2", std::string("bench.first_batch=") + from}), whole)
          << shuffle << " from " << from;
      EXPECT_NE(hash({shuffle, "bench.epochs=2"}), whole);
    }
}

TEST_F(Photos, ElementsOfAllTypes) {
  for (const auto& [dtype, bytes] : std::vector<std::pair<std::string, std::size_t>>{
           {"f32", 4}, {"f16", 2}, {"bf16", 2}, {"u8", 1}}) {
    const Result result =
        run(photos("bench", {"output.dtype=" + dtype, "--dump", in("dump").string()}));
    EXPECT_TRUE(succeeded(result));
    EXPECT_EQ(std::filesystem::file_size(in("dump")), 27 * (24 * 24 * 3 * bytes + 1)) << dtype;
  }
}

TEST_F(Photos, MixedLabelsAreHashedAndTrainable) {
  const std::string mixed = hash({"augment+=mixup{alpha=1}", "loader.workers=0"});
  EXPECT_EQ(hash({"augment+=mixup{alpha=1}", "loader.workers=3", "loader.grain=1"}), mixed);
  EXPECT_NE(hash({}), mixed);
  EXPECT_TRUE(refused(run(photos("bench", {"augment+=cutmix", "augment+=hflip{id=late}"})), 2,
                      {"late stands behind cutmix"}));
}

TEST_F(Photos, InspectShowsThePlan) {
  const Result text = run(photos("inspect", {"--plan"}));
  EXPECT_TRUE(succeeded(text));
  EXPECT_NE(text.out.find("random_resized_crop + hflip"), std::string::npos) << text.out;

  const Result result = run(photos("inspect", {"--plan", "--json", "--samples", "5"}));
  ASSERT_TRUE(succeeded(result));
  const Json json = parse_json(result.out);
  ASSERT_EQ(json["steps"].size(), 2u);
  EXPECT_EQ(json["steps"][0]["step"], "decode");
  EXPECT_EQ(json["steps"][1]["ops"], "random_resized_crop + hflip");
  EXPECT_EQ(json["steps"][1]["samples"], 5);
  EXPECT_GT(json["steps"][1]["us"].get<double>(), 0);
  EXPECT_EQ(json["drawn"].size(), 5u) << "a window's four numbers and a flip";

  // A pixel op ends the part of the chain that can be folded and left to the decoder.
  const Result split = run(photos(
      "inspect", {"--plan", "--json", "augment+=grayscale{p=1}@before:hflip", "--samples", "3"}));
  const Json steps = parse_json(split.out)["steps"];
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[1]["ops"], "random_resized_crop");
  EXPECT_EQ(steps[2]["step"], "grayscale");
  EXPECT_EQ(steps[3]["ops"], "hflip");
}

TEST_F(Photos, InspectShowsOpsOnBatchesInPlanAndSheet) {
  for (const auto& [op, detail] : std::vector<std::pair<std::string, std::string>>{
           {"mixup", "with its neighbour"}, {"cutmix", "with its neighbour"}}) {
    const Result result =
        run(photos("inspect", {"--plan", "--json", "augment+=" + op, "--samples", "3"}));
    ASSERT_TRUE(succeeded(result));
    const Json last = parse_json(result.out)["steps"].back();
    EXPECT_EQ(last["step"], "mix") << last;
    EXPECT_EQ(last["ops"], op) << last;
    const std::string sheet = in(op + ".png").string();
    const Result drawn =
        run(photos("inspect", {"--out", sheet, "--samples", "4", "--json", "augment+=" + op}));
    ASSERT_TRUE(succeeded(drawn));
    const Json samples = parse_json(drawn.out)["samples"];
    ASSERT_EQ(samples.size(), 4u);
    for (const Json& sample : samples) EXPECT_EQ(sample["drawn"].back()["op"], op) << sample;
    EXPECT_NE(samples[0]["label"].get<std::string>().find('%'), std::string::npos) << samples[0];
  }
}

TEST_F(Photos, InspectDrawsTheBoxesOfASet) {
  const std::string set = in("boxes").string(), sheet = in("boxes.png").string();
  ASSERT_TRUE(succeeded(run({"data", "make", "boxes", set, "--train", "6", "--test", "2"})));
  const auto drawn = [&](const std::string& least) {
    return run({"inspect", "data.reader=coco", "data.path=" + set, "augment+=hflip", least, "--out",
                sheet, "--samples", "6", "--json"});
  };
  const Result result = drawn("targets.min_area=1");
  ASSERT_TRUE(succeeded(result));
  const std::string with_boxes = read_file(sheet);
  const Json sample = parse_json(result.out)["samples"][0];
  EXPECT_GE(sample["boxes"].size(), 4u) << sample;
  EXPECT_EQ(sample["boxes"].size() % 4, 0u) << sample;
  EXPECT_TRUE(succeeded(drawn("targets.min_area=1000000")));
  EXPECT_NE(read_file(sheet), with_boxes) << "no box is as large as that";
  const auto hash = [&](const std::string& targets, const std::string& workers) {
    const Result bench =
        run({"bench", "data.reader=coco", "data.path=" + set, "loader.batch=3", "augment+=hflip",
             targets, "loader.workers=" + workers, "--hash", "--json"});
    return parse_json(bench.out)["batch_hash"].get<std::string>();
  };
  EXPECT_EQ(hash("targets.min_area=1", "0"), hash("targets.min_area=1", "2"));
  EXPECT_NE(hash("targets.min_area=1", "0"), hash("targets.min_area=1000000", "0"));
  EXPECT_TRUE(refused(
      run({"inspect", "data.reader=coco", "data.path=" + set, "augment+=elastic", "--out", sheet}),
      2, {"elastic", "boxes", "augment.elastic.enabled=false"}));
  EXPECT_TRUE(refused(run({"train", "imagenet-rrc", "data.reader=coco", "data.path=" + set}), 2,
                      {"data.reader=coco", "a class for each image"}));
}

TEST_F(Photos, InspectDrawsTheMasksOfObjectsAndPastesThem) {
  const std::string set = in("boxes").string(), sheet = in("boxes.png").string();
  ASSERT_TRUE(
      succeeded(run({"data", "make", "boxes", set, "--train", "6", "--test", "2", "--masks"})));
  const auto drawn = [&](const Arguments& words) {
    const Result result =
        run(Arguments{"inspect", "data.reader=coco", "data.path=" + set, "augment+=hflip", "--out",
                      sheet, "--samples", "6", "loader.batch=6", "--json"} +
            words);
    EXPECT_TRUE(succeeded(result));
    return std::pair(read_file(sheet), parse_json(result.out)["samples"][0]["boxes"].size());
  };
  const auto plain = drawn({}), masks = drawn({"data.instance_masks=true"}),
             pasted = drawn({"data.instance_masks=true", "augment+=copy_paste{p=1}"});
  EXPECT_NE(plain.first, masks.first);
  EXPECT_EQ(plain.second, masks.second);
  EXPECT_NE(pasted.first, masks.first);
  EXPECT_GT(pasted.second, masks.second) << "those of its neighbour too";
}

TEST_F(Photos, VerifyFindsMasksThatAreWrong) {
  const std::string set = in("masked").string(), images = set + "/images", masks = set + "/masks";
  ASSERT_TRUE(
      succeeded(run({"data", "make", "boxes", set, "--train", "6", "--test", "2", "--masks"})));
  EXPECT_TRUE(succeeded(run({"data", "verify", images, "--masks", masks})));
  EXPECT_TRUE(refused(run({"data", "verify", set, "--masks", masks}), 2, {"--masks", "coco"}));
  std::filesystem::remove(masks + "/train/000001.png");
  std::filesystem::resize_file(masks + "/train/000002.png", 200);
  std::filesystem::copy_file(images + "/train/000003.jpg", masks + "/test/000001.png",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(succeeded(run({"data", "verify", images})));
  const auto found = [&](std::initializer_list<std::string> lines) {
    const Result result = run({"data", "verify", images, "--masks", masks});
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_NE(result.err.find("3 problems"), std::string::npos) << result.err;
    for (const std::string& line : lines)
      EXPECT_NE(result.out.find(line), std::string::npos) << line << "\n" << result.out;
  };
  found({"train/000001.jpg: its mask " + masks + "/train/000001.png: cannot be read: No such file",
         "train/000002.jpg: its mask is cut short", "test/000001.jpg: its mask is no PNG file"});
  std::filesystem::remove_all(masks + "/test");
  found({"data.masks=" + masks + ": no image has a mask"});
}

TEST_F(Photos, MasksOfArchivesAndManifestsGiveTheBatchesOfTheFolder) {
  const std::string set = in("masked").string(), packed = in("masked-tar").string();
  const std::string images = set + "/images", masks = set + "/masks";
  const Result made = run({"data", "make", "boxes", set, "--train", "6", "--test", "2", "--masks"});
  EXPECT_NE(made.out.find("millrace bench segmentation-512 data.path=" + images +
                          " data.masks=" + masks + " loader.batch=6"),
            std::string::npos)
      << made.out;
  EXPECT_TRUE(succeeded(run({"data", "pack", images, packed, "--masks", masks})));
  std::ofstream manifest(set + "/m.csv");
  manifest << "path,mask\n";
  for (const int i : {0, 1, 2, 3, 4, 5})
    manifest << fmt::format("images/train/{0:06}.jpg,masks/train/{0:06}.png\n", i);
  manifest.close();
  const auto hash = [&](const std::string& reader, const std::string& path,
                        const std::string& where) {
    const Result bench =
        run({"bench", "segmentation-512", "data.reader=" + reader, "data.path=" + path,
             "data.masks=" + where, "loader.batch=3", "loader.io_threads=2", "--hash", "--json"});
    EXPECT_TRUE(succeeded(bench));
    return parse_json(bench.out)["batch_hash"].get<std::string>();
  };
  const std::string expected = hash("folder", images, masks);
  EXPECT_EQ(hash("tar", packed, "seg.png"), expected);
  EXPECT_EQ(hash("manifest", set + "/m.csv", "mask"), expected);
  EXPECT_TRUE(succeeded(run({"data", "verify", packed, "--masks", "seg.png"})));
  std::filesystem::resize_file(masks + "/train/000002.png", 200);
  const Result wrong = run({"data", "verify", set + "/m.csv", "--masks", "mask"});
  EXPECT_EQ(wrong.exit_code, 3);
  EXPECT_NE(wrong.out.find("000002.jpg (line 4): its mask is cut short"), std::string::npos)
      << wrong.out;
}

TEST_F(Photos, InspectDrawsTheMasksOfASet) {
  const std::string set = in("masked").string(), sheet = in("masked.png").string();
  const std::string data = "data.path=" + set + "/images", masks = "data.masks=" + set + "/masks";
  ASSERT_TRUE(
      succeeded(run({"data", "make", "boxes", set, "--train", "6", "--test", "2", "--masks"})));
  const auto drawn = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"inspect", "data.reader=folder", data, "augment+=hflip", "--out",
                                 sheet, "--samples", "6"});
    EXPECT_TRUE(succeeded(run(words)));
    return read_file(sheet);
  };
  EXPECT_NE(drawn({masks}), drawn({}));
  const auto hash = [&](const std::string& workers, const std::string& fill) {
    const Result bench = run({"bench", "data.reader=folder", data, masks, "loader.batch=3",
                              "augment+=random_rotation{degrees=30}", "targets.mask_fill=" + fill,
                              "loader.workers=" + workers, "--hash", "--json"});
    return parse_json(bench.out)["batch_hash"].get<std::string>();
  };
  const std::string expected = hash("0", "255");
  EXPECT_EQ(hash("2", "255"), expected);
  EXPECT_NE(hash("0", "0"), expected);
  EXPECT_TRUE(refused(
      run({"bench", "data.reader=folder", data, masks, "loader.batch=3", "augment+=elastic"}), 2,
      {"elastic", "masks", "augment.elastic.enabled=false"}));
  EXPECT_TRUE(refused(run({"train", "imagenet-rrc", data, masks}), 2, {"data.masks"}));
  EXPECT_TRUE(refused(run({"profile", "imagenet-rrc", data, masks, "train.device=simulated"}), 2,
                      {"data.masks"}));
  EXPECT_TRUE(refused(run({"bench", "data.reader=coco", "data.path=" + set, masks}), 2,
                      {"data.reader=coco reads no masks"}));
  std::filesystem::remove(set + "/masks/train/000002.png");
  EXPECT_TRUE(refused(run({"bench", "data.reader=folder", data, masks, "loader.batch=3"}), 3,
                      {"train/000002.jpg: its mask", "000002.png", "loader.on_error=skip"}));
}

TEST_F(Photos, InspectDrawsAContactSheet) {
  const std::string sheet = in("sheet.png").string();
  const Result result = run(photos("inspect", {"--out", sheet, "--samples", "6", "--json"}));
  EXPECT_TRUE(succeeded(result));
  const std::string png = read_file(sheet);
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  const Json json = parse_json(result.out);
  ASSERT_EQ(json["samples"].size(), 6u);
  EXPECT_EQ(json["samples"][0]["drawn"][0]["op"], "random_resized_crop");
  EXPECT_TRUE(no_temporaries(in("")));

  EXPECT_TRUE(refused(run(photos("inspect")), 2, {"--out F.png or --plan"}));
  EXPECT_TRUE(refused(run(photos("inspect", {"--out", in("no/such/folder.png").string()})), 1,
                      {"no/such"}));
}

TEST_F(Photos, InspectShowsOpsThatMixSamples) {
  const Arguments mixed{"augment+=cutmix", "--json"};
  const Json plan =
      parse_json(run(photos("inspect", mixed + Arguments{"--plan", "--samples", "27"})).out);
  const Json& mix = plan["steps"].back();
  EXPECT_EQ(mix["step"], "mix");
  EXPECT_EQ(mix["ops"], "cutmix");
  EXPECT_EQ(mix["samples"], 26) << "the last of the last batch's three has no neighbour";

  const Arguments sheet{"--samples", "4", "--out", in("sheet.png").string()};
  const Json samples = parse_json(run(photos("inspect", mixed + sheet)).out)["samples"];
  const std::string png = read_file(in("sheet.png"));
  for (std::size_t i = 0; i < 4; ++i) {
    double own = -1;
    for (const Json& drawn : samples[i]["drawn"])
      if (drawn["op"] == "cutmix" && drawn["name"] == "lambda") own = drawn["value"];
    ASSERT_GE(own, 0) << samples[i];
    EXPECT_EQ(samples[i]["drawn"].back(), samples[i ^ 1]["drawn"].back()) << "drawn once per pair";
    const std::string label = samples[i]["label"];
    const std::string share = std::to_string(static_cast<int>(100 * own + 0.5)) + "%";
    EXPECT_TRUE(label.find(share) != std::string::npos || label.ends_with(" 100%"))
        << label << ": " << own;
  }
  EXPECT_TRUE(succeeded(run(photos("inspect", sheet))));
  EXPECT_NE(read_file(in("sheet.png")), png) << "the sheet shows the mixed pixels";
}

}  // namespace
}  // namespace millrace::program_test
