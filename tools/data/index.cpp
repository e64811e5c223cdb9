// Walks and hashes archives, and writes their indexes.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/folder.h"
#include "base/open_file.h"
#include "millrace/error.h"
#include "pipeline/readers/dali_index.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/listing.h"
#include "pipeline/readers/mapped_file.h"
#include "pipeline/readers/tar.h"
#include "pipeline/readers/url.h"
#include "pipeline/remote/sha256.h"
#include "tools/data/data.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using pipeline::FileStamp;
using pipeline::SetIndex;
using pipeline::ShardIndex;

ShardIndex walk_and_hash(const std::string& file, const std::function<void()>& check) {
  const base::OpenFile open = base::open_regular(file);
  ShardIndex index;
  index.shard = fs::path(file).filename();
  index.stamp = pipeline::stamp_of(open.descriptor.get(), file);
  pipeline::wait_until_settled(index.stamp);  // so that a change during the walk is noticed
  index.sha256 = pipeline::sha256_of_file(open.descriptor.get(), file, check);
  const pipeline::MappedFile mapped = pipeline::MappedFile::map(file);
  pipeline::IndexTarOptions options;
  options.names = true;
  options.passed = [&] {
    mapped.let_go();
    if (check) check();
  };
  index.tar = pipeline::index_tar(file, mapped.bytes(), options);
  const base::OpenFile again = base::open_regular(file);
  if (pipeline::stamp_of(again.descriptor.get(), file) != index.stamp)
    throw DataError(fmt::format("{}: changed while it was indexed", file),
                    "index a set when nothing writes to it any more");
  return index;
}

SetIndex::Shard summary(const ShardIndex& index, std::string name, std::uint64_t index_size) {
  SetIndex::Shard shard;
  shard.name = std::move(name);
  shard.size = index.stamp.size;
  shard.index_size = index_size;
  shard.samples = index.tar.samples.size();
  shard.unlabelled = index.tar.unlabelled;
  shard.unlabelled_beside = index.tar.unlabelled_beside;
  shard.fingerprint = index.tar.fingerprint;
  shard.sha256 = index.sha256;
  shard.folders = index.tar.folders;
  for (const pipeline::TarIndex::Entry& sample : index.tar.samples) {
    shard.image_bytes += sample.size;
    shard.largest_label = std::max(shard.largest_label, sample.label);
  }
  return shard;
}

void write(const std::string& path, const std::vector<std::byte>& bytes) {
  base::AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

std::string set_file_of(const std::string& folder) {
  return (fs::path(folder) / pipeline::kSetIndexFile).string();
}

std::string name_in(const std::string& folder, const std::string& file) {
  return fs::path(file).lexically_relative(folder).generic_string();
}

/// Writes an archive's index. Returns the archive's entry in a set, `name`; empty: its own.
SetIndex::Shard index_archive(const std::string& file, const std::string& name,
                              const std::function<void()>& check) {
  const ShardIndex index = walk_and_hash(file, check);
  const std::vector<std::byte> bytes = pipeline::to_bytes(index);
  write(pipeline::index_path(file), bytes);
  return summary(index, name.empty() ? index.shard : name, bytes.size());
}

/// Writes the index of a folder's archives, and returns its path.
std::string write_set(const std::string& folder, SetIndex& set) {
  set.classes = pipeline::read_class_names((fs::path(folder) / pipeline::kClassNamesFile).string());
  std::string path = set_file_of(folder);
  write(path, pipeline::to_bytes(set));
  return path;
}

SetIndex read_set(const std::string& folder) {
  const std::string path = set_file_of(folder);
  if (!base::is_folder(folder) || !base::exists(path)) return {};
  return pipeline::parse_set_index(path, pipeline::MappedFile::map(path).bytes());
}

}  // namespace

std::vector<std::string> archives_of(const std::string& path) {
  if (pipeline::is_remote(path))
    throw UsageError(
        fmt::format("{}: a remote set is not indexed from here", pipeline::redacted(path)),
        "run millrace data index where the archives are, and upload set.index");
  if (!base::is_folder(path)) return pipeline::find_tars(path, "train").files;
  std::vector<std::string> all;
  for (const char* split : {"train", "test"}) try {
      for (const std::string& file : pipeline::find_tars(path, split).files)
        if (std::find(all.begin(), all.end(), file) == all.end()) all.push_back(file);
    } catch (const pipeline::MissingSplit&) {  // a set may have only one split
    }
  return all;
}

