// Decodes, resizes and encodes images.
#include "tools/data/shrink.h"

#include <algorithm>
#include <cmath>

#include "millrace/limits.h"
#include "millrace/plan.h"
#include "pipeline/decoders/decoder.h"
#include "tools/data/jpeg_writer.h"

namespace millrace::tools {

Size shrunk(Size size, const ShrinkOptions& options) {
  double scale = 1;
  if (options.short_side > 0)
    scale = std::min(scale, double(options.short_side) / std::min(size.width, size.height));
  if (options.max_side > 0)
    scale = std::min(scale, double(options.max_side) / std::max(size.width, size.height));
  const auto side = [scale](int length) {
    return std::max(1, static_cast<int>(std::lround(length * scale)));
  };
  return {side(size.width), side(size.height)};
}

namespace {

/// Returns the op `resize` with a fixed size.
OpSpec resize_to(Size size) {
  const auto ops = op_declarations();
  const auto declared =
      std::find_if(ops.begin(), ops.end(), [](const auto& op) { return op.name == "resize"; });
  OpSpec spec{declared->name, declared->name, true, Params(declared->params)};
  spec.params.set("size", std::vector<double>{double(size.height), double(size.width)});
  return spec;
}

}  // namespace

struct Shrinker::State {
  pipeline::DecodeScratch decode;
  std::vector<std::byte> pixels;
};

Shrinker::Shrinker(const ShrinkOptions& options)
    : options_(options), state_(std::make_unique<State>()) {}
Shrinker::~Shrinker() = default;

std::vector<std::uint8_t> Shrinker::run(std::span<const std::uint8_t> bytes) {
  const Size before = state_->decode.open(bytes, kMaxPixels).size;
  const Size after = shrunk(before, options_);
  if (after == before) return {bytes.begin(), bytes.end()};
  constexpr int kChannels = 3;
  const ImageView image = state_->decode.decode(kChannels, {0, 0, before.width, before.height});
  OutputOptions output;
  output.dtype = DType::u8;
  output.layout = Layout::hwc;
  const auto transform = compile_plan({resize_to(after)}, {before, kChannels}, output);
  state_->pixels.resize(transform->output().bytes() + kTailSlack);
  const auto scratch = transform->make_scratch();
  WholeImage source(image);
  transform->run({}, source, state_->pixels.data(), *scratch);
  return encode_jpeg(
      {reinterpret_cast<const std::uint8_t*>(state_->pixels.data()), transform->output().bytes()},
      after, options_.quality);
}

}  // namespace millrace::tools
