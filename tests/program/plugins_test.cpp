// Plugins as users see them: found, listed, checked, rejected by name, created out of tree,
// installed.
#include <sys/wait.h>

#include <cstdlib>
#include <regex>
#include <set>

#include "tests/plugins/support.h"
#include "tests/program/datasets.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;
using plugin_test::Bytes;
using plugin_test::example_plugin;
using plugin_test::test_plugin;

class Plugins : public ProgramTest {
 protected:
  static std::string text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }
  static std::string path_of(const std::string& file) { return "plugins.path=" + file; }
  Json json(const Arguments& arguments, const RunOptions& options = {}) {
    const Result result = run(arguments + Arguments{"--json"}, options);
    EXPECT_TRUE(succeeded(result));
    return parse_json(result.out);
  }
  static RunOptions with_path(const std::string& path) {
    RunOptions options;
    options.env["MILLRACE_PLUGIN_PATH"] = path;
    return options;
  }
  /// Runs a shell command, and shows its output if it fails.
  void shell(const std::string& command) {
    const std::string log = in("log").string();
    const int status = std::system(("( " + command + " ) >" + log + " 2>&1 </dev/null").c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command << "\n" << read_file(log);
  }
  static const Json* unit_in(const Json& list, const std::string& name) {
    for (const Json& unit : list["units"])
      if (unit["name"] == name) return &unit;
    return nullptr;
  }
};

TEST_F(Plugins, ListShowsOneKind) {
  const Json list = json({"plugins", "list", "--kind", "batch"});
  ASSERT_NE(unit_in(list, "mixup"), nullptr);
  for (const Json& unit : list["units"]) EXPECT_EQ(unit["kind"], "batch") << unit["name"];
  EXPECT_TRUE(refused(run({"plugins", "list", "--kind", "warp"}), 2,
                      {"unknown kind warp", "did you mean geometric?"}));
}

TEST_F(Plugins, ListShowsBuiltInsAndPluginsAlike) {
  const Json list = json({"plugins", "list", path_of(MILLRACE_EXAMPLE_PLUGINS)});
  for (const auto& [name, kind, plugin] :
       std::vector<std::array<std::string, 3>>{{"hflip", "geometric", "augmentations"},
                                               {"jpeg", "decoder", "decoders"},
                                               {"folder", "reader", "readers"},
                                               {"png", "decoder", "imgcodecs"},
                                               {"random_zoom_out", "geometric", "random_zoom_out"},
                                               {"vignette", "pixel", "vignette"},
                                               {"qoi", "decoder", "qoi"},
                                               {"npy", "reader", "npy"}}) {
    const Json* unit = unit_in(list, name);
    ASSERT_NE(unit, nullptr) << name;
    EXPECT_EQ((*unit)["kind"], kind);
    EXPECT_EQ((*unit)["plugin"], plugin);
    EXPECT_TRUE((*unit)["help"].is_string());
  }
  std::size_t built_in = 0;
  for (const Json& plugin : list["plugins"]) {
    if (!plugin["file"].is_null()) continue;
    EXPECT_EQ(plugin["licence"], "Apache-2.0") << plugin["id"];
    ++built_in;
  }
  EXPECT_GE(built_in, 2u) << "augmentations and decoders";
  const Result plain = run({"plugins", "list"}, with_path(example_plugin("qoi")));
  ASSERT_TRUE(succeeded(plain));
  EXPECT_NE(plain.out.find("Quite OK Image"), std::string::npos) << plain.out;
  EXPECT_EQ(plain.out.find("vignette"), std::string::npos) << plain.out;
}

