// Computes each resource's ceiling, and assigns load time to the resource that would have to be
// faster.

#include "study/analysis/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/number_text.h"
#include "predict/rules.h"

namespace millrace::study {
namespace {

using measure::Part;

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// Returns the mean number of samples per batch, counting the short last batch of an epoch.
double mean_batch(const predict::ReplayInput& in) {
  const auto batch = static_cast<std::uint64_t>(in.batch);
  if (in.drop_last) return static_cast<double>(batch);
  const std::uint64_t batches = (in.samples + batch - 1) / batch;
  return static_cast<double>(in.samples) / static_cast<double>(batches);
}

double device_ceiling(const predict::ReplayInput& in) {
  return in.update_s > 0 ? in.ranks * mean_batch(in) / in.update_s : kUnlimited;
}

double storage_ceiling(const predict::ReplayInput& in) {
  if (!in.storage.limited() || in.bytes.empty()) return kUnlimited;
  const double mean =
      std::accumulate(in.bytes.begin(), in.bytes.end(), 0.0) / static_cast<double>(in.bytes.size());
  const predict::ReplayStorage& s = in.storage;
  double most = kUnlimited;
  double one = in.read_s + s.latency_s;  // a read without contention
  if (s.bytes_per_s > 0) {
    most = std::min(most, s.bytes_per_s / mean);
    one += mean / s.bytes_per_s;
  }
  if (s.requests_per_s > 0) {
    most = std::min(most, s.requests_per_s);
    one += 1 / s.requests_per_s;
  }
  const int at_once = in.workers == 0 ? 1 : in.io_threads > 0 ? in.io_threads : in.workers;
  return std::min(most, in.ranks * at_once / one);
}

/// Returns how much longer stage work takes when the workers keep `cores` cores busy.
double worker_cores(const predict::ReplayInput& in) {
  return std::min(in.ranks * std::max(1, in.workers), in.cores);
}

/// Returns the wall time of one second of stage work when the workers keep `cores` cores busy.
double contention(const predict::ReplayInput& in, double cores) {
  if (in.cores < 2) return 1;
  return 1 + (in.crowding_stage - 1) * (cores - 1) / (in.cores - 1);
}

}  // namespace

std::vector<Ceiling> ceilings(const predict::ReplayInput& in, const StageDemand& demand) {
  std::vector<Ceiling> all;
  const auto add = [&all](const char* name, double rate) {
    if (rate < kUnlimited) all.push_back({name, rate});
  };
  const double cores = worker_cores(in);
  const double slow = contention(in, cores);
  const auto stage = [&](double seconds) {
    return seconds > 0 ? cores / (seconds * slow) : kUnlimited;
  };
  add("device", device_ceiling(in));
  add("storage", storage_ceiling(in));
  add("decode", stage(demand.decode_s));
  add("augment", stage(demand.augment_s));
  // With I/O threads the workers do not read.
  add("loader", stage(demand.total() - (in.io_threads > 0 ? demand.read_s : 0)));
  const double batch = mean_batch(in);
  const double cpu = demand.total() * in.crowding_stage +
                     (in.update_threads * in.update_s * in.crowding_update + in.host_s) / batch;
  add("cores", cpu > 0 ? in.cores / cpu : kUnlimited);
  return all;
}

double workers_needed(const predict::ReplayInput& in, const StageDemand& demand) {
  const double rate = device_ceiling(in) / in.ranks;
  return rate < kUnlimited ? rate * demand.total() : kUnlimited;
}

namespace {

/// Resources that may be the bound, with the rates that they allow. The loader goes by the name of
/// its most demanding stage.
struct Resources {
  double device = kUnlimited, storage = kUnlimited, loader = kUnlimited, cores = kUnlimited;
  std::string stage, next_stage;
  double stage_s = 0, next_stage_s = 0;  ///< per sample
};

Resources resources_of(const predict::ReplayInput& in, const StageDemand& demand) {
  Resources all;
  for (const Ceiling& one : ceilings(in, demand)) {
    if (one.name == "device") all.device = one.images_per_s;
    if (one.name == "storage") all.storage = one.images_per_s;
    if (one.name == "loader") all.loader = one.images_per_s;
    if (one.name == "cores") all.cores = one.images_per_s;
  }
  const double stages = demand.decode_s + demand.augment_s;
  std::array<std::pair<const char*, double>, 3> by_demand{
      {{"decode", demand.decode_s}, {"augment", demand.augment_s}, {"overhead", 0}}};
  std::stable_sort(by_demand.begin(), by_demand.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (demand.machinery_s > stages)
    by_demand = {{{"overhead", demand.machinery_s}, {"", 0}, {"", 0}}};
  all.stage = by_demand[0].first;
  all.stage_s = by_demand[0].second;
  all.next_stage = by_demand[1].first;
  all.next_stage_s = by_demand[1].second;
  return all;
}

/// Returns the resources but `lowest` whose ceilings are within kCrossing of its, nearest first.
std::vector<Ceiling> near_to(const Resources& all, const std::string& lowest, double rate,
                             bool cores_limit) {
  std::vector<Ceiling> near;
  const auto add = [&](const std::string& name, double other) {
    if (name != lowest && std::abs(other - rate) <= kCrossing * rate) near.push_back({name, other});
  };
  add("device", all.device);
  add("storage", all.storage);
  if (lowest != all.stage) add(all.stage, all.loader);
  if (cores_limit) add("cores", all.cores);
  if (lowest == all.stage && all.stage_s > 0 && all.next_stage_s >= (1 - kCrossing) * all.stage_s)
    near.push_back({all.next_stage, rate});
  std::stable_sort(near.begin(), near.end(), [&](const Ceiling& a, const Ceiling& b) {
    return std::abs(a.images_per_s - rate) < std::abs(b.images_per_s - rate);
  });
  return near;
}

std::string ceiling_sentence(const predict::ReplayInput& in, const StageDemand& demand,
                             const Resources& all, const LowestCeiling& lowest) {
  const double needed = workers_needed(in, demand);
  if (lowest.name == "cores")
    return fmt::format(
        "cores-bound: {} cores allow {:.0f} images/s, for loader and device work "
        "together; the device alone would take {:.0f}",
        in.cores, all.cores, all.device);
  if (lowest.name == "device")
    return in.workers == 0
               ? fmt::format(
                     "device-bound: a step's update takes longer than making its batch; "
                     "without workers they take turns")
               : fmt::format(
                     "device-bound: the device takes {:.0f} images/s; {:.1f} workers "
                     "keep it busy, you have {}",
                     all.device, needed, in.workers);
  if (lowest.name == "storage")
    return fmt::format("storage-bound: reads come at {:.0f} images/s, the {} would take {:.0f}",
                       all.storage, all.loader < all.device ? "workers" : "device",
                       std::min(all.loader, all.device));
  const std::string needs =
      needed < kUnlimited ? fmt::format("; {:.1f} workers needed, you have {}", needed, in.workers)
                          : std::string();
  const double share = demand.total() > 0 ? all.stage_s / demand.total() : 0;
  return fmt::format("{}-bound: {:.0f}% of a sample's loading, {:.0f} images/s on {} {}{}",
                     all.stage, 100 * share, all.loader, std::max(1, in.workers),
                     in.workers == 0   ? "trainer thread"
                     : in.workers == 1 ? "worker"
                                       : "workers",
                     needs);
}

}  // namespace

LowestCeiling lowest_ceiling(const predict::ReplayInput& in, const StageDemand& demand) {
  const Resources all = resources_of(in, demand);
  LowestCeiling found{"", std::min({all.device, all.storage, all.loader}), "", {}};
  const bool cores_limit = in.workers > 0 && in.update_threads > 0;
  if (cores_limit && all.cores < 0.98 * found.images_per_s) {
    found.name = "cores";
    found.images_per_s = all.cores;
  } else {
    found.name = found.images_per_s == all.device    ? "device"
                 : found.images_per_s == all.storage ? "storage"
                                                     : all.stage;
  }
  found.sentence = ceiling_sentence(in, demand, all, found);
  found.near = near_to(all, found.name, found.images_per_s, cores_limit);
  return found;
}

namespace {

constexpr double kWaitThatBinds = 0.1;  ///< of the host for the device, as a share of its time
constexpr double kGapsThatBind = 0.1;   ///< that are not load, as a share of the device's time
constexpr double kRunsDry = 0.5;        ///< as a share of submissions
constexpr std::size_t kBounds = 9;
constexpr std::array<std::string_view, kBounds> kBoundNames{
    "device",   "storage", "decode",         "augment",  "cores",
    "overhead", "host",    "other programs", "too short"};

double& at(std::array<double, kBounds>& of, Bottleneck bound) {
  return of[static_cast<std::size_t>(bound)];
}

/// Splits load by the resource that would have to be faster to shorten it.
std::array<double, kBounds> by_bound(const BoundFigures& figures) {
  const auto part = [&](Part one) { return figures.load[static_cast<std::size_t>(one)]; };
  std::array<double, kBounds> parts{};
  at(parts, Bottleneck::storage) = part(Part::storage);
  at(parts, Bottleneck::decode) = part(Part::decode);
  at(parts, Bottleneck::augment) = part(Part::augment);
  at(parts, Bottleneck::cores) = part(Part::cores);
  at(parts, Bottleneck::overhead) =
      part(Part::startup) + part(Part::epoch_boundary) + part(Part::handover);

  const double queue = part(Part::queue);
  const double load = std::accumulate(figures.load.begin(), figures.load.end(), 0.0);
  const double wall = (load + figures.update_s) * std::max(1, figures.workers);
  const double working =
      figures.decode_s + figures.augment_s + (figures.io_threads > 0 ? 0 : figures.read_s);
  const double used = wall > 0 && working > 0 ? std::min(1.0, figures.busy_s / wall) : 0;
  const double waiting = figures.busy_s > 0 ? figures.core_wait_s / figures.busy_s : 0;
  const double on_stages = working > 0 ? queue * used * (1 - waiting) / working : 0;
  if (figures.io_threads == 0) at(parts, Bottleneck::storage) += on_stages * figures.read_s;
  at(parts, Bottleneck::decode) += on_stages * figures.decode_s;
  at(parts, Bottleneck::augment) += on_stages * figures.augment_s;
  at(parts, Bottleneck::cores) += queue * used * waiting;
  at(parts, Bottleneck::overhead) += queue * (1 - used);
  return parts;
}

std::string workers_text(const BoundFigures& figures, double needed) {
  if (needed <= 0) return "";
  if (figures.workers == 0)
    return fmt::format("; load and update take turns: {} workers needed, you have none",
                       base::decimal(needed, 1));
  return fmt::format("; {} workers needed, you have {}", base::decimal(needed, 1), figures.workers);
}

std::string storage_text(const BoundFigures& figures, double load) {
  if (figures.update_s <= 0 || figures.read_bytes == 0) return "";
  const auto megabytes = static_cast<double>(figures.read_bytes) * 1e-6;
  return fmt::format("; {:.1f} MB/s are read, {:.1f} needed", megabytes / (load + figures.update_s),
                     megabytes / figures.update_s);
}

}  // namespace

std::string_view name_of(Bottleneck bound) { return kBoundNames[static_cast<std::size_t>(bound)]; }

BoundFigures bound_figures(const measure::WaitBreakdown& blame, const LoaderStats& loader,
                           const LoaderOptions& options, int cores, double update_s,
                           std::uint64_t images) {
  return {.load = blame.steady_seconds(),
          .update_s = update_s,
          .images = images,
          .workers = options.workers,
          .io_threads = options.io_threads,
          .cores = cores,
          .read_s = loader.read.wall_s,
          .decode_s = loader.decode.wall_s,
          .augment_s = loader.augment.wall_s,
          .busy_s = loader.busy_s,
          .core_wait_s = loader.core_wait_s,
          .read_bytes = loader.read.bytes};
}

namespace {

/// Returns whether the device waits for the host to submit work. Near 0 device_wait says that the
/// host is never ahead of it; gaps or an empty queue say that the device is.
bool binds_host(const DeviceFigures& device, double load_and_update_s) {
  const double host_s = load_and_update_s - device.setup_s;
  const double all = device.busy_s + device.gap_load_s + device.gap_host_s;
  if (!device.asynchronous || all <= 0 || host_s <= 0) return false;
  const double dry = device.submissions > 0 ? static_cast<double>(device.starved) /
                                                  static_cast<double>(device.submissions)
                                            : 0;
  return device.wait_s - device.setup_wait_s < kWaitThatBinds * host_s &&
         (device.gap_host_s >= kGapsThatBind * all || dry >= kRunsDry);
}

BoundVerdict host_verdict(const DeviceFigures& device, BoundVerdict verdict) {
  const double all = device.busy_s + device.gap_load_s + device.gap_host_s;
  verdict.bound = Bottleneck::host;
  verdict.share = device.gap_host_s / all;
  verdict.sentence =
      fmt::format("host-bound: the device spends {} of its time waiting for the host between steps",
                  base::percent(verdict.share));
  if (device.submissions > 0)
    verdict.sentence += fmt::format("; it was already idle at {} of submissions",
                                    base::percent(static_cast<double>(device.starved) /
                                                  static_cast<double>(device.submissions)));
  return verdict;
}

BoundVerdict too_short(const BoundFigures& figures) {
  BoundVerdict verdict;
  verdict.bound = Bottleneck::too_short;
  verdict.workers_needed = std::numeric_limits<double>::quiet_NaN();
  const std::uint64_t steps = figures.steps.value_or(0);
  verdict.sentence =
      fmt::format("too short: {}, and a verdict needs {}: {} more", base::counted(steps, "step"),
                  predict::kStepsForVerdict, predict::kStepsForVerdict - steps);
  return verdict;
}

/// Returns the verdict on a run that lacks cores because other programs have them.
BoundVerdict others_verdict(const BoundFigures& figures, BoundVerdict verdict,
                            const std::string& because) {
  verdict.bound = Bottleneck::others;
  verdict.sentence = fmt::format(
      "other programs: they took {} of the machine, and {}; repeat the run on a quiet machine",
      base::percent(figures.others.value_or(0)), because);
  return verdict;
}

std::string threads_text(const BoundFigures& figures) {
  const int threads = figures.workers + std::max(1, figures.update_threads);
  return fmt::format("{} on {}", base::counted(threads, "thread"),
                     base::counted(figures.cores, "core"));
}

BoundVerdict classify_steps(const BoundFigures& figures) {
  BoundVerdict verdict;
  const bool disturbed = figures.others && *figures.others > predict::kMaxOthers;
  const double load = std::accumulate(figures.load.begin(), figures.load.end(), 0.0);
  const double all = load + figures.update_s;
  verdict.load_share = all > 0 ? load / all : 0;
  if (figures.update_s > 0)
    verdict.workers_needed = std::max(0.0, figures.busy_s - figures.core_wait_s) / figures.update_s;
  bool overlaps = figures.workers > 0;
  if (figures.device && figures.device->asynchronous) {
    const DeviceFigures& device = *figures.device;
    const double time = device.busy_s + device.gap_load_s + device.gap_host_s;
    verdict.load_share = time > 0 ? device.gap_load_s / time : 0;
    // The work of the loader that has to hide behind the device's.
    verdict.workers_needed =
        device.busy_s > 0 ? std::max(0.0, figures.busy_s - figures.core_wait_s) / device.busy_s : 0;
    overlaps = true;
  }

  if (load <= 0 || verdict.load_share < predict::load_that_binds(overlaps)) {
    if (figures.device && binds_host(*figures.device, all))
      return host_verdict(*figures.device, verdict);
    verdict.share = 1 - verdict.load_share;
    // A queued device's updates are what the host needs to submit them, and vary by themselves.
    const bool queued = figures.device && figures.device->asynchronous;
    if (disturbed && !queued && figures.update_spread >= kVaries)
      return others_verdict(figures, verdict,
                            fmt::format("one update in ten takes {:.1f} times the median or more",
                                        figures.update_spread));
    verdict.sentence =
        fmt::format("device-bound: load is {} of the step", base::percent(verdict.load_share)) +
        workers_text(figures, verdict.workers_needed);
    return verdict;
  }
  const auto parts = by_bound(figures);
  const auto largest = std::max_element(parts.begin(), parts.end());
  verdict.bound = static_cast<Bottleneck>(largest - parts.begin());
  verdict.share = load > 0 ? *largest / load : 0;
  verdict.sentence =
      fmt::format("{}-bound: {} of load", name_of(verdict.bound), base::percent(verdict.share));
  if (verdict.bound == Bottleneck::storage) {
    verdict.sentence += storage_text(figures, load);
  } else if (verdict.bound == Bottleneck::cores) {
    if (disturbed)
      return others_verdict(figures, verdict,
                            fmt::format("waits for a core are {} of load; {}",
                                        base::percent(verdict.share), threads_text(figures)));
    verdict.sentence += "; " + threads_text(figures);
    const int threads = figures.workers + std::max(1, figures.update_threads);
    if (!figures.others && threads <= figures.cores)
      verdict.sentence += ", which other programs use";
  } else if (verdict.bound != Bottleneck::overhead) {
    verdict.sentence += workers_text(figures, verdict.workers_needed);
  } else {
    verdict.sentence += "; batches are too small, or the run is too short";
  }
  return verdict;
}

/// Returns what checkpoints take beside the steps, which load while the trainer waits for them.
std::string checkpoints_text(const BoundFigures& figures) {
  const double steps = std::accumulate(figures.load.begin(), figures.load.end(), figures.update_s);
  const double share = figures.checkpoint_s / std::max(steps + figures.checkpoint_s, 1e-12);
  if (share < kNotedCheckpoints) return "";
  return fmt::format("; checkpoints take {} of the time (train.checkpoints=false writes none)",
                     base::percent(share));
}

}  // namespace

BoundVerdict classify(const BoundFigures& figures) {
  if (figures.steps && *figures.steps < predict::kStepsForVerdict) return too_short(figures);
  BoundVerdict verdict = classify_steps(figures);
  verdict.sentence += checkpoints_text(figures);
  return verdict;
}

}  // namespace millrace::study
