// Reads the environment variables of torchrun, Open MPI, Slurm and PMI.
#include "strategies/control/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "millrace/error.h"

namespace millrace::train {
namespace {

constexpr std::int64_t kMaxRanks = 1'000'000;

/// Environment variables of one launcher.
class Environment {
 public:
  Environment(const EnvironmentLookup& lookup, std::string launcher)
      : lookup_(lookup), launcher_(std::move(launcher)) {}

  /// Returns a variable's value. Empty variables count as unset.
  std::optional<std::string> text(const char* name) const {
    const char* value = lookup_(name);
    return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
  }
  bool has(const char* name) const { return text(name).has_value(); }

  std::optional<std::int64_t> number(const char* name, std::int64_t least,
                                     std::int64_t most) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
    if (error != std::errc() || end != value->data() + value->size() || number < least ||
        number > most)
      throw UsageError(
          fmt::format("{}={} is not a whole number from {} to {}", name, *value, least, most),
          fmt::format("{} sets it; unset {} for a run without a launcher", launcher_, name));
    return number;
  }
  std::optional<std::uint64_t> key(const char* name) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    std::uint64_t key = 0;
    const auto [end, error] =
        std::from_chars(value->data(), value->data() + value->size(), key, 16);
    if (error == std::errc() && end == value->data() + value->size() && value->size() == 16)
      return key;
    // The value is a secret even if it is malformed, so the message leaves it out.
    throw UsageError(fmt::format("{} is not a key of 16 hexadecimal digits", name),
                     fmt::format("unset {}: `millrace launch` draws one for each run", name));
  }
  int required(const char* name, std::int64_t least, std::int64_t most) const {
    if (const auto value = number(name, least, most)) return static_cast<int>(*value);
    throw missing(name);
  }
  int rank(const char* name) const { return required(name, 0, kMaxRanks - 1); }
  int count(const char* name) const { return required(name, 1, kMaxRanks); }

  UsageError missing(const char* name, const std::string& what_to_do = {}) const {
    return UsageError(
        fmt::format("{} is not set, but this process was started by {}", name, launcher_),
        what_to_do.empty()
            ? fmt::format("set {}, or start the ranks with `millrace launch -n N`", name)
            : what_to_do);
  }

  /// Reads MASTER_ADDR and MASTER_PORT for launchers that set neither themselves.
  void master(RankInfo& info) const {
    info.master_port = static_cast<int>(
        number("MASTER_PORT", 1, 65535).value_or(std::int64_t{kDefaultMasterPort}));
    if (const auto address = text("MASTER_ADDR")) {
      info.master_addr = *address;
    } else if (info.local_world != info.world) {
      throw missing("MASTER_ADDR",
                    "ranks run on several hosts: set MASTER_ADDR to rank 0's, as "
                    "with mpirun -x MASTER_ADDR=HOST");
    }
  }

 private:
  const EnvironmentLookup& lookup_;
  std::string launcher_;
};

/// Throws UsageError unless `lower` is less than `upper`.
void check_below(const char* lower, int value, const char* upper, int bound) {
  if (value < bound) return;
  throw UsageError(fmt::format("{}={}, but {}={}", lower, value, upper, bound),
                   fmt::format("ranks count from 0: {} must be less than {}", lower, upper));
}

void check_at_most(const char* lower, int value, const char* upper, int bound) {
  if (value <= bound) return;
  throw UsageError(fmt::format("{}={}, but {}={}", lower, value, upper, bound),
                   "a host cannot hold more ranks than the world: were they set by two launchers?");
}

