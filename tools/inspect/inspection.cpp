// Runs single samples through a recipe's plan.
#include "tools/inspect/inspection.h"

#include <fmt/format.h>

#include "millrace/error.h"
#include "pipeline/loader/sampler.h"
#include "tools/inspect/sample_pixels.h"
#include "tools/training/pipeline_setup.h"

namespace millrace::tools {

Inspection::Inspection(Recipe recipe, std::uint32_t epoch, bool eval)
    : recipe_(std::move(recipe)),
      epoch_(epoch),
      eval_(eval),
      reader_(open_data(recipe_, recipe_.text(eval ? "eval.split" : "data.split"))),
      plan_(make_plan(recipe_, eval ? recipe_.eval_augment() : recipe_.augment(), *reader_)),
      scratch_(plan_->make_scratch()) {}

Inspected Inspection::operator()(std::uint64_t place) {
  const auto seed = static_cast<std::uint64_t>(recipe_.integer("seed"));
  const Shuffle shuffle =
      eval_ ? Shuffle{Shuffle::Kind::none, 0} : Shuffle::parse(recipe_.text("loader.shuffle"));
  const std::uint64_t index =
      pipeline::Sampler(reader_->info().count, shuffle, seed, epoch_)(place);
  Inspected result;
  result.name = reader_->name(index);
  try {
    SamplePixels source(*reader_, index, plan_->output().channels,
                        static_cast<std::uint64_t>(recipe_.integer("data.max_pixels")));
    result.size = source.size();
    const auto& classes = reader_->info().classes;
    const auto label = static_cast<std::size_t>(source.label());
    result.label = label < classes.size() ? classes[label] : fmt::format("{}", label);
    result.pixels.resize(plan_->output().bytes());
    plan_->run({seed, epoch_, index}, source, reinterpret_cast<std::byte*>(result.pixels.data()),
               *scratch_, &result.trace);
  } catch (const DataError& error) {
    throw DataError(result.name + ": " + error.what(), error.hint());
  }
  return result;
}

}  // namespace millrace::tools
