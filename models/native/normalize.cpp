// Normalisation of levels by tables: the op, and its kernel for the CPU. CUDA's is in the CUDA
// module.
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "models/native/ops.h"

TORCH_LIBRARY_FRAGMENT(millrace, library) {
  library.def("normalize(Tensor levels, Tensor tables, bool channels_last) -> Tensor");
}

namespace millrace::train::native {

NormalizeGeometry normalize_geometry(const at::Tensor& levels, const at::Tensor& tables,
                                     bool channels_last) {
  TORCH_CHECK(levels.dim() == 4 && levels.scalar_type() == at::kByte,
              "normalize takes u8 images, not ", levels.sizes(), " of ", levels.scalar_type());
  const bool planes = levels.is_contiguous();
  TORCH_CHECK(planes || levels.is_contiguous(at::MemoryFormat::ChannelsLast),
              "normalize takes planes or pixels without gaps, not strides ", levels.strides());
  TORCH_CHECK(tables.dim() == 2 && tables.size(0) == levels.size(1) && tables.size(1) == 256 &&
                  tables.is_contiguous() && tables.device() == levels.device() &&
                  (tables.element_size() == 2 || tables.element_size() == 4),
              "normalize takes 256 elements per channel, not ", tables.sizes(), " of ",
              tables.scalar_type(), " on ", tables.device());
  return {.batch = levels.size(0),
          .channels = levels.size(1),
          .pixels = levels.size(2) * levels.size(3),
          .from_pixels = !planes,
          .to_pixels = channels_last};
}

namespace {

template <class Word>
void normalize_samples(const NormalizeGeometry& g, const at::Tensor& levels,
                       const at::Tensor& tables, const at::Tensor& images) {
  const std::uint8_t* const from = levels.const_data_ptr<std::uint8_t>();
  const auto* const words = static_cast<const Word*>(tables.const_data_ptr());
  auto* const to = static_cast<Word*>(images.mutable_data_ptr());
  const std::int64_t from_channel = g.from_pixels ? 1 : g.pixels;
  const std::int64_t from_pixel = g.from_pixels ? g.channels : 1;
  const std::int64_t to_channel = g.to_pixels ? 1 : g.pixels;
  const std::int64_t to_pixel = g.to_pixels ? g.channels : 1;
  at::parallel_for(0, g.batch, /*grain_size=*/1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin * g.channels; plane < end * g.channels; ++plane) {
      const std::int64_t first = plane / g.channels * g.channels * g.pixels;
      const std::int64_t channel = plane % g.channels;
      const std::uint8_t* const in = from + first + channel * from_channel;
      Word* const out = to + first + channel * to_channel;
      const Word* const table = words + channel * 256;
      for (std::int64_t i = 0; i < g.pixels; ++i) out[i * to_pixel] = table[in[i * from_pixel]];
    }
  });
}

at::Tensor normalize_cpu(const at::Tensor& levels, const at::Tensor& tables, bool channels_last) {
  const NormalizeGeometry g = normalize_geometry(levels, tables, channels_last);
  at::Tensor images =
      at::empty(levels.sizes(), tables.options(),
                channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  if (tables.element_size() == 4)
    normalize_samples<std::uint32_t>(g, levels, tables, images);
  else
    normalize_samples<std::uint16_t>(g, levels, tables, images);
  return images;
}

TORCH_LIBRARY_IMPL(millrace, CPU, library) { library.impl("normalize", normalize_cpu); }

}  // namespace

at::Tensor normalize(const at::Tensor& levels, const at::Tensor& tables, bool channels_last) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("millrace::normalize", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&, bool)>();
  const at::AutoDispatchBelowADInplaceOrView below;
  return op.call(levels, tables, channels_last);
}

}  // namespace millrace::train::native
