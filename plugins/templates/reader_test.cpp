// Writes two records of 1x1 pixel to the current folder and reads them; then opens a missing file.
#include "reader.cpp"

#include <cstdio>

namespace {

ExampleReader open(const char* path) {
  millrace_value values[2]{};
  values[0].integer = 1;   // side
  values[1].integer = 10;  // classes
  millrace_create create{};
  create.values = values;
  create.value_count = 2;
  create.path = path;
  create.split = "two_records";
  return ExampleReader(millrace::Values(create, ExampleReader::kParams));
}

}  // namespace

int main() {
  std::ofstream("two_records.bin", std::ios::binary) << "\x03"
                                                     << "a"
                                                     << "\x07"
                                                     << "b";
  const ExampleReader reader = open(".");
  millrace_call raw{};
  millrace::Call call(&raw);
  const millrace_bytes second = reader.borrow(1, call);
  if (reader.dataset().count != 2 || second.label != 7 || second.size != 1 ||
      second.data[0] != 'b') {
    std::puts("the second record is wrong");
    return 1;
  }
  try {
    open("/nowhere");
  } catch (const millrace::BadData&) {
    return 0;
  }
  std::puts("a folder that is not there was opened");
  return 1;
}
