// Arithmetic of comparisons: the logarithms of ratios of one block each are what is averaged, and
// one process is one observation. Free of processes, files and clocks.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace millrace::study {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Fewer repeats give intervals, but no verdict.
inline constexpr std::size_t kRepeatsForVerdict = 5;
/// From here on intervals come from a bootstrap.
inline constexpr std::size_t kRepeatsForBootstrap = 10;
/// Resamples of a bootstrap: its quantiles then vary by less than what a table shows.
inline constexpr int kResamples = 9999;

struct Interval {
  double mean = 0;
  double low = 0;  ///< NaN with `high` where one observation gives no interval
  double high = 0;
};

/// Arithmetic mean with Student's t interval that holds the true mean with probability
/// `confidence`; `values` are independent.
Interval t_interval(std::span<const double> values, double confidence);

/// Quantile `confidence` of |mean* - mean| / standard error* over resamples of `rows` (each as many
/// values, of the same blocks: whole blocks are drawn); of several rows, of the largest of theirs.
/// Symmetric bootstrap-t: Hall, "The Bootstrap and Edgeworth Expansion" (1992), 3.6; the largest of
/// several: Romano and Wolf, Econometrica 73 (2005). Same input, same result.
double bootstrap_critical(std::span<const std::vector<double>> rows, double confidence,
                          int resamples = kResamples);

/// mean +- critical standard errors.
Interval interval_at(std::span<const double> values, double critical);

/// A figure as a table shows it: the mean with its 95% interval; by t, from kRepeatsForBootstrap
/// values on by bootstrap-t. `logarithmic`: all values are positive and their geometric mean is
/// what counts.
Interval figure_interval(std::span<const double> values, bool logarithmic);

/// The effect, in units of the values, that |mean| / standard error > `critical` finds with a
/// probability of 80%; `deviation` is the standard deviation of one of `count` values.
double smallest_detectable(double critical, double deviation, std::size_t count);

enum class Verdict { none, faster, slower, equivalent, inconclusive };
/// "faster" ...; "-" for none.
std::string name_of(Verdict verdict);

/// One row against the reference. Ratios, not logarithms.
struct Comparison {
  Interval ratio;        ///< with the simultaneous 95% interval
  Interval equivalence;  ///< with the row's own 90% interval
  double critical = 0;   ///< half the simultaneous interval, in standard errors
  double deviation = 0;  ///< standard deviation of ln(cell / reference) of one block
  std::size_t blocks = 0;
  Verdict verdict = Verdict::none;
};
/// The smallest ratio above 1 that would have been found with a probability of 80%; NaN without an
/// interval.
double detectable_ratio(const Comparison& comparison);

/// Of simultaneous intervals.
inline constexpr double kConfidence = 0.95;
/// The same where a pilot chose the number of repeats and is part of them: studies end early that
/// happened to look quiet, which costs up to 1.5 points of confidence (tests/study simulates it).
inline constexpr double kConfidenceAfterPilot = 0.97;

struct CompareOptions {
  double margin = 0.03;        ///< ratios within 1/(1+margin) .. 1+margin are equivalent
  bool more_is_faster = true;  ///< of a rate; false: of a duration
  double confidence = kConfidence;
  int resamples = kResamples;
};

/// Rows of ln(cell / reference), a value a block, as many in each. Simultaneous over the rows:
/// Dunnett's many-to-one comparison, each row with its own variance (dunnett.h); from
/// kRepeatsForBootstrap blocks on its bootstrap. "equivalent" wins where two verdicts would hold.
std::vector<Comparison> compare(std::span<const std::vector<double>> rows,
                                const CompareOptions& options);

/// ln(cell / reference) a block; throws nothing: NaN where a figure is not positive.
std::vector<double> log_ratios(std::span<const double> cell, std::span<const double> reference);

/// Repeats after which an effect of `margin` would be found with a probability of 80% in the row
/// that varies most, judged by a pilot's `rows` of ln(cell / reference); a pilot of five says
/// little of a deviation, so its 80% upper limit is planned with (Browne, Statistics in Medicine
/// 14, 1995). At least kRepeatsForVerdict, at most `most`: `suffices` is false where that is not
/// enough.
struct RepeatChoice {
  std::uint64_t repeats = 0;
  bool suffices = true;
  double detectable = 0;  ///< with that many, as a ratio above 1
};
RepeatChoice choose_repeats(std::span<const std::vector<double>> rows, double margin,
                            std::uint64_t most);

}  // namespace millrace::study