TEST_F(Plugins, DecodersServeVerifyAndPack) {
  for (const char* name : {"ape/1.qoi", "ape/2.qoi", "bee/3.qoi"})
    write_file(in("photos") / "train" / name, text(plugin_test::qoi_file()));
  const std::string set = in("photos").string();
  EXPECT_EQ(run({"data", "verify", set}).exit_code, 3) << "nothing decodes these files";
  const std::string qoi = path_of(example_plugin("qoi"));
  const Json verified = json({"data", "verify", set, qoi});
  EXPECT_EQ(verified["splits"][0]["count"], 3);
  EXPECT_EQ(json({"data", "verify", set}, with_path(example_plugin("qoi"))), verified);
  ASSERT_TRUE(succeeded(run({"data", "pack", set, in("tar").string(), qoi})));
  EXPECT_EQ(json({"data", "verify", in("tar").string(), qoi})["splits"][0]["count"], 3);
  EXPECT_TRUE(refused(run({"data", "verify", set, "seed=1"}), 2, {"seed=1", "plugins.path="}));

  write_file(in("photos") / "train/bee/4.qoi", text(plugin_test::qoi_file()).substr(0, 20));
  const Result damaged = run({"data", "verify", set, qoi});
  EXPECT_EQ(damaged.exit_code, 3);
  EXPECT_NE(damaged.out.find("4.qoi"), std::string::npos) << damaged.out;
}

TEST_F(Plugins, InfoSaysWhatAUnitTakes) {
  const Json info = json({"plugins", "info", example_plugin("random_zoom_out")});
  EXPECT_EQ(info["plugin"]["id"], "random_zoom_out");
  EXPECT_EQ(info["plugin"]["licence"], "MIT");
  EXPECT_EQ(info["plugin"]["abi"], "1.3");
  EXPECT_EQ(info["plugin"]["file"], example_plugin("random_zoom_out"));
  const Json& most = info["units"][0]["parameters"][0];
  EXPECT_EQ(most["name"], "most");
  EXPECT_EQ(most["type"], "number");
  EXPECT_EQ(most["default"], 2);
  EXPECT_EQ(most["min"], 1);
  EXPECT_EQ(most["max"], 8);
  EXPECT_EQ(json({"plugins", "info", "hflip"})["plugin"]["file"], nullptr);
  EXPECT_EQ(json({"plugins", "info", "npy", path_of(example_plugin("npy"))})["units"][0]["kind"],
            "reader");
  EXPECT_TRUE(refused(run({"plugins", "info", "hfilp"}), 2, {"hfilp", "did you mean hflip?"}));
}

TEST_F(Plugins, CheckPrintsALineACheck) {
  write_file(in("a.qoi"), text(plugin_test::qoi_file()));
  const Result sound =
      run({"plugins", "check", example_plugin("qoi"), "--sample", in("a.qoi").string()});
  ASSERT_TRUE(succeeded(sound));
  for (const char* part : {"qoi: sniff", "qoi: damage", "qoi: threads", "qoi: leaks",
                           "µs per sample", "no problems in 9 checks"})
    EXPECT_NE(sound.out.find(part), std::string::npos) << part << "\n" << sound.out;

  const Result bad = run({"plugins", "check", test_plugin("defect_writes_past_image")});
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_NE(bad.err.find("defect: images: it writes past the image"), std::string::npos) << bad.err;
  const Result crash = run({"plugins", "check", test_plugin("defect_crash"), "--json"});
  EXPECT_EQ(crash.exit_code, 3);
  EXPECT_EQ(parse_json(crash.out)["sound"], false);
  const Result hang =
      run({"plugins", "check", test_plugin("defect_hang_at_load"), "--timeout", "0.3"});
  EXPECT_EQ(hang.exit_code, 3);
  EXPECT_NE(hang.err.find("it hangs"), std::string::npos) << hang.err;
}

TEST_F(Plugins, APluginOfInterfaceOneZeroLoadsAndGivesTheSameHash) {
  const auto hash_with = [&](const char* plugin) {
    return json(bench({path_of(test_plugin(plugin)), "augment+=halves", "--hash"}))["batch_hash"]
        .get<std::string>();
  };
  EXPECT_EQ(json({"plugins", "info", test_plugin("group_old")})["plugin"]["abi"], "1.0");
  EXPECT_EQ(json({"plugins", "info", test_plugin("group_new")})["plugin"]["abi"], "1.3");
  EXPECT_EQ(hash_with("group_old"), hash_with("group_new"));
  EXPECT_NE(hash_with("group_old"), json(bench({"--hash"}))["batch_hash"]);
}

