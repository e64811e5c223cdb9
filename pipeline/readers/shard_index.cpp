// Writes and parses index files of archives.
#include "pipeline/readers/shard_index.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <thread>

#include "base/folder.h"
#include "base/located_sample.h"
#include "base/open_file.h"
#include "millrace/error.h"
#include "pipeline/decoders/image_files.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/folder.h"
#include "pipeline/readers/mapped_file.h"

namespace millrace::pipeline {

// Compares stamps.

FileStamp stamp_of(int descriptor, std::string_view path) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0)
    throw DataError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)),
                    "check the disk");
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {static_cast<std::uint64_t>(status.st_size), nanoseconds(status.st_mtim),
          nanoseconds(status.st_ctim), status.st_ino, status.st_dev};
}

void wait_until_settled(const FileStamp& stamp) {
  constexpr std::int64_t kTick_ns = 10'000'000;
  const bool coarse = stamp.ctime_ns % kTick_ns == 0;
  const auto settled = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::nanoseconds(stamp.ctime_ns + (coarse ? 2'000'000'000 : 2 * kTick_ns))));
  const auto wait = settled - std::chrono::system_clock::now();
  if (wait > wait.zero())
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(wait, std::chrono::seconds(2)));
}

const char* difference(const FileStamp& listed, const FileStamp& now) {
  if (listed.size != now.size) return "the size differs";
  if (listed.mtime_ns != now.mtime_ns) return "the modification time differs";
  const bool same_file = listed.inode == now.inode && listed.device == now.device;
  if (same_file && listed.ctime_ns != now.ctime_ns) return "the change time differs";
  return nullptr;
}

// Defines the layout. Numbers are little-endian.
namespace {

static_assert(std::endian::native == std::endian::little, "index files are little-endian");

constexpr std::array<char, 8> kIndexMagic{'\x89', 'M', 'R', 'I', 'D', 'X', '\r', '\n'};

struct IndexHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;  ///< of this file
  std::uint64_t shard_size;
  std::int64_t mtime_ns;
  std::int64_t ctime_ns;
  std::uint64_t inode;
  std::uint64_t device;
  std::uint64_t samples;
  std::uint64_t image_bytes;
  std::uint64_t unlabelled;
  std::uint64_t unlabelled_beside;
  std::uint64_t fingerprint;
  std::uint64_t folders_at;
  std::uint64_t names_at;
  std::uint32_t folders;
  std::uint32_t record_bytes;
  std::uint64_t formats;
  Sha256 sha256;
  std::uint64_t body_sum;    ///< XXH3 of everything behind the header
  std::uint64_t header_sum;  ///< XXH3 of the header up to here
};
static_assert(sizeof(IndexHeader) == 184 && offsetof(IndexHeader, sha256) == 136);

struct IndexRecord {
  std::uint64_t data;
  std::uint32_t size;
  std::uint32_t back;
  std::int32_t label;
  std::uint32_t folder;
  std::uint32_t name;  ///< offset in the names
  std::uint32_t reserved;
};
static_assert(sizeof(IndexRecord) == 32);

std::uint64_t header_sum(const IndexHeader& header) {
  return XXH3_64bits(&header, offsetof(IndexHeader, header_sum));
}

std::uint64_t body_sum(std::span<const std::uint8_t> bytes) {
  const auto body = bytes.subspan(sizeof(IndexHeader));
  return XXH3_64bits(body.data(), body.size());
}

/// Copies to `at`, and moves it behind the copy.
void put(std::byte*& at, const void* data, std::size_t size) {
  std::memcpy(at, data, size);
  at += size;
}

}  // namespace

