// Saves, loads and hashes the parameters and buffers of modules.
#include "models/weights.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/error.h"
#include "models/safetensors.h"

namespace millrace::train {
namespace {

/// Element types and their names in the format.
constexpr std::array<std::pair<torch::ScalarType, std::string_view>, 7> kTypes{{
    {torch::kFloat32, "F32"},
    {torch::kFloat64, "F64"},
    {torch::kFloat16, "F16"},
    {torch::kBFloat16, "BF16"},
    {torch::kInt64, "I64"},
    {torch::kInt32, "I32"},
    {torch::kUInt8, "U8"},
}};

std::string type_name(torch::ScalarType type) {
  for (const auto& [known, name] : kTypes)
    if (known == type) return std::string(name);
  throw RunError(std::string("weights of type ") + torch::toString(type) + " cannot be saved");
}

/// Returns the values in host memory and row-major, whatever the tensor's device and memory format.
torch::Tensor on_host(const torch::Tensor& tensor) {
  return tensor.detach().to(torch::kCPU).contiguous();
}

/// Returns whether `value` can hold a copy of `tensor` that has the same layout.
bool has_form_of(const torch::Tensor& value, const torch::Tensor& tensor) {
  return value.sizes() == tensor.sizes() && value.scalar_type() == tensor.scalar_type() &&
         (value.strides() == tensor.strides() || !tensor.is_non_overlapping_and_dense());
}

std::span<const std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::string describe(const std::string& dtype, torch::IntArrayRef shape) {
  std::string text = dtype + " [";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

NamedTensors state_of(const torch::nn::Module& module) {
  std::map<std::string, torch::Tensor> all;
  for (const auto& parameter : module.named_parameters()) all[parameter.key()] = parameter.value();
  for (const auto& buffer : module.named_buffers()) all[buffer.key()] = buffer.value();
  return {all.begin(), all.end()};
}

void TensorValues::take(const NamedTensors& tensors) {
  const torch::NoGradGuard no_grad;
  const bool fits = std::equal(values_.begin(), values_.end(), tensors.begin(), tensors.end(),
                               [](const auto& a, const auto& b) {
                                 return a.first == b.first && has_form_of(a.second, b.second);
                               });
  if (!fits) {
    values_.clear();
    for (const auto& [name, tensor] : tensors)
      values_.emplace_back(name, torch::empty_like(tensor, tensor.options().device(torch::kCPU),
                                                   torch::MemoryFormat::Preserve));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) values_[i].second.copy_(tensors[i].second);
}

void TensorValues::save(const std::filesystem::path& file) const {
  std::vector<safetensors::Tensor> tensors;
  for (const auto& [name, value] : values_)
    tensors.push_back({.name = name,
                       .dtype = type_name(value.scalar_type()),
                       .shape = value.sizes().vec(),
                       .bytes = bytes_of(value),
                       .strides = value.strides().vec()});
  safetensors::write(file, std::move(tensors), {{"format", "pt"}});
}

void save_tensors(const NamedTensors& named, const std::filesystem::path& file) {
  TensorValues values;
  values.take(named);
  values.save(file);
}

void load_tensors(const NamedTensors& named, const std::filesystem::path& file,
                  const std::string& owner, const std::string& hint) {
  const auto source = safetensors::File::read(file);
  std::map<std::string, const safetensors::Tensor*> given;
  for (const auto& tensor : source.tensors()) given[tensor.name] = &tensor;

  std::string problems;
  std::set<std::string> wanted_names;
  for (const auto& [name, tensor] : named) {
    wanted_names.insert(name);
    const auto found = given.find(name);
    const std::string wanted = describe(type_name(tensor.scalar_type()), tensor.sizes());
    if (found == given.end()) {
      problems += "; " + name + " is missing";
    } else if (const std::string has = describe(found->second->dtype, found->second->shape);
               has != wanted) {
      problems += "; " + name + " is " + has + ", " + owner + "'s is " + wanted;
    }
  }
  for (const auto& [name, tensor] : given)
    if (!wanted_names.contains(name)) problems += "; " + name + " is not in " + owner;
  if (!problems.empty())
    throw DataError(file.string() + " does not fit " + owner + ": " + problems.substr(2), hint);

  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : named) {
    const std::span<const std::byte> bytes = given.at(name)->bytes;
    const torch::Tensor value = torch::empty(tensor.sizes(), tensor.scalar_type());
    // Tensors in a file may be unaligned.
    if (!bytes.empty()) std::memcpy(value.mutable_data_ptr(), bytes.data(), bytes.size());
    torch::Tensor(tensor).copy_(value);
  }
}

void save_weights(const torch::nn::Module& module, const std::filesystem::path& file) {
  save_tensors(state_of(module), file);
}

void load_weights(torch::nn::Module& module, const std::filesystem::path& file) {
  load_tensors(state_of(module), file, "the model",
               "check model.name, model.classes, and the channels and size of samples");
}

std::string hash_weights(const torch::nn::Module& module) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(),
                                                                      &XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  for (const auto& [name, value] : state_of(module)) {
    const torch::Tensor tensor = on_host(value);
    XXH3_64bits_update(hash.get(), tensor.const_data_ptr(), tensor.nbytes());
  }
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx",
                static_cast<unsigned long long>(XXH3_64bits_digest(hash.get())));
  return text.data();
}

}  // namespace millrace::train
