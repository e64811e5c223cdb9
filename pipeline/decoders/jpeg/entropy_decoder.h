// Huffman decoder for the scan of a baseline or extended sequential JPEG file: bytes in,
// coefficients out. Knows nothing of libjpeg.
//
// It decodes what is plain and stops at anything else: data that ends early, a marker that does not
// belong there, invalid codes, a run past a block's end. It repairs nothing, so that a
// decoder that does can start over and have the last word.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pipeline/decoders/jpeg/huffman_table.h"
#include "pipeline/decoders/jpeg/unstuff.h"

namespace millrace::pipeline {

/// Quantised coefficients of 8x8 samples, row by row.
using CoefficientBlock = std::int16_t[64];

/// Limits of the standard for an interleaved scan.
inline constexpr std::size_t kMaxScanComponents = 4, kMaxMcuBlocks = 10;

/// The parts of a block that are used.
enum class BlockNeed : std::uint8_t { nothing, mean, all };

/// Structure of a scan. An MCU is the group of blocks that is coded together.
struct ScanLayout {
  struct Component {
    const HuffmanCodes* dc;
    const HuffmanCodes* ac;
    BlockNeed need;
  };
  std::span<const Component> components;              ///< at most kMaxScanComponents
  std::span<const std::uint8_t> block_components;     ///< of each block of an MCU, in coded order
  std::uint32_t mcus_per_row = 0, mcu_rows = 0;       ///< neither is 0
  std::uint32_t restart_interval = 0;                 ///< MCUs between restart markers; 0: none
  std::uint32_t first_column = 0, last_column = ~0U;  ///< MCUs whose coefficients are stored
};

/// Why the decoder stopped.
enum class ScanEnd : std::uint8_t {
  none,      ///< it did not
  layout,    ///< the layout or a table is not legal
  cut,       ///< the file ends within the data
  marker,    ///< a marker stands where data should be
  restart,   ///< a restart marker is missing or has the wrong number, or bytes stand before it
  code,      ///< bits that are no code, or a run of coefficients past a block's end
  trailing,  ///< bytes between the last MCU and a marker that does not end the image
};

/// Holds some 100 KB: tables, and a window of the data without stuffing. Not thread safe.
class EntropyDecoder {
 public:
  /// Begins a scan whose data starts at `data`, which extends to the end of the file and must stay
  /// in place. Returns false if end() then says why this decoder cannot decode it.
  bool start(const ScanLayout& layout, std::span<const std::uint8_t> data);

  /// Decodes the next MCU into `blocks`, one pointer per block, whose contents must be zero; null
  /// discards it. Columns and parts that the layout does not need stay zero. Returns false if end()
  /// then says why; the blocks' contents are meaningless then. Call it once per MCU of the layout.
  bool decode(CoefficientBlock* const* blocks) { return (this->*decode_)(blocks); }

  /// Returns whether the last MCU has been decoded.
  bool is_done() const { return mcus_left_ == 0; }
  /// Returns the marker behind the last MCU, and the first byte behind that marker; for a decoder
  /// that is done.
  std::uint8_t marker() const { return marker_; }
  const std::uint8_t* after_marker() const { return input_; }

  ScanEnd end() const { return end_; }

 private:
  struct Block {
    const HuffmanTable* dc;
    const HuffmanTable* ac;
    std::uint8_t component;
    BlockNeed need;
  };

  /// Bytes that an MCU takes at most, without stuffing.
  static constexpr std::size_t kBlockBytes = 64 * kMaxSymbolBits / 8;
  static constexpr std::size_t kMcuBytes = kMaxMcuBlocks * kBlockBytes + sizeof(std::uint64_t);
  /// Zeros behind the end of the data: a block is decoded whole before its end is checked, and a
  /// refill reads 8 bytes, of which 7 may lie behind those that count.
  static constexpr std::size_t kPadding = kBlockBytes + 3 * sizeof(std::uint64_t);
  /// Input that is unstuffed at a time.
  static constexpr std::size_t kWindow = 16 * 1024;

  bool set_tables(const ScanLayout& layout);
  bool stop(ScanEnd end);
  bool start_segment();
  bool read_on();
  bool restart();
  bool finish();
  std::size_t bytes_left() const;
  bool decode_mcu(CoefficientBlock* const* blocks);
  bool decode_generic(CoefficientBlock* const* blocks);
  bool decode_bmi2(CoefficientBlock* const* blocks);

  bool (EntropyDecoder::*decode_)(CoefficientBlock* const*) = nullptr;

  // State of the scan.
  std::uint64_t bits_ = 0;                  ///< bits read ahead, left-aligned
  std::uint32_t count_ = 0;                 ///< how many of them count
  const std::uint8_t* next_ = nullptr;      ///< in the window: first byte that no counted bit is of
  const std::uint8_t* data_end_ = nullptr;  ///< end of the window's data
  const std::uint8_t* low_ = nullptr;       ///< beyond it, the window may not hold an MCU
  const std::uint8_t* input_ = nullptr;     ///< what is unstuffed next
  const std::uint8_t* input_end_ = nullptr;
  std::uint64_t mcus_left_ = 0;
  std::uint32_t restart_interval_ = 0, restart_left_ = 0;
  std::uint32_t column_ = 0, columns_ = 0, first_column_ = 0, last_column_ = 0;
  std::uint32_t means_[kMaxScanComponents] = {};  ///< wrap around; 16 bits of them count
  std::uint8_t restart_number_ = 0;
  std::uint8_t marker_ = 0;  ///< that ends the segment; 0 while its end is not known
  ScanEnd end_ = ScanEnd::none;
  std::size_t block_count_ = 0;
  std::array<Block, kMaxMcuBlocks> blocks_{};

  std::array<HuffmanTable, kMaxScanComponents> dc_, ac_;
  alignas(64) std::array<std::uint8_t, kMcuBytes + kWindow + kUnstuffSlack + kPadding> window_{};
};

}  // namespace millrace::pipeline
