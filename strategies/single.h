// Training on one device, by the sync clock (contract T2): the device has finished when a step
// ends.
#pragma once

#include "models/classifier.h"
#include "strategies/cuda_library.h"
#include "strategies/sgd.h"
#include "strategies/strategy.h"

namespace millrace {

class Single : public Strategy {
 public:
  /// Throws UsageError for options that no model can follow, DeviceError for a device that is not
  /// there, DataError for weights of another model.
  explicit Single(const StrategyOptions& options);

  void step(Batch batch, SpanClock& spans) override;
  std::optional<double> last_loss() override { return last_loss_; }
  double take_train_loss() override;
  std::optional<Evaluation> evaluate(Loader& loader) override;
  void save(const std::filesystem::path& file) override;
  std::string parameters_hash() override;
  std::uint64_t parameter_count() const override;
  std::uint64_t peak_device_bytes() override;
  std::string device() const override;

  /// The model itself, for tests and tools that set or read weights.
  Classifier& model() { return *model_; }

 private:
  torch::Tensor images_of(const Batch& batch) const;
  torch::Tensor to_device(const torch::Tensor& host) const;

  StrategyOptions options_;
  std::optional<CudaLibrary> cuda_;  ///< loaded before anything below touches torch
  torch::Device device_;
  std::shared_ptr<Classifier> model_;
  std::optional<Sgd> optimizer_;
  torch::Tensor host_loss_;  ///< where the device leaves a step's loss; pinned for CUDA
  std::optional<double> last_loss_;
  double loss_sum_ = 0;  ///< of the samples since take_train_loss()
  std::int64_t loss_samples_ = 0;
};

}  // namespace millrace

/// The library's door, found by dlsym (strategies/torch_library.h). Throws what Single throws.
extern "C" millrace::Strategy* millrace_make_single(const millrace::StrategyOptions* options);
/// LibTorch's version, "2.11.0".
extern "C" const char* millrace_torch_version();
