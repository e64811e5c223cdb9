// Tests how plugins are found and loaded, and readers from plugins.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "millrace/error.h"
#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "plugins/host/registry.h"
#include "recipe/recipe_file.h"
#include "tests/plugins/support.h"

namespace millrace::plugins {
namespace {

using namespace plugin_test;

template <class Kind = DataError>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Kind& error) {
    return error.what() + std::string(" / ") + error.hint();
  }
  return "no error";
}

bool says(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

TEST(Loading, FoldersAndFilesAreLoadedOnce) {
  const Folder folder;
  const auto name = [&](const std::string& n) { return folder.path() + "/" + n; };
  for (const char* plugin : {"vignette", "random_zoom_out"})
    std::filesystem::create_symlink(example_plugin(plugin), name(std::string(plugin) + ".so"));
  folder.write("README.txt", {'h', 'i'});
  const std::string paths = folder.path() + ":" + example_plugin("vignette") + "::" + folder.path();
  for (const std::string& file : plugin_files(paths, "here")) add_plugin(file);
  std::size_t vignettes = 0;
  for (const PluginEntry& plugin : plugins())
    vignettes += plugin.table->id == std::string("vignette");
  EXPECT_EQ(vignettes, 1u);
  EXPECT_STREQ(augmentation("vignette").name, "vignette");
}

TEST(Loading, WhatIsMissingIsNamed) {
  const Folder folder;
  EXPECT_TRUE(says(message_of([] { plugin_files("/no/such/folder", "plugins.path"); }),
                   "plugins.path: /no/such/folder does not exist"));
  EXPECT_TRUE(says(message_of([&] { plugin_files(folder.path(), "MILLRACE_PLUGIN_PATH"); }),
                   "MILLRACE_PLUGIN_PATH: " + folder.path() + ": no plugin (*.so) in this folder"));
  const std::string text = folder.write("text.so", {'h', 'i'});
  EXPECT_TRUE(says(message_of([&] { add_plugin(text); }), text));
}

TEST(Loading, ReadersAddTheirKeys) {
  const Recipe before(op_declarations());
  add_plugin(test_plugin("odd_units"));
  Recipe recipe(op_declarations());
  recipe.set("data.reader=lent_numbers");
  recipe.set("data.lent_numbers.add=5");
  EXPECT_EQ(recipe.integer("data.lent_numbers.add"), 5);
  EXPECT_TRUE(says(message_of<UsageError>([&] { recipe.set("data.lent_numbers.add=101"); }),
                   "from 0 to 100"));
  EXPECT_TRUE(says(message_of<UsageError>([&] { recipe.set("data.reader=lent_number"); }),
                   "did you mean lent_numbers?"));
  const std::string toml = recipe.to_toml();
  EXPECT_TRUE(says(toml, "[data.lent_numbers]\nadd = 5\n")) << toml;
  EXPECT_FALSE(says(before.to_toml(), "lent_numbers")) << "made before the plugin was loaded";

  const Folder folder;  // a complete recipe gives an equal recipe
  const std::string file = folder.write("config.toml", Bytes(toml.begin(), toml.end()));
  const std::string again = Recipe::load(op_declarations(), file, {}, {}).to_toml();
  EXPECT_TRUE(says(again, "[data.lent_numbers]\nadd = 5\n")) << again;
}

TEST(Loading, ReaderWhoseBytesAreOnLoan) {
  add_plugin(test_plugin("odd_units"));
  DataOptions options;
  options.reader = "lent_numbers";
  options.path = "somewhere";
  options.parameters["add"] = std::int64_t{40};
  const auto reader = open_reader(options);
  EXPECT_EQ(reader->info().count, 4u);
  EXPECT_EQ(reader->info().classes, (std::vector<std::string>{"even", "odd"}));
  Buffer scratch;
  const Sample sample = reader->read(3, scratch);
  EXPECT_EQ(Bytes(sample.bytes.begin(), sample.bytes.end()), Bytes(4, 43));
  EXPECT_EQ(sample.bytes.data(), scratch.data()) << "what was given back may be gone";
  EXPECT_EQ(sample.label, 1);
  options.path = "nowhere";
  EXPECT_EQ(message_of([&] { open_reader(options); }),
            "lent_numbers: nowhere is no place / go somewhere");
}

TEST(Loading, ReaderThatFillsTheCallsMemory) {
  add_plugin(test_plugin("odd_units"));
  DataOptions options;
  options.reader = "copied_numbers";
  const auto reader = open_reader(options);
  Buffer scratch;
  const Sample sample = reader->read(1, scratch);
  EXPECT_EQ(sample.bytes.data(), scratch.data());
  EXPECT_EQ(Bytes(sample.bytes.begin(), sample.bytes.end()), Bytes(4, 1));
  EXPECT_TRUE(says(message_of([&] { reader->read(2, scratch); }), "label 9 of 2 classes"));
  EXPECT_TRUE(says(message_of([&] { reader->read(3, scratch); }), "the fourth is missing"));
}

TEST(Loading, AWordWithASlashBeforeItsEqualsSignIsAPath) {
  for (const char* word : {"seed=1", "data.path=/a/b", "augment+=blur{sigma=1}"})
    EXPECT_TRUE(recipe::is_override(word)) << word;
  for (const char* word : {"mnist-lenet", "a/b.toml", "runs/001-workers=0-r1/config.toml", ""})
    EXPECT_FALSE(recipe::is_override(word)) << word;
}

TEST(Loading, PluginsPathIsFoundBeforeTheRecipeIsChecked) {
  const Folder folder;
  const std::string text = "plugins.path = \"from/file\"\n[data]\nno_such_key = 1\n";
  const std::string file = folder.write("recipe.toml", Bytes(text.begin(), text.end()));
  EXPECT_EQ(recipe::plugins_path(file, {}, {}).value, "from/file");
  EXPECT_EQ(recipe::plugins_path(file, {}, {}).from, file);
  const std::vector<std::string> overrides{"seed=1", "plugins.path=one",
                                           "plugins.path=\"two:three\"", "plugins.pathology=4"};
  EXPECT_EQ(recipe::plugins_path(file, overrides, {}).value, "two:three");
  EXPECT_EQ(recipe::plugins_path(file, overrides, {}).from, "plugins.path");
  EXPECT_EQ(recipe::plugins_path("", {}, {}).from, "");
  EXPECT_THROW(recipe::plugins_path("no-such-recipe", {}, {}), UsageError);
}

}  // namespace
}  // namespace millrace::plugins
