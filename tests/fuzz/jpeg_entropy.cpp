// Fuzzes millrace's Huffman decoder alone: tables, sampling and data come from the input. What it
// decodes may depend on neither the memory that earlier scans have left in it nor on which
// coefficients are stored, and it stops within the data, which lies in memory of exactly its size.
#include <memory>

#include "pipeline/decoders/jpeg/entropy_decoder.h"
#include "tests/data/jpeg_writer.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {
namespace {

using pipeline::BlockNeed;
using pipeline::CoefficientBlock;
using pipeline::EntropyDecoder;
using pipeline::HuffmanCodes;
using pipeline::ScanEnd;
using pipeline::ScanLayout;

constexpr std::size_t kTables = 2;  ///< for DC, and as many for AC
constexpr std::uint32_t kMaxMcus = 2000;
constexpr std::size_t kLong = 20'000;  ///< bytes of data, more than the decoder reads at a time

/// A scan as an input describes it. Bytes that are missing are 0.
class Scan {
 public:
  explicit Scan(std::span<const std::uint8_t> input) : input_(input) {
    const std::size_t count = next() % 6U;  // 0 and 5 are not legal
    const std::array<std::uint8_t, 5> numbers{next(), next(), next(), next(), next()};
    layout_.mcus_per_row = numbers[0] % 64U;
    layout_.mcu_rows = numbers[1] % 64U;
    layout_.restart_interval = numbers[2];
    layout_.first_column = numbers[3];
    layout_.last_column = numbers[4];
    for (std::size_t c = 0; c < count; ++c) {
      const std::uint8_t sampling = next(), tables = next();
      for (unsigned block = 0; block < (1 + (sampling & 3U)) * (1 + (sampling >> 2 & 3U)); ++block)
        block_components_.push_back(static_cast<std::uint8_t>(c));
      components_.push_back(
          {&dc_[tables & 1U], &ac_[tables >> 1 & 1U], static_cast<BlockNeed>((tables >> 2) % 3U)});
    }
    for (HuffmanCodes* codes : {&dc_[0], &dc_[1], &ac_[0], &ac_[1]}) read(*codes);
    layout_.components = components_;
    layout_.block_components = block_components_;
    data_ = std::make_unique<std::uint8_t[]>(input_.size());
    std::copy(input_.begin(), input_.end(), data_.get());
  }
  Scan(const Scan&) = delete;
  Scan& operator=(const Scan&) = delete;

  const ScanLayout& layout() const { return layout_; }
  std::span<const std::uint8_t> data() const { return {data_.get(), input_.size()}; }

 private:
  std::uint8_t next() {
    if (input_.empty()) return 0;
    const std::uint8_t byte = input_.front();
    input_ = input_.subspan(1);
    return byte;
  }
  void read(HuffmanCodes& codes) {
    std::size_t total = 0;
    for (std::size_t n = 1; n <= 16; ++n) total += codes.counts[n] = next();
    for (std::size_t i = 0; i < std::min<std::size_t>(total, 256); ++i) codes.symbols[i] = next();
  }

