// Writes JPEG scans that no encoder writes, symbol by symbol: random tables with codes of up to 16
// bits, values of up to 15 bits, every kind of run. The coefficients are known without a decoder.
#pragma once

#include <array>
#include <vector>

#include "base/rng.h"
#include "pipeline/decoders/jpeg/huffman_table.h"
#include "tests/data/support.h"

namespace millrace::test {

/// Index in a block by index in coded order (ITU-T T.81, figure A.6).
inline constexpr std::uint8_t kZigzag[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/// A table and the codes of its symbols.
struct WrittenTable {
  pipeline::HuffmanCodes codes{};
  std::array<std::uint32_t, 256> code{};
  std::array<unsigned, 256> length{};
  std::vector<std::uint8_t> symbols;

  /// Gives the symbols codes of random lengths. With `deep`, they are as long as they can be.
  static WrittenTable random(std::vector<std::uint8_t> symbols, bool deep, Draw& draw) {
    std::vector<unsigned> leaves{0};
    while (leaves.size() < symbols.size() + 1) {  // one more, for the code of all ones
      std::size_t at = deep && draw.chance(.8)
                           ? leaves.size() - 1
                           : draw.integer(static_cast<std::uint32_t>(leaves.size()));
      while (leaves[at] == 16) at = draw.integer(static_cast<std::uint32_t>(leaves.size()));
      leaves.push_back(++leaves[at]);
    }
    std::sort(leaves.begin(), leaves.end());
    leaves.pop_back();
    WrittenTable table;
    std::uint32_t code = 0;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      code <<= leaves[i] - (i == 0 ? leaves[0] : leaves[i - 1]);
      table.codes.symbols[i] = symbols[i];
      ++table.codes.counts[leaves[i]];
      table.code[symbols[i]] = code++;
      table.length[symbols[i]] = leaves[i];
    }
    table.symbols = std::move(symbols);
    return table;
  }
};

/// Writes bits, and a zero after each 0xff.
class BitWriter {
 public:
  explicit BitWriter(Bytes& out) : out_(out) {}
  void put(std::uint32_t bits, unsigned count) {
    for (unsigned i = count; i-- > 0;) {
      byte_ = byte_ << 1 | (bits >> i & 1);
      if (++filled_ < 8) continue;
      out_.push_back(static_cast<std::uint8_t>(byte_));
      if (out_.back() == 0xff) out_.push_back(0);
      byte_ = filled_ = 0;
    }
  }
  /// Fills the last byte with ones.
  void align() {
    while (filled_ > 0) put(1, 1);
  }

 private:
  Bytes& out_;
  unsigned byte_ = 0, filled_ = 0;
};

/// A scan and what it holds.
struct WrittenScan {
  struct Component {
    unsigned across = 1, down = 1;
    std::size_t dc = 0, ac = 0;  ///< tables
  };
  std::vector<Component> components;
  std::vector<WrittenTable> dc, ac;
  unsigned mcus_per_row = 0, mcu_rows = 0, restart_interval = 0;

  std::vector<std::uint8_t> block_components;  ///< of each block of an MCU
  Bytes data;                                  ///< without the marker at its end
  std::vector<std::array<std::int16_t, 64>> blocks;
  std::vector<std::size_t> ends;  ///< size of `data` once each MCU was complete, last bits aside

  void write(Draw& draw) {
    block_components.clear();
    for (std::size_t c = 0; c < components.size(); ++c)
      block_components.insert(block_components.end(), components[c].across * components[c].down,
                              static_cast<std::uint8_t>(c));
    BitWriter bits(data);
    std::array<std::uint32_t, 4> means{};
    for (unsigned mcu = 0; mcu < mcus_per_row * mcu_rows; ++mcu) {
      if (restart_interval > 0 && mcu > 0 && mcu % restart_interval == 0) {
        bits.align();
        data.push_back(0xff);
        data.push_back(static_cast<std::uint8_t>(0xd0 + (mcu / restart_interval - 1) % 8));
        means = {};
      }
      for (const std::uint8_t c : block_components) {
        blocks.emplace_back();
        write_block(bits, dc[components[c].dc], ac[components[c].ac], means[c], draw);
      }
      ends.push_back(data.size());
    }
    bits.align();
  }

