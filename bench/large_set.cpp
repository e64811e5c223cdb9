// Measures opening a very large set, by its set index and with a list, its order of samples and
// where they lie, with synthetic indexes: each archive is a hole of the right size with an index
// that fits.
//
//   build/large_set FOLDER --samples 100000000 --shards 1000
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/atomic_file.h"
#include "base/descriptor.h"
#include "bench/yardstick.h"
#include "millrace/reader.h"
#include "pipeline/loader/shuffled_order.h"
#include "pipeline/loader/slice.h"
#include "pipeline/readers/listing.h"
#include "pipeline/readers/set_index.h"
#include "pipeline/readers/tar.h"

namespace {

namespace fs = std::filesystem;
using namespace millrace;
using yardstick::stop;

constexpr std::uint64_t kMember = 1024;

double cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Returns a line of /proc/self/status in MiB.
double status_mib(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;)
    if (word == name + ":") {
      double kib = 0;
      file >> kib;
      return kib / 1024;
    }
  return 0;
}

/// Writes an archive and its index. Returns its entry in the set's.
pipeline::SetIndex::Shard write_shard(const std::string& path, std::uint64_t samples) {
  const base::Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file || ftruncate(file.get(), static_cast<off_t>(samples * kMember)) != 0)
    stop(path + " cannot be written");
  pipeline::ShardIndex index;
  index.shard = fs::path(path).filename();
  index.stamp = pipeline::stamp_of(file.get(), path);
  index.tar.folders = {""};
  for (std::uint64_t i = 0; i < samples; ++i) {
    index.tar.samples.push_back(
        {i * kMember + 512, 512, 512, static_cast<std::int32_t>(i % 1000), 0});
    index.tar.name_at.push_back(static_cast<std::uint32_t>(index.tar.names.size()));
    index.tar.names += fmt::format("{:09}.jpg", i) + '\0';
  }
  const std::vector<std::byte> bytes = to_bytes(index);
  base::AtomicFile out(pipeline::index_path(path));
  out.write(bytes);
  out.replace();
  pipeline::SetIndex::Shard listed;
  listed.name = index.shard;
  listed.size = index.stamp.size;
  listed.index_size = bytes.size();
  listed.samples = samples;
  listed.image_bytes = 512 * samples;
  listed.largest_label = static_cast<std::int32_t>(std::min<std::uint64_t>(samples, 1000) - 1);
  listed.folders = index.tar.folders;
  return listed;
}

void write_set(const std::string& folder, std::uint64_t samples, std::uint64_t shards) {
  pipeline::SetIndex set;
  for (std::uint64_t shard = 0; shard < shards; ++shard)
    set.shards.push_back(
        write_shard(fmt::format("{}/train-{:06}.tar", folder, shard), samples / shards));
  base::AtomicFile out(folder + "/" + pipeline::kSetIndexFile);
  out.write(to_bytes(set));
  out.replace();
}

/// Prints what `call` takes.
template <class Call>
void timed(const std::string& what, std::uint64_t times, const Call& call) {
  const double cpu = cpu_s(), before = status_mib("VmRSS");
  const auto begin = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  fmt::print("{:<44} {:>10.3f} us CPU {:>10.3f} us wall each, {:+.0f} MiB\n", what,
             1e6 * (cpu_s() - cpu) / static_cast<double>(times),
             1e6 * wall.count() / static_cast<double>(times), status_mib("VmRSS") - before);
}

void measure_order(std::uint64_t count, const char* name) {
  const Shuffle shuffle = Shuffle::parse(name);
  constexpr std::uint64_t kTimes = 1'000'000;
  std::uint64_t sum = 0;
  timed(fmt::format("{}: begin an epoch", name), kTimes, [&] {
    for (std::uint64_t i = 0; i < kTimes; ++i)
      sum += pipeline::ShuffledOrder(count, shuffle, 1, static_cast<std::uint32_t>(i))(0);
  });
  const pipeline::ShuffledOrder sampler(count, shuffle, 1, 0);
  for (const std::uint64_t first : {std::uint64_t{0}, count / 2})
    timed(fmt::format("{}: a position, from {} on", name, first), kTimes, [&] {
      for (std::uint64_t i = 0; i < kTimes; ++i) sum += sampler((first + i) % count);
    });
  constexpr std::int64_t kBatch = 1024;
  timed(fmt::format("{}: a rank's slice of 128 of a batch", name), kTimes / 128, [&] {
    for (std::uint64_t i = 0; i < kTimes / 128; ++i) {
      const pipeline::Slice slice = pipeline::rank_slice(kBatch, static_cast<int>(i % 8), 8, 1);
      for (std::int64_t k = 0; k < slice.count; ++k)
        sum += sampler((i * kBatch + static_cast<std::uint64_t>(slice.first + k)) % count);
    }
  });
  if (sum == 0) stop("every sample has number 0");
}

/// Looks up where samples lie, in the order of an epoch from its middle on.
void measure_lookup(const Reader& reader, const char* name, const char* how, std::uint64_t times) {
  const std::uint64_t count = reader.info().count;
  const pipeline::ShuffledOrder sampler(count, Shuffle::parse(name), 1, 0);
  Location location;
  std::uint64_t sum = 0;
  timed(fmt::format("{}: looking up {} samples{}", name, times, how), times, [&] {
    for (std::uint64_t i = 0; i < times; ++i) {
      const std::uint64_t sample = sampler((count / 2 + i) % count);
      if (!reader.locate(sample, location)) stop("a sample lies nowhere");
      if (location.label != static_cast<std::int64_t>(location.offset / kMember % 1000))
        stop("a sample has another's label");
      sum += location.offset;
    }
  });
  if (sum == 0) stop("every sample lies at byte 0");
}

}  // namespace

int main(int argc, char** argv) {
  const yardstick::Options options(argc, argv, "FOLDER [--samples N] [--shards N]");
  const auto samples = static_cast<std::uint64_t>(options.number("--samples", 1'000'000));
  const auto shards = static_cast<std::uint64_t>(options.number("--shards", 100));
  fs::create_directories(options.path());
  timed("writing the indexes", 1, [&] { write_set(options.path(), samples, shards); });
  DataOptions data;
  data.reader = "tar";
  data.path = options.path();
  data.index = IndexUse::require;
  std::unique_ptr<Reader> reader;
  for (const char* what : {"opening by set.index", "opening by set.index once more"}) {
    reader.reset();
    timed(what, 1, [&] { reader = pipeline::open_tar(data, 0); });
  }
  const std::uint64_t count = reader->info().count;
  fmt::print("{} samples, {:.0f} MiB resident, at most {:.0f} MiB so far\n", count,
             status_mib("VmRSS"), status_mib("VmHWM"));
  for (const char* name : {"window:100000", "global"})
    for (const char* how : {"", " once more"}) measure_lookup(*reader, name, how, 100'000);
  fmt::print("{:.0f} MiB resident, at most {:.0f} MiB so far\n", status_mib("VmRSS"),
             status_mib("VmHWM"));
  measure_order(count, "global");
  measure_order(count, "window:100000");
  reader.reset();
  timed("opening with a list", 1, [&] { reader = pipeline::open_tar(data, count); });
  fmt::print("{:.0f} MiB resident, at most {:.0f} MiB so far\n", status_mib("VmRSS"),
             status_mib("VmHWM"));
  measure_lookup(*reader, "global", "", 100'000);
  return 0;
}
