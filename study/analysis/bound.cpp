// Computes each resource's ceiling, and assigns load time to the resource that would have to be
// faster.

#include "study/analysis/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace millrace::study {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// Returns the mean number of samples per batch, counting the short last batch of an epoch.
double mean_batch(const ReplayInput& in) {
  const auto batch = static_cast<std::uint64_t>(in.batch);
  if (in.drop_last) return static_cast<double>(batch);
  const std::uint64_t batches = (in.samples + batch - 1) / batch;
  return static_cast<double>(in.samples) / static_cast<double>(batches);
}

double device_ceiling(const ReplayInput& in) {
  return in.update_s > 0 ? in.ranks * mean_batch(in) / in.update_s : kUnlimited;
}

double storage_ceiling(const ReplayInput& in) {
  if (!in.storage.limited() || in.bytes.empty()) return kUnlimited;
  const double mean =
      std::accumulate(in.bytes.begin(), in.bytes.end(), 0.0) / static_cast<double>(in.bytes.size());
  const ReplayStorage& s = in.storage;
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
double worker_cores(const ReplayInput& in) {
  return std::min(in.ranks * std::max(1, in.workers), in.cores);
}

/// Returns the wall time of one second of stage work when the workers keep `cores` cores busy.
double contention(const ReplayInput& in, double cores) {
  if (in.cores < 2) return 1;
  return 1 + (in.crowding_stage - 1) * (cores - 1) / (in.cores - 1);
}

}  // namespace

std::vector<Ceiling> ceilings(const ReplayInput& in, const StageDemand& demand) {
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

double workers_needed(const ReplayInput& in, const StageDemand& demand) {
  const double rate = device_ceiling(in) / in.ranks;
  return rate < kUnlimited ? rate * demand.total() : kUnlimited;
}

LowestCeiling lowest_ceiling(const ReplayInput& in, const StageDemand& demand) {
  const auto all = ceilings(in, demand);
  const auto rate_of = [&all](const char* name) {
    for (const Ceiling& one : all)
      if (one.name == name) return one.images_per_s;
    return kUnlimited;
  };
  const std::string stage = demand.machinery_s > demand.decode_s + demand.augment_s ? "overhead"
                            : demand.decode_s >= demand.augment_s                   ? "decode"
                                                                                    : "augment";
  const double device = rate_of("device");
  const double storage = rate_of("storage");
  const double loader = rate_of("loader");
  const double cores = rate_of("cores");
  const double share = demand.total() > 0 ? (stage == "decode"    ? demand.decode_s
                                             : stage == "augment" ? demand.augment_s
                                                                  : demand.machinery_s) /
                                                demand.total()
                                          : 0;
  const auto have = [&in] {
    return in.workers == 1 ? std::string("1") : fmt::format("{}", in.workers);
  };
  const double needed = workers_needed(in, demand);

  const double lowest = std::min({device, storage, loader});
  if (cores < 0.98 * lowest && in.workers > 0 && in.update_threads > 0)
    return {"cores", cores,
            fmt::format("cores-bound: {} cores allow {:.0f} images/s, for loader and device work "
                        "together; the device alone would take {:.0f}",
                        in.cores, cores, device)};
  if (lowest == device)
    return {"device", device,
            in.workers == 0
                ? fmt::format("device-bound: a step's update takes longer than making its batch; "
                              "without workers they take turns")
                : fmt::format("device-bound: the device takes {:.0f} images/s; {:.1f} workers "
                              "keep it busy, you have {}",
                              device, needed, have())};
  if (lowest == storage)
    return {"storage", storage,
            fmt::format("storage-bound: reads come at {:.0f} images/s, the {} would take {:.0f}",
                        storage, loader < device ? "workers" : "device", std::min(loader, device))};
  const std::string needs =
      needed < kUnlimited ? fmt::format("; {:.1f} workers needed, you have {}", needed, have())
                          : std::string();
  return {stage, loader,
          fmt::format("{}-bound: {:.0f}% of a sample's loading, {:.0f} images/s on {} {}{}", stage,
                      100 * share, loader, std::max(1, in.workers),
                      in.workers == 0   ? "trainer thread"
                      : in.workers == 1 ? "worker"
                                        : "workers",
                      needs)};
}

namespace {

constexpr double kLoadThatBinds = 0.1;  ///< as a share of load + update
constexpr double kWaitThatBinds = 0.1;  ///< of the host for the device, as a share of its time
constexpr double kGapsThatBind = 0.1;   ///< that are not load, as a share of the device's time
constexpr double kRunsDry = 0.5;        ///< as a share of submissions
constexpr std::size_t kBounds = 7;
constexpr std::array<std::string_view, kBounds> kBoundNames{
    "device", "storage", "decode", "augment", "cores", "overhead", "host"};

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

std::string percent(double part) {
  return part < 0.0995 ? fmt::format("{:.1f}%", 100 * part) : fmt::format("{:.0f}%", 100 * part);
}

std::string workers_text(const BoundFigures& figures, double needed) {
  if (needed <= 0) return "";
  if (figures.workers == 0)
    return fmt::format("; load and update take turns: {:.1f} workers needed, you have none",
                       needed);
  return fmt::format("; {:.1f} workers needed, you have {}", needed, figures.workers);
}

std::string storage_text(const BoundFigures& figures, double load) {
  if (figures.update_s <= 0 || figures.read_bytes == 0) return "";
  const auto megabytes = static_cast<double>(figures.read_bytes) * 1e-6;
  return fmt::format("; {:.1f} MB/s are read, {:.1f} needed", megabytes / (load + figures.update_s),
                     megabytes / figures.update_s);
}

}  // namespace

std::string_view name_of(Bottleneck bound) { return kBoundNames[static_cast<std::size_t>(bound)]; }

BoundFigures bound_figures(const WaitBreakdown& blame, const LoaderStats& loader,
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
      fmt::format("host-bound: between steps the device waits {} of its time for the host",
                  percent(verdict.share));
  if (device.submissions > 0)
    verdict.sentence += fmt::format(
        "; it had run dry at {} of submissions",
        percent(static_cast<double>(device.starved) / static_cast<double>(device.submissions)));
  return verdict;
}

}  // namespace

