// Translates output.sizes to chains.
#include "augment/plan/size_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>

#include "millrace/error.h"
#include "pipeline/setup/choices.h"

namespace millrace::augment {
namespace {

constexpr std::size_t kMaxSizes = 1000;

/// Returns whether an op has a parameter `size`: whole numbers, one side or two.
bool has_size(const OpSpec& spec) {
  for (const OpDeclaration& op : op_declarations())
    if (op.name == spec.op)
      return std::any_of(op.params.begin(), op.params.end(), [](const Param& param) {
        return param.name == "size" && param.type == Param::Type::numbers && param.whole;
      });
  return false;
}

void check_keys(const Recipe& recipe) {
  const std::vector<double>& sizes = recipe.numbers("output.sizes");
  const std::vector<double>& epochs = recipe.numbers("output.milestones");
  if (epochs.size() + 1 != std::max<std::size_t>(sizes.size(), 1))
    throw UsageError(fmt::format("output.milestones has {} epochs for {} sizes in output.sizes",
                                 epochs.size(), sizes.size()),
                     "give the epoch at which each size after the first begins: "
                     "output.sizes=[128,160,192] output.milestones=[8,12]");
  if (sizes.size() > kMaxSizes)
    throw UsageError(fmt::format("output.sizes has {} sizes", sizes.size()),
                     fmt::format("each has a plan of its own: at most {}", kMaxSizes));
  if (!std::is_sorted(epochs.begin(), epochs.end(), std::less_equal<>()))
    throw UsageError("output.milestones must increase");
  if (!sizes.empty() && pipeline::loader_mode_of(recipe) != LoaderMode::normal)
    throw UsageError(fmt::format("output.sizes with loader.mode={}: a slot's samples have one size",
                                 recipe.text("loader.mode")),
                     "leave one of them out");
}

}  // namespace

std::vector<SizeStage> size_stages(const Recipe& recipe) {
  check_keys(recipe);
  const std::vector<double>& sizes = recipe.numbers("output.sizes");
  std::vector<SizeStage> stages;
  if (sizes.empty()) return stages;
  std::vector<OpSpec> chain = recipe.augment();
  const auto decides = std::find_if(chain.rbegin(), chain.rend(), [](const OpSpec& spec) {
    return spec.enabled && has_size(spec) && !spec.params.numbers("size").empty();
  });
  if (decides == chain.rend())
    throw UsageError("output.sizes: no op of the chain has a size",
                     "end it in one, for example augment+=random_resized_crop");
  std::vector<double> size = decides->params.numbers("size");
  if (size.front() != size.back())
    throw UsageError(fmt::format("output.sizes are sides of squares, but augment.{}.size=[{},{}]",
                                 decides->id, size.front(), size.back()),
                     "give that op a square size");
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::fill(size.begin(), size.end(), sizes[i]);
    decides->params.set("size", size);
    const double epoch = i == 0 ? 0 : recipe.numbers("output.milestones")[i - 1];
    stages.push_back({static_cast<std::uint32_t>(epoch), static_cast<int>(sizes[i]), chain});
  }
  return stages;
}

}  // namespace millrace::augment
