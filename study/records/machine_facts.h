// The machine that a run was measured on.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace millrace::study {

struct MachineFacts {
  std::string cpu;                 ///< the processor's model; empty if unknown
  std::uint64_t memory_bytes = 0;  ///< 0 if unknown
  std::vector<std::string> gpus;   ///< model of each GPU that NVIDIA's kernel driver has
};

/// Reads the facts below `root`/proc. Starts no GPU and loads no library.
MachineFacts machine_facts(const std::string& root = "");

/// Returns a line such as "Intel(R) Xeon(R) CPU @ 2.20GHz, 2 cores, 8.3 GB memory, 2 x NVIDIA H200"
/// from a summary's `cpu`, `cores`, `memory_bytes` and `gpus`. Leaves out what is missing.
std::string machine_line(const nlohmann::ordered_json& summary);

}  // namespace millrace::study