BoundVerdict judge(const BoundFigures& figures) {
  BoundVerdict verdict;
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

  if (load <= 0 || verdict.load_share < (overlaps ? kLoadThatBinds : 0.5)) {
    if (figures.device && binds_host(*figures.device, all))
      return host_verdict(*figures.device, verdict);
    verdict.share = 1 - verdict.load_share;
    verdict.sentence =
        fmt::format("device-bound: load is {} of the step", percent(verdict.load_share)) +
        workers_text(figures, verdict.workers_needed);
    return verdict;
  }
  const auto parts = by_bound(figures);
  const auto largest = std::max_element(parts.begin(), parts.end());
  verdict.bound = static_cast<Bottleneck>(largest - parts.begin());
  verdict.share = load > 0 ? *largest / load : 0;
  verdict.sentence =
      fmt::format("{}-bound: {} of load", name_of(verdict.bound), percent(verdict.share));
  if (verdict.bound == Bottleneck::storage) {
    verdict.sentence += storage_text(figures, load);
  } else if (verdict.bound == Bottleneck::cores) {
    const int threads = figures.workers + 1;  // counts the trainer's thread too
    verdict.sentence +=
        fmt::format("; {} {} {} {}{}", threads, threads == 1 ? "thread on" : "threads on",
                    figures.cores, figures.cores == 1 ? "core" : "cores",
                    threads <= figures.cores ? ", which other programs use" : "");
  } else if (verdict.bound != Bottleneck::overhead) {
    verdict.sentence += workers_text(figures, verdict.workers_needed);
  } else {
    verdict.sentence += "; batches are too small, or the run is too short";
  }
  return verdict;
}

}  // namespace millrace::study