  std::span<const std::uint8_t> input_;  ///< what is left of it
  std::array<HuffmanCodes, kTables> dc_{}, ac_{};
  std::vector<ScanLayout::Component> components_;
  std::vector<std::uint8_t> block_components_;
  std::unique_ptr<std::uint8_t[]> data_;
  ScanLayout layout_;
};

/// Returns an input that Scan reads as `written`.
Bytes input_of(const test::WrittenScan& written) {
  const auto byte = [](auto number) { return static_cast<std::uint8_t>(number); };
  Bytes input{byte(written.components.size()),
              byte(written.mcus_per_row),
              byte(written.mcu_rows),
              byte(written.restart_interval),
              0,
              255};
  for (const auto& part : written.components)
    input.insert(input.end(), {byte((part.across - 1) | (part.down - 1) << 2),
                               byte(part.dc | part.ac << 1 | unsigned(BlockNeed::all) << 2)});
  for (const auto* tables : {&written.dc, &written.ac})
    for (std::size_t i = 0; i < kTables; ++i) {
      const test::WrittenTable& table = (*tables)[std::min(i, tables->size() - 1)];
      input.insert(input.end(), table.codes.counts + 1, table.codes.counts + 17);
      input.insert(input.end(), table.symbols.begin(), table.symbols.end());
    }
  input.insert(input.end(), written.data.begin(), written.data.end());
  input.insert(input.end(), {0xff, 0xd9});
  return input;
}

struct Outcome {
  std::vector<std::int16_t> coefficients;
  std::uint32_t mcus = 0;
  ScanEnd end = ScanEnd::none;
  std::ptrdiff_t after_marker = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome decode(EntropyDecoder& decoder, const Scan& scan, bool stores) {
  Outcome outcome;
  const std::size_t per_mcu = scan.layout().block_components.size();
  if (decoder.start(scan.layout(), scan.data())) {
    const auto blocks = std::make_unique<CoefficientBlock[]>(per_mcu);
    std::array<CoefficientBlock*, pipeline::kMaxMcuBlocks> pointers{};
    for (std::size_t i = 0; i < per_mcu; ++i) pointers[i] = &blocks[i];
    const std::int16_t* const levels = blocks[0];
    do {
      std::fill_n(blocks[0], per_mcu * 64, std::int16_t{0});
      if (!decoder.decode(stores ? pointers.data() : nullptr)) break;
      if (stores)
        outcome.coefficients.insert(outcome.coefficients.end(), levels, levels + per_mcu * 64);
    } while (++outcome.mcus < kMaxMcus && !decoder.is_done());
  }
  outcome.end = decoder.end();
  if (outcome.end != ScanEnd::none || !decoder.is_done()) return outcome;
  const std::span<const std::uint8_t> data = scan.data();
  outcome.after_marker = decoder.after_marker() - data.data();
  require(outcome.after_marker >= 2 && outcome.after_marker <= std::ssize(data),
          "the scan ends within the data");
  require(decoder.after_marker()[-1] == decoder.marker() && decoder.after_marker()[-2] == 0xff,
          "the scan ends with its marker");
  return outcome;
}

}  // namespace

Corpus corpus() {
  Corpus corpus;
  std::array<unsigned, 17> lengths{};
  std::size_t longest = 0;
  for (std::uint32_t i = 0; i < 60; ++i) {
    Draw draw(base::stream({14, 0, i}, base::op_id("entropy")));
    test::WrittenScan scan = test::random_scan(draw);
    const bool is_long = i % 20 == 0;
    if (is_long) scan.mcus_per_row = 60;
    while (is_long && scan.data.size() < kLong && scan.mcu_rows < 60) {
      ++scan.mcu_rows;
      scan.data.clear();
      scan.write(draw);
    }
    longest = std::max(longest, scan.data.size());
    corpus.seeds.push_back(input_of(scan));
    for (const auto* tables : {&scan.dc, &scan.ac})
      for (const test::WrittenTable& table : *tables)
        for (std::size_t n = 1; n <= 16; ++n) lengths[n] += table.codes.counts[n];
  }
  require(std::find(lengths.begin() + 1, lengths.end(), 0U) == lengths.end(),
          "the seeds have codes of 1 to 16 bits");
  require(longest >= kLong, "a seed is longer than the decoder's window");
  Bytes padded = corpus.seeds[1];
  padded.insert(padded.end() - 2, kLong, 7);
  corpus.seeds.push_back(std::move(padded));
  for (int marker : {0x00, 0xd0, 0xd1, 0xd7, 0xd9, 0xff})
    corpus.tokens.push_back({'\xff', static_cast<char>(marker)});
  return corpus;
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace::fuzz;
  static EntropyDecoder used;  // with what earlier inputs have left in it
  const Scan scan({data, size});
  const auto fresh = std::make_unique<EntropyDecoder>();
  const Outcome expected = decode(*fresh, scan, true);
  require(decode(used, scan, true) == expected, "a used decoder decodes as a new one");
  Outcome parsed = decode(used, scan, false);
  parsed.coefficients = expected.coefficients;
  require(parsed == expected, "a scan that is not stored ends in the same place");
  return 0;
}
