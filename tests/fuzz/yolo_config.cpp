// Fuzzes YOLO's data.yaml.
#include "pipeline/readers/yolo_config.h"

#include "tests/fuzz/target.h"

namespace millrace::fuzz {

Corpus corpus() {
  return {{bytes_of("path: ../x # root\nnames:\n  0: cat\n  1: 'dog''s'\n\nnc: 2\n"),
           bytes_of("names: [a, \"b \\\"c\\\"\", d e]\r\nkpt_shape: [3, 2]\nflip_idx: [0, 2, 1]\n"),
           bytes_of("\"names\":\n- a\n- b # c\n---\nkpt_shape:\n  - 2\n  - 3\nflip_idx: [1, 0,\n]"),
           bytes_of("names: {1: b, 0: a,\n  # more\n  2: c}\n")},
          {"names",
           "kpt_shape",
           "flip_idx",
           ": ",
           ":",
           "\n",
           "\r\n",
           "  ",
           "\t",
           "- ",
           "[",
           "]",
           "{",
           "}",
           ", ",
           "'",
           "\"",
           "\\",
           "#",
           "---",
           "&a",
           "*a",
           "|",
           "0",
           "1",
           "2",
           "3",
           "1024",
           "99999999999999999999",
           "-1",
           "\xEF\xBB\xBF",
           "\xC3\xA9"}};
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  fuzz::accepts(Exit::data, [&] {
    const auto config = pipeline::parse_yolo_config("x", fuzz::text_of(data, size));
    for (const std::string& name : config.names) fuzz::require(!name.empty(), "classes have names");
    fuzz::require(config.names.size() <= size, "a name takes bytes");
    fuzz::require(config.points <= 1024, "the number of key points is bounded");
    for (const auto& [left, right] : config.flip_pairs)
      fuzz::require(left < right && right < config.points, "partners exist");
  });
  return 0;
}
