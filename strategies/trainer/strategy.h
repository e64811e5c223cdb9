// The interface of a strategy, by what its callers need: the trainer's steps, the ranks, the state
// that checkpoints copy, the device. Independent of LibTorch, so that the loop and its clock are
// tested without it.
#pragma once

#include "strategies/trainer/compute.h"
#include "strategies/trainer/device_report.h"
#include "strategies/trainer/ranks.h"
#include "strategies/trainer/training_state.h"

namespace millrace::train {

class Strategy : public Compute, public Ranks, public TrainingState, public DeviceReport {};

}  // namespace millrace::train
