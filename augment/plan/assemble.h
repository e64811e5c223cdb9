// Puts samples of a group together of parts of each other, where an op says no more than that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/private_api.h"
#include "millrace/buffer.h"
#include "millrace/transform.h"

namespace millrace::augment {

/// Fills samples, each of form.bytes() bytes, with parts of what they were. Parts are ascending by
/// `to`; their positions are indices into `samples`, which may be empty. Pixels that no part covers
/// stay. `copies` is working memory.
MILLRACE_PRIVATE_API void assemble(std::span<const millrace_part> parts, const SampleSpec& form,
                                   std::span<void* const> samples, Buffer& copies);

/// Makes the labels of samples that were put together, of `classes` probabilities each: sums of
/// what they were, each by the area of its parts. `size` is that of a sample.
MILLRACE_PRIVATE_API void assemble_labels(std::span<const millrace_part> parts, Size size,
                                          std::size_t classes, std::span<float* const> labels,
                                          Buffer& copies);

/// Exchanges pixels of two samples where masks, of form.size, are 1 and not 0: `first` gets those
/// of `second` under `onto_first`, and the other way round, as both were before.
MILLRACE_PRIVATE_API void paste(const SampleSpec& form, void* first, void* second,
                                const std::uint8_t* onto_first, const std::uint8_t* onto_second);

}  // namespace millrace::augment
