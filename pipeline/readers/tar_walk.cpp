// Parses the headers of a tar archive.
#include "pipeline/readers/tar_walk.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <optional>

#include "base/text.h"
#include "millrace/error.h"

namespace millrace::pipeline {

namespace {

constexpr const char* kFetchAgain = "fetch or make the archive again; `tar tf FILE` lists it";
/// Longest extended header that is accepted: a path has at most 4096 bytes, and pax may add a few
/// fields.
constexpr std::uint64_t kMaxExtended = 1 << 20;

/// Position of a field in a header block.
struct Field {
  std::size_t at, size;
  std::span<const std::uint8_t> of(std::span<const std::uint8_t> header) const {
    return header.subspan(at, size);
  }
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kMagic{257, 5}, kPrefix{345, 155};
constexpr std::size_t kType = 156;

std::string_view text_of(std::span<const std::uint8_t> field) {
  const auto end = std::find(field.begin(), field.end(), 0);
  return {reinterpret_cast<const char*>(field.data()),
          static_cast<std::size_t>(end - field.begin())};
}

bool is_zero(std::span<const std::uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

/// Parses octal digits between blanks; an empty field is 0.
std::optional<std::uint64_t> octal(std::span<const std::uint8_t> field) {
  std::string_view text = text_of(field);
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  std::uint64_t value = 0;
  if (text.empty()) return value;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Returns whether the sum of all bytes, with the checksum itself read as blanks, matches. Old tars
/// summed signed bytes.
bool has_checksum(std::span<const std::uint8_t> header, std::uint64_t expected) {
  const auto sum = std::accumulate(header.begin(), header.end(), std::uint32_t{0});
  const auto field = kChecksum.of(header);
  const std::uint32_t rest =
      sum - std::accumulate(field.begin(), field.end(), std::uint32_t{0}) + 8 * ' ';
  if (rest == expected) return true;
  const auto high = std::count_if(header.begin(), header.end(), [](auto b) { return b >= 128; }) -
                    std::count_if(field.begin(), field.end(), [](auto b) { return b >= 128; });
  return rest - 256 * static_cast<std::uint32_t>(high) == static_cast<std::uint32_t>(expected);
}

const char* packed_with(std::span<const std::uint8_t> bytes) {
  struct Known {
    std::string_view start;
    const char* what;
  };
  static constexpr std::array<Known, 6> kKnown{
      {{"\x1f\x8b", "it is gzip: unpack it first with gunzip"},
       {"\xfd"
        "7zXZ",
        "it is xz: unpack it first with unxz"},
       {"BZh", "it is bzip2: unpack it first with bunzip2"},
       {"\x28\xb5\x2f\xfd", "it is zstd: unpack it first with unzstd"},
       {"PK\x03\x04", "it is zip: unpack it, and read the folder"},
       {"version https://git-lfs", "it is a Git LFS pointer: fetch the file itself"}}};
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min<std::size_t>(bytes.size(), 32));
  for (const Known& known : kKnown)
    if (text.starts_with(known.start)) return known.what;
  return nullptr;
}

bool leads_out(std::string_view name) {
  if (name.starts_with('/')) return true;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    if (name.substr(begin, end - begin) == "..") return true;
    begin = end + 1;
  }
  return false;
}

/// Returns the name of a member type that is neither file nor folder, or null.
const char* odd_kind(char type) {
  switch (type) {
    case '1':
      return "a hard link";
    case '2':
      return "a symbolic link";
    case '3':
    case '4':
      return "a device";
    case '6':
      return "a pipe";
    default:
      return nullptr;
  }
}

}  // namespace

/// Properties of a member that extended headers set.
struct TarWalk::Extended {
  std::optional<std::string> name;
  std::optional<std::uint64_t> size;
  bool sparse = false;
};

void TarWalk::fail(std::uint64_t at, const std::string& reason, const char* hint) const {
  throw DataError(fmt::format("{}: at byte {}: {}", file_, at, reason), hint);
}

std::span<const std::uint8_t> TarWalk::header(std::uint64_t at) const {
  if (at + kBlock > bytes_.size())
    fail(at,
         fmt::format("truncated: the archive ends after {} bytes, without its end mark",
                     bytes_.size()),
         kFetchAgain);
  const auto header = bytes_.subspan(at, kBlock);
  if (is_zero(header)) return {};
  const auto checksum = octal(kChecksum.of(header));
  if (checksum && has_checksum(header, *checksum)) return header;
  if (at > 0) fail(at, "wrong checksum of a header", kFetchAgain);
  const char* packed = packed_with(header);
  throw DataError(fmt::format("{}: not a tar archive", file_),
                  packed != nullptr ? packed : "check data.path; a tar archive is expected");
}

std::uint64_t TarWalk::number(std::span<const std::uint8_t> field, std::uint64_t at,
                              const char* what) const {
  if ((field[0] & 0x80) == 0) {
    if (const auto value = octal(field)) return *value;
  } else if (field[0] == 0x80 && is_zero(field.subspan(1, 3))) {  // GNU's base 256, below 2^64
    std::uint64_t value = 0;
    for (const std::uint8_t byte : field.subspan(4)) value = value << 8 | byte;
    return value;
  }
  fail(at, fmt::format("the {} of a member is not a number", what), kFetchAgain);
}

std::span<const std::uint8_t> TarWalk::contents(std::uint64_t at, std::uint64_t size) const {
  const std::uint64_t begin = at + kBlock;
  check_room(at, size, bytes_.size() - begin);
  return bytes_.subspan(begin, size);
}

void TarWalk::check_room(std::uint64_t at, std::uint64_t size, std::uint64_t room) const {
  if (size > room)
    fail(at,
         fmt::format("truncated: '{}' announces {} bytes, {} are left",
                     base::printable(text_of(kName.of(bytes_.subspan(at, kBlock)))), size, room),
         kFetchAgain);
}

/// Reads records "LENGTH KEY=VALUE\n", where LENGTH counts the whole record.
void TarWalk::read_pax(std::span<const std::uint8_t> records, std::uint64_t at,
                       Extended& extended) const {
  std::string_view left(reinterpret_cast<const char*>(records.data()), records.size());
  while (!left.empty() && left.front() != '\0') {
    std::size_t length = 0;
    const auto [end, status] = std::from_chars(left.data(), left.data() + left.size(), length);
    const auto digits = static_cast<std::size_t>(end - left.data());
    if (status != std::errc() || length < digits + 3 || length > left.size() ||
        left[digits] != ' ' || left[length - 1] != '\n')
      fail(at, "damaged pax header", kFetchAgain);
    const std::string_view record = left.substr(digits + 1, length - digits - 2);
    left.remove_prefix(length);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) fail(at, "damaged pax header", kFetchAgain);
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    if (key == "path") {
      extended.name = std::string(value.substr(0, value.find('\0')));
    } else if (key == "size") {
      std::uint64_t size = 0;
      const auto number = std::from_chars(value.data(), value.data() + value.size(), size);
      if (number.ec != std::errc() || number.ptr != value.data() + value.size())
        fail(at, "the size in a pax header is not a number", kFetchAgain);
      extended.size = size;
    } else if (key.starts_with("GNU.sparse.")) {
      extended.sparse = true;
    }
  }
}

void TarWalk::check_end() const {
  if (at_ == 0 && bytes_.empty()) fail(0, "an empty file, not an archive", kFetchAgain);
  for (std::uint64_t at = at_; at < bytes_.size(); at += kBlock) {
    const auto block = bytes_.subspan(at, std::min<std::uint64_t>(kBlock, bytes_.size() - at));
    if (!is_zero(block))
      fail(at, "something stands behind the archive's end mark",
           "archives that were joined with cat: give them as files of their own");
  }
}

bool TarWalk::next(TarMember& member) {
  member = {};
  member.start = at_;
  Extended extended;
  bool pending = false;  // a long name or a pax header waits for its member
  while (true) {
    if (bytes_.empty()) check_end();
    const std::uint64_t at = at_;
    const auto block = header(at);
    if (block.empty()) {
      if (pending) fail(at, "the archive ends where a member should follow", kFetchAgain);
      check_end();
      return false;
    }
    const auto type = static_cast<char>(block[kType]);
    std::uint64_t size = number(kSize.of(block), at, "size");
    if (type == 'L' || type == 'K' || type == 'x' || type == 'g') {
      if (size > kMaxExtended)
        fail(at, fmt::format("an extended header of {} bytes", size), kFetchAgain);
      const auto record = contents(at, size);
      if (type == 'L') extended.name = std::string(text_of(record));
      if (type == 'x') read_pax(record, at, extended);
      at_ = at + kBlock + padded(size);
      if (type != 'g') pending = true;
      if (type == 'g' && !pending) member.start = at_;
      continue;
    }

    if (extended.size) size = *extended.size;
    if (extended.name) {
      name_ = std::move(*extended.name);
    } else {
      name_.clear();
      const bool ustar = text_of(kMagic.of(block)) == "ustar";
      const bool gnu = ustar && block[kMagic.at + kMagic.size] == ' ';  // has no prefix field
      if (const auto prefix = text_of(kPrefix.of(block)); ustar && !gnu && !prefix.empty())
        name_.append(prefix).append("/");
      name_.append(text_of(kName.of(block)));
    }
    std::string_view name = name_;
    while (name.starts_with("./")) name.remove_prefix(2);

    const bool file = type == '0' || type == '\0' || type == '7';
    const bool folder = type == '5' || (file && name.ends_with('/'));
    member.odd = odd_kind(type);
    // Only files and ignored types are followed by bytes, whatever the size field says.
    if (member.odd != nullptr || folder) size = 0;
    const bool passed_over = type == 'V' || type == 'D';
    if (type == 'S' || extended.sparse)
      fail(at, fmt::format("'{}' is stored with holes left out", base::printable(name)),
           "make the archive without --sparse");
    if (!file && !folder && !passed_over && member.odd == nullptr)
      fail(at,
           fmt::format("'{}' is a member of unknown kind {:#04x}", base::printable(name),
                       block[kType]),
           kFetchAgain);

    member.data = at + kBlock;
    member.size = size;
    const std::uint64_t room = bytes_.size() - member.data + behind_;
    check_room(at, size, room);
    if (padded(size) > room)  // the last block's padding is cut off
      fail(at, fmt::format("truncated within the last member, '{}'", base::printable(name)),
           kFetchAgain);
    at_ = member.data + padded(size);
    if (folder || passed_over) {
      member = {};
      member.start = at_;
      extended = {};
      pending = false;
      continue;
    }
    if (name.empty()) fail(at, "a member without a name", kFetchAgain);
    if (leads_out(name))
      fail(at, fmt::format("'{}' leads out of the archive", base::printable(name)),
           "no data set needs such names: do not trust this archive");
    member.name = name;
    return true;
  }
}

}  // namespace millrace::pipeline
