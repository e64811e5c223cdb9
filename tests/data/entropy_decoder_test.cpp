// Tests the Huffman decoder alone, on scans whose coefficients are known (jpeg_writer.h): what it
// decodes, where it stops, and that it reads nothing behind the data.
#include "pipeline/decoders/jpeg/entropy_decoder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "tests/data/jpeg_writer.h"

namespace millrace::pipeline {
namespace {

using test::Bytes;
using test::WrittenScan;

constexpr std::uint8_t kEndOfImage = 0xd9;

Draw draws(std::uint32_t number) {
  return Draw(base::stream({11, 0, number}, base::op_id("entropy")));
}

/// A layout and what it points to.
struct Layout {
  std::vector<ScanLayout::Component> components;
  ScanLayout scan;

  explicit Layout(const WrittenScan& written) {
    for (const auto& part : written.components)
      components.push_back(
          {&written.dc[part.dc].codes, &written.ac[part.ac].codes, BlockNeed::all});
    scan.components = components;
    scan.block_components = written.block_components;
    scan.mcus_per_row = written.mcus_per_row;
    scan.mcu_rows = written.mcu_rows;
    scan.restart_interval = written.restart_interval;
  }
};

/// Bytes in memory of exactly their size, so that AddressSanitizer sees what is read behind them.
struct Exact {
  std::unique_ptr<std::uint8_t[]> bytes;
  std::size_t size;