 private:
  static int put(BitWriter& bits, const WrittenTable& table, unsigned symbol, Draw& draw) {
    const unsigned size = symbol & 15;
    bits.put(table.code[symbol], table.length[symbol]);
    if (size == 0) return 0;
    unsigned raw = draw.integer(1U << size);
    if (draw.chance(.1)) raw = draw.chance(.5) ? 0 : (1U << size) - 1;  // the extremes
    bits.put(raw, size);
    return static_cast<int>(raw) - (raw >> (size - 1) == 0 ? (1 << size) - 1 : 0);
  }
  void write_block(BitWriter& bits, const WrittenTable& dc_table, const WrittenTable& ac_table,
                   std::uint32_t& mean, Draw& draw) {
    auto& block = blocks.back();
    const auto any = [&](const WrittenTable& table) -> unsigned {
      return table.symbols[draw.integer(static_cast<std::uint32_t>(table.symbols.size()))];
    };
    mean += static_cast<std::uint32_t>(put(bits, dc_table, any(dc_table), draw));
    block[0] = static_cast<std::int16_t>(mean);
    for (unsigned k = 1; k < 64;) {
      unsigned symbol = any(ac_table);
      const bool is_end = (symbol & 15) == 0 && symbol != 0xf0;
      if (is_end && draw.chance(.7)) continue;  // fuller blocks
      const unsigned skipped = symbol >> 4;
      if (!is_end && k + skipped >= 64) symbol = 0;  // does not fit
      const int value = put(bits, ac_table, symbol, draw);
      if (is_end || symbol == 0) return;
      k += skipped + 1;
      block[kZigzag[k - 1]] = static_cast<std::int16_t>(value);
    }
  }
};

/// Returns random symbols of AC codes, among them the end of a block.
inline std::vector<std::uint8_t> ac_symbols(std::size_t count, Draw& draw) {
  std::vector<std::uint8_t> all;
  for (int symbol = 1; symbol < 256; ++symbol) all.push_back(static_cast<std::uint8_t>(symbol));
  for (std::size_t i = all.size(); i-- > 1;)
    std::swap(all[i], all[draw.integer(static_cast<std::uint32_t>(i + 1))]);
  all.resize(count - 1);
  all.insert(all.begin() + draw.integer(static_cast<std::uint32_t>(count)), 0);
  return all;
}

inline std::vector<std::uint8_t> dc_symbols(Draw& draw) {
  std::vector<std::uint8_t> all{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (std::size_t i = all.size(); i-- > 1;)
    std::swap(all[i], all[draw.integer(static_cast<std::uint32_t>(i + 1))]);
  all.resize(1 + draw.integer(16));
  return all;
}

/// Returns a scan of random shape.
inline WrittenScan random_scan(Draw& draw) {
  WrittenScan scan;
  const std::size_t tables = 1 + draw.integer(2);
  for (std::size_t i = 0; i < tables; ++i) {
    scan.dc.push_back(WrittenTable::random(dc_symbols(draw), draw.chance(.5), draw));
    scan.ac.push_back(WrittenTable::random(
        ac_symbols(draw.chance(.5) ? 1 + draw.integer(20) : 1 + draw.integer(256), draw),
        draw.chance(.5), draw));
  }
  const unsigned count = 1 + draw.integer(3);
  unsigned blocks = 0;
  for (unsigned c = 0; c < count; ++c) {
    WrittenScan::Component part;
    part.dc = draw.integer(static_cast<std::uint32_t>(tables));
    part.ac = draw.integer(static_cast<std::uint32_t>(tables));
    const unsigned most = 10 - blocks - (count - 1 - c);  // 10 blocks, one left for each other
    do {
      part.across = count == 1 ? 1 : 1 + draw.integer(4);
      part.down = count == 1 ? 1 : 1 + draw.integer(4);
    } while (part.across * part.down > most);
    blocks += part.across * part.down;
    scan.components.push_back(part);
  }
  scan.mcus_per_row = 1 + draw.integer(4);
  scan.mcu_rows = 1 + draw.integer(3);
  if (draw.chance(.5)) scan.restart_interval = 1 + draw.integer(5);
  scan.write(draw);
  return scan;
}

/// Returns a file with this scan. All quantisers are 1.
inline Bytes file_of(const WrittenScan& scan) {
  Bytes file{0xff, 0xd8};
  const auto segment = [&](std::uint8_t marker, const Bytes& body) {
    file.insert(file.end(), {0xff, marker, static_cast<std::uint8_t>((body.size() + 2) >> 8),
                             static_cast<std::uint8_t>(body.size() + 2)});
    file.insert(file.end(), body.begin(), body.end());
  };
  Bytes quantisers(65, 1);
  quantisers[0] = 0;
  segment(0xdb, quantisers);
  unsigned across = 1, down = 1;
  for (const auto& part : scan.components) {
    across = std::max(across, part.across);
    down = std::max(down, part.down);
  }
  const unsigned width = scan.mcus_per_row * across * 8, height = scan.mcu_rows * down * 8;
  Bytes frame{8,
              static_cast<std::uint8_t>(height >> 8),
              static_cast<std::uint8_t>(height),
              static_cast<std::uint8_t>(width >> 8),
              static_cast<std::uint8_t>(width),
              static_cast<std::uint8_t>(scan.components.size())};
  Bytes header{static_cast<std::uint8_t>(scan.components.size())};
  for (std::size_t c = 0; c < scan.components.size(); ++c) {
    const auto& part = scan.components[c];
    frame.insert(frame.end(), {static_cast<std::uint8_t>(c + 1),
                               static_cast<std::uint8_t>(part.across << 4 | part.down), 0});
    header.insert(header.end(), {static_cast<std::uint8_t>(c + 1),
                                 static_cast<std::uint8_t>(part.dc << 4 | part.ac)});
  }
  header.insert(header.end(), {0, 63, 0});
  segment(0xc1, frame);
  for (std::size_t i = 0; i < scan.dc.size(); ++i)
    for (const bool is_ac : {false, true}) {
      const WrittenTable& table = is_ac ? scan.ac[i] : scan.dc[i];
      Bytes body{static_cast<std::uint8_t>((is_ac ? 16 : 0) + i)};
      body.insert(body.end(), table.codes.counts + 1, table.codes.counts + 17);
      body.insert(body.end(), table.symbols.begin(), table.symbols.end());
      segment(0xc4, body);
    }
  if (scan.restart_interval > 0)
    segment(0xdd, {static_cast<std::uint8_t>(scan.restart_interval >> 8),
                   static_cast<std::uint8_t>(scan.restart_interval)});
  segment(0xda, header);
  file.insert(file.end(), scan.data.begin(), scan.data.end());
  file.insert(file.end(), {0xff, 0xd9});
  return file;
}

}  // namespace millrace::test
