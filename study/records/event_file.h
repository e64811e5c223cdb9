// A run's curves as TensorBoard event files: TFRecord frames around Event messages in protobuf's
// wire format, limited to what scalars need.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace millrace::study {

struct Scalar {
  std::string tag;  ///< "train/loss": the part before the slash groups the charts
  double value = 0;
};

/// Returns Castagnoli's CRC-32 (RFC 3720, appendix B.4), with the usual start and end values.
std::uint32_t crc32c(std::string_view bytes);
/// Returns one TFRecord: length, its checksum, the bytes, their checksum.
std::string tf_record(std::string_view bytes);

// Event messages (tensorboard/compat/proto/event.proto). `wall_time` is in seconds since 1970.
/// Returns the message that begins every file.
std::string version_event(double wall_time);
/// Returns SessionLog START. From the second one on, TensorBoard drops what it has read of `step`
/// and later steps; therefore every file has one, including the first.
std::string start_event(double wall_time, std::uint64_t step);
std::string scalars_event(double wall_time, std::uint64_t step, std::span<const Scalar> scalars);

/// Writes events.out.tfevents.SECONDS.HOST.PID in a run's directory. Throws RunError if it cannot
/// be written. Not thread-safe.
class EventFile {
 public:
  /// Creates a file whose name sorts after those of earlier processes. `first_step` is the first
  /// step that this process records.
  EventFile(const std::filesystem::path& folder, std::uint64_t first_step);

  /// Buffers scalars for up to one second.
  void scalars(std::uint64_t step, std::span<const Scalar> scalars);
  /// Writes the buffered records to the file, whole records at once.
  void flush();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  base::FilePointer file_;
  std::string kept_;
  double flushed_ = 0;  ///< wall time of the last flush, in seconds
};

}  // namespace millrace::study
