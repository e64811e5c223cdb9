// Checks that a changed recipe loads and that its chain compiles.
#include "tools/commands/profile_candidates.h"

#include <fmt/format.h>

#include <algorithm>

#include "augment/plan/plan_setup.h"
#include "base/available_cores.h"
#include "millrace/error.h"
#include "pipeline/setup/data_setup.h"
#include "pipeline/setup/loader_setup.h"
#include "tools/commands/profile_packing.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

/// Returns whether a recipe's set can be opened: a cache may be too small for whole archives.
/// Throws why not if the user asked for it.
bool opens(const Recipe& recipe, bool asked_for) {
  try {
    open_data(recipe, recipe.text("data.split"));
  } catch (const UsageError&) {
    if (asked_for) throw;
    return false;
  }
  return true;
}

}  // namespace

Recipe CandidateList::recipe_with(const std::vector<std::string>& overrides) const {
  std::vector<std::string> all = words_;
  all.insert(all.end(), overrides.begin(), overrides.end());
  return with_ops(load_recipe(all));
}

study::ChangeFacts CandidateList::facts() const {
  const LoaderOptions options =
      pipeline::loader_options(recipe_, pipeline::emulated_storage(recipe_));
  study::ChangeFacts facts;
  facts.cores = base::available_cores();
  facts.workers = options.workers;
  facts.prefetch = options.prefetch;
  facts.io_threads = options.io_threads;
  facts.batch = options.batch;
  facts.samples = static_cast<std::int64_t>(epoch_samples(options, reader_->info().count));
  facts.simulated = is_simulated(recipe_);
  facts.update_ms = recipe_.number("simulated.update_ms");
  facts.encoded = reader_->info().encoded;
  facts.packable = reader_->info().reader == "folder" || reader_->info().reader == "manifest";
  facts.bandwidth = recipe_.number("data.storage.bandwidth");
  facts.latency = recipe_.number("data.storage.latency");
  facts.iops = recipe_.number("data.storage.iops");
  facts.requested = reader_->info().requested;
  for (const OpSpec& op : recipe_.augment()) {
    if (!op.enabled) continue;
    const std::string without = "augment." + op.id + ".enabled=false";
    try {  // a few batches show whether the remaining ops give samples of one size
      LoaderProbe(recipe_with({without}), probed_).measure(0, 0);
      facts.without_op.push_back(without);
    } catch (const Error& error) {
      if (error.exit() != Exit::usage) throw;
    }
  }
  return facts;
}

std::vector<Candidate> CandidateList::list(const std::vector<std::string>& texts, bool given,
                                           ProfileModel& model) const {
  std::vector<Candidate> candidates;
  auto changes = given ? std::vector<study::Change>() : study::list_changes(facts());
  std::vector<study::Packing> packings;
  for (const std::string& text : texts) {
    if (const auto packing = study::parse_packing(text))
      packings.push_back(*packing);
    else
      changes.push_back(reader_->info().requested && words_of(text) == study::cached_set().overrides
                            ? study::cached_set(/*fetched=*/true)
                            : study::Change{.overrides = words_of(text)});
  }
  for (study::Change& change : changes) {
    Recipe recipe = recipe_with(change.overrides);
    if (change.cached && !opens(recipe, change.fetched)) continue;
    model.add(recipe);
    candidates.push_back({std::move(change), std::move(recipe)});
  }
  list_packings(std::move(packings), given, model, candidates);
  return candidates;
}

void CandidateList::list_packings(std::vector<study::Packing> ways, bool given, ProfileModel& model,
                                  std::vector<Candidate>& candidates) const {
  if (!can_be_packed(reader_->info())) {
    if (!ways.empty())
      throw UsageError(fmt::format("--change {}: `millrace data pack` does not take {}",
                                   ways.front().text(), reader_->info().path),
                       "image folders, archives and manifests on this machine can be packed");
    return;
  }
  if (!given) {
    const Size size = augment::make_training_plan(recipe_, *reader_)->output().size;
    for (const study::Packing& way : study::list_packings(std::min(size.width, size.height)))
      if (std::none_of(ways.begin(), ways.end(),
                       [&](const study::Packing& one) { return one.text() == way.text(); }))
        ways.push_back(way);
  }
  if (ways.empty()) return;
  const PackedSamples samples(*reader_, std::move(ways));
  if (samples.ways().empty()) return;
  Recipe probed = recipe_;  // a batch of samples may be larger than what was packed
  const auto count = static_cast<std::int64_t>(samples.plain()->info().count);
  probed.set(fmt::format("loader.batch={}", std::min(count, recipe_.integer("loader.batch"))));
  for (std::size_t i = 0; i < samples.ways().size(); ++i) {
    const study::Packing& way = samples.ways()[i];
    model.add(way.text(), probed, samples.packed(i), samples.plain());
    candidates.push_back({{.overrides = {}, .packing = way, .assumed = {way.text()}}, recipe_});
  }
}

}  // namespace millrace::tools
