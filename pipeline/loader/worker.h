// Memory and records of the threads that make samples.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "measure/batch_history.h"
#include "millrace/annotations.h"
#include "millrace/buffer.h"
#include "millrace/reader.h"
#include "millrace/transform.h"
#include "pipeline/decoders/decoder.h"
#include "pipeline/decoders/label_png.h"
#include "pipeline/loader/stage_record.h"
#include "pipeline/readers/storage.h"
#include "pipeline/targets/object_tracker.h"

namespace millrace::pipeline {

/// A worker's memory and records, leased for one range. Not thread_local, because a thread may
/// serve several loaders. Aligned to separate cache lines.
struct alignas(64) Worker {
  Buffer bytes;  ///< bytes of one sample
  Buffer mask_bytes;
  StorageModel::Lane lane;
  DecodeScratch decode;
  LabelPng mask;
  std::unique_ptr<Transform::Scratch> transform;
  std::vector<Sample> samples;  ///< samples of a range, borrowed (pixels in place)
  std::vector<std::uint64_t> indices;
  Trail trail;  ///< of the last sample, if samples are tracked
  ObjectTracker tracker;
  Buffer instance;   ///< mask of an object before it is moved, or of those that are pasted
  Objects mixed[2];  ///< of a batch, before and after an op mixes it

  std::atomic<bool> leased{false};
  StageRecord records[measure::kStageCount];
  Counter<base::Clock::Ticks> busy_ticks;       ///< time inside ranges
  Counter<base::Clock::Ticks> core_wait_ticks;  ///< the part of it spent waiting for a core
  std::uint64_t runs = 0;
};

}  // namespace millrace::pipeline
