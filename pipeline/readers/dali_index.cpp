// Parses DALI's index files, and lists archives by them.
#include "pipeline/readers/dali_index.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/open_file.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/mapped_file.h"

namespace millrace::pipeline {

// Parses the text.
namespace {

constexpr const char* kDaliHint = "make it again with DALI's wds2idx, or delete it";

/// Returns the ending of a name as wds2idx computes it.
std::string_view ending_of(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  const std::size_t dot = name.find('.', slash == name.npos ? 0 : slash + 1);
  return dot == name.npos ? name : name.substr(dot + 1);  // without a dot: the whole name
}

class DaliParser {
 public:
  DaliParser(std::string_view file, std::string_view text) : file_(file), left_(text) {}

  DaliIndex run() {
    const std::uint64_t samples = read_header();
    DaliIndex index;
    // A member takes at least "x 0 0" and a blank or line end.
    index.members.reserve(static_cast<std::size_t>(
        std::min<std::uint64_t>(named_ ? 2 * samples : samples, left_.size() / 6)));
    std::uint64_t listed = 0, end = 0;
    for (; !left_.empty(); ++listed) {
      ++line_;
      const std::size_t length = left_.find('\n');
      if (length == left_.npos) fail("truncated within a line");
      std::string_view line = left_.substr(0, length);
      left_.remove_prefix(length + 1);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty()) fail("no members");
      while (!line.empty()) {
        const DaliIndex::Member member = read_member(line);
        if (member.data % TarWalk::kBlock != 0 || member.data < end + TarWalk::kBlock)
          fail(fmt::format("no member can lie at byte {}", member.data));
        if (member.size > kMaxOffset || member.data > kMaxOffset)
          fail("a member of over 2^62 bytes");
        end = member.data + TarWalk::padded(member.size);
        index.members.push_back(member);
      }
    }
    if (listed != samples)
      throw DataError(fmt::format("{}: {}: it lists {} samples and announces {}", file_,
                                  listed < samples ? "truncated" : "damaged", listed, samples),
                      kDaliHint);
    return index;
  }

 private:
  static constexpr std::uint64_t kMaxOffset = std::uint64_t{1} << 62;

  [[noreturn]] void fail(const std::string& reason) const {
    throw DataError(fmt::format("{}: line {}: {}", file_, line_, reason), kDaliHint);
  }

  /// Returns the first word of `line`, and takes it off with the blank behind it.
  static std::string_view take_word(std::string_view& line) {
    const std::size_t blank = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, blank);
    line.remove_prefix(std::min(blank + 1, line.size()));
    return word;
  }

  std::uint64_t take_number(std::string_view& line, const char* what) const {
    const std::string_view word = take_word(line);
    std::uint64_t value = 0;
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || status != std::errc() || end != word.data() + word.size())
      fail(fmt::format("'{}' is not {}", base::printable(word.substr(0, 24)), what));
    return value;
  }

  std::uint64_t read_header() {
    const std::size_t length = left_.find('\n');
    std::string_view line = left_.substr(0, length);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string_view version = take_word(line);
    if (length == left_.npos || !version.starts_with('v') || version.size() > 8)
      throw DataError(fmt::format("{}: not an index of DALI's", file_), kDaliHint);
    if (version != "v1.2" && version != "v1.1")
      fail(fmt::format("version {}; this program reads v1.1 and v1.2", base::printable(version)));
    named_ = version == "v1.2";
    const std::uint64_t samples = take_number(line, "a number of samples");
    if (samples == 0 || !line.empty()) fail("no number of samples");
    left_.remove_prefix(length + 1);
    return samples;
  }

  DaliIndex::Member read_member(std::string_view& line) const {
    DaliIndex::Member member;
    member.ending = take_word(line);
    if (member.ending.empty()) fail("a member without an ending");
    member.data = take_number(line, "an offset");
    member.size = take_number(line, "a size");
    if (!named_) return member;
    // A name may hold blanks. It is complete where its ending is the one that was listed.
    const char* const begin = line.data();
    while (!line.empty()) {
      const std::string_view word = take_word(line);
      member.name = {begin, static_cast<std::size_t>(word.data() + word.size() - begin)};
      if (ending_of(member.name) == member.ending) return member;
    }
    fail("a member's name is missing or has another ending");
  }

  std::string_view file_;
  std::string_view left_;
  bool named_ = false;
  std::uint64_t line_ = 1;
};

}  // namespace

