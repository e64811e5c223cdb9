// A run's curves as TensorBoard event files: TFRecord frames around Event messages in protobuf's
// wire format, of which only what scalars need is written here.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace millrace::study {

struct Scalar {
  std::string tag;  ///< "train/loss": what stands before the slash groups the charts
  double value = 0;
};

/// Castagnoli's CRC-32 (RFC 3720, appendix B.4), with the start and end values usual there.
std::uint32_t crc32c(std::string_view bytes);
/// One TFRecord: length, its checksum, the bytes, their checksum.
std::string tf_record(std::string_view bytes);

// Event messages (tensorboard/compat/proto/event.proto). `wall_time` in seconds since 1970.
/// What every file begins with.
std::string version_event(double wall_time);
/// SessionLog START: from the second one on, TensorBoard forgets what it has read so far of `step`
/// and later ones. So each file has one, the first too.
std::string start_event(double wall_time, std::uint64_t step);
std::string scalars_event(double wall_time, std::uint64_t step, std::span<const Scalar> scalars);

/// events.out.tfevents.SECONDS.HOST.PID in a run's directory. Throws RunError when it cannot be
/// written. Not thread-safe.
class EventFile {
 public:
  /// Begins a new file, by name behind those that an earlier process left there. `first_step`: the
  /// first one that this process tells of.
  EventFile(const std::filesystem::path& folder, std::uint64_t first_step);

  /// Kept in memory for up to a second.
  void scalars(std::uint64_t step, std::span<const Scalar> scalars);
  /// What was kept goes to the file, whole records at once.
  void flush();

  const std::filesystem::path& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::string kept_;
  double flushed_ = 0;  ///< wall time
};

}  // namespace millrace::study