TEST_F(Plugins, QuartersAreTheSameForAnyNumberOfWorkersAndResumes) {
  const Arguments quarters{path_of(example_plugin("quarters")), "augment+=quarters"};
  std::set<std::string> hashes;
  for (const char* workers : {"0", "1", "2", "4"})
    hashes.insert(json(bench(
        quarters + Arguments{"--hash", std::string("loader.workers=") + workers}))["batch_hash"]);
  EXPECT_EQ(hashes.size(), 1u);
  EXPECT_EQ(hashes.count(json(bench({"--hash"}))["batch_hash"]), 0u);

  MILLRACE_NEEDS_TORCH();
  const Arguments train = quarters + Arguments{"loader.batch=30", "train.epochs=2"};
  ASSERT_TRUE(succeeded(run(training("whole", train))));
  ASSERT_TRUE(succeeded(run(training("part", train + Arguments{"train.steps=10"}))));
  ASSERT_TRUE(succeeded(run({"train", "--resume", "--run", in("part").string(), "train.steps=0",
                             path_of(example_plugin("quarters"))})));
  EXPECT_EQ(summary("part")["resumed_from_step"], 10);
  EXPECT_EQ(summary("part")["parameters_hash"], summary("whole")["parameters_hash"]);
}

TEST_F(Plugins, AnOpOnWholeBatchesAndSeveralRanksAreExitTwoInOneLine) {
  MILLRACE_NEEDS_TORCH();
  const Arguments whole{path_of(test_plugin("group_whole")), "augment+=turn", "train.strategy=ddp"};
  for (const bool own : {true, false}) {
    Result result = own ? run(training("own", whole + Arguments{"train.ranks=2", "-q"}))
                        : run(Arguments{"launch", "-n", "2", "--"} +
                              training("launched", whole + Arguments{"-q"}));
    if (!own) {  // the launcher's own line comes last
      const std::size_t last = result.err.rfind("\nrank ");
      ASSERT_NE(last, std::string::npos) << result.err;
      EXPECT_NE(result.err.find("was the first to fail", last), std::string::npos) << result.err;
      result.err.resize(last + 1);
    }
    EXPECT_TRUE(refused(
        result, 2,
        {"turn works on whole batches, which 2 ranks would divide", "augment.turn.enabled=false"}));
    std::size_t lines = 0;
    for (std::size_t at = result.err.find("whole batches"); at != std::string::npos;
         at = result.err.find("whole batches", at + 1))
      ++lines;
    EXPECT_EQ(lines, 1u) << result.err;
  }
  EXPECT_TRUE(succeeded(run(training("one", whole + Arguments{"train.ranks=1"}))));
}

TEST_F(Plugins, RanksWithoutAGroupOfABatchAreWarnedOfOnce) {
  const auto said_by = [&](const std::string& name, int ranks, const Arguments& more) {
    const Result result = run(
        Arguments{"launch", "-n", std::to_string(ranks), "--"} +
        simulated(name, Arguments{path_of(example_plugin("quarters")), "train.steps=3"} + more));
    EXPECT_TRUE(succeeded(result));
    return result.err;
  };
  const std::string quarters = "augment+=quarters";
  const std::string grouped = said_by("grouped", 3, {quarters, "loader.batch=6"});
  EXPECT_EQ(count_of(grouped,
                     "warning: 1 of 3 ranks have nothing to do: a batch has 6 samples, and the "
                     "chain mixes groups of 4; set loader.batch=12 or more, or start 1 rank\n"),
            1u)
      << grouped;
  EXPECT_EQ(count_of(grouped, "nothing to do"), 1u) << grouped;
  EXPECT_EQ(summary("grouped")["images"], 0) << "rank 0 is the idle one";
  EXPECT_EQ(summary("grouped.rank1")["images"], 12);
  EXPECT_EQ(summary("grouped.rank2")["images"], 6);
  // The advice is followed.
  EXPECT_EQ(count_of(said_by("enough", 3, {quarters, "loader.batch=12"}), "nothing to do"), 0u);
  EXPECT_EQ(summary("enough")["images"], 12);

  const std::string each = said_by("each", 2, {quarters, "loader.batch_per_rank=3"});
  EXPECT_EQ(count_of(each, "set loader.batch_per_rank=4 or more\n"), 1u) << each;
  const std::string small = said_by("small", 3, {"loader.batch=2"});
  EXPECT_EQ(count_of(small,
                     "warning: 1 of 3 ranks have nothing to do: a batch has 2 samples; set "
                     "loader.batch=3 or more, or start 2 ranks\n"),
            1u)
      << small;
}

