"""Student's interval of a mean, for paired measurements."""
import math
import statistics


def mean_interval(values, level=0.95):
    """Returns the mean and the interval that holds the distribution's mean with this probability."""
    count = len(values)
    if count < 10:
        raise SystemExit(f"{count} values are too few for an interval; at least 10 are needed")
    # Student's quantile from the normal one: the first terms of its Cornish-Fisher expansion, exact to 0.5% here.
    z, n = statistics.NormalDist().inv_cdf((1 + level) / 2), count - 1
    student = z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n * n)
    mean, half = statistics.fmean(values), student * statistics.stdev(values) / math.sqrt(count)
    return mean, mean - half, mean + half
