// Computes each resource's ceiling from the demands of a sample and a step.
#include "study/analysis/ceilings.h"

#include <fmt/format.h>

#include <algorithm>
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

}  // namespace millrace::study
