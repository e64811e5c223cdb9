// Native code runs only if the user asked for it: plugins that a recipe or a stranger's run names
// are not loaded; those that the user names or trusts are.
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

/// Uses a plugin that creates a marker file when it is loaded.
class PluginGrants : public ProgramTest {
 protected:
  PluginGrants() {
    fs::copy_file(MILLRACE_TEST_PLUGINS "/leaves_a_mark.so", plugin_);
    options_.env["TEST_MARK"] = mark_.string();
    options_.env["XDG_CONFIG_HOME"] = in("user").string();
  }
  Result start(const Arguments& arguments) {
    fs::remove(mark_);
    return run(arguments, options_);
  }
  bool was_loaded() const { return fs::exists(mark_); }
  std::string word() const { return "plugins.path=" + plugin_.string(); }
  std::string config() const { return (in("run") / "config.toml").string(); }
  /// Makes a run whose config.toml names the plugin.
  void make_run() {
    ASSERT_TRUE(succeeded(start(simulated("run", {word(), "augment+=defect"}))));
    ASSERT_TRUE(was_loaded());
    ASSERT_NE(read_file(config()).find(plugin_.string()), std::string::npos);
  }
  testing::AssertionResult not_asked_for(const Result& result) const {
    if (was_loaded()) return testing::AssertionFailure() << "it was loaded";
    return refused(result, 2, {plugin_.string(), word(), "plugins trust"}, /*alone=*/false);
  }
  testing::AssertionResult loaded(const Result& result, const std::string& why) const {
    if (!was_loaded()) return testing::AssertionFailure() << "not loaded\n" << result.err;
    const std::string line = "loading plugin " + plugin_.string() + ": " + why;
    if (count_of("\n" + result.err, "\n" + line) != 1)
      return testing::AssertionFailure() << "not one line \"" << line << "\"\n" << result.err;
    return succeeded(result);
  }
  fs::path list() const { return in("user/millrace/trusted-plugins"); }

  const fs::path plugin_ = in("marker.so");
  const fs::path mark_ = in("mark");
  RunOptions options_;
};

TEST_F(PluginGrants, ReportLoadsNone) {
  make_run();
  options_.env["MILLRACE_PLUGIN_PATH"] = plugin_.string();
  const Result result = start({"report", in("run").string(), "--md"});
  ASSERT_TRUE(succeeded(result));
  EXPECT_FALSE(was_loaded());
  EXPECT_NE(result.out.find("plugins are not loaded"), std::string::npos) << result.out;

  // The recipe's name in a run is plain text, whatever it looks like.
  std::string text = read_file(config());
  const std::string name = "recipe = \"mnist-lenet\"";
  ASSERT_NE(text.find(name), std::string::npos) << text;
  text.replace(text.find(name), name.size(), "recipe = \"" + word() + "\"");
  write_file(config(), text);
  ASSERT_TRUE(succeeded(start({"report", in("run").string(), "--md"})));
  EXPECT_FALSE(was_loaded());
}

TEST_F(PluginGrants, ReportShowsPicturesOfARunWhosePluginTheyDoNotNeed) {
  ASSERT_TRUE(succeeded(start(simulated("run", {word()}))));
  const Result result = start({"report", in("run").string(), "--json"});
  ASSERT_TRUE(succeeded(result));
  EXPECT_FALSE(was_loaded());
  const Json report = parse_json(result.out);
  EXPECT_EQ(report["images"].size(), 1u);
  EXPECT_NE(report["notes"].dump().find("loads no plugins"), std::string::npos) << report["notes"];
}