std::vector<std::byte> to_bytes(const ShardIndex& index) {
  const TarIndex& tar = index.tar;
  const auto names_before = static_cast<std::uint32_t>(index.shard.size() + 1);
  if (tar.names.size() > std::numeric_limits<std::uint32_t>::max() - names_before)
    throw DataError(fmt::format("{}: over 4 GiB of names", index.shard), "make smaller archives");
  IndexHeader header{};
  header.magic = kIndexMagic;
  header.version = ShardIndex::kVersion;
  header.header_bytes = sizeof(IndexHeader);
  header.shard_size = index.stamp.size;
  header.mtime_ns = index.stamp.mtime_ns;
  header.ctime_ns = index.stamp.ctime_ns;
  header.inode = index.stamp.inode;
  header.device = index.stamp.device;
  header.samples = tar.samples.size();
  header.unlabelled = tar.unlabelled;
  header.unlabelled_beside = tar.unlabelled_beside;
  header.fingerprint = tar.fingerprint;
  header.folders = static_cast<std::uint32_t>(tar.folders.size());
  header.record_bytes = sizeof(IndexRecord);
  header.formats = tar.formats;
  header.sha256 = index.sha256;
  header.folders_at = sizeof(IndexHeader) + sizeof(IndexRecord) * tar.samples.size();
  header.names_at = header.folders_at;
  for (const std::string& folder : tar.folders) header.names_at += folder.size() + 1;
  header.bytes = header.names_at + names_before + tar.names.size();

  std::vector<std::byte> out(header.bytes);
  std::byte* at = out.data() + sizeof header;
  for (std::size_t i = 0; i < tar.samples.size(); ++i) {
    const TarIndex::Entry& one = tar.samples[i];
    header.image_bytes += one.size;
    const IndexRecord record{
        one.data, one.size, one.back, one.label, one.folder, tar.name_at[i] + names_before, 0};
    put(at, &record, sizeof record);
  }
  for (const std::string& folder : tar.folders) put(at, folder.c_str(), folder.size() + 1);
  put(at, index.shard.c_str(), names_before);
  put(at, tar.names.data(), tar.names.size());
  std::memcpy(out.data(), &header, sizeof header);
  seal_shard_index({reinterpret_cast<std::uint8_t*>(out.data()), out.size()});
  return out;
}

void seal_shard_index(std::span<std::uint8_t> bytes) {
  IndexHeader header;
  if (bytes.size() < sizeof header) return;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.body_sum = body_sum(bytes);
  header.header_sum = header_sum(header);
  std::memcpy(bytes.data(), &header, sizeof header);
}

// Parses and checks an index file.
namespace {

[[noreturn]] void index_fails(std::string_view file, const std::string& reason) {
  throw DataError(fmt::format("{}: {}", file, reason),
                  "make the index again: millrace data index ARCHIVE");
}

[[noreturn]] void index_damaged(std::string_view file, const char* reason) {
  index_fails(file, fmt::format("the index is damaged: {}", reason));
}

/// Returns the header of an index of `size` bytes, which begins with `bytes`.
IndexHeader parse_header(std::string_view file, std::span<const std::uint8_t> bytes,
                         std::uint64_t size) {
  IndexHeader header;
  if (bytes.size() < kIndexMagic.size() ||
      std::memcmp(bytes.data(), kIndexMagic.data(), kIndexMagic.size()) != 0)
    index_fails(file, "not an index of an archive");
  if (bytes.size() < sizeof header)
    index_fails(file, fmt::format("the index is truncated: {} bytes", bytes.size()));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.version != ShardIndex::kVersion)
    index_fails(file, fmt::format("an index of version {}; this program reads version {}",
                                  header.version, ShardIndex::kVersion));
  if (header.header_sum != header_sum(header)) index_damaged(file, "wrong checksum of its header");
  if (header.bytes > size)
    index_fails(file, fmt::format("the index is truncated: {} of {} bytes", size, header.bytes));
  if (header.bytes < size) index_damaged(file, "bytes stand behind its end");
  return header;
}

/// Longest headers of one member: a few extended headers of up to 1 MiB. They are read for a name.
constexpr std::uint32_t kMaxHeaders = 16 << 20;