  Exact(const Bytes& data, std::initializer_list<std::uint8_t> more = {})
      : bytes(new std::uint8_t[data.size() + more.size()]), size(data.size() + more.size()) {
    std::copy(data.begin(), data.end(), bytes.get());
    std::copy(more.begin(), more.end(), bytes.get() + data.size());
  }
  std::span<const std::uint8_t> span() const { return {bytes.get(), size}; }
};

using Blocks = std::vector<std::array<std::int16_t, 64>>;

/// Decodes MCUs until one fails. Returns their blocks.
Blocks decode(EntropyDecoder& decoder, const ScanLayout& layout,
              std::span<const std::uint8_t> data) {
  Blocks blocks;
  if (!decoder.start(layout, data)) return blocks;
  const std::size_t per_mcu = layout.block_components.size();
  do {
    std::array<CoefficientBlock, kMaxMcuBlocks> mcu{};
    CoefficientBlock* pointers[kMaxMcuBlocks];
    for (std::size_t i = 0; i < kMaxMcuBlocks; ++i) pointers[i] = &mcu[i];
    if (!decoder.decode(pointers)) break;
    for (std::size_t i = 0; i < per_mcu; ++i) {
      blocks.emplace_back();
      std::memcpy(blocks.back().data(), mcu[i], sizeof mcu[i]);
    }
    for (std::size_t i = per_mcu; i < kMaxMcuBlocks; ++i)
      for (const std::int16_t level : mcu[i]) EXPECT_EQ(level, 0);
  } while (!decoder.is_done());
  return blocks;
}

class EntropyDecoders : public testing::Test {
 protected:
  std::unique_ptr<EntropyDecoder> decoder_ = std::make_unique<EntropyDecoder>();
};

TEST_F(EntropyDecoders, FindWhatWasWritten) {
  std::size_t longest = 0, symbols = 0;
  for (std::uint32_t i = 0; i < 400; ++i) {
    Draw draw = draws(i);
    const WrittenScan scan = test::random_scan(draw);
    const Layout layout(scan);
    const Exact data(scan.data, {0xff, kEndOfImage, 1, 2, 3});
    const Blocks found = decode(*decoder_, layout.scan, data.span());
    ASSERT_EQ(decoder_->end(), ScanEnd::none) << i;
    ASSERT_TRUE(found == scan.blocks) << i;
    ASSERT_TRUE(decoder_->is_done());
    ASSERT_EQ(decoder_->marker(), kEndOfImage);
    ASSERT_EQ(decoder_->after_marker(), data.bytes.get() + data.size - 3) << i;
    for (const auto& table : scan.ac)
      longest = std::max<std::size_t>(longest,
                                      *std::max_element(table.length.begin(), table.length.end()));
    symbols = std::max(symbols, scan.ac[0].symbols.size());
  }
  EXPECT_EQ(longest, 16u);
  EXPECT_GT(symbols, 200u);
}

/// Long scans pass through the decoder's window of the data in many steps.
TEST_F(EntropyDecoders, FindWhatWasWrittenInLongScans) {
  for (std::uint32_t i = 0; i < 12; ++i) {
    Draw draw = draws(1000 + i);
    WrittenScan scan = test::random_scan(draw);
    scan.mcus_per_row = 40;
    scan.mcu_rows = 30;
    scan.restart_interval = i % 3 == 0 ? 0 : i % 3 == 1 ? 7 : 700;
    scan.data.clear();
    scan.blocks.clear();
    scan.write(draw);
    const Layout layout(scan);
    const Exact data(scan.data, {0xff, kEndOfImage});
    ASSERT_TRUE(decode(*decoder_, layout.scan, data.span()) == scan.blocks) << i;
    ASSERT_EQ(decoder_->after_marker(), data.bytes.get() + data.size);
  }
}

TEST_F(EntropyDecoders, LeaveOutWhatIsNotNeeded) {
  for (std::uint32_t i = 0; i < 100; ++i) {
    Draw draw = draws(2000 + i);
    const WrittenScan scan = test::random_scan(draw);
    Layout layout(scan);
    for (auto& part : layout.components) part.need = static_cast<BlockNeed>(draw.integer(3));
    layout.scan.first_column = draw.integer(scan.mcus_per_row);
    layout.scan.last_column =
        layout.scan.first_column + draw.integer(scan.mcus_per_row - layout.scan.first_column);
    const Exact data(scan.data, {0xff, kEndOfImage});
    ASSERT_TRUE(decoder_->start(layout.scan, data.span()));
    const std::size_t per_mcu = scan.block_components.size();
    for (unsigned mcu = 0; mcu < scan.mcus_per_row * scan.mcu_rows; ++mcu) {
      std::array<CoefficientBlock, kMaxMcuBlocks> blocks{};
      CoefficientBlock* pointers[kMaxMcuBlocks];
      for (std::size_t b = 0; b < kMaxMcuBlocks; ++b) pointers[b] = &blocks[b];
      const bool discards = draw.chance(.3);
      ASSERT_TRUE(decoder_->decode(discards ? nullptr : pointers));
      const unsigned column = mcu % scan.mcus_per_row;
      const bool outside =
          discards || column < layout.scan.first_column || column > layout.scan.last_column;
      for (std::size_t b = 0; b < per_mcu; ++b) {
        const BlockNeed need = layout.components[scan.block_components[b]].need;
        const auto& written = scan.blocks[mcu * per_mcu + b];
        for (std::size_t k = 0; k < 64; ++k) {
          const bool stored =
              !outside && (need == BlockNeed::all || (need == BlockNeed::mean && k == 0));
          ASSERT_EQ(blocks[b][k], stored ? written[k] : 0) << i << ' ' << mcu << ' ' << b;
        }
      }
    }
    ASSERT_TRUE(decoder_->is_done());
  }
}

/// A file that ends early is never decoded to its end, with a marker there or without.
TEST_F(EntropyDecoders, StopWhereTheDataEnds) {
  for (std::uint32_t i = 0; i < 60; ++i) {
    Draw draw = draws(3000 + i);
    const WrittenScan scan = test::random_scan(draw);
    const Layout layout(scan);
    const std::size_t step = std::max<std::size_t>(1, scan.data.size() / 60);
    for (std::size_t size = 0; size < scan.data.size(); size += step) {
      const Bytes part = test::cut(scan.data, size);
      const Exact bare(part), marked(part, {0xff, kEndOfImage});
      for (const Exact* data : {&bare, &marked}) {
        const Blocks found = decode(*decoder_, layout.scan, data->span());
        ASSERT_NE(decoder_->end(), ScanEnd::none) << i << ": " << size;
        // Compares what was decoded before the end.
        ASSERT_LE(found.size(), scan.blocks.size());
        const std::size_t per_mcu = scan.block_components.size();
        const std::size_t whole = found.size() / per_mcu;
        ASSERT_TRUE(std::equal(found.begin(), found.end(), scan.blocks.begin())) << i;
        if (whole > 0) {
          ASSERT_LE(scan.ends[whole - 1], size + 1) << i;
        }
      }
    }
  }
}

TEST_F(EntropyDecoders, SurviveRandomBytes) {
  for (std::uint32_t i = 0; i < 3000; ++i) {
    Draw draw = draws(4000 + i);
    const WrittenScan scan = test::random_scan(draw);
    const Layout layout(scan);
    Bytes bad = scan.data;
    for (int changes = 1 + static_cast<int>(draw.integer(8)); changes > 0 && !bad.empty();
         --changes)
      bad[draw.integer(static_cast<std::uint32_t>(bad.size()))] =
          static_cast<std::uint8_t>(draw.bits());
    const Exact data(bad, {0xff, kEndOfImage});
    decode(*decoder_, layout.scan, data.span());
  }
}

/// A scan of one gray block whose table has one-bit codes: 0 for a mean of no change, and 0 for the
/// end of a block. Codes that begin with 1 are not there.
struct Tiny {
  Tiny(const Tiny&) = delete;
  Tiny& operator=(const Tiny&) = delete;

