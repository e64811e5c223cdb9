// Encodes event files: protobuf fields, CRC-32C and TFRecord frames.
#include "study/records/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "base/record_file.h"
#include "millrace/error.h"

namespace millrace::study {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr double kMaxKept = 1;  ///< in seconds

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);  // the polynomial, bit-reversed
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

/// Returns TFRecord's masked checksum, which stays strong for data that contain checksums.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

template <typename Word>
void append_little_endian(std::string& text, Word word) {
  for (std::size_t i = 0; i < sizeof word; ++i) text += static_cast<char>((word >> (8 * i)) & 0xFF);
}

// Protobuf's wire types. Each value follows a key made of its field number and type.
enum Wire { varint = 0, fixed64 = 1, length = 2, fixed32 = 5 };

void append_varint(std::string& text, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) text += static_cast<char>((value & 0x7F) | 0x80);
  text += static_cast<char>(value);
}

void append_key(std::string& text, int field, Wire wire) {
  append_varint(text, static_cast<std::uint64_t>(field << 3 | wire));
}

void append_bytes(std::string& text, int field, std::string_view bytes) {
  append_key(text, field, Wire::length);
  append_varint(text, bytes.size());
  text += bytes;
}

/// Begins an Event with its common fields: wall_time = 1, and step = 2 if it is not 0.
std::string begin_event(double wall_time, std::uint64_t step) {
  std::string event;
  append_key(event, 1, Wire::fixed64);
  append_little_endian(event, std::bit_cast<std::uint64_t>(wall_time));
  if (step == 0) return event;
  append_key(event, 2, Wire::varint);
  append_varint(event, step);
  return event;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr std::int64_t kLatest = 9'999'999'998;  ///< seconds, in ten digits with the next one

/// Returns the latest SECONDS in the names of the folder's event files; -1 if there are none.
std::int64_t newest_in(const fs::path& folder) {
  std::int64_t newest = -1;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    std::int64_t seconds = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), seconds);
    newest = std::max(newest, std::min(seconds, kLatest));
  }
  return newest;
}

[[noreturn]] void cannot_write(const fs::path& file) {
  throw RunError(fmt::format("{} cannot be written: {}", file.string(), std::strerror(errno)),
                 "free some space, or leave out train.tensorboard");
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

std::string tf_record(std::string_view bytes) {
  std::string record;
  append_little_endian(record, static_cast<std::uint64_t>(bytes.size()));
  append_little_endian(record, masked_crc(record));
  record += bytes;
  append_little_endian(record, masked_crc(bytes));
  return record;
}

std::string version_event(double wall_time) {
  std::string event = begin_event(wall_time, 0);
  append_bytes(event, 3, "brain.Event:2");  // file_version
  return event;
}

std::string start_event(double wall_time, std::uint64_t step) {
  std::string session;
  append_key(session, 1, Wire::varint);  // status
  append_varint(session, 1);             // START
  std::string event = begin_event(wall_time, step);
  append_bytes(event, 7, session);  // session_log
  return event;
}

std::string scalars_event(double wall_time, std::uint64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  std::string value;
  for (const Scalar& scalar : scalars) {
    value.clear();
    append_bytes(value, 1, scalar.tag);
    append_key(value, 2, Wire::fixed32);  // simple_value
    append_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    append_bytes(summary, 1, value);
  }
  std::string event = begin_event(wall_time, step);
  append_bytes(event, 5, summary);
  return event;
}

EventFile::EventFile(const fs::path& folder, std::uint64_t first_step) {
  // TensorBoard reads the files of a folder in the order of their names.
  const double now = wall_time();
  const std::int64_t newest = newest_in(folder);
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  path_ =
      folder / fmt::format("{}{:010}.{}.{}", kPrefix,
                           std::max(static_cast<std::int64_t>(now), newest + 1), host, getpid());
  base::Descriptor own = base::open_own(path_, O_WRONLY | O_TRUNC);
  file_.reset(fdopen(own.get(), "wb"));
  if (file_ == nullptr) cannot_write(path_);
  static_cast<void>(own.release());
  kept_ = tf_record(version_event(now)) + tf_record(start_event(now, first_step));
  flush();
}

void EventFile::scalars(std::uint64_t step, std::span<const Scalar> scalars) {
  if (scalars.empty()) return;
  const double now = wall_time();
  kept_ += tf_record(scalars_event(now, step, scalars));
  if (now - flushed_ > kMaxKept) flush();
}

void EventFile::flush() {
  if (std::fwrite(kept_.data(), 1, kept_.size(), file_.get()) != kept_.size() ||
      std::fflush(file_.get()) != 0)
    cannot_write(path_);
  kept_.clear();
  flushed_ = wall_time();
}

}  // namespace millrace::study
