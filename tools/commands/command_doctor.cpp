// millrace doctor: reports what this machine and this build offer, and what is missing.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <oneapi/tbb/version.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/simd.h"
#include "millrace/buffer.h"
#include "pipeline/decoders/jpeg/jpeg.h"
#include "strategies/trainer/cuda_module.h"
#include "strategies/trainer/torch_library.h"
#include "study/records/run_directory.h"
#include "tools/commands/commands.h"
#include "tools/terminal/terminal.h"
#include "tools/version.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string first_value(const char* file, const std::string& key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    const auto start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "unknown";
}

std::string simd() {
#if defined(__x86_64__)
  std::string names = "sse2";
  if (__builtin_cpu_supports("avx2") != 0) names += ", avx2";
  if (__builtin_cpu_supports("avx512bw") != 0) names += ", avx512";
  return names;
#else
  return "none used";
#endif
}

/// Asks the driver itself, so that no CUDA library is needed.
Json cuda() {
  Json json;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {{"devices", 0}, {"why", "no NVIDIA driver (libcuda.so.1)"}};
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  const auto name = reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetName"));
  int devices = 0;
  if (init == nullptr || count == nullptr || name == nullptr || init(0) != 0 ||
      count(&devices) != 0)
    return {{"devices", 0}, {"why", "the NVIDIA driver finds no device"}};
  json["devices"] = devices;
  json["names"] = Json::array();
  for (int i = 0; i < devices; ++i) {
    char text[128] = "";
    name(text, sizeof text, i);
    json["names"].push_back(text);
  }
  return json;
}

/// Returns why train.device=cuda would fail here, in the words of its message; null if it would
/// not. LibTorch, half a second, is loaded only where a driver or the module's libraries are there.
Json why_no_cuda_training(bool has_torch, bool has_driver) {
  if (!has_torch) return "this build has no LibTorch";
  const std::string module = train::cuda_module_path();
  if (!std::filesystem::exists(module) ||
      (!has_driver && !train::missing_libraries(module).empty()))
    return "the CUDA module cannot be loaded: " + train::why_not_loaded(module, "");
  const std::string why = train::why_no_cuda();
  return why.empty() ? Json(nullptr) : Json(why);
}

/// Reads a file just written, through the page cache and past it. Returns MB/s.
Json storage(const std::string& folder) {
  constexpr std::size_t kBytes = 64 << 20;
  const std::string file = folder + "/.millrace-doctor.tmp";
  ::unlink(file.c_str());  // of a killed process, or a stranger's
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return {{"path", folder}, {"why", "not writable"}};
  ::unlink(file.c_str());
  Buffer buffer;
  std::uint8_t* bytes = buffer.reserve(1 << 20);
  std::memset(bytes, 0x5A, 1 << 20);
  const auto timed = [&](auto&& io) {
    const std::int64_t begin = base::Clock::steady_ns();
    for (std::size_t at = 0; at < kBytes; at += 1 << 20)
      if (io(static_cast<off_t>(at)) != 1 << 20) return 0.0;
    return static_cast<double>(kBytes) / 1e6 /
           (static_cast<double>(base::Clock::steady_ns() - begin) * 1e-9);
  };
  Json json{{"path", folder}};
  const double write = timed([&](off_t at) { return pwrite(fd, bytes, 1 << 20, at); });
  fsync(fd);
  const double cached = timed([&](off_t at) { return pread(fd, bytes, 1 << 20, at); });
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  const double cold = timed([&](off_t at) { return pread(fd, bytes, 1 << 20, at); });
  ::close(fd);
  if (write == 0) return {{"path", folder}, {"why", "disk full"}};
  json["cached_mb_per_s"] = cached;
  json["uncached_mb_per_s"] = cold;
  return json;
}

struct DoctorArguments {
  std::string storage;  ///< empty: the current directory
};

/// Measures the storage of the folder. A folder that was asked for must exist.
Json measured_storage(const DoctorArguments& arguments) {
  if (arguments.storage.empty()) return storage(".");
  std::error_code ignored;
  if (!std::filesystem::is_directory(arguments.storage, ignored))
    throw UsageError(fmt::format("--storage {}: no such folder", arguments.storage),
                     "name a folder on the storage to measure");
  return storage(arguments.storage);
}

/// Fails if storage that was asked for could not be measured.
void check_storage(const DoctorArguments& arguments, const Json& storage) {
  if (arguments.storage.empty() || !storage.contains("why")) return;
  throw RunError(
      fmt::format("--storage {}: {}", arguments.storage, storage["why"].get<std::string>()),
      "name a folder in which you may write 64 MiB");
}

