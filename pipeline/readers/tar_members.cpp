// Finds the members of a sample among the bytes around its image.
#include "pipeline/readers/tar_members.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <string_view>

#include "base/ascii.h"
#include "base/located_sample.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/decoders/image_files.h"
#include "pipeline/readers/tar_walk.h"

namespace millrace::pipeline {
namespace {

/// Most names of data.members: SeenMembers has a bit for each.
constexpr std::size_t kMaxMembers = 64;
/// Samples after which a name that none of them has is warned of.
constexpr std::uint64_t kLookedAt = 1000;

/// Memory for names that a scratch buffer keeps from sample to sample.
struct KeptNames final : Buffer::Attachment {
  std::string key;
  TarWalk walk{"", {}};

  static KeptNames& of(Buffer& scratch) {
    if (auto* kept = dynamic_cast<KeptNames*>(scratch.attachment())) return *kept;
    auto made = std::make_unique<KeptNames>();
    KeptNames& kept = *made;
    scratch.attach(std::move(made));
    return kept;
  }
};

[[noreturn]] void fail_changed() {
  throw DataError("its members are not where its archive had them: the archive was changed",
                  "leave the set alone while it is used; make its indexes again: "
                  "millrace data index FOLDER");
}

bool is_called(std::string_view ending, std::string_view name) {
  return std::ranges::equal(ending, name, {}, [](char c) { return base::lower(c); });
}

/// Throws DataError unless `member` can be handed out as a sample's first one with this ending.
void require_sound(const TarMember& member, std::string_view name, const Member& before) {
  if (member.odd != nullptr)
    throw DataError(fmt::format("its member .{} is {}, not a file", name, member.odd),
                    "make the archive with --dereference --hard-dereference");
  if (before) throw DataError(fmt::format("it has two members .{}", name), "remove one of them");
  if (member.size > kMaxMemberBytes)
    throw DataError(fmt::format("its member .{} has {} bytes, more than {}", name, member.size,
                                kMaxMemberBytes),
                    "members are read whole, for captions, masks and the like: leave it out");
}

/// Returns why an ending is not that of a member, or "".
std::string defect_of(std::string_view ending) {
  if (ending.empty()) return "a name is empty";
  if (ending.front() == '.' || ending.find_first_of("/ ") != ending.npos)
    return fmt::format("'{}' is no ending of a member", base::printable(ending));
  return {};
}

}  // namespace

std::vector<std::string> parse_members(const std::string& text) {
  std::vector<std::string> names;
  if (text.empty()) return names;
  const auto refuse = [&](const std::string& why) {
    throw UsageError(fmt::format("data.members={}: {}", base::printable(text), why),
                     "list what stands behind the keys' first dot: data.members=txt,json");
  };
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = base::lower(std::string_view(text).substr(begin, end - begin));
    if (const std::string defect = defect_of(name); !defect.empty()) refuse(defect);
    if (std::ranges::count(names, name) > 0) refuse(fmt::format("'{}' comes twice", name));
    names.push_back(name);
    begin = end + 1;
  }
  if (names.size() > kMaxMembers) refuse(fmt::format("more than {} names", kMaxMembers));
  return names;
}

WantedMembers::WantedMembers(const DataOptions& options)
    : names(options.members), mask(!options.masks.empty()) {
  if (!mask) return;
  names.push_back(base::lower(options.masks));
  std::string defect = defect_of(names.back());
  if (defect.empty() && has_image_ending("image." + names.back()) &&
      names.back().find('.') == std::string::npos)
    defect = fmt::format("a member .{} is an image", names.back());
  if (!defect.empty())
    throw UsageError(
        fmt::format("data.masks={}: {}", base::printable(options.masks), defect),
        "with archives it is what stands behind the keys' first dot: data.masks=seg.png");
}

TarSurroundings surroundings_of(const TarIndex::Entry* before, const TarIndex::Entry& sample,
                                const TarIndex::Entry* behind, std::uint64_t archive_bytes) {
  std::uint64_t begin = 0;
  if (before != nullptr)
    begin = before->size == base::kTooLong ? before->data - before->back
                                           : before->data + TarWalk::padded(before->size);
  const std::uint64_t end = behind != nullptr ? behind->data - behind->back : archive_bytes;
  return {base::listed_size(sample.data - std::min(sample.data, begin)),
          base::listed_size(end - std::min(end, sample.data))};
}

