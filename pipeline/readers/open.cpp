// Readers by name: `data.reader`.
#include <fmt/format.h>

#include <array>
#include <string_view>

#include "pipeline/error.h"
#include "pipeline/reader.h"
#include "pipeline/readers/cifar.h"
#include "pipeline/readers/folder.h"
#include "pipeline/readers/idx.h"
#include "pipeline/readers/plugin_reader.h"
#include "pipeline/suggest.h"
#include "pipeline/units/registry.h"

namespace millrace {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Reader> (*open)(const DataOptions&);
  const char* help;
};

constexpr std::array<Entry, 3> kReaders{
    {{"idx", open_idx, "IDX files, as MNIST comes in; .gz too"},
     {"cifar", open_cifar, "CIFAR-10's and CIFAR-100's binary files"},
     {"folder", open_folder, "image files, a folder a class"}}};

}  // namespace

std::vector<ReaderDeclaration> built_in_readers() {
  std::vector<ReaderDeclaration> all;
  for (const Entry& entry : kReaders) all.push_back({std::string(entry.name), entry.help});
  return all;
}

std::unique_ptr<Reader> open_reader(const DataOptions& options) {
  std::vector<std::string_view> names;
  for (const Entry& entry : kReaders) {
    if (entry.name == options.reader) return entry.open(options);
    names.push_back(entry.name);
  }
  for (const millrace_unit* unit : plugin_readers()) {
    if (unit->name == options.reader) return open_plugin_reader(*unit, options);
    names.emplace_back(unit->name);
  }
  throw UsageError(fmt::format("data.reader: no reader '{}'; there are {}", options.reader,
                               fmt::join(names, ", ")),
                   fmt::format("did you mean {}?", nearest(options.reader, names)));
}

}  // namespace millrace
