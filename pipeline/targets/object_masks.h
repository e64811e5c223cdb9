// Masks of a sample's objects, made from their outlines.
#pragma once

#include <cstdint>
#include <functional>

#include "base/private_api.h"
#include "millrace/annotations.h"
#include "millrace/buffer.h"
#include "millrace/transform.h"

namespace millrace::pipeline {

/// Appends the masks of the objects of the open sample of `to`, which is the sample at `index` with
/// an image of size `image`: fills their outlines and moves them along the trail that `transform`
/// left, whose working memory is `scratch`. `filled` is working memory. Ends early once `stopped`
/// returns true. Throws DataError if the masks take too much memory, and drops the open sample.
MILLRACE_PRIVATE_API void append_masks(const Annotations& annotations, std::uint64_t index,
                                       Size image, const Trail& trail, const Transform& transform,
                                       Transform::Scratch& scratch, Buffer& filled,
                                       const std::function<bool()>& stopped, Objects& to);

}  // namespace millrace::pipeline
