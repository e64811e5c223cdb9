// example_choice: applies one of two augmentations to each sample.
#include <millrace/millrace.hpp>

namespace {

struct ExampleChoice {
  static constexpr const char* kName = "example_choice";
  static constexpr const char* kHelp = "flip or rotate, one of the two";
  static constexpr millrace::Parameter kParams[] = {
      millrace::number("p", "0.5", 0, 1, "probability of the flip")};

  ExampleChoice(const millrace::Values& values, millrace::Children& children)
      : p(values.number("p")),
        flip(children.add("hflip{p=1}")),
        rotate(children.add("random_affine{degrees=30}")) {}

  void choose(millrace::Chosen& chosen, millrace::Call& call) const {
    chosen.add(call.chance(p) ? flip : rotate);
  }

  double p;
  std::uint32_t flip, rotate;
};

}  // namespace

MILLRACE_PLUGIN("example_choice", "0.1", "MIT", ExampleChoice);
