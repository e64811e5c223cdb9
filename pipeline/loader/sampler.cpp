// Draws the samples of an epoch.
#include "pipeline/loader/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/number_text.h"
#include "base/rng.h"
#include "millrace/error.h"

namespace millrace::pipeline {
namespace {

using Kind = SamplerOptions::Kind;
using base::mix64;
using base::Permutation;

/// Returns the upper half of a * b: a number below `b` if `a` is uniform on 64 bits.
std::uint64_t scaled(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(static_cast<Wide>(a) * b >> 64);
}

/// Returns 64 random bits: the `which`-th draw at a position.
std::uint64_t bits_at(std::uint64_t key, std::uint64_t position, std::uint64_t which) {
  return mix64(mix64(key ^ mix64(position)) + which);
}

/// Returns the natural logarithm of a normal number on (0, 1], with the same bits on every machine,
/// which libm does not promise. The series is that of the inverse hyperbolic tangent.
double log_of(double x) {
  int exponent = 0;
  double part = std::frexp(x, &exponent);
  if (part < 0.70710678118654752) {
    part *= 2;
    --exponent;
  }
  const double z = (part - 1) / (part + 1);
  double sum = 0;
  for (int power = 23; power >= 1; power -= 2) sum = sum * z * z + 1.0 / power;
  return 2 * z * sum + exponent * 0.69314718055994531;
}

std::uint64_t positive(const std::vector<double>& weights) {
  return static_cast<std::uint64_t>(
      std::count_if(weights.begin(), weights.end(), [](double one) { return one > 0; }));
}

void check_weights(const SamplerOptions& sampler, std::uint64_t count, std::uint64_t samples) {
  const std::vector<double>& weights = *sampler.weights;
  if (weights.size() != count)
    throw UsageError(
        fmt::format("sampler.weights: {} weight{} for {} samples", weights.size(),
                    weights.size() == 1 ? "" : "s", count),
        "give one for each sample that data.fold, data.subset and data.fraction leave, in order");
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (!(weights[i] >= 0) || std::isinf(weights[i]))
      throw UsageError(fmt::format("sampler.weights: sample {} has weight {}", i, weights[i]),
                       "weights are 0 or more");
  const std::uint64_t drawable = positive(weights);
  if (drawable == 0 || std::isinf(std::accumulate(weights.begin(), weights.end(), 0.0)))
    throw UsageError(drawable == 0 ? "sampler.weights: all are 0" : "sampler.weights: too large",
                     "weights are relative: 1, 2, 0.5");
  if (!sampler.replacement && samples > drawable)
    throw UsageError(
        fmt::format("sampler.replacement=false: cannot draw {}, as only {} {} a weight above 0",
                    base::counted(samples, "sample"), drawable, drawable == 1 ? "has" : "have"),
        fmt::format("set sampler.samples to at most {}", drawable));
}

}  // namespace

void check_sampler(const LoaderOptions& options, std::uint64_t count) {
  const SamplerOptions& sampler = options.sampler;
  if (sampler.per_class < 1 || sampler.repeats < 1)
    throw UsageError("sampler.per_class and sampler.repeats count from 1");
  const std::uint64_t samples = epoch_samples(options, count);
  const auto at_most = [&](std::uint64_t most, const std::string& why) {
    if (samples > most)
      throw UsageError(fmt::format("sampler.samples={}: {}", samples, why),
                       fmt::format("set it to at most {}", most));
  };
  switch (sampler.kind) {
    case Kind::shuffle:
      return at_most(count, fmt::format("the data set has only {}, and each is drawn once", count));
    case Kind::repeat:
      return at_most(count * static_cast<std::uint64_t>(sampler.repeats),
                     fmt::format("the data set has only {}, and each is drawn {}", count,
                                 base::counted(sampler.repeats, "time")));
    case Kind::weighted:
      if (sampler.weights != nullptr) return check_weights(sampler, count, samples);
      if (!sampler.replacement)
        throw UsageError("sampler.replacement=false needs sampler.weights",
                         "classes are drawn with replacement");
      return;
    case Kind::balanced:
      if (options.batch % sampler.per_class != 0)
        throw UsageError(fmt::format("loader.batch={} is not a multiple of sampler.per_class={}",
                                     options.batch, sampler.per_class),
                         "choose loader.batch as a multiple of sampler.per_class");
      if (samples % static_cast<std::uint64_t>(options.batch) != 0)
        throw UsageError(fmt::format("sampler.samples={} is not a multiple of loader.batch={}",
                                     samples, options.batch),
                         "choose a multiple of loader.batch");
      return;
    case Kind::given:
      return;
  }
}

Sampler::Sampler(const LoaderOptions& options, const Reader& reader)
    : options_(options), count_(reader.info().count) {
  check_sampler(options, count_);
  const SamplerOptions& sampler = options.sampler;
  if (sampler.kind == Kind::balanced || (sampler.kind == Kind::weighted && !sampler.weights))
    sort_by_class(reader);
  if (sampler.kind == Kind::weighted && sampler.weights && sampler.replacement) make_columns();
  if (sampler.kind != Kind::balanced) return;
  const auto classes = starts_.size() - 1;
  const auto wanted = static_cast<std::size_t>(options.batch / sampler.per_class);
  if (wanted > classes)
    throw UsageError(
        fmt::format("a batch of {} with {} samples of a class has {} classes; {} has samples of {}",
                    options.batch, sampler.per_class, wanted, reader.info().path, classes),
        fmt::format("set loader.batch={}", classes * static_cast<std::size_t>(sampler.per_class)));
}

bool Sampler::repeats() const {
  const SamplerOptions& sampler = options_.sampler;
  return sampler.kind == Kind::repeat || sampler.kind == Kind::balanced ||
         sampler.kind == Kind::given || (sampler.kind == Kind::weighted && sampler.replacement);
}

void Sampler::sort_by_class(const Reader& reader) {
  std::vector<std::uint64_t> labels(count_);
  starts_.assign(reader.info().classes.size() + 1, 0);
  for (std::uint64_t i = 0; i < count_; ++i) {
    labels[i] = static_cast<std::uint64_t>(reader.label(i));
    ++starts_.at(labels[i] + 1);
  }
  std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
  members_.resize(count_);
  List next = starts_;
  for (std::uint64_t i = 0; i < count_; ++i) members_[next[labels[i]]++] = i;
  starts_.erase(std::unique(starts_.begin(), starts_.end()), starts_.end());  // classes without
}

/// Makes the table of Vose, "A linear algorithm for generating random numbers with a given
/// distribution" (1991).
void Sampler::make_columns() {
  const std::vector<double>& weights = *options_.sampler.weights;
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> shares(weights.size());
  List small, large;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    shares[i] = weights[i] / sum * static_cast<double>(weights.size());
    (shares[i] < 1 ? small : large).push_back(i);
  }
  const auto threshold = [](double share) {
    return share >= 1 ? std::numeric_limits<std::uint64_t>::max()
                      : static_cast<std::uint64_t>(share * 0x1p64);
  };
  columns_.resize(weights.size());
  std::uint64_t last = static_cast<std::uint64_t>(std::max_element(weights.begin(), weights.end()) -
                                                  weights.begin());
  while (!small.empty()) {
    const std::uint64_t one = small.back();
    small.pop_back();
    // Rounding may leave small ones at the end: a weight of 0 stays one.
    if (!large.empty()) last = large.back();
    columns_[one] = {threshold(shares[one]), last};
    if (large.empty()) continue;
    shares[last] -= 1 - shares[one];
    if (shares[last] >= 1) continue;
    large.pop_back();
    small.push_back(last);
  }
  for (const std::uint64_t one : large) columns_[one] = {threshold(1), one};
}

