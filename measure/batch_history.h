// History of a batch: when it was requested, when its sample ranges were read and processed, and
// how long each stage took. Recorded for every batch at the cost of a few time stamps, so that any
// wait can be explained afterwards (measure/wait_breakdown.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.h"

namespace millrace::measure {

enum class Stage { read, decode, augment };
inline constexpr std::size_t kStageCount = 3;

/// Times of one sample range, which one worker processes from end to end. Values of Clock::now(); 0
/// if something did not happen. Fits two cache lines: a worker writes them, and the trainer thread
/// reads them.
struct alignas(64) RangeHistory {
  base::Clock::Ticks begin = 0;  ///< a worker took it
  base::Clock::Ticks end = 0;
  std::array<base::Clock::Ticks, kStageCount> stages{};  ///< total per stage; samples take turns
  /// Time during which the worker was ready to run and had no core; 0 below 20 µs.
  base::Clock::Ticks core_wait = 0;
  base::Clock::Ticks fetch_begin = 0;  ///< an I/O thread took its first sample (loader.io_threads)
  base::Clock::Ticks fetch_end = 0;    ///< its last sample was read

  /// Time before begin that the worker spent ready but without a core.
  base::Clock::Ticks begin_wait = 0;
  /// Time outside reads during which the worker waited for page faults.
  base::Clock::Ticks fault_wait = 0;
  std::array<std::uint64_t, kStageCount> bytes{};  ///< bytes read, decoded and written
  std::int64_t cpu_ns = -1;  ///< CPU time; -1: not measured (ranges below 100 µs)
  /// Fraction of the reading time during which its threads did not lack a core.
  float fetch_on_core = 1;
  std::uint32_t first = 0;   ///< position of its first sample in the batch
  std::uint32_t count = 0;   ///< number of samples
  std::uint32_t worker = 0;  ///< the worker's index, from 0
};
static_assert(sizeof(RangeHistory) == 128);

/// One batch, as the caller of Loader::next() saw it.
struct BatchHistory {
  std::uint64_t ordinal = 0;  ///< counted over all epochs
  std::uint32_t epoch = 0;
  std::uint64_t index = 0;        ///< index in the epoch
  bool first = false;             ///< the first batch of this loader
  bool made_inline = false;       ///< made inside next() (loader.workers=0)
  base::Clock::Ticks asked = 0;   ///< next() was called
  base::Clock::Ticks opened = 0;  ///< it got its slot, and its sample ranges were queued
  base::Clock::Ticks ready = 0;   ///< its last sample range was done
  base::Clock::Ticks got = 0;     ///< next() returned it
  /// Time between ready and got during which the caller waited for a core.
  base::Clock::Ticks core_wait = 0;
  std::span<const RangeHistory> units;  ///< in the batch's order
};

}  // namespace millrace::measure