std::vector<TarSurroundings> all_surroundings(const TarIndex& index, std::uint64_t archive_bytes) {
  std::vector<TarSurroundings> all;
  const std::vector<TarIndex::Entry>& samples = index.samples;
  all.reserve(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i)
    all.push_back(surroundings_of(i > 0 ? &samples[i - 1] : nullptr, samples[i],
                                  i + 1 < samples.size() ? &samples[i + 1] : nullptr,
                                  archive_bytes));
  return all;
}

TarGroup::TarGroup(const TarIndex::Entry& sample, const TarSurroundings& around)
    : sample_(sample), around_(around) {
  if (const std::uint64_t bytes = std::uint64_t{around.before} + around.behind;
      bytes > kMaxGroupBytes)
    throw DataError(
        fmt::format("{} bytes lie between the image before and the one behind, more than {}", bytes,
                    kMaxGroupBytes),
        "data.members reads them at once: leave large members out of the archive");
  if (around.before < sample.back || around.behind < sample.size) fail_changed();
}

std::uint8_t* TarGroup::reserve(Buffer& scratch, const WantedMembers& wanted) const {
  return scratch.reserve(size() + alignof(Member) + wanted.names.size() * sizeof(Member));
}

Member* TarGroup::table(Buffer& scratch) const {
  const std::size_t at = (size() + alignof(Member) - 1) / alignof(Member) * alignof(Member);
  return reinterpret_cast<Member*>(scratch.data() + at);
}

Sample TarGroup::find(const WantedMembers& wanted, Buffer& scratch) const {
  const std::vector<std::string>& names = wanted.names;
  const std::span<const std::uint8_t> bytes(scratch.data(), size());
  Member* const found = table(scratch);
  std::uninitialized_fill_n(found, names.size(), Member{});
  auto& [key, walk] = KeptNames::of(scratch);
  TarMember member;
  const auto next = [&, &kept = walk] {
    try {
      return kept.next(member);
    } catch (const DataError&) {
      fail_changed();
    }
  };
  walk.start(bytes, around_.before - sample_.back);
  if (!next() || member.data != around_.before) fail_changed();
  key = parts_of(member.name).key;
  walk.start(bytes, 0);
  while (walk.at() < bytes.size() && next()) {
    const NameParts parts = parts_of(member.name);
    if (parts.hidden || parts.key != key) continue;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!is_called(parts.ending, names[i])) continue;
      require_sound(member, names[i], found[i]);
      found[i] = bytes.subspan(member.data, member.size);
    }
  }
  if (wanted.mask && !found[names.size() - 1])
    throw DataError(fmt::format("it has no member .{}, its mask", names.back()),
                    "each sample needs the member that data.masks names");
  return {.bytes = bytes.subspan(around_.before, sample_.size),
          .label = sample_.label,
          .members = {found, names.size() - (wanted.mask ? 1 : 0)},
          .mask = wanted.mask ? *found[names.size() - 1] : std::span<const std::uint8_t>()};
}

void SeenMembers::watch(const DataOptions& options, std::uint64_t samples) {
  names_ = options.members;
  warn_ = options.warn;
  if (names_.empty() || !warn_) return;
  samples_ = static_cast<std::int64_t>(std::min(kLookedAt, samples));
  left_ = samples_;
}

void SeenMembers::add(const Sample& sample) const {
  if (left_.load(std::memory_order_relaxed) <= 0) return;
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < sample.members.size(); ++i)
    if (sample.members[i]) found |= std::uint64_t{1} << i;
  found |= found_.fetch_or(found);
  if (left_.fetch_sub(1) != 1) return;
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < names_.size(); ++i)
    if ((found >> i & 1) == 0) missing.push_back(names_[i]);
  if (!missing.empty())
    warn_(
        fmt::format("data.members={}: none of the {} samples that were read first has such a "
                    "member",
                    fmt::join(missing, ","), samples_));
}

}  // namespace millrace::pipeline
