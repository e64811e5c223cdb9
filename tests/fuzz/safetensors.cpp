// Fuzzes weight files: accepted tensors have the size that their shapes say.
#include "models/safetensors.h"

#include <numeric>

#include "tests/fuzz/target.h"

namespace millrace::fuzz {
namespace {

Bytes file(std::string header, std::size_t data) {
  while (header.size() % 8 != 0) header += ' ';
  Bytes bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::uint8_t>(header.size() >> 8 * i));
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.resize(bytes.size() + data, 1);
  return bytes;
}

}  // namespace

Corpus corpus() {
  return {
      {file(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
            R"("b":{"dtype":"I64","shape":[],"data_offsets":[24,32]}})",
            32),
       file(
           R"({"__metadata__":{"format":"pt"},"u":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
           0),
       file("{}", 0)},
      {"\"dtype\"", "\"shape\"", "\"data_offsets\"", "__metadata__", "F32", "BF16", "I64",
       "9223372036854775807", "4294967296", "-1", "1e300", "[]", std::string(200, '[')}};
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  fuzz::accepts(Exit::data, [&] {
    const auto file = train::safetensors::File::parse({bytes, bytes + size}, "x");
    for (const train::safetensors::Tensor& tensor : file.tensors()) {
      std::uint64_t elements = 1;
      for (const std::int64_t side : tensor.shape) elements *= static_cast<std::uint64_t>(side);
      fuzz::require(elements * train::safetensors::dtype_size(tensor.dtype) == tensor.bytes.size(),
                    "a tensor has the bytes of its shape");
      std::uint64_t sum = 0;
      for (const std::byte byte : tensor.bytes) sum += static_cast<std::uint64_t>(byte);
      fuzz::require(sum <= 255 * tensor.bytes.size(), "its bytes can be read");
    }
  });
  return 0;
}
