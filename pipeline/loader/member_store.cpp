// Keeps the members of a batch's samples.
#include "pipeline/loader/member_store.h"

#include <algorithm>

namespace millrace::pipeline {
namespace {

/// Memory of a range that is kept whatever the next batch needs.
constexpr std::size_t kSmall = 16 << 20;

}  // namespace

std::uint64_t member_bytes(std::span<const Member> members) {
  std::uint64_t bytes = 0;
  for (const Member& member : members)
    if (member) bytes += member->size();
  return bytes;
}

void MemberStore::reserve(std::size_t samples, std::size_t names) {
  names_ = names;
  extents_.assign(samples * names, {});
  bytes_.resize(names > 0 ? samples : 0);
}

void MemberStore::begin_range(std::size_t range) {
  if (names_ == 0) return;
  std::vector<std::uint8_t>& bytes = bytes_[range];
  if (bytes.capacity() > std::max(kSmall, 4 * bytes.size())) bytes = std::vector<std::uint8_t>();
  bytes.clear();
}

void MemberStore::put(std::size_t place, std::span<const Member> members, std::size_t range) {
  std::vector<std::uint8_t>& bytes = bytes_[range];
  for (std::size_t name = 0; name < members.size(); ++name) {
    Extent& extent = extents_[place * names_ + name];
    extent = {};
    if (!members[name]) continue;
    extent = {range, bytes.size(), members[name]->size()};
    bytes.insert(bytes.end(), members[name]->begin(), members[name]->end());
  }
}

void MemberStore::move(std::size_t from, std::size_t to) {
  std::copy_n(extents_.begin() + static_cast<std::ptrdiff_t>(from * names_), names_,
              extents_.begin() + static_cast<std::ptrdiff_t>(to * names_));
}

Member MemberStore::get(std::size_t place, std::size_t name) const {
  const Extent& extent = extents_[place * names_ + name];
  if (extent.size == kNone) return std::nullopt;
  return std::span(bytes_[extent.range]).subspan(extent.begin, extent.size);
}

}  // namespace millrace::pipeline
