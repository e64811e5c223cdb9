#include "pipeline/decoders/jpeg/entropy_hook.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

// The beginning of libjpeg's private structure of this name, since version 6 (1995). libjpeg-turbo
// keeps it in all 1.x, 2.x and 3.x versions. It is not relied upon before has_known_layout() and
// the check behind why_libjpeg() have succeeded.
struct jpeg_entropy_decoder {
  void (*start_pass)(j_decompress_ptr codec);
  ::boolean (*decode_mcu)(j_decompress_ptr codec, JBLOCKROW* blocks);
  ::boolean insufficient_data;
};

namespace millrace::pipeline {
namespace {

static_assert(std::is_same_v<JBLOCK, CoefficientBlock>);
static_assert(MAX_COMPS_IN_SCAN == kMaxScanComponents && D_MAX_BLOCKS_IN_MCU == kMaxMcuBlocks);

/// Components of gray and colour images.
constexpr int kMaxComponents = 3;

/// Stands in for libjpeg's function of this name.
::boolean decode_next_mcu(j_decompress_ptr codec, JBLOCKROW* blocks) {
  JpegContext& context = context_of(reinterpret_cast<j_common_ptr>(codec));
  EntropyDecoder& entropy = context.entropy;
  if (!entropy.decode(blocks)) std::longjmp(context.escape, JpegContext::irregular);
  if (entropy.is_done()) {
    // Continues where libjpeg would, which has read the marker when it has read all bits before.
    jpeg_source_mgr& source = *codec->src;
    const std::uint8_t* const end = source.next_input_byte + source.bytes_in_buffer;
    source.next_input_byte = entropy.after_marker();
    source.bytes_in_buffer = static_cast<std::size_t>(end - entropy.after_marker());
    codec->unread_marker = entropy.marker();
  }
  return TRUE;
}

/// Returns the base address of the library or program that holds a function; null if unknown.
template <class Function>
const void* module_of(Function* function) {
  Dl_info info{};
  return function != nullptr && dladdr(reinterpret_cast<const void*>(function), &info) != 0
             ? info.dli_fbase
             : nullptr;
}

HuffmanCodes codes_of(const JHUFF_TBL& table) {
  HuffmanCodes codes;
  static_assert(sizeof codes.counts == sizeof table.bits);
  static_assert(sizeof codes.symbols == sizeof table.huffval);
  std::memcpy(codes.counts, table.bits, sizeof codes.counts);
  std::memcpy(codes.symbols, table.huffval, sizeof codes.symbols);
  return codes;
}

BlockNeed need_of(const jpeg_component_info& part) {
#if JPEG_LIB_VERSION >= 70
  const int samples = std::max(part.DCT_h_scaled_size, part.DCT_v_scaled_size);
#else
  const int samples = part.DCT_scaled_size;
#endif
  if (part.component_needed == 0) return BlockNeed::nothing;
  return samples > 1 ? BlockNeed::all : BlockNeed::mean;
}

/// Begins the scan. Returns false if it is not plain.
bool start_entropy(JpegContext& context, McuColumns columns) {
  const jpeg_decompress_struct& codec = context.codec;
  HuffmanCodes dc[NUM_HUFF_TBLS], ac[NUM_HUFF_TBLS];
  ScanLayout::Component components[MAX_COMPS_IN_SCAN];
  std::uint8_t blocks[D_MAX_BLOCKS_IN_MCU];
  if (codec.comps_in_scan < 1 || codec.comps_in_scan > MAX_COMPS_IN_SCAN ||
      codec.blocks_in_MCU < 1 || codec.blocks_in_MCU > D_MAX_BLOCKS_IN_MCU)
    return false;
  for (int i = 0; i < codec.comps_in_scan; ++i) {
    const jpeg_component_info& part = *codec.cur_comp_info[i];
    const int d = part.dc_tbl_no, a = part.ac_tbl_no;
    if (d < 0 || d >= NUM_HUFF_TBLS || a < 0 || a >= NUM_HUFF_TBLS) return false;
    if (codec.dc_huff_tbl_ptrs[d] == nullptr || codec.ac_huff_tbl_ptrs[a] == nullptr) return false;
    dc[d] = codes_of(*codec.dc_huff_tbl_ptrs[d]);
    ac[a] = codes_of(*codec.ac_huff_tbl_ptrs[a]);
    components[i] = {&dc[d], &ac[a], need_of(part)};
  }
  for (int i = 0; i < codec.blocks_in_MCU; ++i)
    blocks[i] = static_cast<std::uint8_t>(codec.MCU_membership[i]);
  ScanLayout layout;
  layout.components = {components, static_cast<std::size_t>(codec.comps_in_scan)};
  layout.block_components = {blocks, static_cast<std::size_t>(codec.blocks_in_MCU)};
  layout.mcus_per_row = codec.MCUs_per_row;
  layout.mcu_rows = codec.MCU_rows_in_scan;
  layout.restart_interval = codec.restart_interval;
  layout.first_column = columns.first;
  layout.last_column = columns.last;
  return context.entropy.start(layout, {codec.src->next_input_byte, codec.src->bytes_in_buffer});
}

/// Returns whether libjpeg-turbo's Huffman decoder lies where this file expects it.
bool has_known_layout(const jpeg_decompress_struct& codec) {
  // Compares with a function that is certainly libjpeg's, and not a stub in the program.
  const void* const library = module_of(codec.err->format_message);
  return library != nullptr && codec.entropy != nullptr &&
         module_of(codec.entropy->start_pass) == library &&
         module_of(codec.entropy->decode_mcu) == library && codec.entropy->insufficient_data == 0;
}

/// Returns whether the codec is the one that the check has found to be sound.
bool is_known(const JpegContext& context) {
  static std::atomic<decltype(jpeg_entropy_decoder::decode_mcu)> known{nullptr};
  const jpeg_entropy_decoder& theirs = *context.codec.entropy;
  if (!context.is_check)
    return *why_libjpeg() == '\0' && theirs.decode_mcu == known.load(std::memory_order_relaxed);
  if (!has_known_layout(context.codec)) return false;
  known.store(theirs.decode_mcu, std::memory_order_relaxed);
  return true;
}

/// Returns who is to decode the image by its header.
JpegRoute route_of(JpegContext& context) {
  jpeg_decompress_struct& codec = context.codec;
  if (context.only_libjpeg) return JpegRoute::asked;
  if (codec.arith_code != 0) return JpegRoute::arithmetic;
  if (jpeg_has_multiple_scans(&codec) != 0) return JpegRoute::scans;
  if (codec.num_components > kMaxComponents) return JpegRoute::inks;
  return JpegRoute::own;
}

}  // namespace

bool spare_tables(JpegContext& context) {
  if (route_of(context) != JpegRoute::own) return false;
  if (!context.is_check && *why_libjpeg() != '\0') return false;
  // One code of eight bits: libjpeg looks eight bits up at once, and fills this one entry. It only
  // reads the table, from all threads.
  static JHUFF_TBL one_code{
      .bits = {0, 0, 0, 0, 0, 0, 0, 0, 1}, .huffval = {}, .sent_table = FALSE};
  JHUFF_TBL** spared = context.spared;
  for (auto& tables : {context.codec.dc_huff_tbl_ptrs, context.codec.ac_huff_tbl_ptrs})
    for (int i = 0; i < NUM_HUFF_TBLS; ++i, ++spared) {
      *spared = tables[i];
      if (tables[i] != nullptr) tables[i] = &one_code;
    }
  return true;
}

void restore_tables(JpegContext& context) {
  JHUFF_TBL** spared = context.spared;
  for (auto& tables : {context.codec.dc_huff_tbl_ptrs, context.codec.ac_huff_tbl_ptrs})
    for (int i = 0; i < NUM_HUFF_TBLS; ++i, ++spared)
      if (*spared != nullptr) tables[i] = *spared;
}

JpegRoute take_over(JpegContext& context, McuColumns columns) {
  jpeg_decompress_struct& codec = context.codec;
  if (const JpegRoute route = route_of(context); route != JpegRoute::own) return route;
  if (!is_known(context)) return JpegRoute::unavailable;
  if (codec.unread_marker != 0 || !start_entropy(context, columns)) return JpegRoute::irregular;
  codec.entropy->decode_mcu = decode_next_mcu;
  return JpegRoute::own;
}

}  // namespace millrace::pipeline