  HuffmanCodes dc{}, ac{};
  ScanLayout::Component component{&dc, &ac, BlockNeed::all};
  std::uint8_t block = 0;
  ScanLayout layout;

  Tiny() {
    dc.counts[1] = ac.counts[1] = 1;
    layout.components = {&component, 1};
    layout.block_components = {&block, 1};
    layout.mcus_per_row = layout.mcu_rows = 1;
  }
};

TEST_F(EntropyDecoders, StopAtBitsThatAreNoCode) {
  const Tiny tiny;
  const auto end_of = [&](const Bytes& data) {
    const Exact exact(data);
    decode(*decoder_, tiny.layout, exact.span());
    return decoder_->end();
  };
  EXPECT_EQ(end_of({0b00111111, 0xff, kEndOfImage}), ScanEnd::none);
  EXPECT_EQ(end_of({0b10111111, 0xff, kEndOfImage}), ScanEnd::code);
  EXPECT_EQ(end_of({0b01111111, 0xff, kEndOfImage}), ScanEnd::code);
  EXPECT_EQ(end_of({0xff, kEndOfImage}), ScanEnd::marker);
  EXPECT_EQ(end_of({}), ScanEnd::cut);
  EXPECT_EQ(end_of({0b00111111}), ScanEnd::cut);
  EXPECT_EQ(end_of({0b00111111, 0xff}), ScanEnd::cut);
  EXPECT_EQ(end_of({0b00111111, 0xff, 0xff}), ScanEnd::cut);
  EXPECT_EQ(end_of({0b00111111, 0xff, 0xff, 0, 0xff, kEndOfImage}), ScanEnd::cut);
  EXPECT_EQ(end_of({0b00111111, 0xff, 0xff, kEndOfImage}), ScanEnd::none);
  // Bytes behind the last block matter only if the image goes on.
  EXPECT_EQ(end_of({0b00111111, 5, 0xff, 0, 6, 0xff, kEndOfImage}), ScanEnd::none);
  EXPECT_EQ(end_of({0b00111111, 5, 0xff, 0xfe}), ScanEnd::trailing);
  EXPECT_EQ(end_of({0b00111111, 0xff, 0xfe}), ScanEnd::none);
}

TEST_F(EntropyDecoders, StopAtARunPastTheBlocksEnd) {
  Tiny tiny;
  tiny.ac = {};
  tiny.ac.counts[2] = 3;  // 00, 01, 10
  const std::uint8_t symbols[] = {0xf0, 0xf1, 0x00};
  std::copy(std::begin(symbols), std::end(symbols), tiny.ac.symbols);
  const auto end_of = [&](std::initializer_list<int> codes, int ones) {
    Bytes data;
    test::BitWriter bits(data);
    bits.put(0, 1);
    for (const int code : codes) {
      bits.put(static_cast<std::uint32_t>(code), 2);
      if (code == 1) bits.put(static_cast<std::uint32_t>(ones), 1);
    }
    bits.align();
    const Exact exact(data, {0xff, kEndOfImage});
    decode(*decoder_, tiny.layout, exact.span());
    return decoder_->end();
  };
  EXPECT_EQ(end_of({0, 0, 0, 2}, 1), ScanEnd::none);  // 1 + 48, end
  EXPECT_EQ(end_of({0, 0, 0, 0}, 1), ScanEnd::code);  // 65
  EXPECT_EQ(end_of({0, 0, 0, 1}, 1), ScanEnd::code);
  EXPECT_EQ(end_of({0, 0, 0, 1}, 0), ScanEnd::code);
  EXPECT_EQ(end_of({2}, 1), ScanEnd::none);
}

TEST_F(EntropyDecoders, ExpectEachRestartMarkerInItsPlace) {
  Tiny tiny;
  tiny.layout.mcus_per_row = 3;
  tiny.layout.restart_interval = 1;
  const auto end_of = [&](const Bytes& data) {
    const Exact exact(data);
    decode(*decoder_, tiny.layout, exact.span());
    return decoder_->end();
  };
  constexpr std::uint8_t kBlock = 0b00111111;
  const Bytes good{kBlock, 0xff, 0xd0, kBlock, 0xff, 0xd1, kBlock, 0xff, kEndOfImage};
  EXPECT_EQ(end_of(good), ScanEnd::none);
  Bytes bad = good;
  bad[2] = 0xd1;
  EXPECT_EQ(end_of(bad), ScanEnd::restart);
  bad[2] = kEndOfImage;
  EXPECT_EQ(end_of(bad), ScanEnd::restart);
  bad = good;
  bad.insert(bad.begin() + 1, 7);  // a byte before the marker
  EXPECT_EQ(end_of(bad), ScanEnd::restart);
  bad = good;
  bad.erase(bad.begin() + 1, bad.begin() + 4);  // one interval is missing
  EXPECT_EQ(end_of(bad), ScanEnd::restart);
  bad = good;
  bad.insert(bad.begin() + 1, 0xff);  // fill before a marker is allowed
  EXPECT_EQ(end_of(bad), ScanEnd::none);
}

TEST_F(EntropyDecoders, RefuseTablesThatAreNone) {
  const Exact data({0b00111111, 0xff, kEndOfImage});
  const auto end_of = [&](Tiny& tiny) {
    decode(*decoder_, tiny.layout, data.span());
    return decoder_->end();
  };
  Tiny tiny;
  tiny.ac.counts[1] = 2;  // all ones
  EXPECT_EQ(end_of(tiny), ScanEnd::layout);
  Tiny many;
  std::fill(std::begin(many.ac.counts), std::end(many.ac.counts), std::uint8_t{255});
  EXPECT_EQ(end_of(many), ScanEnd::layout);
  Tiny size;
  size.dc.symbols[0] = 16;
  EXPECT_EQ(end_of(size), ScanEnd::layout);
  Tiny none;
  none.ac.counts[1] = 0;  // no code at all is legal, and decodes nothing
  EXPECT_EQ(end_of(none), ScanEnd::code);
  Tiny part;
  part.block = 1;
  EXPECT_EQ(end_of(part), ScanEnd::layout);
  Tiny empty;
  empty.layout.mcus_per_row = 0;
  EXPECT_EQ(end_of(empty), ScanEnd::layout);
  Tiny good;  // and goes on working
  EXPECT_EQ(end_of(good), ScanEnd::none);
}

TEST(HuffmanTables, AcceptEveryRandomDefinitionOrRefuseIt) {
  const auto table = std::make_unique<HuffmanTable>();
  int accepted = 0;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    Draw draw = draws(10'000 + i);
    HuffmanCodes codes{};
    const std::uint32_t most = 1 + draw.integer(i % 2 == 0 ? 4 : 255);
    for (std::size_t n = 1; n <= 16; ++n)
      codes.counts[n] = static_cast<std::uint8_t>(draw.integer(most));
    for (std::uint8_t& symbol : codes.symbols) symbol = static_cast<std::uint8_t>(draw.bits());
    if (table->build(codes, HuffmanTable::Kind::ac)) ++accepted;
    const std::uint64_t bits = std::uint64_t{draw.bits()} << 32 | draw.bits();
    if (const HuffmanEntry entry = table->at(bits); (entry & kUnresolved) != 0) {
      EXPECT_LE(table->resolve(bits, entry) & 63, kMaxSymbolBits);
    }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace millrace::pipeline