DaliIndex parse_dali_index(std::string_view file, std::string_view text) {
  return DaliParser(file, text).run();
}

// Lists an archive.
namespace {

/// Most bytes between two listed members: long names, folders and hidden files.
constexpr std::uint64_t kMaxGap = std::uint64_t{1} << 20;
/// Bytes that are read at once at least: a label and the headers beside it.
constexpr std::uint64_t kWindow = 4096;
/// Members whose headers are requested ahead, so that a disk serves several at the same time.
constexpr std::size_t kRequested = 256;
/// Headers that are compared in any case, spread over the archive.
constexpr std::size_t kCompared = 64;

bool is_hidden(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  return name.substr(slash == name.npos ? 0 : slash + 1).starts_with('.');
}

bool is_label(std::string_view ending) {
  const auto equals = [&](std::string_view word) {
    return std::equal(ending.begin(), ending.end(), word.begin(), word.end(),
                      [](char a, char b) { return (a | 0x20) == b; });
  };
  return equals("cls") || equals("json");
}

/// Returns whether a name is written in the index as it stands in the archive: GNU tar, which
/// wds2idx asks, quotes what is not printable ASCII by backslashes.
bool is_literal(std::string_view name) {
  return !name.empty() && !name.starts_with('/') && name.find("..") == name.npos &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return c >= ' ' && c < '\x7f' && c != '\\'; });
}

std::string_view without_dot(std::string_view name) {
  while (name.starts_with("./")) name.remove_prefix(2);
  return name;
}

/// Members that an index lists. Walks the archive only between them.
class ListedMembers final : public TarMembers {
 public:
  ListedMembers(const std::string& shard, const std::string& path, const DaliIndex& index,
                DaliCheck check)
      : shard_(shard),
        path_(path),
        index_(index),
        every_(check == DaliCheck::all
                   ? 1
                   : std::max<std::size_t>(1, index.members.size() / kCompared)),
        file_(base::open_regular(shard)) {
    if (end_of(index.members.size()) > file_.size) differs(file_.size, "it lists more");
  }

  bool next(TarMember& member) override {
    while (true) {
      if (walk_) {
        if (next_between(member)) return true;
        if (listed_ == index_.members.size()) return false;
        ++listed_;
        name_ = member.name;  // that of the walk ends with it
        member.name = name_;
        walk_.reset();
        return true;
      }
      const std::size_t count = index_.members.size();
      if (listed_ < count && !is_compared(listed_)) {
        const DaliIndex::Member& one = index_.members[listed_];
        member = {without_dot(one.name), one.data - TarWalk::kBlock, one.data, one.size};
        ++listed_;
        return true;
      }
      request_ahead();
      begin_ = end_of(listed_);
      const std::uint64_t end = listed_ < count ? index_.members[listed_].data : file_.size;
      if (end - begin_ > kMaxGap)
        differs(begin_, fmt::format("it lists none of the next {} bytes", end - begin_));
      walk_.emplace(shard_, read(begin_, end - begin_), 0, file_.size - end);
    }
  }

  std::span<const std::uint8_t> contents(const TarMember& member) override {
    return read(member.data, member.size);
  }

  std::string name(const TarIndex::Entry& entry) override {
    return tar_name(shard_, read(entry.data - entry.back, entry.back), file_.size - entry.data);
  }

 private:
  [[noreturn]] void differs(std::uint64_t at, const std::string& how) const {
    throw DataError(
        fmt::format("{}: the index does not fit the archive at byte {}: {}", path_, at, how),
        kDaliHint);
  }

  /// Returns the end of the member before number `i`.
  std::uint64_t end_of(std::size_t i) const {
    if (i == 0) return 0;
    const DaliIndex::Member& before = index_.members[i - 1];
    return before.data + TarWalk::padded(before.size);
  }

