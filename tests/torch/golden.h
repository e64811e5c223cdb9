// Golden values of PyTorch and torchvision (tests/golden).
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace millrace::test {

/// Reads a file of tests/golden. On a machine without the source tree it lies beside the test
/// program, where bench/gpu/pack has put it.
inline nlohmann::json read_golden(const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path packed = fs::read_symlink("/proc/self/exe").parent_path() / "golden";
  for (const fs::path& folder : {packed, fs::path(MILLRACE_SOURCE_DIR "/tests/golden")})
    if (std::ifstream in(folder / name); in) return nlohmann::json::parse(in);
  throw std::runtime_error("there is no golden/" + name + " beside the test program");
}

}  // namespace millrace::test
