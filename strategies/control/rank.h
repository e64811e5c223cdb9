// Determines this process's rank from the environment that its launcher has set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/private_api.h"

namespace millrace::train {

struct RankInfo {
  int rank = 0;                           ///< global rank, from 0
  int world = 1;                          ///< world size; 1: not distributed
  int local_rank = 0;                     ///< rank on this host
  int local_world = 1;                    ///< number of ranks on this host
  std::string master_addr = "127.0.0.1";  ///< address of rank 0
  int master_port = 0;                    ///< port of the rendezvous (torch's TCPStore)
  bool agent_store = false;               ///< torchrun's agent already serves the store
  std::string launcher = {};              ///< "torchrun", "slurm", "openmpi", "pmi"
  std::optional<std::uint64_t> key = {};  ///< from kKeyVariable: authenticates ranks
  int store_fd = -1;                      ///< value of kStoreVariable, for rank 0; -1: none

  /// Returns whether all ranks are on this host and use a loopback address.
  MILLRACE_PRIVATE_API bool on_loopback() const;
};

/// Returns whether that is a loopback address, or the name of one.
MILLRACE_PRIVATE_API bool is_loopback(const std::string& address);

/// Looks up a variable as getenv() does: its value or null.
using EnvironmentLookup = std::function<const char*(const char* name)>;

/// Port for launchers that name none; torch's default.
inline constexpr int kDefaultMasterPort = 29500;
/// Variables that `millrace launch` sets in addition to torchrun's. The key has 16 hexadecimal
/// digits, is drawn again for each run, and admits a rank to the control channel. The store's value
/// is a descriptor that listens at MASTER_ADDR and MASTER_PORT.
inline constexpr const char* kKeyVariable = "MILLRACE_KEY";
inline constexpr const char* kStoreVariable = "MILLRACE_STORE_FD";
/// Base of the port for Slurm jobs without MASTER_PORT: kSlurmPorts + SLURM_JOB_ID mod 20000. All
/// of these lie below Linux's ephemeral ports.
inline constexpr int kSlurmPorts = 12000;

/// Returns this process's rank; empty if no launcher started it. The first launcher that matches
/// counts:
/// - torchrun and `millrace launch`: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
///   MASTER_PORT, TORCHELASTIC_USE_AGENT_STORE, MILLRACE_KEY, MILLRACE_STORE_FD. If set by hand
///   with a loopback address in MASTER_ADDR, the LOCAL_ variables may be omitted: all ranks are
///   then local.
/// - Open MPI: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE. MASTER_ADDR is required
///   unless all ranks are local; MASTER_PORT defaults to 29500.
/// - Slurm: SLURM_PROCID, SLURM_STEP_NUM_TASKS (or SLURM_NTASKS), SLURM_LOCALID,
///   SLURM_STEP_TASKS_PER_NODE (or SLURM_TASKS_PER_NODE), SLURM_NODEID. The master is MASTER_ADDR,
///   or the first host of SLURM_STEP_NODELIST or SLURM_JOB_NODELIST, or SLURM_LAUNCH_NODE_IPADDR. A
///   batch script is a task as well, the only one unless the job asks for more.
/// - PMI (MPICH, Intel MPI): PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS, with MASTER_ADDR
///   and MASTER_PORT as for Open MPI.
///
/// Throws UsageError with the variable's name if values are missing, malformed or contradictory.
MILLRACE_PRIVATE_API std::optional<RankInfo> rank_from_environment(const EnvironmentLookup& lookup);

}  // namespace millrace::train