/// Returns the samples of an epoch without replacement: the sample that a race of exponential
/// clocks, with the weights as rates, brings in first is drawn first (Efraimidis and Spirakis,
/// "Weighted random sampling with a reservoir", 2006).
std::shared_ptr<const Sampler::List> Sampler::drawn(std::uint32_t epoch, std::uint64_t key) const {
  Drawn& drawn = drawn_[epoch % 2];
  const std::lock_guard lock(drawn.drawing);
  if (drawn.list != nullptr && drawn.epoch == epoch) return drawn.list;
  const std::vector<double>& weights = *options_.sampler.weights;
  std::vector<std::pair<double, std::uint64_t>> times;
  for (std::uint64_t i = 0; i < count_; ++i) {
    if (weights[i] == 0) continue;
    const double uniform = static_cast<double>((bits_at(key, i, 0) >> 11) + 1) * 0x1p-53;
    times.emplace_back(-log_of(uniform) / weights[i], i);
  }
  const auto samples = static_cast<std::ptrdiff_t>(epoch_samples(options_, count_));
  std::partial_sort(times.begin(), times.begin() + samples, times.end());
  auto order = std::make_shared<List>();
  for (std::ptrdiff_t i = 0; i < samples; ++i) order->push_back(times[std::size_t(i)].second);
  drawn.epoch = epoch;
  drawn.list = std::move(order);
  return drawn.list;
}

