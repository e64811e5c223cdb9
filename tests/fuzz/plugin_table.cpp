// Fuzzes plugin tables made from bytes: arbitrary numbers, null pointers or pointers to memory of
// the announced size, and terminated texts. Wild pointers are left out: a plugin runs in this
// process, and nothing can defend against them.
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "base/rng.h"
#include "millrace/millrace.hpp"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {
namespace {

/// Takes fields from the input; zeros behind its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  template <class Number>
  Number number() {
    std::uint8_t raw[sizeof(Number)];
    for (std::uint8_t& one : raw) one = byte();
    Number value;
    std::memcpy(&value, raw, sizeof value);
    return value;
  }
  std::string text() {
    std::string text(byte() % 16, ' ');
    for (char& letter : text) letter = static_cast<char>(byte());
    return text;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

int stub() { return 0; }

/// A table and all that it points to. A byte of 0 leaves a field sound, so most of a table is
/// sound.
class Fake {
 public:
  Fake(const std::uint8_t* data, std::size_t size) : in_(data, size) {
    millrace_plugin_table table{MILLRACE_MAGIC,
                                MILLRACE_ABI_MAJOR,
                                MILLRACE_ABI_MINOR,
                                sizeof(millrace_plugin_table),
                                nullptr,
                                nullptr,
                                nullptr,
                                nullptr,
                                0};
    if (in_.byte() > 250) table.magic = in_.number<std::uint64_t>();
    if (in_.byte() > 250) table.abi_major = in_.number<std::uint32_t>();
    if (in_.byte() > 250) table.abi_minor = in_.number<std::uint32_t>();
    table.id = text("fake");
    table.version = text("1");
    table.licence = text("MIT");
    table.unit_count = in_.byte() % 4;
    std::vector<const millrace_unit*> units;
    for (std::size_t i = 0; i < table.unit_count; ++i) units.push_back(unit(i));
    table.units = in_.byte() > 250 ? nullptr : keep(units.data(), units.size() * sizeof units[0]);
    if (table.units == nullptr && in_.byte() > 128) table.unit_count = in_.number<std::size_t>();
    table_ = sized(table, offsetof(millrace_plugin_table, struct_size) + sizeof table.struct_size);
  }

  const millrace_plugin_table& table() const { return *table_; }

 private:
  /// Copies to memory of exactly that size.
  template <class T>
  const T* keep(const T* from, std::size_t bytes) {
    memory_.emplace_back(std::make_unique<std::uint8_t[]>(bytes));
    if (bytes != 0) std::memcpy(memory_.back().get(), from, bytes);
    return reinterpret_cast<const T*>(memory_.back().get());
  }
  /// Sometimes announces another size, with memory for no more than that.
  template <class T>
  const T* sized(T value, std::size_t least) {
    std::size_t size = sizeof(T);
    if (in_.byte() > 240) {
      value.struct_size = in_.byte() < 200 ? in_.byte() : in_.number<std::size_t>();
      size = std::clamp(value.struct_size, least, sizeof(T));
    }
    return keep(&value, size);
  }
  const char* text(const char* sound) {
    const std::uint8_t how = in_.byte();
    if (how < 200) return sound;
    if (how < 210) return nullptr;
    const std::string own = in_.text();
    return keep(own.c_str(), own.size() + 1);
  }
  /// Returns a table with all functions, sometimes with one missing. None may be called.
  template <class T>
  const T* functions() {
    T table{};
    constexpr std::size_t kFunctions = sizeof(T) / sizeof(void*);
    void* pointers[kFunctions];
    std::fill(std::begin(pointers), std::end(pointers), reinterpret_cast<void*>(&stub));
    if (in_.byte() > 220) pointers[in_.byte() % kFunctions] = nullptr;
    std::memcpy(static_cast<void*>(&table), pointers, sizeof table);
    table.struct_size = sizeof table;
    return sized(table, sizeof table.struct_size);
  }

  const millrace_unit* unit(std::size_t index) {
    const std::uint8_t how = in_.byte();
    if (how > 250) return nullptr;
    constexpr const char* kNames[] = {"one", "two", "three", "four"};
    millrace_unit unit{};
    unit.struct_size = sizeof unit;
    unit.name = text(kNames[index]);
    unit.help = text("does nothing");
    unit.random = in_.number<std::int32_t>();
    if (in_.byte() < 250)
      unit.create = [](const millrace_create*, void**) -> millrace_status { return MILLRACE_OK; };
    if (in_.byte() < 250) unit.destroy = [](void*) {};
    const std::uint8_t kinds = in_.byte();
    const std::uint32_t bits = kinds < 210 ? 1u << kinds % 7 : kinds;
    if ((bits & 1) != 0) unit.geometric = functions<millrace_geometric>();
    if ((bits & 2) != 0) unit.pixel = functions<millrace_pixel>();
    if ((bits & 4) != 0) unit.filter = functions<millrace_filter>();
    if ((bits & 8) != 0) unit.choice = functions<millrace_choice>();
    if ((bits & 16) != 0) unit.batch = functions<millrace_batch>();
    if ((bits & 32) != 0) unit.decoder = functions<millrace_decoder>();
    if ((bits & 64) != 0) unit.reader = functions<millrace_reader>();
    add_params(unit);
    return sized(unit, sizeof unit.struct_size);
  }

  void add_params(millrace_unit& unit) {
    unit.param_count = in_.byte() % 5;
    // A newer plugin's parameters are longer.
    unit.param_size = sizeof(millrace_param) + (in_.byte() > 200 ? in_.byte() : 0) / 8 * 8;
    std::vector<std::uint8_t> params(unit.param_count * unit.param_size);
    for (std::size_t i = 0; i < unit.param_count; ++i) {
      const millrace_param one = param(i);
      std::memcpy(params.data() + i * unit.param_size, &one, sizeof one);
    }
    unit.params = reinterpret_cast<const millrace_param*>(keep(params.data(), params.size()));
    const std::uint8_t how = in_.byte();
    if (how > 250) {
      unit.params = nullptr;
      unit.param_count = in_.number<std::size_t>();
    } else if (how > 245 && unit.param_count > 0) {
      unit.param_size = in_.byte() % sizeof(millrace_param);
    }
  }

  millrace_param param(std::size_t index) {
    constexpr const char* kNames[] = {"p", "q", "r", "s", "t"};
    constexpr const char* kFallbacks[] = {"0",     "true", "1",       "0.5",     "[0.5, 1]",
                                          "false", "a",    "[1,2,3]", "\"text\""};
    millrace_param param{};
    param.name = text(kNames[index]);
    param.help = text("help");
    param.type = in_.byte() < 240 ? in_.byte() % 9 : in_.number<std::int32_t>();
    param.lengths = in_.byte() < 200 ? 0 : in_.number<std::uint32_t>();
    param.fallback = text(kFallbacks[in_.byte() % std::size(kFallbacks)]);
    param.min = in_.byte() < 200 ? 0 : in_.number<double>();
    param.max = in_.byte() < 200 ? 10 : in_.number<double>();
    param.choices = text("a|b");
    return param;
  }

  Input in_;
  std::deque<std::unique_ptr<std::uint8_t[]>> memory_;
  const millrace_plugin_table* table_ = nullptr;
};

}  // namespace

Corpus corpus() {
  Corpus corpus;
  for (const std::size_t size : {16, 100, 400}) {
    Draw draw(base::stream({1, 0, size}, base::op_id("plugin_table")));
    Bytes bytes(size, 0);
    bytes[6] = 1;  // one unit
    corpus.seeds.push_back(bytes);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(draw.integer(200));
    corpus.seeds.push_back(bytes);
  }
  corpus.tokens = {"|",
                   "||",
                   "[",
                   "]",
                   "nan",
                   "1e999",
                   std::string(1, '\xfb'),
                   std::string("\0\0\0\0\0\0\xf0\x7f", 8)};
  return corpus;
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  const fuzz::Fake fake(data, size);
  fuzz::accepts(Exit::data, [&] {
    plugins::check_plugin_table(fake.table(), "x");
    for (std::size_t i = 0; i < fake.table().unit_count; ++i) {
      const millrace_unit& unit = *fake.table().units[i];
      const OpDeclaration declared = plugins::to_declaration(unit);
      fuzz::require(declared.params.size() == unit.param_count, "all parameters are declared");
      fuzz::require(!plugins::name_of(plugins::kind_of(unit)).empty(), "a unit is of a kind");
      const Params defaults(declared.params);
      for (const Param& param : declared.params)
        checked(param, defaults.at(param.name), "a default that was accepted fits");
    }
  });
  return 0;
}