  /// Returns whether the header of member `i` is read.
  bool is_compared(std::size_t i) const {
    const DaliIndex::Member& one = index_.members[i];
    return i % every_ == 0 || i + 1 == index_.members.size() ||
           one.data - end_of(i) != TarWalk::kBlock || is_label(one.ending) ||
           !is_literal(one.name) ||
           (end_of(i) >= window_at_ && one.data <= window_at_ + window_.size());
  }

  /// Walks on between two listed members. Returns true for a member that the index leaves out, and
  /// false for the listed one, or for the archive's end.
  bool next_between(TarMember& member) {
    const bool at_end = listed_ == index_.members.size();
    bool found = false;
    try {
      found = walk_->next(member);
    } catch (const DataError&) {
      differs(begin_, "no header of a member is found there");
    }
    if (!found) {
      if (!at_end) differs(begin_, "the archive ends there");
      return false;
    }
    member.start += begin_;
    member.data += begin_;
    if (!at_end && member.data == index_.members[listed_].data) {
      const DaliIndex::Member& listed = index_.members[listed_];
      if (member.odd != nullptr || member.size != listed.size)
        differs(member.start, fmt::format("'{}' has {} bytes, it lists {}",
                                          base::printable(member.name), member.size, listed.size));
      if (is_literal(listed.name) && without_dot(listed.name) != member.name)
        differs(member.start, fmt::format("the archive has '{}', it lists '{}'",
                                          base::printable(member.name), listed.name));
      return false;
    }
    if (member.odd == nullptr && !is_hidden(member.name))
      differs(member.start, fmt::format("it does not list '{}'", base::printable(member.name)));
    return true;
  }

  void request_ahead() {
    for (requested_ = std::max(requested_, listed_);
         requested_ < std::min(listed_ + kRequested, index_.members.size()); ++requested_)
      if (is_compared(requested_))
        posix_fadvise(file_.descriptor.get(), static_cast<off_t>(end_of(requested_)), kWindow,
                      POSIX_FADV_WILLNEED);
  }

  /// Returns bytes of the archive, which are valid until the next call.
  std::span<const std::uint8_t> read(std::uint64_t at, std::uint64_t size) {
    if (at < window_at_ || at + size > window_at_ + window_.size()) {
      window_.resize(std::min(std::max(size, kWindow), file_.size - at));
      window_at_ = at;
      if (base::read_at(file_.descriptor.get(), window_.data(), window_.size(), at,
                        shard_.c_str()) != window_.size())
        differs(at, "the archive is shorter than it was");
    }
    return std::span(window_).subspan(at - window_at_, size);
  }

  const std::string& shard_;
  const std::string& path_;
  const DaliIndex& index_;
  const std::size_t every_;
  base::OpenFile file_;
  std::size_t listed_ = 0;     ///< members that were returned
  std::size_t requested_ = 0;  ///< members whose headers were requested
  std::vector<std::uint8_t> window_;
  std::uint64_t window_at_ = 0;
  std::uint64_t begin_ = 0;      ///< where the walk began
  std::optional<TarWalk> walk_;  ///< from the end of one listed member to the next one
  std::string name_;             ///< of the member that was returned last
};

}  // namespace

std::string dali_index_path(const std::string& shard) {
  constexpr std::string_view kTar = ".tar";
  return (shard.ends_with(kTar) ? shard.substr(0, shard.size() - kTar.size()) : shard) + ".idx";
}

TarIndex list_by_dali_index(const std::string& shard, const std::string& path,
                            std::string_view text, DaliCheck check,
                            const IndexTarOptions& options) {
  const DaliIndex index = parse_dali_index(path, text);
  ListedMembers members(shard, path, index, check);
  return index_members(shard, members, options);
}

TarIndex list_by_dali_index(const std::string& shard, DaliCheck check,
                            const IndexTarOptions& options) {
  const std::string path = dali_index_path(shard);
  const MappedFile mapped = MappedFile::map(path);
  const auto bytes = mapped.bytes();
  return list_by_dali_index(
      shard, path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, check, options);
}

}  // namespace millrace::pipeline
