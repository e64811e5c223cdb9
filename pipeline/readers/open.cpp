// Readers by name: `data.reader`.
#include <fmt/format.h>

#include <array>
#include <string_view>

#include "pipeline/error.h"
#include "pipeline/reader.h"
#include "pipeline/readers/cifar.h"
#include "pipeline/readers/folder.h"
#include "pipeline/readers/idx.h"
#include "pipeline/suggest.h"

namespace millrace {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Reader> (*open)(const DataOptions&);
};

constexpr std::array<Entry, 3> kReaders{
    {{"idx", open_idx}, {"cifar", open_cifar}, {"folder", open_folder}}};

}  // namespace

std::unique_ptr<Reader> open_reader(const DataOptions& options) {
  std::array<std::string_view, kReaders.size()> names;
  for (std::size_t i = 0; i < kReaders.size(); ++i) {
    if (kReaders[i].name == options.reader) return kReaders[i].open(options);
    names[i] = kReaders[i].name;
  }
  throw UsageError(fmt::format("data.reader: no reader '{}'; there are {}", options.reader,
                               fmt::join(names, ", ")),
                   fmt::format("did you mean {}?", nearest(options.reader, names)));
}

}  // namespace millrace
