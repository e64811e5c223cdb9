// Which samples remote archives hold: their lists, labels, classes and numbers.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "base/descriptor.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/mapped_file.h"
#include "pipeline/readers/tar.h"
#include "pipeline/remote/remote_reader.h"

namespace millrace::pipeline {
namespace {

std::int32_t largest_label(const TarIndex& index) {
  std::int32_t largest = -1;
  for (const TarIndex::Entry& entry : index.samples) largest = std::max(largest, entry.label);
  return largest;
}

}  // namespace

void RemoteReader::list(Part& part) const {
  const MappedFile mapped = MappedFile::map(set_.path_of(part.shard));
  IndexTarOptions walk;
  walk.passed = [&] { mapped.let_go(); };
  TarIndex index;
  try {
    index = index_tar(part.shard.url.text(), mapped.bytes(), walk);
  } catch (const DataError& error) {  // not the fault of one sample
    throw FetchError(FetchError::Kind::wrong, error.what(), error.hint());
  }
  check_listed(part, index);
  adopt(part, index);
}

void RemoteReader::list_by_index(Part& part) const {
  const std::string file = part.shard.url.text() + std::string(kShardIndexEnding);
  const std::string text = set_.fetch_index(part.shard);
  const char* const hint =
      "make the set's indexes again (millrace data index FOLDER), upload set.index and all "
      "*.tar.index, or set data.remote.fetch=shards";
  ShardIndex index;
  try {
    index =
        parse_shard_index(file, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  } catch (const DataError& error) {
    throw FetchError(FetchError::Kind::wrong, error.what(), hint);
  }
  if (index.sha256 != part.shard.listed.sha256)
    throw FetchError(FetchError::Kind::wrong,
                     fmt::format("{}: belongs to another archive than set.index lists", file),
                     hint);
  check_listed(part, index.tar);
  adopt(part, index.tar);
}

void RemoteReader::check_listed(const Part& part, const TarIndex& index) {
  const SetIndex::Shard& listed = part.shard.listed;
  if (index.samples.size() != listed.samples || index.fingerprint != listed.fingerprint ||
      index.folders != listed.folders || index.unlabelled != listed.unlabelled ||
      index.unlabelled_beside != listed.unlabelled_beside ||
      largest_label(index) != listed.largest_label)
    throw FetchError(
        FetchError::Kind::wrong,
        fmt::format("{}: holds {} samples, and they or their labels are not the {} that "
                    "set.index lists",
                    part.shard.url.text(), index.samples.size(), listed.samples),
        "make the set's index again with the plugins.path of the run: millrace data index "
        "FOLDER");
}

void RemoteReader::adopt(Part& part, const TarIndex& index) const {
  part.entries.reserve(part.count);
  std::vector<TarSurroundings> around;
  if (!wanted_.names.empty()) around = all_surroundings(index, part.shard.listed.size);
  for (std::size_t i = 0; i < index.samples.size(); ++i) {
    const TarIndex::Entry& entry = index.samples[i];
    const std::int32_t of_folder = part.class_of_folder[entry.folder];
    if (of_folder == TarClasses::kOtherSplit) continue;
    if (!around.empty()) part.around.push_back(around[i]);
    part.entries.push_back(
        {entry.data, entry.size, entry.back, by_label_ ? entry.label : of_folder});
  }
}

void RemoteReader::list_unindexed() {
  for (const auto& part : parts_) {
    if (part->shard.indexed) continue;
    const base::Descriptor file = set_.fetch(
        part->shard, [] { return Readers::all().let_go(); }, false);
    const MappedFile mapped = MappedFile::map(set_.path_of(part->shard));
    const TarIndex index = index_tar(part->shard.url.text(), mapped.bytes());
    SetIndex::Shard& listed = part->shard.listed;
    listed.samples = index.samples.size();
    listed.unlabelled = index.unlabelled;
    listed.unlabelled_beside = index.unlabelled_beside;
    listed.fingerprint = index.fingerprint;
    listed.folders = index.folders;
    listed.largest_label = largest_label(index);
    for (const TarIndex::Entry& entry : index.samples) listed.image_bytes += entry.size;
  }
}

bool RemoteReader::has_labels() const {
  std::uint64_t total = 0, unlabelled = 0, beside = 0;
  for (const auto& part : parts_) {
    total += part->shard.listed.samples;
    unlabelled += part->shard.listed.unlabelled;
    beside += part->shard.listed.unlabelled_beside;
  }
  if (unlabelled == 0) return true;
  if (unlabelled == total && (beside == 0 || !info_.members.empty())) return false;
  for (const auto& part : parts_)
    if (part->shard.listed.unlabelled > 0)
      throw DataError(fmt::format("{}: {} of its {} samples have no label ({} of {} in the set)",
                                  part->shard.url.text(), part->shard.listed.unlabelled,
                                  part->shard.listed.samples, unlabelled, total),
                      "put a .cls with its class's number, or a .json with \"label\", beside "
                      "each");
  return false;
}

void RemoteReader::choose(const DataOptions& options) {
  std::vector<std::string> folders;
  Fingerprint fingerprint;
  for (const auto& part : parts_) {
    const SetIndex::Shard& listed = part->shard.listed;
    folders.insert(folders.end(), listed.folders.begin(), listed.folders.end());
    fingerprint.add(listed.fingerprint);
    info_.archives.push_back({std::filesystem::path(listed.name).filename(), listed.fingerprint,
                              listed.sha256, set_.path_of(part->shard), part->shard.url.text(),
                              part->shard.version});
  }
  info_.fingerprint = fingerprint.value();
  TarClasses classes =
      classify_folders(folders, options.split, set_.of_split(), by_label_,
                       std::filesystem::path(parts_.front()->shard.listed.name).stem(), info_.path);
  info_.classes = std::move(classes.classes);
  std::size_t folder = 0;
  for (const auto& part : parts_) {
    const std::size_t count = part->shard.listed.folders.size();
    const auto begin = classes.of_folder.begin() + static_cast<std::ptrdiff_t>(folder);
    part->class_of_folder.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
    folder += count;
    number(*part);
  }
  std::erase_if(parts_, [](const auto& part) { return part->count == 0; });
  info_.count =
      std::accumulate(parts_.begin(), parts_.end(), std::uint64_t{0},
                      [](std::uint64_t sum, const auto& part) { return sum + part->count; });
  std::uint64_t first = 0;
  for (const auto& part : parts_) part->first = std::exchange(first, first + part->count);
}

void RemoteReader::number(Part& part) {
  const auto other =
      std::count(part.class_of_folder.begin(), part.class_of_folder.end(), TarClasses::kOtherSplit);
  if (other == std::ssize(part.class_of_folder)) return;
  SetIndex::Shard& listed = part.shard.listed;
  if (other == 0) {
    part.count = listed.samples;
    info_.bytes += listed.image_bytes;
    return;
  }
  const Pin pin(*this, part);
  part.count = part.entries.size();
  listed.largest_label = -1;
  for (const Entry& entry : part.entries) {
    info_.bytes += entry.size;
    listed.largest_label = std::max(listed.largest_label, entry.label);
  }
}

void RemoteReader::count_classes(const DataOptions& options) {
  const auto count = static_cast<std::int64_t>(info_.classes.size());
  if (!by_label_) {
    if (options.classes != 0 && count > options.classes)
      throw DataError(fmt::format("{}: {} classes where {} are set; '{}' is the first too many",
                                  info_.path, count, options.classes,
                                  info_.classes[static_cast<std::size_t>(options.classes)]),
                      fmt::format("set model.classes={}", count));
    return;
  }
  const auto largest =
      std::max_element(parts_.begin(), parts_.end(), [](const auto& a, const auto& b) {
        return a->shard.listed.largest_label < b->shard.listed.largest_label;
      });
  const std::int64_t label = (*largest)->shard.listed.largest_label;
  const std::int64_t most = options.classes != 0 ? options.classes : max_classes(info_.count);
  if (label >= most)
    throw DataError(fmt::format("{}: label {} is not below {} classes",
                                (*largest)->shard.url.text(), label, most),
                    fmt::format("set model.classes={} if that is what the set holds", label + 1));
  info_.classes = set_.classes();
  const auto named = static_cast<std::int64_t>(info_.classes.size());
  if (named >= label + 1 && (options.classes == 0 || named == options.classes)) return;
  info_.classes = numbered_classes(options.classes != 0 ? options.classes : label + 1);
}

}  // namespace millrace::pipeline
