// The other members of a batch's samples: bytes of any length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "millrace/reader.h"

namespace millrace::pipeline {

/// Returns the size of a sample's members together.
std::uint64_t member_bytes(std::span<const Member> members);

/// Members of a batch's samples, in memory that is kept from batch to batch. The bytes lie range by
/// range, so that workers write them at the same time.
class MemberStore {
 public:
  /// Makes room for `samples` samples, which have no members yet, with `names` names.
  void reserve(std::size_t samples, std::size_t names);
  /// Begins a range of samples anew.
  void begin_range(std::size_t range);
  /// Copies the members of the sample at a place, which lies in `range`.
  void put(std::size_t place, std::span<const Member> members, std::size_t range);
  /// Moves the members of a sample to the place of an earlier one.
  void move(std::size_t from, std::size_t to);
  Member get(std::size_t place, std::size_t name) const;

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  struct Extent {
    std::size_t range = 0, begin = 0;
    std::size_t size = kNone;
  };

  std::size_t names_ = 0;
  std::vector<Extent> extents_;                   ///< one per name, place by place
  std::vector<std::vector<std::uint8_t>> bytes_;  ///< per range; a batch has one per sample at most
};

}  // namespace millrace::pipeline
