#include "pipeline/decoders/jpeg/entropy_decoder.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/simd.h"

namespace millrace::pipeline {
namespace {

constexpr std::uint8_t kEndOfImage = 0xd9, kFirstRestart = 0xd0;

/// Places in a block by the number of coefficients passed: a symbol that advances to k stores its
/// value at kPlaces[k]. Beyond 64 lies the block's last place: a symbol there either ends the block
/// and stores the zero that is there already, or makes the block invalid.
constexpr std::size_t kPlaceCount = 64 + kEndsBlock;
constexpr std::array<std::uint8_t, kPlaceCount> zigzag() {
  std::array<std::uint8_t, kPlaceCount> result{};
  int row = 0, column = 0;
  for (std::size_t k = 1; k <= 64; ++k) {  // walks the diagonals, upwards and downwards in turn
    result[k] = static_cast<std::uint8_t>(row * 8 + column);
    const bool upwards = (row + column) % 2 == 0;
    int& ahead = upwards ? column : row;
    int& back = upwards ? row : column;
    if (ahead == 7) {
      ++back;
    } else {
      ++ahead;
      if (back > 0) --back;
    }
  }
  for (std::size_t k = 65; k < kPlaceCount; ++k) result[k] = 63;
  return result;
}
constexpr std::array<std::uint8_t, kPlaceCount> kPlaces = zigzag();

/// Reads bits ahead, left-aligned. Only the low byte of `count` is meant; the rest is arbitrary, so
/// that an entry can be subtracted as it is.
struct BitReader {
  std::uint64_t bits;
  std::uint32_t count;
  const std::uint8_t* next;

  /// Fills up to at least kRefilled bits. Reads 8 bytes; those that do not fit come again.
  [[gnu::always_inline]] void refill() {
    const unsigned held = static_cast<std::uint8_t>(count);
    std::uint64_t ahead;
    std::memcpy(&ahead, next, sizeof ahead);
    bits |= __builtin_bswap64(ahead) >> held;
    next += (63 - held) >> 3;
    count = held | kRefilled;
  }
  [[gnu::always_inline]] void drop(HuffmanEntry entry) {
    bits <<= entry & 63;
    count -= entry;
  }

