// Records of a thread that reads samples ahead.
#pragma once

#include "base/clock.h"
#include "measure/timeline.h"
#include "pipeline/loader/stage_record.h"
#include "pipeline/readers/storage.h"

namespace millrace::pipeline {

/// State and records of an I/O thread.
struct Reading {
  StorageModel::Lane lane;
  StageRecord record;
  base::Clock::Ticks busy = 0, core_wait = 0;  ///< time of the last sample
  measure::Track<measure::FetchRecord>* track =
      nullptr;  ///< track of its reads; null without a timeline
};

}  // namespace millrace::pipeline
