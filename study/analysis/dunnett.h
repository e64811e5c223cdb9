// Dunnett's many-to-one comparison: several rows against one reference, simultaneously.
#pragma once

#include <cstddef>

namespace millrace::study {

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

}  // namespace millrace::study