  static constexpr unsigned kRefilled = 56;
};
/// Look-ups that one refill lasts for, DC or AC.
constexpr unsigned kLookups = 5;
static_assert(kLookups * kLookupBits <= BitReader::kRefilled);
static_assert(kMaxSymbolBits <= BitReader::kRefilled);
static_assert(std::endian::native == std::endian::little);

/// Returns the next symbol, of which the caller drops the bits. The bits of a symbol that one
/// look-up does not resolve are dropped here, and the reader is refilled.
[[gnu::always_inline]] inline HuffmanEntry next_symbol(BitReader& in, const HuffmanTable& table) {
  const HuffmanEntry entry = table.at(in.bits);
  if ((entry & kUnresolved) == 0) [[likely]]
    return entry;
  in.refill();
  const HuffmanEntry resolved = table.resolve(in.bits, entry);
  in.drop(resolved & 63);
  in.refill();
  return resolved & ~63U;
}

/// Decodes a block and adds to its component's mean. Returns the number of coefficients passed; see
/// is_sound().
template <bool kStores>
[[gnu::always_inline]] inline unsigned decode_block(BitReader& in, const HuffmanTable& dc,
                                                    const HuffmanTable& ac, std::int16_t* block,
                                                    std::uint32_t& mean) {
  in.refill();
  const HuffmanEntry first = next_symbol(in, dc);
  in.drop(first);
  const auto difference = static_cast<std::int16_t>(first >> 16);
  mean += static_cast<std::uint32_t>(std::int32_t{difference});
  if (const unsigned advance = first >> 8 & 0xff; advance != 0) [[unlikely]]
    return 64 + advance;
  if (kStores) block[0] = static_cast<std::int16_t>(mean);
  unsigned passed = 1;
  for (;;) {
    for (unsigned i = 1; i < kLookups; ++i) {  // the DC symbol was the first
      const HuffmanEntry entry = next_symbol(in, ac);
      in.drop(entry);
      passed += entry >> 8 & 0xff;
      if (kStores) block[kPlaces[passed]] = static_cast<std::int16_t>(entry >> 16);
      if (passed >= 64) return passed;
    }
    in.refill();
  }
}

/// Returns whether a block ended at its last coefficient or with an end-of-block symbol.
[[gnu::always_inline]] inline bool is_sound(unsigned passed) {
  static_assert(64 + 16 <= 64 + kNoCode && 63 + kNoCode < kEndsBlock);
  return passed == 64 || passed > kEndsBlock;
}

}  // namespace

bool EntropyDecoder::stop(ScanEnd end) {
  end_ = end;
  mcus_left_ = 0;
  return false;
}

/// Builds the tables that the components name, each once.
bool EntropyDecoder::set_tables(const ScanLayout& layout) {
  using Component = ScanLayout::Component;
  const std::span<const Component> all = layout.components;
  std::array<std::uint8_t, kMaxScanComponents> dc{}, ac{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto place = [&](auto codes) {  // of the first component with the same table
      return static_cast<std::uint8_t>(
          std::find_if(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i),
                       [&](const Component& other) { return other.*codes == all[i].*codes; }) -
          all.begin());
    };
    dc[i] = place(&Component::dc);
    ac[i] = place(&Component::ac);
    if (all[i].dc == nullptr || all[i].ac == nullptr) return false;
    if (dc[i] == i && !dc_[i].build(*all[i].dc, HuffmanTable::Kind::dc)) return false;
    if (ac[i] == i && !ac_[i].build(*all[i].ac, HuffmanTable::Kind::ac)) return false;
  }
  block_count_ = layout.block_components.size();
  for (std::size_t i = 0; i < block_count_; ++i) {
    const std::uint8_t part = layout.block_components[i];
    if (part >= all.size()) return false;
    blocks_[i] = {&dc_[dc[part]], &ac_[ac[part]], part, all[part].need};
  }
  return true;
}

bool EntropyDecoder::start(const ScanLayout& layout, std::span<const std::uint8_t> data) {
  end_ = ScanEnd::none;
  mcus_left_ = std::uint64_t{layout.mcus_per_row} * layout.mcu_rows;
  if (layout.components.empty() || layout.components.size() > kMaxScanComponents ||
      layout.block_components.empty() || layout.block_components.size() > kMaxMcuBlocks ||
      mcus_left_ == 0 || !set_tables(layout))
    return stop(ScanEnd::layout);
  input_ = data.data();
  input_end_ = input_ + data.size();
  restart_interval_ = restart_left_ = layout.restart_interval;
  restart_number_ = 0;
  column_ = 0;
  columns_ = layout.mcus_per_row;
  first_column_ = layout.first_column;
  last_column_ = layout.last_column;
  decode_ = &EntropyDecoder::decode_generic;
#if defined(__x86_64__)
  if (base::simd_level() >= base::Simd::avx2 && __builtin_cpu_supports("bmi2") != 0)
    decode_ = &EntropyDecoder::decode_bmi2;
#endif
  return start_segment();
}

/// Begins the data behind the scan's header or behind a restart marker.
bool EntropyDecoder::start_segment() {
  std::fill(std::begin(means_), std::end(means_), 0U);
  marker_ = 0;
  bits_ = 0;
  count_ = 0;
  next_ = data_end_ = window_.data();
  return read_on();
}