EpochOrder Sampler::order(std::uint32_t epoch) const { return EpochOrder(*this, epoch); }

bool Sampler::has_order(std::uint32_t epoch) const {
  const SamplerOptions& sampler = options_.sampler;
  return sampler.kind != Kind::given || sampler.order(epoch) != nullptr;
}

EpochOrder::EpochOrder(const Sampler& sampler, std::uint32_t epoch)
    : sampler_(sampler),
      shuffled_(sampler.count_, sampler.options_.shuffle, sampler.options_.seed, epoch) {
  const SamplerOptions& options = sampler.options_.sampler;
  if (options.kind == Kind::weighted && !options.replacement)
    drawn_ = sampler.drawn(epoch, shuffled_.key());
  if (options.kind == Kind::given) drawn_ = options.order(epoch);
}

std::uint64_t EpochOrder::operator()(std::uint64_t position) const {
  const SamplerOptions& options = sampler_.options_.sampler;
  switch (options.kind) {
    case Kind::weighted:
      return weighted(position);
    case Kind::balanced:
      return balanced(position);
    case Kind::given:
      return (*drawn_)[position];
    case Kind::repeat:
      return shuffled_(position / static_cast<std::uint64_t>(options.repeats));
    default:
      return shuffled_(position);
  }
}

std::uint64_t EpochOrder::another(Draw& draw) const {
  const std::uint64_t count = sampler_.count_;
  if (sampler_.options_.sampler.kind == Kind::shuffle)
    return draw.integer(static_cast<std::uint32_t>(count));
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  const std::uint64_t samples = std::min(epoch_samples(sampler_.options_, count), kMost);
  return (*this)(draw.integer(static_cast<std::uint32_t>(samples)));
}

std::uint64_t EpochOrder::weighted(std::uint64_t position) const {
  if (drawn_ != nullptr) return (*drawn_)[position];
  const std::uint64_t first = bits_at(shuffled_.key(), position, 0);
  const std::uint64_t second = bits_at(shuffled_.key(), position, 1);
  if (sampler_.columns_.empty()) {
    const std::uint64_t number = scaled(first, sampler_.starts_.size() - 1);
    const std::uint64_t begin = sampler_.starts_[number];
    return sampler_.members_[begin + scaled(second, sampler_.starts_[number + 1] - begin)];
  }
  const std::uint64_t at = scaled(first, sampler_.columns_.size());
  const Sampler::Column& column = sampler_.columns_[at];
  return second < column.threshold ? at : column.alias;
}

/// Deals the classes out in rounds, each in an order of its own, so that a batch has no class
/// twice. What a round cannot divide into whole batches waits for the next one.
std::uint64_t EpochOrder::balanced(std::uint64_t position) const {
  const auto batch = static_cast<std::uint64_t>(sampler_.options_.batch);
  const auto each = static_cast<std::uint64_t>(sampler_.options_.sampler.per_class);
  const std::uint64_t classes = sampler_.starts_.size() - 1;
  const std::uint64_t in_batch = batch / each;
  const std::uint64_t in_round = classes / in_batch;  // batches
  const std::uint64_t round = position / batch / in_round;
  const std::uint64_t turn = position / batch % in_round * in_batch + position % batch / each;
  const std::uint64_t number = Permutation(classes, mix64(shuffled_.key() + round))(turn);
  return of_class(number, round * each + position % each);
}

/// Returns the `place`-th sample that an epoch draws of a class. A batch draws `per_class` in turn
/// and has none twice, if the class has so many.
std::uint64_t EpochOrder::of_class(std::uint64_t number, std::uint64_t place) const {
  const auto each = static_cast<std::uint64_t>(sampler_.options_.sampler.per_class);
  const std::uint64_t begin = sampler_.starts_[number];
  const std::uint64_t count = sampler_.starts_[number + 1] - begin;
  const std::uint64_t length = count < each ? each : count / each * each;  // of a pass over it
  const std::uint64_t key = mix64(mix64(shuffled_.key() ^ mix64(number)) + place / length);
  return sampler_.members_[begin + Permutation(count, key)(place % length % count)];
}

}  // namespace millrace::pipeline
