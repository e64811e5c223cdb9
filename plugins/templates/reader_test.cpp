// Writes two records of 1x1 pixel to the current folder and reads them; then opens a missing file.
#include "reader.cpp"

#include <cstdio>
#include <millrace/testing.hpp>

int main() {
  std::ofstream("two_records.bin", std::ios::binary) << "\x03"
                                                     << "a"
                                                     << "\x07"
                                                     << "b";
  using Reader = millrace::testing::Unit<ExampleReader>;
  Reader reader("side=1", ".", "two_records");
  const millrace_bytes second = reader.borrow(1);
  if (reader->dataset().count != 2 || second.label != 7 || second.size != 1 ||
      second.data[0] != 'b') {
    std::puts("the second record is wrong");
    return 1;
  }
  try {
    Reader missing("side=1", "/nowhere");
  } catch (const millrace::BadData&) {
    return 0;
  }
  std::puts("a folder that is not there was opened");
  return 1;
}
