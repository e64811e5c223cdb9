// Builds the objects of a range or a batch, sample by sample.
#pragma once

#include <cstddef>
#include <vector>

#include "base/private_api.h"
#include "millrace/annotations.h"
#include "pipeline/targets/tracked_box.h"

namespace millrace::pipeline {

/// Returns a list for each range of a batch that is divided into up to `samples` equal ranges. They
/// have room for twice as many objects as the mean sample has, so that few of them ever grow.
/// `mask_bytes` is the size of an object's mask, or 0.
std::vector<Objects> range_lists(const Annotations& annotations, std::size_t samples,
                                 std::size_t mask_bytes);
/// Forgets all samples and keeps the memory, but not that of masks of which a large part was not
/// used: a rare sample with many objects must not hold it for the whole run.
MILLRACE_PRIVATE_API void clear(Objects& objects);
/// Ends a sample, which has the objects that were appended since the last end.
MILLRACE_PRIVATE_API void end_sample(Objects& objects);
/// Drops the objects that no end_sample() has followed.
void drop_open(Objects& objects);
/// Returns whether a box is handed out: fails for NaN too, which maps without an inverse give.
bool is_left(const TrackedBox& box, const TargetOptions& options);
/// Appends the four numbers of a box in an output of size `output`.
void append_box(const TrackedBox& box, const TargetOptions& options, Size output, Objects& to);
/// Appends a key point, whose position stays 0 if it is not known.
void append_point(Point at, float visibility, const TargetOptions& options, Size output,
                  Objects& to);
/// Appends a sample with the objects of sample `index` of `from`.
MILLRACE_PRIVATE_API void append_sample(const Objects& from, std::size_t index, Objects& to);

}  // namespace millrace::pipeline