RankInfo from_torchrun(const Environment& env) {
  RankInfo info;
  info.rank = env.rank("RANK");
  info.world = env.count("WORLD_SIZE");
  check_below("RANK", info.rank, "WORLD_SIZE", info.world);
  const auto address = env.text("MASTER_ADDR");
  if (!address) throw env.missing("MASTER_ADDR");
  info.master_addr = *address;
  info.master_port = env.required("MASTER_PORT", 1, 65535);
  const bool by_hand =
      !env.has("LOCAL_RANK") && !env.has("LOCAL_WORLD_SIZE") && is_loopback(*address);
  info.local_rank = by_hand ? info.rank : env.rank("LOCAL_RANK");
  info.local_world = by_hand ? info.world : env.count("LOCAL_WORLD_SIZE");
  check_below("LOCAL_RANK", info.local_rank, "LOCAL_WORLD_SIZE", info.local_world);
  check_at_most("LOCAL_WORLD_SIZE", info.local_world, "WORLD_SIZE", info.world);
  const std::string agent = env.text("TORCHELASTIC_USE_AGENT_STORE").value_or("False");
  info.agent_store = agent == "True" || agent == "true" || agent == "1";
  info.key = env.key(kKeyVariable);
  constexpr int kMaxDescriptors = 1 << 20;
  info.store_fd = static_cast<int>(env.number(kStoreVariable, 3, kMaxDescriptors).value_or(-1));
  return info;
}

RankInfo from_open_mpi(const Environment& env) {
  RankInfo info;
  info.rank = env.rank("OMPI_COMM_WORLD_RANK");
  info.world = env.count("OMPI_COMM_WORLD_SIZE");
  info.local_rank = env.rank("OMPI_COMM_WORLD_LOCAL_RANK");
  info.local_world = env.count("OMPI_COMM_WORLD_LOCAL_SIZE");
  check_below("OMPI_COMM_WORLD_RANK", info.rank, "OMPI_COMM_WORLD_SIZE", info.world);
  check_below("OMPI_COMM_WORLD_LOCAL_RANK", info.local_rank, "OMPI_COMM_WORLD_LOCAL_SIZE",
              info.local_world);
  check_at_most("OMPI_COMM_WORLD_LOCAL_SIZE", info.local_world, "OMPI_COMM_WORLD_SIZE", info.world);
  env.master(info);
  return info;
}

RankInfo from_pmi(const Environment& env) {
  RankInfo info;
  info.rank = env.rank("PMI_RANK");
  info.world = env.count("PMI_SIZE");
  check_below("PMI_RANK", info.rank, "PMI_SIZE", info.world);
  if (info.world > 1) {
    info.local_rank = env.rank("MPI_LOCALRANKID");
    info.local_world = env.count("MPI_LOCALNRANKS");
  }
  check_below("MPI_LOCALRANKID", info.local_rank, "MPI_LOCALNRANKS", info.local_world);
  check_at_most("MPI_LOCALNRANKS", info.local_world, "PMI_SIZE", info.world);
  env.master(info);
  return info;
}

/// Returns the first host of a list in Slurm's notation: "rack[01-02,07]n[3-4],login" gives
/// rack01n3.
std::string first_host(std::string_view list) {
  std::string host;
  bool taking = true;
  bool in_brackets = false;
  for (const char c : list) {
    if (c == '[') {
      in_brackets = true;
    } else if (c == ']') {
      in_brackets = false;
      taking = true;
    } else if (c == ',' && !in_brackets) {
      break;
    } else if (in_brackets && (c == '-' || c == ',')) {
      taking = false;
    } else if (taking) {
      host += c;
    }
  }
  return host;
}

