// Which rank this process is, as the launcher that started it says in the environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace millrace::train {

struct RankInfo {
  int rank = 0;                           ///< of all, from 0
  int world = 1;                          ///< ranks; 1: nothing to share
  int local_rank = 0;                     ///< of this host's
  int local_world = 1;                    ///< ranks on this host
  std::string master_addr = "127.0.0.1";  ///< where rank 0 can be reached
  int master_port = 0;                    ///< of the rendezvous (torch's TCPStore)
  bool agent_store = false;               ///< torchrun's agent serves the store already
  std::string launcher = {};              ///< "torchrun", "slurm", "openmpi", "pmi"
  std::optional<std::uint64_t> key = {};  ///< kKeyVariable: what ranks show each other
  int store_fd = -1;                      ///< kStoreVariable, of rank 0; -1: none

  /// All ranks are on this host and meet at a loopback address.
  bool on_loopback() const;
};

/// As getenv(): the variable's value or null.
using EnvironmentLookup = std::function<const char*(const char* name)>;

/// torch's default, where a launcher names no port.
inline constexpr int kDefaultMasterPort = 29500;
/// Variables that `millrace launch` sets in addition to torchrun's. The key has 16 hexadecimal
/// digits, is drawn for each run and admits a rank to the control channel. The store's value is a
/// descriptor that listens at MASTER_ADDR and MASTER_PORT.
inline constexpr const char* kKeyVariable = "MILLRACE_KEY";
inline constexpr const char* kStoreVariable = "MILLRACE_STORE_FD";
/// Of a Slurm job without MASTER_PORT: kSlurmPorts + SLURM_JOB_ID mod 20000, which lies below the
/// ports that Linux gives out by itself.
inline constexpr int kSlurmPorts = 12000;

/// Empty: no launcher has started this process. The first that fits counts:
/// - torchrun and `millrace launch`: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
///   MASTER_PORT, TORCHELASTIC_USE_AGENT_STORE, MILLRACE_KEY, MILLRACE_STORE_FD. By hand, with
///   MASTER_ADDR a loopback address, the LOCAL_ ones may be left out: all ranks are local then.
/// - Open MPI: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE. MASTER_ADDR must be given
///   unless all ranks are local; MASTER_PORT defaults to 29500.
/// - Slurm: SLURM_PROCID, SLURM_STEP_NUM_TASKS (or SLURM_NTASKS), SLURM_LOCALID,
///   SLURM_STEP_TASKS_PER_NODE (or SLURM_TASKS_PER_NODE), SLURM_NODEID. The master is MASTER_ADDR,
///   or the first host of SLURM_STEP_NODELIST or SLURM_JOB_NODELIST, or SLURM_LAUNCH_NODE_IPADDR.
///   A batch script is a task as well, the only one unless the job asks for more.
/// - PMI (MPICH, Intel MPI): PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS, with MASTER_ADDR
///   and MASTER_PORT as with Open MPI.
/// Throws UsageError that names the variable, where values are missing, malformed or contradict
/// each other.
std::optional<RankInfo> rank_from_environment(const EnvironmentLookup& lookup);

}  // namespace millrace::train