TEST_F(Plugins, DefectsAreRefusedByNameBeforeAnythingRuns) {
  for (const auto& [defect, reason] : std::vector<std::pair<std::string, std::string>>{
           {"no_symbol", "exports no symbol"},
           {"wrong_magic", "wrong magic"},
           {"newer_major", "plugin interface 2.3"},
           {"newer_minor", "plugin interface 1.4, this millrace has 1.3"},
           {"short_struct", "struct of 16 bytes"},
           {"null_function", "no function apply or levels"},
           {"bad_default", "default 2"},
           {"duplicate_id", "id 'augmentations' is already loaded"},
           {"duplicate_unit", "unit 'hflip' is already loaded"},
           {"undefined_symbol", "undefined symbol"}}) {
    const std::string file = test_plugin("defect_" + defect);
    EXPECT_TRUE(refused(run(bench({path_of(file), "-q"})), 3, {file, reason}));
    EXPECT_TRUE(refused(run(simulated("run", {path_of(file), "-q"})), 3, {file, reason}));
    EXPECT_FALSE(fs::exists(in("run")));
  }
  const std::string file = test_plugin("defect_throws");
  EXPECT_TRUE(refused(run(bench({path_of(file), "augment+=defect", "-q"})), 3,
                      {"defect: it threw an exception"}));
}

TEST_F(Plugins, WhatIsMissingIsNamed) {
  EXPECT_TRUE(
      refused(run(bench({path_of("/no/such/folder")})), 3, {"plugins.path", "/no/such/folder"}));
  EXPECT_TRUE(
      refused(run(bench(), with_path("/no/such")), 3, {"MILLRACE_PLUGIN_PATH", "/no/such"}));
  EXPECT_TRUE(refused(run(bench({"augment+=vignette"})), 2, {"vignette", "plugins.path"}));
  EXPECT_TRUE(refused(run(bench({"data.reader=npy"})), 2, {"npy", "plugins.path"}));
}

TEST_F(Plugins, RunsRecordWhatWasLoaded) {
  const Arguments zoom{"augment+=random_zoom_out{most=3}", "--hash"};
  const auto hash_of = [&](const Arguments& more, const RunOptions& options = {}) {
    const Json result = json(bench(zoom + more), options);
    const Json& last = result["plugins"].back();
    EXPECT_EQ(last["id"], "random_zoom_out");
    EXPECT_EQ(last["version"], "1.0");
    EXPECT_EQ(last["file"], example_plugin("random_zoom_out"));
    EXPECT_EQ(result["plugins"][0]["file"], nullptr) << "built in";
    return result["batch_hash"].get<std::string>();
  };
  const std::string file = example_plugin("random_zoom_out");
  const std::string hash = hash_of({path_of(file)});
  EXPECT_EQ(hash_of({path_of(file), "loader.workers=0"}), hash);
  EXPECT_EQ(hash_of({path_of(file), "loader.workers=4", "loader.grain=3"}), hash);
  const RunOptions by_variable = with_path(file);
  EXPECT_EQ(hash_of({}, by_variable), hash);

  // A run's config.toml reproduces it without the variable.
  ASSERT_TRUE(succeeded(run(simulated("one", zoom), by_variable)));
  EXPECT_EQ(summary("one")["plugins"].back()["file"], file);
  ASSERT_TRUE(succeeded(
      run({"train", (in("one") / "config.toml").string(), "--hash", "--run", in("two").string()})));
  EXPECT_EQ(summary("two")["batch_hash"], summary("one")["batch_hash"]);
}

