// Packs samples into memory for predictions, and into a temporary folder for measurements.
#include "tools/commands/profile_packing.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/open_file.h"
#include "millrace/error.h"
#include "pipeline/readers/url.h"
#include "pipeline/remote/fetch.h"
#include "tools/data/data.h"
#include "tools/terminal/terminal.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

/// Most bytes of samples that are kept per way.
constexpr std::uint64_t kMaxPackedBytes = std::uint64_t{256} << 20;

ShrinkOptions shrink_of(const study::Packing& way) {
  ShrinkOptions options;
  options.short_side = way.short_side;
  options.raw = way.raw;
  return options;
}

/// Reads samples from a file that lies in memory, by the system call that archives are read with.
class UnnamedReader final : public Reader {
 public:
  explicit UnnamedReader(const DatasetInfo& info)
      : file_(memfd_create("millrace-profile", MFD_CLOEXEC)) {
    if (!file_) throw RunError(fmt::format("memfd_create: {}", std::strerror(errno)));
    info_ = info;
    info_.in_place = false;
    info_.count = 0;
    info_.bytes = 0;
  }
  void add(std::span<const std::uint8_t> bytes, std::int64_t label) {
    entries_.push_back({info_.bytes, bytes.size(), label});
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t count = pwrite(file_.get(), bytes.data() + done, bytes.size() - done,
                                   static_cast<off_t>(info_.bytes + done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) throw RunError(fmt::format("memfd: {}", std::strerror(errno)));
      done += static_cast<std::size_t>(count);
    }
    info_.bytes += bytes.size();
    ++info_.count;
  }
  Sample read(std::uint64_t index, Buffer& scratch) const override {
    const Entry& entry = entries_[index];
    std::uint8_t* bytes = scratch.reserve(entry.size);
    if (base::read_at(file_.get(), bytes, entry.size, entry.offset, "memfd") != entry.size)
      throw DataError(name(index) + ": cut short");
    return {{bytes, entry.size}, entry.label};
  }
  std::string name(std::uint64_t index) const override {
    return fmt::format("packed sample {}", index);
  }

 private:
  struct Entry {
    std::uint64_t offset, size;
    std::int64_t label;
  };
  base::Descriptor file_;
  std::vector<Entry> entries_;
};

}  // namespace

PackedSamples::PackedSamples(const Reader& set, std::vector<study::Packing> ways,
                             std::uint64_t most) {
  const std::uint64_t count = set.info().count;
  const std::uint64_t taken = std::min(count, most);
  const auto plain = std::make_shared<UnnamedReader>(set.info());
  std::vector<std::shared_ptr<UnnamedReader>> packed;
  std::vector<std::unique_ptr<Shrinker>> shrinkers;
  for (const study::Packing& way : ways) {
    packed.push_back(std::make_shared<UnnamedReader>(set.info()));
    shrinkers.push_back(std::make_unique<Shrinker>(shrink_of(way)));
  }
  std::vector<bool> changed(ways.size());
  Buffer buffer;
  for (std::uint64_t i = 0; i < taken && !interrupted(); ++i) {
    const bool full = plain->info().bytes > kMaxPackedBytes ||
                      std::any_of(packed.begin(), packed.end(), [](const auto& one) {
                        return one->info().bytes > kMaxPackedBytes;
                      });
    if (full) break;
    try {
      const Sample sample = set.read(i * count / taken, buffer);
      std::vector<std::vector<std::uint8_t>> results;
      for (const auto& shrinker : shrinkers) results.push_back(shrinker->run(sample.bytes));
      plain->add(sample.bytes, sample.label);
      for (std::size_t way = 0; way < results.size(); ++way) {
        packed[way]->add(results[way], sample.label);
        changed[way] = changed[way] || !std::equal(results[way].begin(), results[way].end(),
                                                   sample.bytes.begin(), sample.bytes.end());
      }
    } catch (const DataError&) {  // a sample that fails in training too
    }
  }
  plain_ = plain;
  for (std::size_t way = 0; way < ways.size(); ++way) {
    if (!changed[way]) continue;
    ways[way].bytes =
        static_cast<double>(packed[way]->info().bytes) / static_cast<double>(plain->info().bytes);
    ways_.push_back(ways[way]);
    packed_.push_back(packed[way]);
  }
}

RequestCost request_cost(const Reader& set, const Reader& some) {
  constexpr std::uint64_t kRequests = 64;
  const std::uint64_t count = set.info().count;
  const std::uint64_t taken = std::min(count, kRequests);
  const auto each = [&](double seconds) { return seconds / static_cast<double>(taken); };
  Buffer buffer;
  // An archive's first sample costs a request for its index too.
  for (std::uint64_t i = 0; i < taken; ++i) set.read(i * count / taken, buffer);
  const pipeline::FetchTimes before = pipeline::remote_counts().read;
  for (std::uint64_t i = 0; i < taken; ++i) set.read(i * count / taken, buffer);
  const pipeline::FetchTimes spent = pipeline::remote_counts().read - before;
  const std::uint64_t held = some.info().count;
  const std::int64_t begin = base::Clock::thread_cpu_ns();
  for (std::uint64_t i = 0; i < taken; ++i) some.read(i * held / taken % held, buffer);
  const double local = static_cast<double>(base::Clock::thread_cpu_ns() - begin) * 1e-9;
  return {each(spent.first_byte_s), each(spent.transfer_s), each(local)};
}

bool can_be_packed(const DatasetInfo& info) {
  return info.encoded && !pipeline::is_remote(info.path) &&
         (info.reader == "folder" || info.reader == "tar" || info.reader == "manifest");
}

PackedFolder::PackedFolder() {
  std::string pattern = (fs::temp_directory_path() / "millrace-packed-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr)
    throw RunError(fmt::format("{}: cannot be made: {}", pattern, std::strerror(errno)),
                   "set TMPDIR to a folder with room for a sample of the set");
  path_ = pattern;
}

PackedFolder::~PackedFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<std::string> PackedFolder::pack(const Recipe& recipe, const study::Packing& way,
                                            std::uint64_t most) const {
  const fs::path folder =
      path_ / fmt::format("{}{}", way.raw ? "raw" : "jpeg", std::max(0, way.short_side));
  PackOptions options;
  options.source = recipe.text("data.path");
  options.reader = recipe.text("data.reader");
  options.split = recipe.text("data.split");
  options.target = (folder / (options.split + "-000000.tar")).string();
  options.most = most;
  options.shrink = shrink_of(way);
  options.progress = [](std::uint64_t, std::uint64_t) {
    if (interrupted()) throw Error(Exit::interrupted, "interrupted while a sample was packed");
  };
  tools::pack(options);
  return {"data.reader=tar", "data.path=" + folder.string()};
}

}  // namespace millrace::tools