TEST_F(PluginGrants, FilesDoNotAskForPlugins) {
  make_run();
  for (const Arguments& command :
       {Arguments{"train", config(), "--run", in("two").string()}, Arguments{"bench", config()},
        Arguments{"train", "--resume", "--run", in("run").string()},
        Arguments{"inspect", config(), "--plan"}, Arguments{"profile", config()},
        Arguments{"inspect", config(), "--out", in("a.png").string()},
        Arguments{"sweep", config(), "loader.workers=0,1"}, Arguments{"plugins", "list", config()}})
    EXPECT_TRUE(not_asked_for(start(command))) << command[0];
  EXPECT_FALSE(fs::exists(in("two")));
  EXPECT_EQ(start({"bench", config(), "plugins.path="}).exit_code, 2) << "its op is not known then";
  EXPECT_FALSE(was_loaded());
}

TEST_F(PluginGrants, EvalDoesNotLoadWhatARunNames) {
  MILLRACE_NEEDS_TORCH();
  ASSERT_TRUE(succeeded(start(training("run", {word(), "augment+=defect"}))));
  EXPECT_TRUE(not_asked_for(start({"eval", in("run").string()})));
  EXPECT_TRUE(loaded(start({"eval", in("run").string(), word()}), "named on the command line"));
}

TEST_F(PluginGrants, WhatIsAskedForIsLoadedAfterALine) {
  make_run();
  EXPECT_TRUE(loaded(start({"bench", config(), word()}), "named on the command line"));
  EXPECT_TRUE(loaded(start({"train", "--resume", "--run", in("run").string(), word()}),
                     "named on the command line"));
  const Result quiet = start({"bench", config(), word(), "-q"});
  EXPECT_TRUE(succeeded(quiet));
  EXPECT_TRUE(was_loaded());
  EXPECT_EQ(quiet.err, "");
  options_.env["MILLRACE_PLUGIN_PATH"] = in("").string();  // the folder that holds the plugin
  EXPECT_TRUE(loaded(start({"bench", config()}), "named by MILLRACE_PLUGIN_PATH"));
}

TEST_F(PluginGrants, TrustedFilesAreLoadedAsLongAsTheyStayTheSame) {
  make_run();
  const Arguments bench{"bench", config()};
  ASSERT_TRUE(succeeded(start({"plugins", "trust", plugin_.string()})));
  EXPECT_FALSE(was_loaded());
  const auto lines = lines_of(read_file(list()));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].substr(64), "  " + fs::canonical(plugin_).string());
  EXPECT_TRUE(loaded(start(bench), "trusted in " + list().string()));

  const std::string bytes = read_file(plugin_);
  write_file(plugin_, bytes + "x");
  const Result changed = start(bench);
  EXPECT_TRUE(not_asked_for(changed));
  EXPECT_NE(changed.err.find("changed since it was trusted"), std::string::npos) << changed.err;
  write_file(plugin_, bytes);
  EXPECT_TRUE(loaded(start(bench), "trusted in "));

  const Result twice = start({"plugins", "trust", plugin_.string(), plugin_.string(), "--json"});
  ASSERT_TRUE(succeeded(twice));
  EXPECT_EQ(parse_json(twice.out)["trusted"].size(), 1u);
  ASSERT_TRUE(succeeded(start({"plugins", "distrust", plugin_.string()})));
  EXPECT_TRUE(not_asked_for(start(bench)));
  EXPECT_TRUE(refused(start({"plugins", "distrust", plugin_.string()}), 2, {plugin_.string()}));
}

TEST_F(PluginGrants, NoneOfAListIsLoadedWhereOneIsRefused) {
  const std::string both = plugin_.string() + ":" MILLRACE_TEST_PLUGINS "/odd_units.so";
  ASSERT_TRUE(succeeded(start(simulated("run", {"plugins.path=" + both}))));
  ASSERT_TRUE(succeeded(start({"plugins", "trust", plugin_.string()})));
  EXPECT_TRUE(refused(start({"bench", config()}), 2, {"odd_units.so", "plugins.path=" + both}));
  EXPECT_FALSE(was_loaded());
}

