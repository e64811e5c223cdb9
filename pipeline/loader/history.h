// What happened to a batch on its way: when it was asked for, when its work units were read and
// worked on, and how long each stage took. Kept for every batch (it costs a few time stamps), so
// that any wait can be explained afterwards (study/analysis/wait_breakdown.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.h"

namespace millrace::pipeline {

enum class Stage { read, decode, augment };
inline constexpr std::size_t kStageCount = 3;

/// A work unit: some neighbouring samples of one batch, which one worker has taken from end to end.
/// Times are Clock::now()'s; 0 where something did not happen. Two cache lines, no more: a worker
/// writes them, the trainer's thread reads them.
struct alignas(64) UnitHistory {
  base::Clock::Ticks begin = 0;  ///< a worker took it
  base::Clock::Ticks end = 0;
  std::array<base::Clock::Ticks, kStageCount> stages{};  ///< of it in each; samples take turns
  base::Clock::Ticks core_wait =
      0;  ///< of it the worker was ready to run and had no core; 0 below 20 µs
  base::Clock::Ticks fetch_begin = 0;  ///< an I/O thread took its first sample (loader.io_threads)
  base::Clock::Ticks fetch_end = 0;    ///< the last sample was read

  base::Clock::Ticks begin_wait = 0;  ///< up to begin, the worker was to take it and had no core
  base::Clock::Ticks fault_wait =
      0;  ///< of it, outside of read, the worker waited for pages of a file
  std::array<std::uint64_t, kStageCount> bytes{};  ///< read, decoded to, written
  std::int64_t cpu_ns = -1;  ///< CPU time; -1: not taken (units below 100 µs)
  float fetch_on_core = 1;   ///< part of the reading during which its threads lacked no core
  std::uint32_t first = 0;   ///< place in the batch of its first sample
  std::uint32_t count = 0;   ///< samples
  std::uint32_t worker = 0;  ///< which, from 0
};
static_assert(sizeof(UnitHistory) == 128);

/// One batch, as the caller of Loader::next() met it.
struct BatchHistory {
  std::uint64_t ordinal = 0;  ///< counted over all epochs
  std::uint32_t epoch = 0;
  std::uint64_t index = 0;             ///< in the epoch
  bool first = false;                  ///< this loader's first
  bool made_inline = false;            ///< loader.workers=0: inside next()
  base::Clock::Ticks asked = 0;        ///< next() was called
  base::Clock::Ticks opened = 0;       ///< it got its slot, and its units were queued
  base::Clock::Ticks ready = 0;        ///< its last unit was done
  base::Clock::Ticks got = 0;          ///< next() had it
  base::Clock::Ticks core_wait = 0;    ///< between ready and got the caller waited for a core
  std::span<const UnitHistory> units;  ///< in the batch's order
};

}  // namespace millrace::pipeline