/// Moves the window on. At most kMcuBytes of it are left when this is called.
bool EntropyDecoder::read_on() {
  static_assert(kWindow / 2 >= kMcuBytes);  // stuffing halves the data at most
  const auto kept = static_cast<std::size_t>(data_end_ - next_);
  std::memmove(window_.data(), next_, kept);
  next_ = window_.data();
  // Clears the bits that refill() has seen and not counted: they may lie behind the old end.
  bits_ = count_ == 0 ? 0 : bits_ & ~std::uint64_t{0} << (64 - count_);
  const auto size = std::min<std::size_t>(kWindow, static_cast<std::size_t>(input_end_ - input_));
  const Unstuffed result = unstuff(input_, input_ + size, input_end_, window_.data() + kept);
  input_ = result.next;
  data_end_ = result.out;
  switch (result.end) {
    case Unstuffed::End::more:
      low_ = data_end_ - kMcuBytes;
      return true;
    case Unstuffed::End::marker:
      marker_ = result.marker;
      low_ = window_.data() + window_.size();
      std::memset(result.out, 0, kPadding);
      return true;
    default:
      return stop(ScanEnd::cut);
  }
}

/// Returns the number of whole bytes that were not used, of those in the window.
std::size_t EntropyDecoder::bytes_left() const {
  return static_cast<std::size_t>((data_end_ - next_) * 8 + count_) / 8;
}

bool EntropyDecoder::restart() {
  if (marker_ == 0 && next_ > low_ && !read_on()) return false;
  if (marker_ != kFirstRestart + restart_number_ || bytes_left() > 0) return stop(ScanEnd::restart);
  restart_number_ = (restart_number_ + 1) & 7;
  restart_left_ = restart_interval_;
  return start_segment();
}

/// Finds the marker behind the last MCU. Bytes before the marker that ends the image are harmless:
/// libjpeg skips them too.
bool EntropyDecoder::finish() {
  bool trailing = bytes_left() > 0;
  while (marker_ == 0) {
    next_ = data_end_;
    count_ = 0;
    if (!read_on()) return false;
    trailing |= bytes_left() > 0;
  }
  return !trailing || marker_ == kEndOfImage || stop(ScanEnd::trailing);
}

[[gnu::always_inline]] inline bool EntropyDecoder::decode_mcu(CoefficientBlock* const* blocks) {
  if (mcus_left_ == 0) [[unlikely]]
    return stop(ScanEnd::layout);
  if (restart_interval_ != 0) {
    if (restart_left_ == 0 && !restart()) return false;
    --restart_left_;
  }
  if (next_ > low_ && !read_on()) return false;
  const bool stores = blocks != nullptr && column_ >= first_column_ && column_ <= last_column_;
  BitReader in{bits_, count_, next_};
  for (std::size_t i = 0; i < block_count_; ++i) {
    const Block& plan = blocks_[i];
    std::uint32_t& mean = means_[plan.component];
    unsigned passed;
    if (stores && plan.need == BlockNeed::all) {
      passed = decode_block<true>(in, *plan.dc, *plan.ac, *blocks[i], mean);
    } else {
      passed = decode_block<false>(in, *plan.dc, *plan.ac, nullptr, mean);
      if (stores && plan.need == BlockNeed::mean) (*blocks[i])[0] = static_cast<std::int16_t>(mean);
    }
    if (!is_sound(passed)) [[unlikely]]
      return stop(ScanEnd::code);
    if (in.next > data_end_ && (in.next - data_end_) * 8 > std::uint8_t(in.count)) [[unlikely]]
      return stop(ScanEnd::marker);
  }
  bits_ = in.bits;
  count_ = static_cast<std::uint8_t>(in.count);
  next_ = in.next;
  if (++column_ == columns_) column_ = 0;
  return --mcus_left_ > 0 || finish();
}

bool EntropyDecoder::decode_generic(CoefficientBlock* const* blocks) { return decode_mcu(blocks); }

#if defined(__x86_64__)
[[gnu::target("bmi,bmi2")]] bool EntropyDecoder::decode_bmi2(CoefficientBlock* const* blocks) {
  return decode_mcu(blocks);
}
#endif

}  // namespace millrace::pipeline
