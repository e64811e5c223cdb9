// Augmentations that apply others: random_apply, auto_augment, rand_augment and trivial_augment.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "augment/ops/auto_augment_policies.h"
#include "augment/ops/builtin.h"

namespace millrace::augment {

// random_apply: applies all of a list of augmentations with probability p, or none (torchvision's
// RandomApply).

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
  static constexpr const char* kPython = "RandomApply(ops)";
  static constexpr const char* kHelp = "apply all of `ops` with probability p, or none";
  static constexpr Parameter kParams[] = {
      number("p", "0.5", 0, 1, "probability that all are applied"),
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

const Augmentation kRandomApply = kAugmentation<RandomApply>;

// auto_augment (Cubuk et al., 2019), rand_augment (Cubuk et al., 2020) and trivial_augment (Mueller
// and Hutter, 2021): apply operations drawn for each sample, with the strengths of torchvision's
// AutoAugment, RandAugment and TrivialAugmentWide. Every operation, at every strength that can be
// drawn, is a child made in advance.

namespace {

constexpr const char* kNames[] = {"identity",     "shear_x",   "shear_y",    "translate_x",
                                  "translate_y",  "rotate",    "brightness", "saturation",
                                  "contrast",     "sharpness", "posterize",  "solarize",
                                  "autocontrast", "equalize",  "invert"};
constexpr bool has_strength(int op) { return op > kOpIdentity && op < kOpAutocontrast; }
constexpr bool is_signed(int op) { return op >= kOpShearX && op <= kOpSharpness; }
constexpr bool is_enhancement(int op) { return op >= kOpBrightness && op <= kOpSharpness; }

/// Amounts of the operations at strength 1.
struct Space {
  double shear;      ///< tangent of the angle
  double translate;  ///< pixels, or a fraction of the side
  bool translates_part;
  double rotate;   ///< degrees
  double enhance;  ///< factors from 1 - this to 1 + this
  double bits;     ///< number of bits dropped by posterize
};
constexpr Space kRandSpace{0.3, 150.0 / 331.0, true, 30, 0.9, 4};
constexpr Space kTrivialSpace{0.99, 32, false, 135, 0.99, 6};

/// Returns the amount of an operation at a strength; a negative strength gives the other sign.
double amount_of(int op, const Space& space, double strength) {
  switch (op) {
    case kOpShearX:
    case kOpShearY:
      return strength * space.shear;
    case kOpTranslateX:
    case kOpTranslateY:
      return strength * space.translate;
    case kOpRotate:
      return strength * space.rotate;
    case kOpBrightness:
    case kOpColor:
    case kOpContrast:
    case kOpSharpness:
      return 1 + strength * space.enhance;
    case kOpPosterize:
      return round_half_even(8 - strength * space.bits);
    case kOpSolarize:
      return 255 * (1 - strength);
    default:
      return 0;
  }
}

/// Returns the angle whose tangent is `x`, by bisection.
double atan_degrees(double x) {
  double low = -89, high = 89;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    const SinCos at = sincos_degrees(middle);
    (at.sin < x * at.cos ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// Returns the unit that performs the operation, written as in a recipe; `how` holds the parameters
/// that all warps share.
std::string unit_of(int op, const Space& space, double amount, const std::string& how) {
  const auto along = [](bool x, double value) {
    return x ? fmt::format("[{},0]", value) : fmt::format("[0,{}]", value);
  };
  switch (op) {
    case kOpShearX:
    case kOpShearY:
      return fmt::format("affine{{center=[0,0],shear={},{}}}",
                         along(op == kOpShearX, atan_degrees(amount)), how);
    case kOpTranslateX:
    case kOpTranslateY:
      if (space.translates_part)
        return fmt::format("affine{{translate_part={},{}}}", along(op == kOpTranslateX, amount),
                           how);
      // Truncates to whole pixels; a value within rounding of a whole number counts as that number.
      return fmt::format(
          "affine{{translate={},{}}}",
          along(op == kOpTranslateX, static_cast<int>(amount + (amount < 0 ? -1e-6 : 1e-6))), how);
    case kOpRotate:  // torchvision's rotate turns the opposite way of its affine
      return fmt::format("affine{{degrees={},{}}}", -amount, how);
    case kOpSharpness:
      return fmt::format("sharpness{{p=1,sharpness_factor={}}}", amount);
    case kOpPosterize:
      return fmt::format("posterize{{p=1,bits={}}}", amount);
    case kOpSolarize:
      return fmt::format("solarize{{p=1,threshold={}}}", amount);
    case kOpAutocontrast:
    case kOpEqualize:
    case kOpInvert:
      return fmt::format("{}{{p=1}}", kNames[op]);
    default:
      return fmt::format("{}{{factor={}}}", kNames[op], amount);
  }
}

/// An operation with a certain amount: the child that performs it, and the amount for reports.
struct Entry {
  std::uint32_t place;
  double amount;
};

/// Makes the children that perform operations. Equal ones share a child: posterize, for example, is
/// the same at many strengths.
class Maker {
 public:
  Maker(const Space& space, const Values& values, Children& children)
      : space_(space), children_(children) {
    const Numbers fill = values.numbers("fill");
    how_ = fmt::format("interpolation={},fill=[{}]", values.text("interpolation"),
                       fmt::join(fill.at, fill.at + fill.count, ","));
  }

  Entry make(int op, double amount) {
    if (op == kOpIdentity) return {0, amount};
    const auto [at, is_new] = places_.try_emplace(unit_of(op, space_, amount, how_), 0);
    if (is_new) at->second = children_.add(at->first);
    return {at->second, amount};
  }

 private:
  const Space& space_;
  Children& children_;
  std::string how_;
  std::map<std::string, std::uint32_t> places_;
};

/// The operations at several strengths, with either sign, as indices of a unit's children.
class Operations {
 public:
  Operations(const Space& space, const std::vector<double>& strengths, const Values& values,
             Children& children) {
    Maker maker(space, values, children);
    for (const double strength : strengths)
      for (int op = 0; op < kOpCount; ++op)
        for (const int sign : {1, -1})
          entries_.push_back(
              maker.make(op, amount_of(op, space, is_signed(op) ? sign * strength : strength)));
  }

  /// Draws an operation, its strength with bin(), and its sign if it has two.
  template <class Bin>
  void choose(Chosen& chosen, Call& call, const Bin& bin) const {
    const int op = static_cast<int>(call.integer(kOpCount));
    const int strength = has_strength(op) ? bin() : 0;
    const int sign = is_signed(op) && call.chance(0.5) ? 1 : 0;
    const Entry& entry = entries_[static_cast<std::size_t>((strength * kOpCount + op) * 2 + sign)];
    call.report(kNames[op], entry.amount);
    if (op != kOpIdentity) chosen.add(entry.place);
  }

 private:
  std::vector<Entry> entries_;  ///< [strength][op][sign]
};

/// Returns the strengths from 0 to 1 in `bins` steps.
std::vector<double> all_strengths(const Values& values) {
  const std::int64_t bins = values.integer("num_magnitude_bins");
  std::vector<double> strengths;
  for (std::int64_t bin = 0; bin < bins; ++bin)
    strengths.push_back(static_cast<double>(bin) / static_cast<double>(bins - 1));
  return strengths;
}

std::vector<double> one_strength(const Values& values) {
  const std::vector<double> all = all_strengths(values);
  const auto magnitude = static_cast<std::size_t>(values.integer("magnitude"));
  if (magnitude >= all.size())
    throw BadUse(
        "magnitude " + std::to_string(magnitude) + " of " + std::to_string(all.size()) + " bins",
        "magnitudes go from 0 to num_magnitude_bins - 1");
  return {all[magnitude]};
}

constexpr Parameter kInterpolation =
    choice("interpolation", "nearest", "nearest|bilinear", "interpolation method");

class AutoAugment {
 public:
  static constexpr const char* kName = "auto_augment";
  static constexpr const char* kPython = "AutoAugment";
  static constexpr const char* kHelp = "apply one of a learned policy's 25 pairs of operations";
  static constexpr Parameter kParams[] = {choice("policy", "imagenet", "imagenet|cifar10|svhn",
                                                 "data set that the policy was learned on"),
                                          kInterpolation, fill_param()};

  AutoAugment(const Values& values, Children& children) {
    Maker maker(kRandSpace, values, children);
    for (const SubPolicy& sub_policy : kAutoAugmentPolicies[values.integer("policy")])
      for (const Step& step : sub_policy)
        steps_.push_back({step.op, step.probability, maker.make(step.op, amount_at(step, 1)),
                          maker.make(step.op, amount_at(step, -1))});
  }

  void choose(Chosen& chosen, Call& call) const {
    const std::uint32_t pair = call.integer(kSubPolicies);
    call.report("sub_policy", pair);
    for (std::size_t i = 0; i < 2; ++i) {
      const Prepared& step = steps_[pair * 2 + i];
      if (!call.chance(step.probability)) continue;
      const Entry& entry = is_signed(step.op) && call.chance(0.5) ? step.negative : step.positive;
      call.report(kNames[step.op], entry.amount);
      chosen.add(entry.place);
    }
  }

 private:
  struct Prepared {
    int op;
    double probability;
    Entry positive, negative;
  };

  /// Returns the amount of a step. Factors are those of torchvision, which computes them in single
  /// precision, so that products which are whole levels truncate alike. Thresholds of solarize that
  /// are whole levels stay whole.
  static double amount_at(const Step& step, int sign) {
    constexpr int kMax = 9;  // magnitudes go from 0 to 9
    const int signed_by = is_signed(step.op) ? sign : 1;
    if (is_enhancement(step.op)) {
      const auto end = static_cast<float>(kRandSpace.enhance);
      const float part = end / float{kMax};
      const float strength = step.magnitude <= kMax / 2
                                 ? part * static_cast<float>(step.magnitude)
                                 : end - part * static_cast<float>(kMax - step.magnitude);
      return 1 + signed_by * static_cast<double>(strength);
    }
    if (step.op == kOpSolarize) return 255.0 * (kMax - step.magnitude) / kMax;
    return amount_of(step.op, kRandSpace, signed_by * step.magnitude / double{kMax});
  }

  std::vector<Prepared> steps_;  ///< two per sub-policy
};

class RandAugment {
 public:
  static constexpr const char* kName = "rand_augment";
  static constexpr const char* kPython = "RandAugment";
  static constexpr const char* kHelp = "apply num_ops of 14 operations, all at the same strength";
  static constexpr Parameter kParams[] = {
      integer("num_ops", "2", 0, MILLRACE_MOST_CHOSEN,
              "number of operations, applied one after the other"),
      integer("magnitude", "9", 0, 255, "strength, 0 to num_magnitude_bins - 1"),
      integer("num_magnitude_bins", "31", 2, 256, "number of strengths"), kInterpolation,
      fill_param()};

  RandAugment(const Values& values, Children& children)
      : count_(static_cast<int>(values.integer("num_ops"))),
        operations_(kRandSpace, one_strength(values), values, children) {}

  void choose(Chosen& chosen, Call& call) const {
    for (int i = 0; i < count_; ++i) operations_.choose(chosen, call, [] { return 0; });
  }

 private:
  int count_;
  Operations operations_;
};

class TrivialAugment {
 public:
  static constexpr const char* kName = "trivial_augment";
  static constexpr const char* kPython = "TrivialAugmentWide";
  static constexpr const char* kHelp = "apply one of 14 operations at a random strength";
  static constexpr Parameter kParams[] = {
      integer("num_magnitude_bins", "31", 2, 256, "number of strengths"), kInterpolation,
      fill_param()};

  TrivialAugment(const Values& values, Children& children)
      : bins_(static_cast<std::uint32_t>(values.integer("num_magnitude_bins"))),
        operations_(kTrivialSpace, all_strengths(values), values, children) {}

  void choose(Chosen& chosen, Call& call) const {
    operations_.choose(chosen, call, [&] { return static_cast<int>(call.integer(bins_)); });
  }

 private:
  std::uint32_t bins_;
  Operations operations_;
};

}  // namespace

const Augmentation kAutoAugment = kAugmentation<AutoAugment>;
const Augmentation kRandAugment = kAugmentation<RandAugment>;
const Augmentation kTrivialAugment = kAugmentation<TrivialAugment>;

}  // namespace millrace::augment
