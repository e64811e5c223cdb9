// Writes and parses indexes of sets of archives.
#include "pipeline/readers/set_index.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <optional>
#include <set>

#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"

namespace millrace::pipeline {

// Defines the layout. Numbers are little-endian. Behind the records stand names with a zero behind
// each: those of an archive and its folders, archive by archive, then those of the classes.
namespace {

static_assert(std::endian::native == std::endian::little, "index files are little-endian");

constexpr std::array<char, 8> kSetMagic{'\x89', 'M', 'R', 'S', 'E', 'T', '\r', '\n'};

struct SetHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;  ///< of this file
  std::uint64_t shards;
  std::uint64_t classes;
  std::uint32_t record_bytes;
  std::uint32_t reserved;
  std::uint64_t body_sum;    ///< XXH3 of everything behind the header
  std::uint64_t header_sum;  ///< XXH3 of the header up to here
};
static_assert(sizeof(SetHeader) == 64);

struct SetRecord {
  std::uint64_t size;
  std::uint64_t index_size;
  std::uint64_t samples;
  std::uint64_t image_bytes;
  std::uint64_t unlabelled;
  std::uint64_t unlabelled_beside;
  std::uint64_t fingerprint;
  std::int32_t largest_label;
  std::uint32_t folders;
  Sha256 sha256;
};
static_assert(sizeof(SetRecord) == 96);

std::uint64_t set_header_sum(const SetHeader& header) {
  return XXH3_64bits(&header, offsetof(SetHeader, header_sum));
}

std::uint64_t set_body_sum(std::span<const std::uint8_t> bytes) {
  const auto body = bytes.subspan(sizeof(SetHeader));
  return XXH3_64bits(body.data(), body.size());
}

/// Returns whether a name stays in its folder and can stand in a message or a request as it is.
bool is_plain(std::string_view name) {
  if (name.empty() || name.starts_with('/')) return false;
  if (std::any_of(name.begin(), name.end(),
                  [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }))
    return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

std::vector<std::byte> to_bytes(const SetIndex& index) {
  std::string records, names;
  for (const SetIndex::Shard& shard : index.shards) {
    SetRecord record{};
    record.size = shard.size;
    record.index_size = shard.index_size;
    record.samples = shard.samples;
    record.image_bytes = shard.image_bytes;
    record.unlabelled = shard.unlabelled;
    record.unlabelled_beside = shard.unlabelled_beside;
    record.fingerprint = shard.fingerprint;
    record.largest_label = shard.largest_label;
    record.folders = static_cast<std::uint32_t>(shard.folders.size());
    record.sha256 = shard.sha256;
    records.append(reinterpret_cast<const char*>(&record), sizeof record);
    names.append(shard.name).push_back('\0');
    for (const std::string& folder : shard.folders) names.append(folder).push_back('\0');
  }
  for (const std::string& name : index.classes) names.append(name).push_back('\0');
  SetHeader header{};
  header.magic = kSetMagic;
  header.version = SetIndex::kVersion;
  header.header_bytes = sizeof header;
  header.bytes = sizeof header + records.size() + names.size();
  header.shards = index.shards.size();
  header.classes = index.classes.size();
  header.record_bytes = sizeof(SetRecord);
  std::vector<std::byte> out(header.bytes);
  std::memcpy(out.data(), &header, sizeof header);
  std::memcpy(out.data() + sizeof header, records.data(), records.size());
  std::memcpy(out.data() + sizeof header + records.size(), names.data(), names.size());
  seal_set_index({reinterpret_cast<std::uint8_t*>(out.data()), out.size()});
  return out;
}

void seal_set_index(std::span<std::uint8_t> bytes) {
  SetHeader header;
  if (bytes.size() < sizeof header) return;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.body_sum = set_body_sum(bytes);
  header.header_sum = set_header_sum(header);
  std::memcpy(bytes.data(), &header, sizeof header);
}

// Parses and checks an index.
namespace {

class SetParser {
 public:
  SetParser(std::string_view file, std::span<const std::uint8_t> bytes)
      : file_(file), bytes_(bytes) {}

  SetIndex run() {
    check_header();
    const std::uint64_t room = bytes_.size() - sizeof header_;
    if (header_.shards == 0 || header_.shards > room / sizeof(SetRecord))
      damaged("its records do not fit");
    const std::uint64_t names_at = sizeof header_ + header_.shards * sizeof(SetRecord);
    names_ = {reinterpret_cast<const char*>(bytes_.data()) + names_at, bytes_.size() - names_at};
    SetIndex index;
    std::set<std::string_view> seen;
    for (std::uint64_t i = 0; i < header_.shards; ++i) {
      index.shards.push_back(shard(i));
      if (!is_plain(index.shards.back().name))
        damaged(
            fmt::format("'{}' leads out of its folder", base::printable(index.shards.back().name)));
    }
    for (const SetIndex::Shard& one : index.shards)
      if (!seen.insert(one.name).second)
        damaged(fmt::format("'{}' comes a second time", base::printable(one.name)));
    for (std::uint64_t i = 0; i < header_.classes; ++i) index.classes.push_back(next_name());
    if (!names_.empty()) damaged("names stand behind its end");
    return index;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw DataError(fmt::format("{}: {}", file_, reason),
                    "make the index again: millrace data index FOLDER");
  }
  [[noreturn]] void damaged(const std::string& reason) const {
    fail("the index is damaged: " + reason);
  }

  void check_header() {
    if (bytes_.size() < kSetMagic.size() ||
        std::memcmp(bytes_.data(), kSetMagic.data(), kSetMagic.size()) != 0)
      fail("not an index of a set");
    if (bytes_.size() < sizeof header_)
      fail(fmt::format("the index is truncated: {} bytes", bytes_.size()));
    std::memcpy(&header_, bytes_.data(), sizeof header_);
    if (header_.version != SetIndex::kVersion)
      fail(fmt::format("an index of version {}; this program reads version {}", header_.version,
                       SetIndex::kVersion));
    if (header_.header_sum != set_header_sum(header_)) damaged("wrong checksum of its header");
    if (header_.bytes > bytes_.size())
      fail(fmt::format("the index is truncated: {} of {} bytes", bytes_.size(), header_.bytes));
    if (header_.bytes < bytes_.size()) damaged("bytes stand behind its end");
    if (header_.body_sum != set_body_sum(bytes_)) damaged("wrong checksum");
    if (header_.header_bytes != sizeof header_ || header_.record_bytes != sizeof(SetRecord))
      damaged("its records have another width");
  }

  std::string next_name() {
    const std::size_t end = names_.find('\0');
    if (end == names_.npos) damaged("a name is missing");
    std::string name(names_.substr(0, end));
    names_.remove_prefix(end + 1);
    return name;
  }

  SetIndex::Shard shard(std::uint64_t i) {
    SetRecord record;
    std::memcpy(&record, bytes_.data() + sizeof header_ + i * sizeof record, sizeof record);
    // Each sample has a header of its own in the archive.
    if (record.samples == 0 || record.samples > record.size / TarWalk::kBlock ||
        record.image_bytes > record.size || record.unlabelled > record.samples ||
        record.unlabelled_beside > record.unlabelled)
      damaged("an archive's numbers contradict each other");
    if (record.largest_label < -1 || record.largest_label >= kMaxClasses)
      damaged("a label is out of range");
    if (record.folders == 0) damaged("wrong number of folders");
    SetIndex::Shard shard{next_name(),
                          record.size,
                          record.index_size,
                          record.samples,
                          record.image_bytes,
                          record.unlabelled,
                          record.unlabelled_beside,
                          record.fingerprint,
                          record.largest_label,
                          record.sha256,
                          {}};
    for (std::uint32_t folder = 0; folder < record.folders; ++folder)
      shard.folders.push_back(next_name());
    return shard;
  }

  std::string_view file_;
  std::span<const std::uint8_t> bytes_;
  SetHeader header_{};
  std::string_view names_;  ///< those that are not read yet
};

}  // namespace

SetIndex parse_set_index(std::string_view file, std::span<const std::uint8_t> bytes) {
  return SetParser(file, bytes).run();
}

}  // namespace millrace::pipeline