TEST_F(PluginGrants, DamagedListsTrustNothing) {
  make_run();
  ASSERT_TRUE(succeeded(start({"plugins", "trust", plugin_.string()})));
  const std::string whole = read_file(list());
  for (const std::string& text :
       {whole.substr(1), "# mine\n" + whole.substr(0, 70) + "\nnonsense\n"}) {
    write_file(list(), text);
    EXPECT_TRUE(refused(start({"bench", config()}), 3, {list().string(), "SHA-256  PATH"}));
    EXPECT_FALSE(was_loaded());
  }
  write_file(list(), whole);
  fs::permissions(list(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_TRUE(refused(start({"bench", config()}), 3, {list().string(), "every user"}));
  EXPECT_FALSE(was_loaded());
}

TEST_F(PluginGrants, WhatEveryoneMayReplaceIsRefused) {
  const auto everyone = [](const fs::path& path, bool may) {
    fs::permissions(path, fs::perms::others_write,
                    may ? fs::perm_options::add : fs::perm_options::remove);
  };
  const auto expect_refused = [&] {
    EXPECT_TRUE(refused(start(bench({word()})), 3, {plugin_.string(), "every user may write"}));
    EXPECT_TRUE(
        refused(start({"plugins", "trust", plugin_.string()}), 3, {"every user may write"}));
    EXPECT_TRUE(
        refused(start({"plugins", "check", plugin_.string()}), 3, {"every user may write"}));
    EXPECT_FALSE(was_loaded());
  };
  everyone(plugin_, true);
  expect_refused();
  everyone(plugin_, false);
  everyone(in(""), true);
  expect_refused();
  fs::permissions(in(""), fs::perms::sticky_bit, fs::perm_options::add);
  expect_refused();  // anyone may still put a plugin there
  everyone(in(""), false);
  EXPECT_TRUE(loaded(start(bench({word()})), "named on the command line"));

  // A link in such a folder to a file in another one.
  fs::create_directory(in("open"));
  fs::create_symlink(plugin_, in("open/link.so"));
  everyone(in("open"), true);
  EXPECT_TRUE(refused(start(bench({"plugins.path=" + in("open").string()})), 3,
                      {"link.so", "every user may write"}));
  EXPECT_FALSE(was_loaded());
}

TEST_F(PluginGrants, SweepAndLaunchPassThemOn) {
  const Arguments sweep{"sweep",
                        "mnist-lenet",
                        "data.path=" + data(),
                        "train.device=simulated",
                        "simulated.update_ms=0.1",
                        "train.epochs=1",
                        "loader.batch=50",
                        "loader.workers=0,1",
                        "augment+=defect"};
  EXPECT_TRUE(loaded(start(sweep + Arguments{word(), "--run", in("sweep").string()}),
                     "named on the command line"));
  // A sweep's own records grant nothing.
  const Arguments resume{"sweep", "--resume", "--run", in("sweep").string()};
  EXPECT_TRUE(not_asked_for(start(resume)));
  fs::remove_all(in("sweep/runs"));
  fs::create_directory(in("sweep/runs"));
  EXPECT_TRUE(loaded(start(resume + Arguments{word()}), "named on the command line"));
  EXPECT_EQ(parse_json(read_file(in("sweep/sweep.json")))["cells"].size(), 2u);

  const Result ranks =
      start(Arguments{"launch", "-n", "2", "--"} + simulated("ranks", {word(), "augment+=defect"}));
  EXPECT_TRUE(succeeded(ranks));
  EXPECT_EQ(count_of(ranks.err, "loading plugin " + plugin_.string()), 2u) << ranks.err;
}

TEST_F(PluginGrants, ShippedOnesAreExempt) {
  const std::string shipped = "plugins.path=" MILLRACE_EXAMPLE_PLUGINS "/vignette.so";
  const Result one = start(simulated("run", {shipped, "augment+=vignette"}));
  ASSERT_TRUE(succeeded(one));
  EXPECT_EQ(one.err.find("loading plugin"), std::string::npos) << one.err;
  EXPECT_TRUE(succeeded(start({"bench", config()})));
}

}  // namespace
}  // namespace millrace::program_test
