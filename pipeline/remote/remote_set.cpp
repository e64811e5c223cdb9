// Finds the archives of a remote set and fetches them.
#include "pipeline/remote/remote_set.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <random>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/tar.h"
#include "pipeline/readers/url.h"
#include "pipeline/remote/s3.h"
#include "pipeline/remote/sha256.h"

namespace millrace::pipeline {
namespace {

/// Longest set.index and classes.txt that are accepted.
constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{1} << 28;
constexpr std::uint64_t kMaxClassBytes = std::uint64_t{1} << 24;

FetchOptions fetch_options(const DataOptions& options, const std::atomic<bool>* closing) {
  FetchOptions fetch;
  fetch.closing = closing;
  fetch.retry.deadline_s = options.remote.deadline_s;
  // Not the process's number, which containers of one image share: they would repeat together.
  fetch.retry.seed = base::mix64(std::random_device()());
  // A stalled request must leave time for another one.
  fetch.stall = std::chrono::milliseconds(std::clamp<std::int64_t>(
      static_cast<std::int64_t>(options.remote.deadline_s * 250), 500, 30'000));
  fetch.stop = options.remote.stop;
  fetch.stop_at = options.remote.stop_at;
  fetch.warn = options.warn;
  return fetch;
}

ShardCacheOptions cache_options(const DataOptions& options) {
  return {options.remote.cache.empty() ? default_shard_cache() : options.remote.cache,
          options.remote.cache_bytes, options.remote.deadline_s,
          options.remote.stop_at == StopAt::once ? options.remote.stop : nullptr, options.warn};
}

/// Writes to a file that has its final length. libcurl hands out 16 KiB at most, which are
/// gathered: the kernel takes three times as long for small unaligned pieces.
class FileTarget final : public FetchTarget {
 public:
  FileTarget(int file, const std::string& path) : file_(file), path_(path) {
    gathered_.reserve(kGathered);
  }
  void restart() override {
    gathered_.clear();
    at_ = 0;
  }
  void append(const char* bytes, std::size_t size) override {
    while (size > 0) {
      const std::size_t room = kGathered - at_ % kGathered - gathered_.size();
      const std::size_t fits = std::min(size, room);
      gathered_.insert(gathered_.end(), bytes, bytes + fits);
      bytes += fits;
      size -= fits;
      if (fits == room) write();
    }
    // Other processes take the file's time for a sign of life.
    if (base::Clock::steady_ns() > written_ns_ + kLatest_ns) write();
  }
  /// Writes what is left. Call it after the last byte.
  void finish() { write(); }

 private:
  static constexpr std::size_t kGathered = std::size_t{1} << 18;
  static constexpr std::int64_t kLatest_ns = 1'000'000'000;

  void write() {
    written_ns_ = base::Clock::steady_ns();
    const char* bytes = gathered_.data();
    for (std::size_t size = gathered_.size(); size > 0;) {
      const ssize_t count = pwrite(file_, bytes, size, static_cast<off_t>(at_));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0)
        throw RunError(
            fmt::format("data.remote.cache: {} cannot be written: {}", path_, std::strerror(errno)),
            "free some space, or set data.remote.cache_bytes or data.remote.cache");
      bytes += count;
      size -= static_cast<std::size_t>(count);
      at_ += static_cast<std::uint64_t>(count);
    }
    gathered_.clear();
  }

  int file_;
  const std::string& path_;
  std::uint64_t at_ = 0;  ///< bytes in the file
  std::int64_t written_ns_ = base::Clock::steady_ns();
  std::vector<char> gathered_;  ///< those behind them
};

/// Writes to memory that has room for what is asked for.
class MemoryTarget final : public FetchTarget {
 public:
  explicit MemoryTarget(std::uint8_t* out) : out_(out) {}
  void restart() override { at_ = 0; }
  void append(const char* bytes, std::size_t size) override {
    std::memcpy(out_ + at_, bytes, size);
    at_ += size;
  }

 private:
  std::uint8_t* out_;
  std::size_t at_ = 0;
};

constexpr const char* kOwn = "process ";

/// Returns what names the content of an object: its ETag, or else its time and length.
std::string identity_of(const HttpHeader& header) {
  if (!header.etag.empty()) return "etag " + header.etag;
  if (!header.modified.empty())
    return fmt::format("modified {} length {}", header.modified, header.length.value_or(0));
  // Nothing would show a change, so that only this process may use what it fetches.
  return kOwn + process_name();
}

std::unique_ptr<Access> access_to(const DataOptions& options) {
  const std::size_t end = options.path.find("://") + 3;
  // Braces may stand in the names, but not in the bucket.
  const Url place = Url::parse(options.path.substr(0, options.path.find_first_of("/?", end)));
  if (!place.is_bucket()) return plain_access();
  return s3_access(place, options.remote.stop, options.warn);
}

[[noreturn]] void refuse_query(const std::string& path, const Url& url) {
  throw UsageError(
      fmt::format("{}: the address has a query, which a run would record", redacted(path)),
      url.is_bucket() ? "leave it out; a key with a '?' cannot be named"
                      : "leave it out and set MILLRACE_REMOTE_QUERY to it");
}

}  // namespace

void rethrow_at_open(const FetchError& error) {
  if (error.kind == FetchError::Kind::unreachable) throw RunError(error.what(), error.hint());
  throw DataError(error.what(), error.hint());
}

RemoteSet::RemoteSet(const DataOptions& options)
    : fetcher_(fetch_options(options, &closing_), access_to(options)),
      cache_(cache_options(options)) {
  try {
    find(options);
  } catch (const FetchError& error) {
    rethrow_at_open(error);
  }
}

RemoteSet::~RemoteSet() {
  for (const RemoteShard& shard : shards_) {
    if (!shard.own) continue;
    try {
      cache_.drop(shard.key);
    } catch (const std::exception&) {  // it stays until the limit takes it
    }
  }
}

std::string RemoteSet::key_of(const Url& url, const std::string& identity) const {
  return fetcher_.access().place(url) + "\n" + url.path + "\n" + identity;
}

void RemoteSet::find(const DataOptions& options) {
  const std::string& path = options.path;
  const std::size_t brace = path.find('{');
  if (brace == std::string::npos && !path.ends_with(".tar")) {
    const Url folder = Url::parse(path);
    if (!folder.query.empty()) refuse_query(path, folder);
    const Url index = folder.file(kSetIndexFile);
    try {
      read_index(folder, fetcher_.fetch_text(index, kMaxIndexBytes), options.split);
      return;
    } catch (const FetchError& error) {
      if (error.kind != FetchError::Kind::missing) throw;
      if (folder.is_bucket() && options.index != IndexUse::require) return list(folder, options);
      throw FetchError(error.kind, error.what(),
                       "make one where the archives are (millrace data index FOLDER) and upload "
                       "it, or name the archives: data.path='" +
                           folder.text() + "train-{000..009}.tar'");
    }
  }
  if (options.index == IndexUse::require)
    throw DataError(fmt::format("{}: data.index=require needs a set.index, and archives are named "
                                "one by one",
                                redacted(path)),
                    "data.path=http://HOST/FOLDER/ opens the set through its set.index");
  const std::size_t slash = path.rfind('/', brace);
  const Url folder = Url::parse(path.substr(0, slash + 1));
  std::vector<std::string> names = expand_braces(path.substr(slash + 1));
  for (std::string& one : names) {
    if (one.find_first_of(folder.is_bucket() ? "?" : "?#") != std::string::npos)
      refuse_query(path, folder);
    if (!folder.is_bucket()) one = percent_decoded(one);  // a bucket's keys are not encoded
  }
  of_split_ = false;
  name(folder, names);
  read_classes(folder);
}

/// Finds the archives of a bucket's folder by a list of it.
void RemoteSet::list(const Url& folder, const DataOptions& options) {
  const auto is_split = [](const std::string& name) {
    for (const char* split : {"train", "test"})
      for (const std::string& one : split_names(split))
        if (name == one) return true;
    return false;
  };
  const std::vector<S3Object> objects = list_s3_folder(fetcher_, folder, is_split);
  std::vector<std::string> names;
  bool classes = false;
  for (const S3Object& one : objects) {
    if (one.name.ends_with(".tar")) names.push_back(one.name);
    classes |= one.name == kClassNamesFile;
  }
  const TarFiles chosen = files_of_split(names, folder.text(), options.split);
  of_split_ = chosen.of_split;
  const std::unordered_set<std::string> wanted(chosen.files.begin(), chosen.files.end());
  for (const S3Object& one : objects)
    if (wanted.contains(one.name))
      add(folder, one.name, one.size,
          one.etag.empty() ? kOwn + process_name() : "etag " + one.etag);
  if (classes) read_classes(folder);
}

void RemoteSet::add(const Url& folder, const std::string& name, std::uint64_t size,
                    const std::string& identity) {
  RemoteShard shard;
  shard.url = folder.file(name);
  shard.listed.name = name;
  shard.listed.size = size;
  shard.own = identity.starts_with(kOwn);
  if (!shard.own) shard.version = identity;
  shard.key = key_of(shard.url, identity);
  shards_.push_back(std::move(shard));
}

void RemoteSet::read_index(const Url& folder, const std::string& text, const std::string& split) {
  const std::string where = folder.file(kSetIndexFile).text();
  SetIndex index =
      parse_set_index(where, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  std::vector<std::string> names;
  for (const SetIndex::Shard& shard : index.shards) names.push_back(shard.name);
  const TarFiles chosen = files_of_split(names, folder.text(), split);
  of_split_ = chosen.of_split;
  const std::unordered_set<std::string> wanted(chosen.files.begin(), chosen.files.end());
  for (SetIndex::Shard& shard : index.shards) {
    if (!wanted.contains(shard.name)) continue;
    RemoteShard one;
    one.url = folder.file(shard.name);
    one.key = key_of(one.url, "sha256 " + hex_of(shard.sha256));
    one.listed = std::move(shard);
    one.indexed = true;
    shards_.push_back(std::move(one));
  }
  classes_ = std::move(index.classes);
}

/// Asks for the length and the identity of each archive.
void RemoteSet::name(const Url& folder, const std::vector<std::string>& names) {
  for (const std::string& one : names) {
    const Url url = folder.file(one);
    const HttpHeader header = fetcher_.head(url);
    if (!header.length)
      throw DataError(fmt::format("{}: the server does not say how long it is", url.text()),
                      "make a set.index: millrace data index FOLDER");
    add(folder, one, *header.length, identity_of(header));
  }
}

/// Reads classes.txt, if the server has one.
void RemoteSet::read_classes(const Url& folder) {
  std::string text;
  try {
    text = fetcher_.fetch_text(folder.file(kClassNamesFile), kMaxClassBytes);
  } catch (const FetchError& error) {
    if (error.kind == FetchError::Kind::unreachable) throw;
    return;  // S3 denies what does not exist to users who may not list
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) classes_.push_back(std::move(line));
    begin = end + 1;
  }
}

std::string RemoteSet::fetch_index(const RemoteShard& shard) {
  Url url = shard.url;
  url.path += kShardIndexEnding;
  return fetcher_.fetch_text(url, shard.listed.index_size);
}

HttpHeader RemoteSet::fetch_part(const RemoteShard& shard, FetchPart part, std::uint8_t* out) {
  MemoryTarget target(out);
  FetchWanted wanted{shard.url};
  wanted.size = shard.listed.size;
  wanted.part = std::move(part);
  return fetcher_.fetch(wanted, target);
}

base::Descriptor RemoteSet::fetch(const RemoteShard& shard, const ShardCache::LetGo& let_go,
                                  bool checked) {
  return fetch(shard, let_go, checked, /*wait=*/true);
}

base::Descriptor RemoteSet::fetch_ahead(const RemoteShard& shard) {
  return fetch(shard, {}, /*checked=*/false, /*wait=*/false);
}

base::Descriptor RemoteSet::fetch(const RemoteShard& shard, const ShardCache::LetGo& let_go,
                                  bool checked, bool wait) {
  FetchWanted wanted{shard.url};
  wanted.once = !wait;
  wanted.size = shard.listed.size;
  if (shard.indexed) wanted.sha256 = shard.listed.sha256;
  bool fresh = false;
  const auto fill = [&](int file, const std::string& path) {
    FileTarget target(file, path);
    const HttpHeader header = fetcher_.fetch(wanted, target);
    target.finish();
    if (!shard.indexed && key_of(shard.url, identity_of(header)) != shard.key)
      throw FetchError(FetchError::Kind::wrong,
                       fmt::format("{}: changed since the set was opened", shard.url.text()),
                       "leave the set alone while it is used, and start again");
    fresh = true;
  };
  while (true) {
    base::Descriptor file = cache_.get(shard.key, shard.listed.size, fill, let_go, wait);
    if (!checked || fresh || !shard.indexed) return file;
    if (sha256_of_file(file.get(), path_of(shard)) == shard.listed.sha256) return file;
    cache_.drop_damaged(shard.key);  // damaged on this disk: fetched again
  }
}

}  // namespace millrace::pipeline