void check_layout(std::string_view file, const IndexHeader& header) {
  const std::uint64_t room = header.bytes - sizeof header;
  if (header.header_bytes != sizeof header || header.record_bytes != sizeof(IndexRecord))
    index_damaged(file, "its records have another width");
  if (header.samples == 0 || header.samples > room / sizeof(IndexRecord) ||
      header.folders_at != sizeof header + header.samples * sizeof(IndexRecord))
    index_damaged(file, "its records do not fit");
  if (header.names_at < header.folders_at || header.names_at >= header.bytes)
    index_damaged(file, "its names do not fit");
}

/// Checks what a record says of the archive and of the folders.
void check_record(std::string_view file, const IndexRecord& one, std::uint64_t shard_size,
                  std::uint32_t folders) {
  const bool inside =
      one.data <= shard_size && (one.size == base::kTooLong || one.size <= shard_size - one.data);
  if (!inside || one.back > one.data || one.back < TarWalk::kBlock)
    index_damaged(file, "a sample lies outside the archive");
  if (one.back > kMaxHeaders) index_damaged(file, "the headers of a sample are too long");
  if (one.label < -1 || one.label >= kMaxClasses) index_damaged(file, "a label is out of range");
  if (one.folder >= folders) index_damaged(file, "a sample's folder is missing");
}

class IndexParser {
 public:
  IndexParser(std::string_view file, std::span<const std::uint8_t> bytes)
      : file_(file), bytes_(bytes) {}

  ShardIndex run(bool names) {
    header_ = parse_header(file_, bytes_, bytes_.size());
    if (header_.body_sum != body_sum(bytes_)) damaged("wrong checksum");
    check_layout(file_, header_);
    ShardIndex index;
    index.stamp = {header_.shard_size, header_.mtime_ns, header_.ctime_ns, header_.inode,
                   header_.device};
    index.sha256 = header_.sha256;
    index.tar.unlabelled = header_.unlabelled;
    index.tar.unlabelled_beside = header_.unlabelled_beside;
    index.tar.fingerprint = header_.fingerprint;
    index.tar.formats = header_.formats;
    read_folders(index.tar);
    const std::string_view all_names = text(header_.names_at, bytes_.size());
    if (!all_names.ends_with('\0')) damaged("the names have no end");
    index.shard = all_names.substr(0, all_names.find('\0'));
    names_before_ = static_cast<std::uint32_t>(index.shard.size() + 1);
    if (names) index.tar.names = all_names.substr(names_before_);
    read_records(index.tar, all_names.size(), names);
    return index;
  }

 private:
  [[noreturn]] void damaged(const char* reason) const { index_damaged(file_, reason); }

  std::string_view text(std::uint64_t begin, std::uint64_t end) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, end - begin};
  }

  void read_folders(TarIndex& tar) const {
    std::string_view left = text(header_.folders_at, header_.names_at);
    while (!left.empty()) {
      const std::size_t end = left.find('\0');
      if (end == left.npos) damaged("a folder's name has no end");
      tar.folders.emplace_back(left.substr(0, end));
      left.remove_prefix(end + 1);
    }
    if (tar.folders.empty() || tar.folders.size() != header_.folders)
      damaged("wrong number of folders");
  }

  void read_records(TarIndex& tar, std::size_t names_size, bool names) const {
    tar.samples.reserve(header_.samples);
    if (names) tar.name_at.reserve(header_.samples);
    std::uint64_t unlabelled = 0;
    for (std::uint64_t i = 0; i < header_.samples; ++i) {
      IndexRecord one;
      std::memcpy(&one, bytes_.data() + sizeof(IndexHeader) + i * sizeof one, sizeof one);
      check_record(file_, one, header_.shard_size, header_.folders);
      if (one.name < names_before_ || one.name >= names_size) damaged("a sample's name is missing");
      unlabelled += one.label < 0 ? 1 : 0;
      tar.samples.push_back({one.data, one.size, one.back, one.label, one.folder});
      if (names) tar.name_at.push_back(one.name - names_before_);
    }
    if (unlabelled != header_.unlabelled || header_.unlabelled_beside > unlabelled)
      damaged("wrong number of samples without a label");
  }

  std::string_view file_;
  std::span<const std::uint8_t> bytes_;
  IndexHeader header_{};
  std::uint32_t names_before_ = 0;
};

}  // namespace

