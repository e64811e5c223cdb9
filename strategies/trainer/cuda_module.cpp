// Asks the dynamic linker what a library lacks.
#include "strategies/trainer/cuda_module.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

extern char** environ;

namespace millrace::train {
namespace {

/// Longer names come before those that they begin with.
constexpr std::array<std::pair<std::string_view, std::string_view>, 20> kPackages{
    {{"libcudart.so", "nvidia-cuda-runtime"},
     {"libcupti.so", "nvidia-cuda-cupti"},
     {"libnvrtc", "nvidia-cuda-nvrtc"},
     {"libcublas", "nvidia-cublas"},
     {"libcufft", "nvidia-cufft"},
     {"libcufile", "nvidia-cufile"},
     {"libcurand", "nvidia-curand"},
     {"libcusolver", "nvidia-cusolver"},
     {"libcusparseLt", "nvidia-cusparselt-cu13"},
     {"libcusparse", "nvidia-cusparse"},
     {"libcudnn", "nvidia-cudnn-cu13"},
     {"libnccl", "nvidia-nccl-cu13"},
     {"libnvshmem", "nvidia-nvshmem-cu13"},
     {"libnvJitLink", "nvidia-nvjitlink"},
     {"libnvToolsExt", "nvidia-nvtx"},
     {"libtorch", "torch"},
     {"libc10", "torch"},
     {"libshm", "torch"},
     {"libcuda.so", "the NVIDIA driver"},
     {"libnvidia-ml", "the NVIDIA driver"}}};

/// Returns what a program writes to its standard output with another variable in its environment;
/// empty if it cannot be started.
std::string output_of(std::vector<std::string> words, std::string variable) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<char*> envp{variable.data()};
  for (char** one = environ; *one != nullptr; ++one) envp.push_back(*one);
  envp.push_back(nullptr);
  pid_t child = -1;
  const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> some{};
  for (ssize_t got = 0; failed == 0 && (got = ::read(ends[0], some.data(), some.size())) > 0;)
    text.append(some.data(), static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  if (failed == 0) waitpid(child, &status, 0);
  return text;
}

/// Returns the path of the file that a code or data address of this process comes from.
std::string file_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace

std::string package_of_library(const std::string& library) {
  const auto found = std::find_if(kPackages.begin(), kPackages.end(), [&](const auto& entry) {
    return library.starts_with(entry.first);
  });
  return found == kPackages.end() ? "" : std::string(found->second);
}

std::vector<std::string> missing_libraries(const std::string& module) {
  // The linker of this very process, which searches where dlopen() does.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel gives the address as an integer
  const std::string linker = file_of(reinterpret_cast<const void*>(getauxval(AT_BASE)));
  if (linker.empty() || !std::filesystem::exists(module)) return {};
  // As ldd does; the linker's option --list would end at the first one.
  std::istringstream lines(output_of({linker, module}, "LD_TRACE_LOADED_OBJECTS=1"));
  std::vector<std::string> missing;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("=> not found") == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t");
    std::string name = line.substr(begin, line.find(' ', begin) - begin);
    if (std::find(missing.begin(), missing.end(), name) == missing.end())
      missing.push_back(std::move(name));
  }
  return missing;
}

std::string why_not_loaded(const std::string& module, const std::string& loader) {
  if (!std::filesystem::exists(module)) {
#ifdef MILLRACE_WHY_NO_CUDA
    return "this build " MILLRACE_WHY_NO_CUDA;
#else
    return module + " is missing: bash tools/quickstart builds it";
#endif
  }
  const std::vector<std::string> missing = missing_libraries(module);
  if (missing.empty()) return loader;
  std::vector<std::string> named;
  for (const std::string& library : missing) {
    const std::string package = package_of_library(library);
    named.push_back(package.empty() ? library : library + " (" + package + ")");
  }
  return (missing.size() == 1 ? "a library is missing: " : "libraries are missing: ") +
         listed(named) + "; bash tools/quickstart --cuda installs what LibTorch needs";
}

std::string cuda_module_path() {
  const std::string own = file_of(reinterpret_cast<const void*>(&package_of_library));
  const std::filesystem::path folder = std::filesystem::path(own).parent_path();
  const std::string name = "libmillrace_cuda.so";
  // A program that holds this code itself, as tests do, has its libraries in lib.
  return std::filesystem::exists(folder / "lib" / name) ? folder / "lib" / name : folder / name;
}

}  // namespace millrace::train
