// Readers by name: `data.reader`.
#include <fmt/format.h>

#include <array>
#include <string_view>

#include "pipeline/error.h"
#include "pipeline/reader.h"
#include "pipeline/readers/cifar.h"
#include "pipeline/readers/cold_reader.h"
#include "pipeline/readers/folder.h"
#include "pipeline/readers/idx.h"
#include "pipeline/readers/manifest.h"
#include "pipeline/readers/ram_reader.h"
#include "pipeline/readers/synthetic.h"
#include "pipeline/readers/tar.h"
#include "pipeline/suggest.h"

namespace millrace {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Reader> (*open)(const DataOptions&);
};

constexpr std::array<Entry, 6> kReaders{{{"idx", open_idx},
                                         {"cifar", open_cifar},
                                         {"folder", open_folder},
                                         {"tar", open_tar},
                                         {"manifest", open_manifest},
                                         {"synthetic", open_synthetic}}};

std::unique_ptr<Reader> cached(std::unique_ptr<Reader> reader, const DataOptions& options) {
  switch (options.cache) {
    case Cache::ram:
      return keep_in_ram(std::move(reader));
    case Cache::cold:
      return read_cold(std::move(reader), options.warn);
    default:
      return reader;
  }
}

}  // namespace

std::unique_ptr<Reader> open_reader(const DataOptions& options) {
  std::array<std::string_view, kReaders.size()> names;
  for (std::size_t i = 0; i < kReaders.size(); ++i) {
    if (kReaders[i].name == options.reader) return cached(kReaders[i].open(options), options);
    names[i] = kReaders[i].name;
  }
  throw UsageError(fmt::format("data.reader: no reader '{}'; there are {}", options.reader,
                               fmt::join(names, ", ")),
                   fmt::format("did you mean {}?", nearest(options.reader, names)));
}

}  // namespace millrace