/// Returns the number of tasks on host number `node`: "2(x3),1" means 2, 2, 2, 1. Empty if the list
/// does not say.
std::optional<int> tasks_on(std::string_view list, std::int64_t node) {
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
    int tasks = 0;
    std::int64_t nodes = 1;
    const char* end = part.data() + part.size();
    const auto [behind, error] = std::from_chars(part.data(), end, tasks);
    if (error != std::errc() || tasks < 1) return std::nullopt;
    if (behind + 2 < end && behind[0] == '(' && behind[1] == 'x')
      std::from_chars(behind + 2, end, nodes);
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

const char* slurm_world(const Environment& env) {
  return env.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

RankInfo from_slurm(const Environment& env) {
  RankInfo info;
  info.rank = env.rank("SLURM_PROCID");
  // The batch script of a job that asked for no tasks lacks SLURM_NTASKS.
  const char* world = slurm_world(env);
  info.world = static_cast<int>(env.number(world, 1, kMaxRanks).value_or(1));
  check_below("SLURM_PROCID", info.rank, world, info.world);
  if (info.world == 1) return info;
  info.local_rank = env.rank("SLURM_LOCALID");
  const char* per_node =
      env.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  const std::int64_t node = env.number("SLURM_NODEID", 0, kMaxRanks).value_or(0);
  const std::int64_t hosts = env.number("SLURM_NNODES", 1, kMaxRanks).value_or(1);
  info.local_world = static_cast<int>((info.world + hosts - 1) / hosts);
  if (const auto list = env.text(per_node)) {
    const auto tasks = tasks_on(*list, node);
    if (!tasks)
      throw UsageError(fmt::format("{}={} does not mention node {}", per_node, *list, node),
                       "start the ranks with srun");
    info.local_world = *tasks;
  }
  check_below("SLURM_LOCALID", info.local_rank, per_node, info.local_world);
  check_at_most(per_node, info.local_world, world, info.world);

  if (const auto port = env.number("MASTER_PORT", 1, 65535)) {
    info.master_port = static_cast<int>(*port);
  } else {
    const auto job = env.number("SLURM_JOB_ID", 0, std::int64_t{1} << 40);
    if (!job) throw env.missing("SLURM_JOB_ID", "set MASTER_PORT, the same for all ranks");
    info.master_port = kSlurmPorts + static_cast<int>(*job % 20000);
  }
  for (const char* list : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    if (!env.has(list) || env.has("MASTER_ADDR")) continue;
    info.master_addr = first_host(*env.text(list));
    if (!info.master_addr.empty()) return info;
    throw UsageError(fmt::format("{}={} names no host", list, *env.text(list)),
                     "set MASTER_ADDR to rank 0's host");
  }
  for (const char* address : {"MASTER_ADDR", "SLURM_LAUNCH_NODE_IPADDR"}) {
    if (!env.has(address)) continue;
    info.master_addr = *env.text(address);
    return info;
  }
  if (info.local_world < info.world)
    throw env.missing("SLURM_JOB_NODELIST", "set MASTER_ADDR to rank 0's host");
  return info;
}

}  // namespace

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

bool RankInfo::on_loopback() const { return local_world == world && is_loopback(master_addr); }

std::optional<RankInfo> rank_from_environment(const EnvironmentLookup& lookup) {
  const Environment torchrun(lookup, "torchrun"), open_mpi(lookup, "Open MPI"),
      slurm(lookup, "Slurm"), pmi(lookup, "PMI");
  const auto named = [](RankInfo info, const char* launcher) {
    info.launcher = launcher;
    return info;
  };
  const bool has_mpi = open_mpi.has("OMPI_COMM_WORLD_RANK") || open_mpi.has("OMPI_COMM_WORLD_SIZE");
  const bool has_slurm = slurm.has("SLURM_PROCID");
  const bool has_pmi = pmi.has("PMI_RANK") && pmi.has("PMI_SIZE");
  const bool has_other = has_mpi || has_slurm || has_pmi;
  // Job scripts export one of the two alone for other uses.
  if (torchrun.has("RANK") && torchrun.has("WORLD_SIZE"))
    return named(from_torchrun(torchrun), "torchrun");
  if (!has_other && (torchrun.has("RANK") || torchrun.has("WORLD_SIZE")))
    return named(from_torchrun(torchrun), "torchrun");
  if (has_mpi) return named(from_open_mpi(open_mpi), "openmpi");
  // srun may set PMI's variables as well. With mpirun inside a job, Slurm's variables describe the
  // daemon that mpirun started.
  const bool pmi_is_slurm = has_pmi && has_slurm &&
                            *pmi.text("PMI_RANK") == *slurm.text("SLURM_PROCID") &&
                            pmi.text("PMI_SIZE") == slurm.text(slurm_world(slurm));
  if (has_pmi && !pmi_is_slurm) return named(from_pmi(pmi), "pmi");
  if (has_slurm) return named(from_slurm(slurm), "slurm");
  return std::nullopt;
}

}  // namespace millrace::train
