// Finds readers by name (data.reader): the built-in ones and those of plugins.
#include "pipeline/setup/open_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "millrace/error.h"
#include "millrace/reader.h"
#include "pipeline/readers/cifar.h"
#include "pipeline/readers/coco.h"
#include "pipeline/readers/folder.h"
#include "pipeline/readers/idx.h"
#include "pipeline/readers/manifest.h"
#include "pipeline/readers/plugin_reader.h"
#include "pipeline/readers/storage.h"
#include "pipeline/readers/subset.h"
#include "pipeline/readers/synthetic.h"
#include "pipeline/readers/tar.h"
#include "pipeline/readers/url.h"
#include "pipeline/readers/yolo.h"
#include "pipeline/remote/remote_set.h"
#include "plugins/host/registry.h"

namespace millrace::pipeline {
namespace {

std::unique_ptr<Reader> open_any_tar(const DataOptions& options) {
  return is_remote(options.path) ? open_remote_tar(options) : open_tar(options);
}

struct Entry {
  std::string_view name;
  std::unique_ptr<Reader> (*open)(const DataOptions&);
  const char* help;
};

constexpr std::array<Entry, 8> kReaders{
    {{"idx", open_idx, "IDX files, as MNIST comes in; .gz too"},
     {"cifar", open_cifar, "CIFAR-10's and CIFAR-100's binary files"},
     {"folder", open_folder, "image files, one folder per class"},
     {"tar", open_any_tar, "images in tar files, WebDataset's layout or a folder's; shards"},
     {"manifest", open_manifest, "image files that a CSV or JSONL file lists with their labels"},
     {"coco", open_coco, "images with boxes and key points, as COCO's JSON files list them"},
     {"yolo", open_yolo, "images with boxes, a text file of them per image"},
     {"synthetic", open_synthetic, "images that are made up, for trying a pipeline"}}};

}  // namespace

std::unique_ptr<Reader> prepared(std::unique_ptr<Reader> whole, const DataOptions& options) {
  if (!options.masks.empty() && !whole->info().masks)
    throw UsageError(fmt::format("data.masks={}: data.reader={} reads no masks", options.masks,
                                 whole->info().reader),
                     "set data.reader=folder, tar or manifest, or leave data.masks out");
  if (options.instance_masks &&
      (whole->annotations() == nullptr || !whole->annotations()->has_outlines))
    throw UsageError(fmt::format("data.instance_masks: data.reader={} reads no outlines of objects",
                                 whole->info().reader),
                     "set data.reader=coco, or leave data.instance_masks out");
  if (!options.members.empty()) {
    const std::string key = fmt::format("data.members={}", fmt::join(options.members, ","));
    if (whole->info().members.empty())
      throw UsageError(
          fmt::format("{}: data.reader={} reads no members of archives", key, whole->info().reader),
          "set data.reader=tar, or leave data.members out");
  }
  if (options.cache != Cache::os &&
      (!whole->info().members.empty() || (whole->info().masks && whole->info().reader == "tar")))
    throw UsageError(
        fmt::format("data.cache={} serves only an archive's images, not its members or masks",
                    options.cache == Cache::ram ? "ram" : "cold"),
        "use data.cache=os, or leave out data.members and data.masks");
  auto reader = choose_subset(std::move(whole), options);
  switch (options.cache) {
    case Cache::ram:
      return make_ram_reader(std::move(reader));
    case Cache::cold:
      return make_cold_reader(std::move(reader), options.warn);
    default:
      return reader;
  }
}

}  // namespace millrace::pipeline

namespace millrace {

std::vector<ReaderDeclaration> built_in_readers() {
  std::vector<ReaderDeclaration> all;
  for (const pipeline::Entry& entry : pipeline::kReaders)
    all.push_back({std::string(entry.name), entry.help});
  return all;
}

std::unique_ptr<Reader> open_reader(const DataOptions& asked) {
  DataOptions options = asked;
  options.split = pipeline::source_split(asked);
  std::vector<std::string_view> names;
  for (const pipeline::Entry& entry : pipeline::kReaders) {
    if (entry.name == options.reader && entry.name != "tar" && entry.name != "synthetic" &&
        pipeline::is_remote(options.path))
      throw UsageError(fmt::format("data.reader={}: reads local files only, not {}", entry.name,
                                   pipeline::redacted(options.path)),
                       "pack the set (millrace data pack) and set data.reader=tar");
    if (entry.name == options.reader) return pipeline::prepared(entry.open(options), asked);
    names.push_back(entry.name);
  }
  for (const millrace_unit* unit : plugins::plugin_readers()) {
    if (unit->name == options.reader)
      return pipeline::prepared(pipeline::open_plugin_reader(*unit, options), asked);
    names.emplace_back(unit->name);
  }
  throw UsageError(fmt::format("data.reader: unknown reader '{}'; choose one of {}", options.reader,
                               fmt::join(names, ", ")),
                   fmt::format("did you mean {}?", base::nearest(options.reader, names)));
}

}  // namespace millrace
