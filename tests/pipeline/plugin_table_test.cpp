// Tests that each defect of a plugin table is rejected by name before any function of the plugin is
// called.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <exception>
#include <functional>

#include "millrace/error.h"
#include "millrace/millrace.hpp"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"

namespace millrace::pipeline {
namespace {

struct Fake {
  static constexpr const char* kName = "fake";
  static constexpr const char* kHelp = "does nothing";
  static constexpr Parameter kParams[] = {number("p", "0.5", 0, 1, "probability"),
                                          choice("way", "a", "a|b", "which")};
  Warp warp(Size input, Call&) const { return Warp::identity(input); }
};

/// A sound plugin whose parts can be broken.
struct FakePlugin {
  Parameter params[2] = {Fake::kParams[0], Fake::kParams[1]};
  millrace_geometric geometric = *kUnit<Fake>.geometric;
  millrace_unit unit = kUnit<Fake>;
  const millrace_unit* units[2] = {&unit, &unit};
  millrace_plugin_table table = Plugin<Fake>::table("fake_plugin", "1", "MIT");

  FakePlugin() {
    unit.params = params;
    unit.geometric = &geometric;
    table.units = units;
  }
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(PluginTable, EachDefectIsRefusedByName) {
  const auto refused = [](const std::string& reason, auto break_it) {
    FakePlugin fake;
    plugins::check_plugin_table(fake.table, "fake.so");
    break_it(fake);
    const std::string message =
        message_of([&] { plugins::check_plugin_table(fake.table, "fake.so"); });
    EXPECT_TRUE(message.starts_with("fake.so: plugin refused: ")) << message;
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  };
  refused("wrong magic", [](FakePlugin& p) { p.table.magic = 1; });
  refused("built for plugin interface 2.3, this millrace has 1.3",
          [](FakePlugin& p) { p.table.abi_major = 2; });
  refused("built for plugin interface 1.4, this millrace has 1.3",
          [](FakePlugin& p) { p.table.abi_minor = 4; });
  refused("table of 8 bytes", [](FakePlugin& p) { p.table.struct_size = 8; });
  refused("no id", [](FakePlugin& p) { p.table.id = ""; });
  refused("no id", [](FakePlugin& p) { p.table.id = "Not a name"; });
  refused("no version", [](FakePlugin& p) { p.table.version = nullptr; });
  refused("no licence", [](FakePlugin& p) { p.table.licence = nullptr; });
  refused("no units", [](FakePlugin& p) { p.table.unit_count = 0; });
  refused("1 units announced, none given", [](FakePlugin& p) { p.table.units = nullptr; });
  refused("unit 0 is null", [](FakePlugin& p) { p.units[0] = nullptr; });
  refused("unit 0: struct of 16 bytes", [](FakePlugin& p) { p.unit.struct_size = 16; });
  refused("unit 0 has no name", [](FakePlugin& p) { p.unit.name = nullptr; });
  refused("unit 'fake' has no help", [](FakePlugin& p) { p.unit.help = nullptr; });
  refused("unit 'fake' has no function create", [](FakePlugin& p) { p.unit.create = nullptr; });
  refused("unit 'fake' has no function destroy", [](FakePlugin& p) { p.unit.destroy = nullptr; });
  refused("is of 0 kinds", [](FakePlugin& p) { p.unit.geometric = nullptr; });
  refused("geometric struct of 8 bytes", [](FakePlugin& p) { p.geometric.struct_size = 8; });
  refused("geometric 'fake' has no function warp",
          [](FakePlugin& p) { p.geometric.warp = nullptr; });
  refused("two units 'fake'", [](FakePlugin& p) { p.table.unit_count = 2; });
  refused("2 parameters announced, none given", [](FakePlugin& p) { p.unit.params = nullptr; });
  refused("parameters of 4 bytes", [](FakePlugin& p) { p.unit.param_size = 4; });
  refused("two parameters 'p'", [](FakePlugin& p) { p.params[1] = p.params[0]; });
  refused("parameter 'p', default 1.5", [](FakePlugin& p) { p.params[0].fallback = "1.5"; });
  refused("parameter 'p', default much", [](FakePlugin& p) { p.params[0].fallback = "much"; });
  refused("parameter 'p' has no default", [](FakePlugin& p) { p.params[0].fallback = nullptr; });
  refused("parameter 'p' has no help", [](FakePlugin& p) { p.params[0].help = ""; });
  refused("parameter 'p': its range is empty", [](FakePlugin& p) { p.params[0].max = -1; });
  refused("parameter 'p' is of unknown type 99", [](FakePlugin& p) { p.params[0].type = 99; });
  refused("parameter without a name", [](FakePlugin& p) { p.params[0].name = "P"; });
  refused("parameter 'way' has no choices", [](FakePlugin& p) { p.params[1].choices = nullptr; });
  refused("parameter 'way', default c", [](FakePlugin& p) { p.params[1].fallback = "c"; });
}

struct Still {
  static constexpr const char* kName = "still";
  static constexpr const char* kHelp = "changes nothing";
  void apply(Image) const {}
  void apply_floats(FloatImage) const {}
};

TEST(PluginTable, APixelUnitOfAnEarlierInterfaceTakesNoFloats) {
  millrace_pixel pixel = *kUnit<Still>.pixel;
  EXPECT_NE(plugins::floats_of(pixel), nullptr);
  pixel.struct_size = offsetof(millrace_pixel, apply_floats);
  EXPECT_EQ(plugins::floats_of(pixel), nullptr);
  millrace_unit unit = kUnit<Still>;
  unit.pixel = &pixel;
  const millrace_unit* units[] = {&unit};
  millrace_plugin_table table = Plugin<Still>::table("still", "1", "MIT");
  table.units = units;
  table.abi_minor = 2;
  EXPECT_NO_THROW(plugins::check_plugin_table(table, "still.so"));
  pixel.struct_size -= 8;
  EXPECT_NE(message_of([&] { plugins::check_plugin_table(table, "still.so"); }), "no error");
}

TEST(PluginTable, FilesThatAreNoPlugins) {
  const std::string missing = message_of([] { plugins::load_plugin("./no-such.so"); });
  EXPECT_NE(missing.find("plugin cannot be loaded: ./no-such.so"), std::string::npos) << missing;
  Dl_info library{};  // the C++ library, which is no plugin
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&std::terminate), &library), 0);
  const std::string file = library.dli_fname;
  EXPECT_EQ(message_of([&] { plugins::load_plugin(file); }),
            file + ": plugin refused: it exports no symbol millrace_plugin");
}

}  // namespace
}  // namespace millrace::pipeline
