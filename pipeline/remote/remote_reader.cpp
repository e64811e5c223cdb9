// Reads samples of remote archives.
#include "pipeline/remote/remote_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "base/located_sample.h"
#include "base/open_file.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/mapped_file.h"
#include "pipeline/readers/tar.h"

namespace millrace::pipeline {
namespace {

double now_s() { return static_cast<double>(base::Clock::steady_ns()) * 1e-9; }

}  // namespace

auto RemoteReader::Readers::all() -> Readers& {
  static Readers* const readers = new Readers;  // a thread left behind may use it at the exit
  return *readers;
}

void RemoteReader::Readers::add(const RemoteReader* reader) {
  const std::lock_guard lock(mutex_);
  readers_.push_back(reader);
}

void RemoteReader::Readers::remove(const RemoteReader* reader) {
  const std::lock_guard lock(mutex_);
  std::erase(readers_, reader);
}

bool RemoteReader::Readers::let_go() {
  const std::lock_guard lock(mutex_);
  return std::any_of(readers_.begin(), readers_.end(),
                     [](const RemoteReader* reader) { return reader->let_go(); });
}

RemoteReader::RemoteReader(const DataOptions& options)
    : wanted_(options),
      set_(options),
      ranges_(reads_ranges(options)),
      checked_(options.index == IndexUse::off) {
  info_.reader = "tar";
  info_.path = redacted(options.path);
  info_.split = options.split;
  info_.encoded = true;
  info_.requested = ranges_;
  info_.members = options.members;
  info_.masks = wanted_.mask;
  for (const RemoteShard& shard : set_.shards()) {
    parts_.push_back(std::make_unique<Part>());
    parts_.back()->shard = shard;
  }
  try {
    list_unindexed();
    by_label_ = has_labels();
    choose(options);
    count_classes(options);
  } catch (const FetchError& error) {
    rethrow_at_open(error);
  }
  seen_.watch(options, info_.count);
  if (!ranges_ && options.remote.cache_bytes > 0 && options.remote.reach > 0)
    check_room(options.remote);
  look_ahead(options.remote);
  Readers::all().add(this);
}

RemoteReader::~RemoteReader() {
  set_.close();
  ahead_.reset();
  Readers::all().remove(this);
}

Sample RemoteReader::read(std::uint64_t index, Buffer& scratch) const {
  const Pin pin(*this, part_of(index));
  const Part& part = pin.part();
  if (!wanted_.names.empty()) return read_group(pin.part(), index - part.first, scratch);
  const Entry& sample = part.entries[index - part.first];
  if (sample.size == base::kTooLong) {
    Location location = location_of(part, sample);
    return base::read_located(location, part.file.get(), scratch);
  }
  std::uint8_t* bytes = scratch.reserve(sample.size);
  if (ranges_) {
    fetch_range(pin.part(), sample.data, sample.size, bytes);
    return {{bytes, sample.size}, sample.label};
  }
  read_file(part, sample.data, sample.size, bytes);
  return {{bytes, sample.size}, sample.label};
}

Sample RemoteReader::read_group(Part& part, std::uint64_t index, Buffer& scratch) const {
  const Entry& sample = part.entries[index];
  const TarGroup group({sample.data, sample.size, sample.back, sample.label, 0},
                       part.around[index]);
  std::uint8_t* bytes = group.reserve(scratch, wanted_);
  if (ranges_) {
    fetch_range(part, group.begin(), group.size(), bytes);
  } else {
    read_file(part, group.begin(), group.size(), bytes);
  }
  const Sample found = group.find(wanted_, scratch);
  seen_.add(found);
  return found;
}

void RemoteReader::read_file(const Part& part, std::uint64_t first, std::uint64_t count,
                             std::uint8_t* out) {
  if (base::read_at(part.file.get(), out, count, first, part.shard.url.path.c_str()) != count)
    throw RunError(
        fmt::format("{}: the copy in data.remote.cache was cut short", part.shard.url.text()),
        "leave the cache alone while it is used; removing it is safe between runs");
}

std::string RemoteReader::name(std::uint64_t index) const {
  Part& part = part_of(index);
  const std::string shown = part.shard.url.text();
  try {
    const Pin pin(*this, part);
    const Entry& sample = part.entries[index - part.first];
    return fmt::format("{} member {}", shown, base::printable(member_name(part, sample)));
  } catch (const std::exception&) {  // a name for a message must not fail
    return fmt::format("{} sample {}", shown, index - part.first);
  }
}

std::int64_t RemoteReader::label(std::uint64_t index) const {
  const Pin pin(*this, part_of(index));
  return pin.part().entries[index - pin.part().first].label;
}

bool RemoteReader::locate(std::uint64_t index, Location& location) const {
  if (ranges_) return false;
  const Pin pin(*this, part_of(index));
  location = location_of(pin.part(), pin.part().entries[index - pin.part().first]);
  return true;
}

void RemoteReader::expect(std::uint64_t index) const {
  Part& part = part_of(index);
  if (part.pins.load(std::memory_order_relaxed) != kAway || part.expected.exchange(true)) return;
  if (ahead_ != nullptr) ahead_->add(index);
}

bool RemoteReader::let_go() const {
  if (ranges_) return false;
  const std::lock_guard lock(closing_);
  for (std::size_t step = 0; step < 2 * parts_.size(); ++step) {
    Part& part = *parts_[hand_++ % parts_.size()];
    // The archive that this thread is opening is away, so its lock is not tried.
    if (part.pins.load(std::memory_order_relaxed) != 0) continue;
    if (step < parts_.size() && part.used.exchange(false, std::memory_order_relaxed)) continue;
    const std::unique_lock opening(part.opening, std::try_to_lock);
    std::int64_t none = 0;
    if (!opening || !part.pins.compare_exchange_strong(none, kAway, std::memory_order_acq_rel))
      continue;
    part.file.close();
    if (std::exchange(part.counted, false)) kept_.remove();
    part.expected.store(false);
    return true;
  }
  return false;
}

RemoteReader::Pin::Pin(const RemoteReader& reader, Part& part) : part_(part) {
  if (!try_pin(part)) reader.open(part);
  if (!part.used.load(std::memory_order_relaxed)) part.used.store(true, std::memory_order_relaxed);
}

bool RemoteReader::reads_ranges(const DataOptions& options) const {
  const RemoteOptions& remote = options.remote;
  const auto& shards = set_.shards();
  const bool can = options.index != IndexUse::off &&
                   std::all_of(shards.begin(), shards.end(), [](const RemoteShard& shard) {
                     return shard.indexed && shard.listed.index_size > 0;
                   });
  if (remote.fetch == RemoteFetch::ranges && !can)
    throw UsageError(
        fmt::format("{}: data.remote.fetch=ranges needs the archives' indexes",
                    redacted(options.path)),
        options.index == IndexUse::off
            ? "leave data.index=off out"
            : "make them where the archives are (millrace data index FOLDER), and upload "
              "set.index and all *.tar.index");
  if (remote.fetch != RemoteFetch::automatic) return remote.fetch == RemoteFetch::ranges;
  const std::uint64_t bytes = std::accumulate(
      shards.begin(), shards.end(), std::uint64_t{0},
      [](std::uint64_t sum, const RemoteShard& shard) { return sum + shard.listed.size; });
  return can && remote.cache_bytes > 0 && bytes > remote.cache_bytes &&
         remote.reach == std::numeric_limits<std::uint64_t>::max();
}

void RemoteReader::fetch_range(Part& part, std::uint64_t first, std::uint64_t count,
                               std::uint8_t* out) const {
  if (count == 0) return;
  FetchPart wanted{.first = first, .count = count};
  {
    const std::lock_guard lock(part.identity);
    wanted.etag = part.etag;
  }
  const FetchTimes before = fetch_times_of_thread();
  const HttpHeader header = set_.fetch_part(part.shard, wanted, out);
  count_read(fetch_times_of_thread() - before);
  const std::lock_guard lock(part.identity);
  if (part.etag.empty() && header.has_strong_etag()) part.etag = header.etag;
  if (part.etag.empty() || part.etag == header.etag) return;
  // Another thread's first part came at the same time, from another version.
  throw FetchError(
      FetchError::Kind::wrong,
      fmt::format("{}: the object changed while it was fetched", part.shard.url.text()),
      "leave the set alone while it is used, and start again");
}

std::string RemoteReader::member_name(Part& part, const Entry& sample) const {
  const std::string shown = part.shard.url.text();
  if (ranges_) {
    std::vector<std::uint8_t> headers(sample.back);
    fetch_range(part, sample.data - sample.back, sample.back, headers.data());
    // Padding follows the sample in the archive.
    return tar_name(shown, headers,
                    part.shard.listed.size - std::min(part.shard.listed.size, sample.data));
  }
  const MappedFile mapped = MappedFile::map(set_.path_of(part.shard));
  return tar_name(shown, mapped.bytes(), {sample.data, 0, sample.back, 0, 0});
}

bool RemoteReader::try_pin(Part& part) {
  std::int64_t pins = part.pins.load(std::memory_order_relaxed);
  while (pins >= 0)
    if (part.pins.compare_exchange_weak(pins, pins + 1, std::memory_order_acquire)) return true;
  return false;
}

auto RemoteReader::part_of(std::uint64_t index) const -> Part& {
  const auto behind =
      std::upper_bound(parts_.begin(), parts_.end(), index,
                       [](std::uint64_t wanted, const auto& part) { return wanted < part->first; });
  return **std::prev(behind);
}

Location RemoteReader::location_of(const Part& part, const Entry& sample) const {
  Location location;
  location.offset = sample.data;
  location.size = sample.size;
  location.label = sample.label;
  base::set_path(location, set_.path_of(part.shard));
  return location;
}

void RemoteReader::open(Part& part) const {
  const double begin = now_s();
  const std::lock_guard lock(part.opening);
  if (try_pin(part)) return count_wait(part, now_s() - begin);
  const double locked = now_s();
  const FetchTimes before = fetch_times_of_thread();
  if (ranges_) {
    list_by_index(part);
  } else {
    while (!kept_.room() && let_go()) {
    }
    adopt_file(part, set_.fetch(
                         part.shard, [this] { return let_go() || Readers::all().let_go(); },
                         checked_ && part.entries.empty()));
  }
  part.spent = fetch_times_of_thread() - before;
  part.open_s = now_s() - locked;
  count_read(part.spent);
  part.pins.store(1, std::memory_order_release);
}

void RemoteReader::open_ahead(Part& part) const {
  const std::unique_lock opening(part.opening, std::try_to_lock);
  if (!opening || part.pins.load(std::memory_order_relaxed) != kAway) return;
  const double begin = now_s();
  const FetchTimes before = fetch_times_of_thread();
  try {
    while (!kept_.room() && let_go()) {
    }
    base::Descriptor file = set_.fetch_ahead(part.shard);
    if (!file) return;
    adopt_file(part, std::move(file));
  } catch (const std::exception&) {
    part.file.close();
    return;
  }
  part.spent = fetch_times_of_thread() - before;
  part.open_s = now_s() - begin;
  part.used.store(true, std::memory_order_relaxed);
  part.pins.store(0, std::memory_order_release);
}

void RemoteReader::adopt_file(Part& part, base::Descriptor file) const {
  part.file = std::move(file);
  if (part.entries.empty()) list(part);
  part.counted = kept_.add();
}

void RemoteReader::count_wait(const Part& part, double waited_s) {
  if (part.open_s <= 0) return;
  const double share = std::min(1.0, waited_s / part.open_s);
  count_read(
      {share * part.spent.first_byte_s, share * part.spent.transfer_s, share * part.spent.retry_s});
}

void RemoteReader::look_ahead(const RemoteOptions& options) {
  if (ranges_ || checked_) return;
  std::uint64_t most = 0;
  for (const auto& part : parts_) most = std::max(most, part->count);
  const bool global = options.reach == std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t ahead = std::max(2 * most, global ? 0 : options.reach / 2);
  const std::uint64_t reach = global ? options.reach : options.reach + ahead;
  if (options.cache_bytes > 0 && bytes_within(reach) > options.cache_bytes) return;
  lookahead_ = ahead;
  ahead_ = std::make_unique<ReadAhead>(options.connections,
                                       [this](std::size_t index) { open_ahead(part_of(index)); });
}

std::uint64_t RemoteReader::bytes_within(std::uint64_t reach) const {
  std::uint64_t need = 0, bytes = 0;
  for (std::size_t first = 0, behind = 0; first < parts_.size(); ++first) {
    const std::uint64_t last_sample = parts_[first]->first + parts_[first]->count - 1;
    while (behind < parts_.size() &&
           parts_[behind]->first - std::min(parts_[behind]->first, last_sample) <= reach)
      bytes += parts_[behind++]->shard.listed.size;
    need = std::max(need, bytes);
    bytes -= parts_[first]->shard.listed.size;
  }
  return need;
}

void RemoteReader::check_room(const RemoteOptions& options) const {
  const std::uint64_t need = bytes_within(options.reach);
  if (need <= options.cache_bytes) return;
  const bool global = options.reach == std::numeric_limits<std::uint64_t>::max();
  throw UsageError(
      fmt::format("data.remote.cache_bytes={}: loader.shuffle reads {} bytes of archives at about "
                  "the same time, and each would be fetched again and again",
                  options.cache_bytes, need),
      global ? fmt::format("set data.remote.cache_bytes={} or more, or loader.shuffle=window:N, "
                           "which reads the set piece by piece",
                           need)
             : fmt::format("set data.remote.cache_bytes={} or more, or a smaller window", need));
}

std::unique_ptr<Reader> open_remote_tar(const DataOptions& options) {
  return std::make_unique<RemoteReader>(options);
}

}  // namespace millrace::pipeline
