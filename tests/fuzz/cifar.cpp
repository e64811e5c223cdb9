// Fuzzes CIFAR's records: accepted if and only if they are whole and their labels are below the
// number of classes.
#include "pipeline/readers/cifar.h"

#include "tests/fuzz/target.h"

namespace millrace::fuzz {
namespace {

constexpr pipeline::CifarLayout kLayouts[] = {{"CIFAR-10", 10, 1, ""}, {"CIFAR-100", 100, 2, ""}};

bool sound(const pipeline::CifarLayout& layout, const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size % layout.record() != 0) return false;
  for (std::size_t at = 0; at < size; at += layout.record())
    if (data[at + layout.label_bytes - 1] >= layout.classes) return false;
  return true;
}

}  // namespace

Corpus corpus() {
  Corpus corpus;
  for (const pipeline::CifarLayout& layout : kLayouts)
    for (const std::size_t records : {1, 3})
      corpus.seeds.emplace_back(records * layout.record(), std::uint8_t{3});
  return corpus;
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  for (const pipeline::CifarLayout& layout : fuzz::kLayouts)
    fuzz::require(fuzz::accepts(Exit::data,
                                [&] {
                                  pipeline::check_cifar("x", {data, size}, layout, layout.classes);
                                }) == fuzz::sound(layout, data, size),
                  std::string("sound files are accepted, others refused: ") + layout.name);
  return 0;
}