TEST_F(Plugins, PixelOpsRunBetweenOthers) {
  const Arguments both{"augment+=vignette{most=1}", "augment+=hflip", "--hash",
                       path_of(example_plugin("vignette"))};
  const std::string hash = json(bench(both))["batch_hash"];
  EXPECT_EQ(json(bench(both + Arguments{"loader.workers=0"}))["batch_hash"], hash);
  EXPECT_NE(json(bench(both + Arguments{"augment.vignette.enabled=false"}))["batch_hash"], hash);
}

TEST_F(Plugins, DecodersTakeTheirFormat) {
  for (const char* name : {"ape/1.qoi", "ape/2.qoi", "bee/3.qoi"})
    write_file(in("photos") / "train" / name, text(plugin_test::qoi_file()));
  const Arguments base{"bench",
                       "data.reader=folder",
                       "data.path=" + in("photos").string(),
                       "loader.batch=3",
                       "loader.shuffle=none",
                       "output.dtype=u8",
                       "output.layout=hwc",
                       "--dump",
                       in("dump").string()};
  const Json result = json(base + Arguments{path_of(example_plugin("qoi"))});
  EXPECT_EQ(result["images"], 3);
  const std::string pixels = text(plugin_test::qoi_pixels());
  EXPECT_EQ(read_file(in("dump")), pixels + pixels + pixels + std::string("\0\0\1", 3));
  for (const Json& plugin : result["plugins"]) EXPECT_NE(plugin["id"], "imgcodecs");
  EXPECT_TRUE(refused(run(base), 3, {"ape: the class folder holds no image"}));
}

TEST_F(Plugins, ReadersBringTheirOwnKeys) {
  Bytes pixels(3 * 2 * 2 * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i);
  write_file(in("arrays/train_images.npy"),
             text(plugin_test::npy_file("|u1", "3, 3, 2, 2", pixels)));
  write_file(in("arrays/train_labels.npy"), text(plugin_test::npy_file("|u1", "3,", {2, 0, 1})));
  const Arguments base{"bench",
                       "data.reader=npy",
                       "data.path=" + in("arrays").string(),
                       "loader.batch=3",
                       "loader.shuffle=none",
                       "output.dtype=u8",
                       path_of(example_plugin("npy")),
                       "--dump",
                       in("dump").string()};
  ASSERT_TRUE(succeeded(run(base + Arguments{"data.npy.layout=chw"})));
  EXPECT_EQ(read_file(in("dump")), text(pixels) + std::string("\2\0\1", 3));
  EXPECT_TRUE(refused(run(base + Arguments{"data.npy.layout=whc"}), 2, {"data.npy.layout", "hwc"}));
  EXPECT_TRUE(refused(run(base + Arguments{"data.npy.layuot=hwc"}), 2, {"data.npy.layout"}));
  EXPECT_TRUE(refused(run(base + Arguments{"data.path=" + in("none").string()}), 3,
                      {"train_images.npy", "cannot be read"}));
}

TEST_F(Plugins, NewRefusesBadNames) {
  const auto make = [&](const std::string& name, const std::string& kind = "pixel") {
    return run({"plugins", "new", name, "--kind", kind, "--dir", in("new").string()});
  };
  EXPECT_TRUE(refused(make("My-Op"), 2, {"'My-Op'", "my_op"}));
  EXPECT_TRUE(refused(make("2fast"), 2, {"'2fast'"}));
  EXPECT_TRUE(refused(make("hflip"), 2, {"hflip already"}));
  EXPECT_TRUE(refused(make("test"), 2, {"test"}));
  EXPECT_TRUE(refused(make("my_op", "pixle"), 2, {"pixle", "did you mean pixel?"}));
  EXPECT_FALSE(fs::exists(in("new")));
  ASSERT_TRUE(succeeded(make("my_op")));
  EXPECT_TRUE(refused(make("my_op"), 2, {"my_op already exists"}));
}