Exit doctor(const DoctorArguments& arguments) {
  cpu_set_t set;
  const int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  utsname system{};
  uname(&system);
  Json json;
  json["command"] = "doctor";
  json["version"] = kVersion;
  json["git"] = kGit;
  json["build"] = fmt::format("{}, {}", kBuildType, kCompiler);
  json["system"] = fmt::format("{} {}", system.sysname, system.release);
  json["cpu"] = first_value("/proc/cpuinfo", "model name");
  json["cores"] = {{"usable", usable}, {"online", sysconf(_SC_NPROCESSORS_ONLN)}};
  json["simd"] = simd();
  json["kernels"] = base::name_of(base::simd_level());  // after MILLRACE_SIMD and processor limits
  const std::string why_libjpeg = pipeline::why_libjpeg();
  json["jpeg"] = {{"own_huffman_decoder", why_libjpeg.empty()}};
  if (!why_libjpeg.empty()) json["jpeg"]["why"] = why_libjpeg;
  json["memory"] = {{"total", first_value("/proc/meminfo", "MemTotal")},
                    {"available", first_value("/proc/meminfo", "MemAvailable")},
                    {"page_cache", first_value("/proc/meminfo", "Cached")}};
  json["tbb"] = fmt::format("{} (built with {}.{})", TBB_runtime_version(), TBB_VERSION_MAJOR,
                            TBB_VERSION_MINOR);
  const bool has_torch = std::string(kTorch).size() > 0;
  json["libtorch"] = has_torch ? Json(kTorch) : Json("not in this build (MILLRACE_TORCH=OFF)");
  json["cuda"] = cuda();
  json["cuda"]["training_fails"] = why_no_cuda_training(has_torch, json["cuda"]["devices"] > 0);
  json["storage"] = measured_storage(arguments);
  const double tick = base::Clock::seconds_per_tick();
  json["clock_ns_a_tick"] = tick * 1e9;
  if (verbosity().json) {
    print("{}\n", study::to_text(json, 2));
    check_storage(arguments, json["storage"]);
    return Exit::done;
  }
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& name, const std::string& text) {
    rows.push_back({name + ":  " + text});
  };
  add("millrace", fmt::format("{} ({}), {}", kVersion, kGit, json["build"].get<std::string>()));
  add("system", json["system"]);
  add("cpu", fmt::format("{}, {} of {} cores usable, {}", json["cpu"].get<std::string>(), usable,
                         json["cores"]["online"].get<long>(), simd()));
  add("kernels", json["kernels"].get<std::string>());
  add("JPEG", why_libjpeg.empty() ? "libjpeg-turbo with millrace's Huffman decoder"
                                  : "libjpeg-turbo alone: " + why_libjpeg);
  add("memory", fmt::format("{} in all, {} available, page cache {}",
                            json["memory"]["total"].get<std::string>(),
                            json["memory"]["available"].get<std::string>(),
                            json["memory"]["page_cache"].get<std::string>()));
  add("oneTBB", json["tbb"]);
  add("LibTorch", json["libtorch"]);
  const Json& devices = json["cuda"];
  add("CUDA", devices.contains("why")
                  ? "none: " + devices["why"].get<std::string>()
                  : fmt::format("{} device(s): {}", devices["devices"].get<int>(),
                                devices["names"].dump()));
  add("training on CUDA", devices["training_fails"].is_null()
                              ? "works"
                              : "fails: " + devices["training_fails"].get<std::string>());
  const Json& disk = json["storage"];
  const std::string folder = disk["path"];
  add("storage", disk.contains("why")
                     ? fmt::format("{}: {}", folder, disk["why"].get<std::string>())
                     : fmt::format("{}: {} MB/s from the page cache, {} MB/s past it", folder,
                                   with_commas(disk["cached_mb_per_s"]),
                                   with_commas(disk["uncached_mb_per_s"])));
  add("clock", fmt::format("{:.4f} ns per tick", tick * 1e9));
  print("{}", to_table(rows));
  check_storage(arguments, disk);
  return Exit::done;
}

}  // namespace

void add_doctor(CLI::App& app, Command& chosen) {
  auto* command = app.add_subcommand(
      "doctor", "show cores, SIMD level, LibTorch, CUDA, page cache and storage speed");
  auto arguments = std::make_shared<DoctorArguments>();
  command->add_option("--storage", arguments->storage,
                      "folder whose storage is measured (default: current directory)");
  add_common(*command);
  command->footer("Example:\n  millrace doctor --storage data");
  command->callback([arguments, &chosen] {
    chosen = [arguments](const ProgramStart&) { return doctor(*arguments); };
  });
}

}  // namespace millrace::tools