IndexReport make_indexes(const std::string& path, const Progress& progress,
                         const std::function<void()>& check) {
  IndexReport report;
  report.files = archives_of(path);
  const bool folder = base::is_folder(path);
  report.set.shards.resize(report.files.size());
  parallel_for(report.files.size(), 1, 0, progress, [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) {
      const std::string& file = report.files[i];
      report.set.shards[i] = index_archive(file, folder ? name_in(path, file) : "", check);
    }
  });
  if (!folder) return report;
  report.set_file = write_set(path, report.set);
  return report;
}

void refresh_set_index(const std::string& folder, const std::vector<std::string>& changed,
                       const std::function<void()>& check) {
  if (!base::exists(set_file_of(folder))) return;
  SetIndex old;
  try {
    old = read_set(folder);
  } catch (const DataError&) {  // every archive is indexed again
  }
  SetIndex set;
  for (const std::string& file : archives_of(folder)) {
    const std::string name = name_in(folder, file);
    const auto listed =
        std::find_if(old.shards.begin(), old.shards.end(),
                     [&](const SetIndex::Shard& shard) { return shard.name == name; });
    const bool is_changed = std::any_of(changed.begin(), changed.end(), [&](const auto& one) {
      return name_in(folder, one) == name;
    });
    if (is_changed)
      set.shards.push_back(summary(pipeline::read_shard_index(file), name,
                                   fs::file_size(pipeline::index_path(file))));
    else
      set.shards.push_back(listed != old.shards.end() ? *listed : index_archive(file, name, check));
  }
  write_set(folder, set);
}

// Compares indexes with what they describe.
namespace {

/// Returns what is wrong with an archive's index, or nothing.
std::string check_index(const std::string& file, const SetIndex::Shard* in_set) {
  const base::OpenFile open = base::open_regular(file);
  const pipeline::Sha256 hash = pipeline::sha256_of_file(open.descriptor.get(), file);
  const std::string path = pipeline::index_path(file);
  if (base::exists(path)) {
    const ShardIndex index = pipeline::read_shard_index(file);
    if (index.sha256 != hash)
      return fmt::format(
          "{}: the index does not match the archive: it lists SHA-256 {}, the archive has {}", path,
          pipeline::hex_of(index.sha256), pipeline::hex_of(hash));
    if (const char* how =
            pipeline::difference(index.stamp, pipeline::stamp_of(open.descriptor.get(), file)))
      return fmt::format("{}: the index is stale: {}, although the content is the same", path, how);
  }
  if (in_set != nullptr && in_set->sha256 != hash)
    return fmt::format(
        "{}: the set index does not match the archive: it lists SHA-256 {}, the archive has {}",
        file, pipeline::hex_of(in_set->sha256), pipeline::hex_of(hash));
  return {};
}

}  // namespace

std::vector<std::string> check_indexes(const std::string& path) {
  std::vector<std::string> problems;
  const auto passes = [&](const auto& check) {
    try {
      check();
    } catch (const DataError& error) {
      problems.emplace_back(error.what());
    }
  };
  SetIndex set;
  passes([&] { set = read_set(path); });
  std::vector<std::string> files;
  passes([&] { files = archives_of(path); });
  std::vector<bool> found(set.shards.size());
  for (const std::string& file : files) {
    const auto listed =
        std::find_if(set.shards.begin(), set.shards.end(),
                     [&, name = name_in(path, file)](const auto& s) { return s.name == name; });
    const bool in_set = listed != set.shards.end();
    if (in_set) found[static_cast<std::size_t>(listed - set.shards.begin())] = true;
    if (!set.shards.empty() && !in_set)
      problems.push_back(fmt::format("{}: the set index does not list {}", set_file_of(path),
                                     name_in(path, file)));
    if (base::exists(pipeline::dali_index_path(file)))
      passes([&] { pipeline::list_by_dali_index(file, pipeline::DaliCheck::all); });
    if (!in_set && !base::exists(pipeline::index_path(file))) continue;
    passes([&] {
      if (std::string wrong = check_index(file, in_set ? &*listed : nullptr); !wrong.empty())
        problems.push_back(std::move(wrong));
    });
  }
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!found[i])
      problems.push_back(
          fmt::format("{}: lists {}, which is missing", set_file_of(path), set.shards[i].name));
  return problems;
}

}  // namespace millrace::tools
