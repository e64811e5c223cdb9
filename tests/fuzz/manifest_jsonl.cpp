// Fuzzes manifests in JSON lines.
#include "pipeline/readers/manifest_rows.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {

Corpus corpus() {
  return {
      {bytes_of("{\"path\": \"a.jpg\", \"label\": 1}\n{\"path\": \"b\", \"label\": \"x\"}\n"),
       bytes_of(
           "\n{\"path\": \"\\u00e9\", \"label\": 1e3, \"split\": \"val\", \"more\": [{}, null]}"),
       bytes_of("{\"path\": \"a\", \"label\": -9223372036854775808}\r\n")},
      {"{\"path\": ", "\"label\": ", "\"split\": ", "null", "true", "1e999", "-0.0",
       "18446744073709551616", "\\ud800", "\\u0000", std::string(200, '['),
       std::string(100, '{') + "\"a\":", "}\n", ", "}};
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  fuzz::accepts(Exit::data, [&] {
    std::uint64_t line = 0;
    for (const pipeline::ManifestRow& row :
         pipeline::parse_jsonl("x", fuzz::text_of(data, size)).rows) {
      fuzz::require(row.line > line, "rows come line by line");
      line = row.line;
    }
  });
  return 0;
}
