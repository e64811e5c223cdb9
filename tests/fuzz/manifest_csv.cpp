// Fuzzes manifests in CSV.
#include "pipeline/readers/manifest_rows.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {

Corpus corpus() {
  return {{bytes_of("path,label,split\na.jpg,1,train\n\"b,c.jpg\",2,\nd.jpg,cat,test\n"),
           bytes_of("label,path\r\n0,\"a \"\"quoted\"\" name\"\r\n1,\"two\nlines\"\r\n"),
           bytes_of("\xef\xbb\xbfpath,label\na,1")},
          {"path", "label", "split", "\"", "\"\"", ",", "\r\n", "\n", "\"\n\"", "\xef\xbb\xbf"}};
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  fuzz::accepts(Exit::data, [&] {
    std::uint64_t line = 0;
    for (const pipeline::ManifestRow& row :
         pipeline::parse_csv("x", fuzz::text_of(data, size)).rows) {
      fuzz::require(row.line > line, "rows come line by line");
      line = row.line;
    }
  });
  return 0;
}
