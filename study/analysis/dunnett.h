// Dunnett's problem: several rows compared with one reference, all at once.
#pragma once

#include <cstddef>

namespace millrace::study {

/// c with P(max over rows of |T_i| <= c) = `confidence`, where T_i = mean / standard error of
/// `blocks` differences between row i and a reference that all rows share, all figures independent
/// and normal with one variance: Dunnett, JASA 50 (1955), but with each row's own standard error in
/// place of the pooled one, which a row that varies more than others would mislead. For one row it
/// is Student's t; for many blocks Dunnett's table of infinitely many degrees of freedom. Where
/// variances differ it errs little: rows can at worst be independent (Sidak's bound, JASA
/// 62 (1967), which is what fewer than 5 blocks get). `rows` >= 1, `blocks` >= 2.
double dunnett_critical(std::size_t rows, std::size_t blocks, double confidence);

}  // namespace millrace::study
