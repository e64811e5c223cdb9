// random_apply: applies all of a list of augmentations with probability p, or none (torchvision's
// RandomApply).
#include <string>
#include <string_view>
#include <vector>

#include "augment/ops/builtin.h"

namespace millrace::augment {
namespace {

/// Splits "a{x=[1,2]};b" at semicolons outside braces and brackets, and trims blanks.
std::vector<std::string> split_ops(std::string_view text) {
  std::vector<std::string> ops;
  std::string op;
  int depth = 0;
  const auto finish = [&] {
    const auto first = op.find_first_not_of(' ');
    if (first != std::string::npos)
      ops.push_back(op.substr(first, op.find_last_not_of(' ') - first + 1));
    op.clear();
  };
  for (const char c : text) {
    depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    if (c == ';' && depth == 0)
      finish();
    else
      op += c;
  }
  finish();
  return ops;
}

class RandomApply {
 public:
  static constexpr const char* kName = "random_apply";
  static constexpr const char* kHelp = "apply all of `ops` with probability p, or none";
  static constexpr Parameter kParams[] = {
      number("p", "0.5", 0, 1, "probability that they are applied"),
      text("ops", "", "augmentations in order: gaussian_blur{sigma=[0.1,2]};hflip")};

  RandomApply(const Values& values, Children& children) : p_(values.number("p")) {
    for (const std::string& op : split_ops(values.text("ops")))
      children_.push_back(children.add(op));
    if (children_.size() > MILLRACE_MOST_CHOSEN)
      throw BadUse("more than " + std::to_string(MILLRACE_MOST_CHOSEN) + " ops",
                   "put some of them into a random_apply of their own");
  }

  void choose(Chosen& chosen, Call& call) const {
    const bool applied = call.chance(p_);
    call.report("applied", applied);
    if (!applied) return;
    for (const std::uint32_t child : children_) chosen.add(child);
  }

 private:
  double p_;
  std::vector<std::uint32_t> children_;
};

}  // namespace

const millrace_unit kRandomApply = kUnit<RandomApply>;

}  // namespace millrace::augment