std::unique_ptr<ShardRecords> ShardRecords::open(const std::string& shard, const FileStamp& now,
                                                 const Expected& expected, bool keep) {
  const std::string path = shard + std::string(kShardIndexEnding);
  try {
    if (!base::exists(path)) return nullptr;
    base::OpenFile file = base::open_regular(path);
    const auto read = [&](std::uint64_t at, std::span<std::uint8_t> out) {
      return base::read_at(file.descriptor.get(), out.data(), out.size(), at, path.c_str());
    };
    std::array<std::uint8_t, sizeof(IndexHeader)> head{};
    const std::size_t size = read(0, head);
    const IndexHeader header = parse_header(path, std::span(head).first(size), file.size);
    check_layout(path, header);
    const FileStamp listed{header.shard_size, header.mtime_ns, header.ctime_ns, header.inode,
                           header.device};
    if (difference(listed, now) != nullptr || header.formats != image_formats() ||
        header.samples != expected.samples || header.fingerprint != expected.fingerprint ||
        header.sha256 != expected.sha256 || header.folders != expected.folders)
      return nullptr;
    const std::string wanted = shard.substr(shard.rfind('/') + 1);
    std::vector<std::uint8_t> name(wanted.size() + 1);
    if (read(header.names_at, name) != name.size() ||
        std::memcmp(name.data(), wanted.c_str(), name.size()) != 0)
      return nullptr;
    std::unique_ptr<ShardRecords> records(new ShardRecords);
    records->path_ = path;
    records->stamp_ = stamp_of(file.descriptor.get(), path);
    records->shard_size_ = header.shard_size;
    records->samples_ = header.samples;
    records->body_sum_ = header.body_sum;
    records->folders_ = header.folders;
    if (keep) records->file_ = std::move(file.descriptor);
    return records;
  } catch (const DataError&) {  // reported by those who parse all of it
    return nullptr;
  }
}

void ShardRecords::check_body() const {
  const MappedFile mapped = MappedFile::map(path_);
  if (mapped.bytes().size() != stamp_.size || body_sum(mapped.bytes()) != body_sum_ ||
      mapped.damaged())
    index_damaged(path_, "wrong checksum");
}

TarIndex::Entry ShardRecords::at(std::uint64_t i) const {
  // Not std::call_once, which hangs under ThreadSanitizer once its function has thrown.
  if (!checked_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(checking_);
    if (!checked_.load(std::memory_order_relaxed)) {
      check_body();
      checked_.store(true, std::memory_order_release);
    }
  }
  base::OpenFile opened;
  if (!file_) {
    opened = base::open_regular(path_);
    if (stamp_of(opened.descriptor.get(), path_) != stamp_)
      throw DataError(fmt::format("{}: replaced while the set is in use", path_),
                      "leave the set alone while it is used, and start again");
  }
  IndexRecord one;
  const int file = file_ ? file_.get() : opened.descriptor.get();
  if (base::read_at(file, reinterpret_cast<std::uint8_t*>(&one), sizeof one,
                    sizeof(IndexHeader) + i * sizeof one, path_.c_str()) != sizeof one)
    index_damaged(path_, "it is shorter than it was");
  check_record(path_, one, shard_size_, folders_);
  return {one.data, one.size, one.back, one.label, one.folder};
}

ShardIndex parse_shard_index(std::string_view file, std::span<const std::uint8_t> bytes,
                             bool names) {
  return IndexParser(file, bytes).run(names);
}

}  // namespace millrace::pipeline
