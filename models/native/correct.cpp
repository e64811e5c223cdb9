// Count of correct answers: the op, and its kernel for the CPU. CUDA's is in the CUDA module.
#include <torch/library.h>
#include <torch/torch.h>

#include "models/native/ops.h"

TORCH_LIBRARY_FRAGMENT(millrace, library) {
  library.def("count_correct(Tensor(a!) count, Tensor logits, Tensor labels) -> ()");
}

namespace millrace::train::native {
namespace {

/// Returns whether `label` is the index of the row's first largest value. Has no branch per value.
bool is_first_largest(const float* row, std::int64_t label, std::int64_t classes) {
  const float mine = row[label];
  std::int64_t before = 0;
  for (std::int64_t i = 0; i < label; ++i) before += row[i] >= mine;
  std::int64_t after = 0;
  for (std::int64_t i = label + 1; i < classes; ++i) after += row[i] > mine;
  return before + after == 0;
}

void count_correct_cpu(const at::Tensor& count, const at::Tensor& logits,
                       const at::Tensor& labels) {
  check_counted(count, logits, labels);
  const at::Tensor rows = logits.contiguous();
  const at::Tensor indexes = labels.contiguous();
  const float* row = rows.const_data_ptr<float>();
  const std::int64_t* label = indexes.const_data_ptr<std::int64_t>();
  const std::int64_t classes = rows.size(1);
  std::int64_t correct = 0;
  for (std::int64_t i = 0; i < rows.size(0); ++i, row += classes)
    if (label[i] >= 0 && label[i] < classes) correct += is_first_largest(row, label[i], classes);
  *count.mutable_data_ptr<std::int64_t>() += correct;
}

TORCH_LIBRARY_IMPL(millrace, CPU, library) { library.impl("count_correct", count_correct_cpu); }

}  // namespace

void check_counted(const at::Tensor& count, const at::Tensor& logits, const at::Tensor& labels) {
  TORCH_CHECK(logits.dim() == 2 && logits.scalar_type() == at::kFloat && labels.dim() == 1 &&
                  labels.scalar_type() == at::kLong && labels.size(0) == logits.size(0),
              "count_correct takes f32 logits (N x classes) and N i64 labels, not ", logits.sizes(),
              " of ", logits.scalar_type(), " and ", labels.sizes(), " of ", labels.scalar_type());
  TORCH_CHECK(count.numel() == 1 && count.scalar_type() == at::kLong,
              "count_correct adds to one i64, not to ", count.sizes(), " of ", count.scalar_type());
  TORCH_CHECK(count.device() == logits.device() && labels.device() == logits.device(),
              "count_correct takes tensors of one device, not ", count.device(), ", ",
              logits.device(), " and ", labels.device());
}

void count_correct(const at::Tensor& count, const at::Tensor& logits, const at::Tensor& labels) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("millrace::count_correct", "")
          .typed<void(const at::Tensor&, const at::Tensor&, const at::Tensor&)>();
  const at::AutoDispatchBelowADInplaceOrView below;
  op.call(count, logits, labels);
}

}  // namespace millrace::train::native