TEST_F(Plugins, NewWritesEveryKind) {
  for (const char* kind :
       {"geometric", "pixel", "filter", "choice", "batch", "group", "decoder", "reader"}) {
    const std::string name = std::string("my_") + kind;
    ASSERT_TRUE(
        succeeded(run({"plugins", "new", name, "--kind", kind, "--dir", in("new").string()})));
    const fs::path folder = in("new") / name;
    const std::string source = read_file(folder / (name + ".cpp"));
    EXPECT_EQ(source.find("xample"), std::string::npos) << source;
    EXPECT_LE(lines_of(source).size(), name == "my_decoder" || name == "my_reader" ? 60u : 30u);
    EXPECT_NE(read_file(folder / (name + "_test.cpp")).find("#include \"" + name + ".cpp\""),
              std::string::npos);
    EXPECT_NE(read_file(folder / "CMakeLists.txt").find("millrace_add_plugin(" + name),
              std::string::npos);
    EXPECT_EQ(read_file(folder / "README.md").find('@'), std::string::npos);
  }
}

TEST_F(Plugins, NewBuildsAgainstTheBuildFolderAndIsUsed) {
  ASSERT_TRUE(succeeded(run({"plugins", "new", "my_zoom", "--dir", in("").string()})));
  const std::string folder = in("my_zoom").string();
  shell("cmake -G Ninja -S " + folder + " -B " + folder + "/build -Dmillrace_DIR=" MILLRACE_BUILD);
  shell("cmake --build " + folder + "/build");
  shell("ctest --output-on-failure --test-dir " + folder + "/build");
  const std::string path = path_of(folder + "/build");
  EXPECT_NE(unit_in(json({"plugins", "list", path}), "my_zoom"), nullptr);
  const RunOptions by_variable = with_path(folder + "/build");
  EXPECT_NE(unit_in(json({"plugins", "list"}, by_variable), "my_zoom"), nullptr);
  const Json result = json(bench({path, "augment+=my_zoom{least=0.4}", "--hash"}));
  EXPECT_EQ(result["images"], 200);
  EXPECT_EQ(result["plugins"].back()["id"], "my_zoom");
  EXPECT_TRUE(succeeded(run(simulated("run", {path, "augment+=my_zoom"}))));
}

TEST_F(Plugins, InstalledPackageServesPluginsAndPrograms) {
  const std::string prefix = in("installed").string();
  for (const char* component : {"program", "development"})
    shell("cmake --install " MILLRACE_BUILD " --prefix " + prefix + " --component " + component);
  const std::string program = prefix + "/bin/millrace";
  shell(program + " bench mnist-lenet data.path=" + data() + " loader.batch=20");
  shell(program + " plugins list | grep png");

  shell(program + " plugins new my_gain --kind pixel --dir " + in("").string());
  const std::string plugin = in("my_gain").string();
  shell("cmake -G Ninja -S " + plugin + " -B " + plugin + "/build -DCMAKE_PREFIX_PATH=" + prefix);
  shell("cmake --build " + plugin + "/build && ctest --test-dir " + plugin + "/build");

  const std::string example = prefix + "/share/millrace/examples/load_batches";
  const std::string build = in("load").string();
  shell("cmake -G Ninja -S " + example + " -B " + build + " -DCMAKE_PREFIX_PATH=" + prefix);
  shell("cmake --build " + build);
  shell(build + "/load_batches " + data() + " >" + in("batches").string() + ".txt; cat " +
        in("batches").string() + ".txt");
  const auto batches = lines_of(read_file(in("batches.txt")));
  ASSERT_EQ(batches.size(), 4u);
  EXPECT_TRUE(batches[3].starts_with("batch 3: 8 samples")) << batches[3];
  shell("! ldd " + build + "/load_batches | grep -q torch");
}

}  // namespace
}  // namespace millrace::program_test
