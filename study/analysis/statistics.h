// Statistics of comparisons: intervals, verdicts, and Dunnett's comparison of many rows with
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "predict/interval.h"

namespace millrace::study {

// Dunnett's many-to-one comparison: several rows against one reference, simultaneously.

/// Returns c such that P(max over rows of |T_i| <= c) = `confidence`, where T_i = mean / standard
/// error of `blocks` differences between row i and a reference shared by all rows. All values are
/// independent and normal with one variance.
///
/// The method is Dunnett's (JASA 50, 1955), but with each row's own standard error in place of the
/// pooled one, which a row that varies more than others would mislead. One row gives Student's t;
/// many blocks give Dunnett's table for infinitely many degrees of freedom. Unequal variances cause
/// little error: at worst the rows are independent (Sidak's bound, JASA 62, 1967, which is also
/// returned for fewer than 5 blocks).
///
/// Requires `rows` >= 1 and `blocks` >= 2.
double dunnett_critical(std::size_t rows, std::size_t blocks, double confidence);

// Statistics of comparisons. They average logarithms of ratios within one block, and treat one
// process as one observation. Independent of processes, files and clocks.

/// Fewest repeats for a verdict; fewer give intervals only.
inline constexpr std::size_t kRepeatsForVerdict = 5;
/// Fewest repeats for bootstrap intervals.
inline constexpr std::size_t kRepeatsForBootstrap = 10;
/// Resamples of a bootstrap: enough that its quantiles vary by less than the last digit of a table.
inline constexpr int kResamples = 9999;

/// Returns the quantile `confidence` of |mean* - mean| / standard error* over resamples of `rows`.
/// For several rows, takes the largest of their statistics. All rows have the same number of
/// values, one per block, and whole blocks are drawn. Symmetric bootstrap-t: Hall, "The Bootstrap
/// and Edgeworth Expansion" (1992), 3.6; largest of several: Romano and Wolf, Econometrica 73
/// (2005). Deterministic.
double bootstrap_critical(std::span<const std::vector<double>> rows, double confidence,
                          int resamples = kResamples);

/// Returns the mean and its 95% interval as tables show it: by Student's t, and by bootstrap-t from
/// kRepeatsForBootstrap values on. `logarithmic`: all values are positive, and the mean is
/// geometric.
predict::Interval figure_interval(std::span<const double> values, bool logarithmic);

/// Returns the effect, in units of the values, that the test |mean| / standard error > `critical`
/// finds with a probability of 80%. `deviation` is the standard deviation of one of `count` values.
double smallest_detectable(double critical, double deviation, std::size_t count);

/// Higher and lower are the verdicts of figures that are neither times nor rates. Identical is one
/// without any noise: each block has the same figure twice, which tests nothing.
enum class Verdict { none, faster, slower, equivalent, inconclusive, higher, lower, identical };
/// Returns "faster" and so on; "-" for none.
std::string name_of(Verdict verdict);

/// One row compared with the reference, as ratios rather than logarithms, or as differences.
struct Comparison {
  predict::Interval ratio;  ///< with the simultaneous 95% interval; a difference if `difference`
  predict::Interval equivalence;  ///< with the row's own 90% interval
  bool difference = false;        ///< cell - reference in place of cell / reference
  double critical = 0;            ///< half width of the simultaneous interval, in standard errors
  double deviation = 0;           ///< standard deviation of ln(cell / reference) within one block
  std::size_t blocks = 0;
  Verdict verdict = Verdict::none;
};
/// Returns the smallest ratio above 1 that would have been found with a probability of 80%; NaN
/// without an interval.
double detectable_ratio(const Comparison& comparison);
/// Returns detectable_ratio() - 1, or of differences the smallest that would have been found.
double detectable_effect(const Comparison& comparison);

/// Confidence of simultaneous intervals.
inline constexpr double kConfidence = 0.95;
/// Confidence when a pilot chose the number of repeats and is part of them. Studies whose pilot
/// happens to look quiet end early, which costs up to 1.5 points of confidence (tests/study
/// simulates it).
inline constexpr double kConfidenceAfterPilot = 0.97;

struct CompareOptions {
  double margin = 0.03;        ///< ratios within 1/(1+margin) .. 1+margin are equivalent
  bool more_is_faster = true;  ///< the figure is a rate; false: a duration
  double confidence = kConfidence;
  int resamples = kResamples;
  bool differences = false;  ///< values are cell - reference, and `margin` is one of differences
  bool is_speed = true;      ///< verdicts are faster and slower; false: higher and lower
  /// Test samples of a block over its training samples, if blocks train on shared samples; 0: they
  /// are independent. The corrected resampled t-test (Nadeau and Bengio, "Inference for the
  /// generalization error", Machine Learning 52, 2003) adds as much to the mean's variance.
  double overlap = 0;
};

/// Compares rows of ln(cell / reference). Each has one value per block, and all have the same
/// number (or cell - reference, if `differences`). Confidence is simultaneous over the rows:
/// Dunnett's many-to-one comparison with each row's own variance (statistics.h), and its bootstrap
/// from kRepeatsForBootstrap blocks on. If two verdicts would hold, "equivalent" wins.
std::vector<Comparison> compare(std::span<const std::vector<double>> rows,
                                const CompareOptions& options);

/// Returns ln(cell / reference) per block; NaN if a figure is not positive. Never throws.
std::vector<double> log_ratios(std::span<const double> cell, std::span<const double> reference);

/// Number of repeats after which an effect of `margin` would be found with a probability of 80% in
/// the row that varies most, estimated from a pilot's `rows` of ln(cell / reference). A pilot of
/// five estimates a standard deviation poorly, so the plan uses its 80% upper limit (Browne,
/// Statistics in Medicine 14, 1995). At least kRepeatsForVerdict and at most `most`; `suffices` is
/// false if `most` is not enough. `differences` as in CompareOptions.
struct RepeatChoice {
  std::uint64_t repeats = 0;
  bool suffices = true;
  double detectable = 0;  ///< detectable ratio above 1, or difference, with that many repeats
};
RepeatChoice choose_repeats(std::span<const std::vector<double>> rows, double margin,
                            std::uint64_t most, bool differences = false);

}  // namespace millrace::study
