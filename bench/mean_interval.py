"""Student's interval of a mean, for paired measurements."""
import math
import statistics

from pymillrace._predict import t_quantile


def mean_interval(values, level=0.95):
    """Returns the mean and the interval that holds the distribution's mean with this probability."""
    count = len(values)
    if count < 10:
        raise SystemExit(f"{count} values are too few for an interval; at least 10 are needed")
    mean, half = statistics.fmean(values), t_quantile(count - 1, level) * statistics.stdev(values) / math.sqrt(count)
    return mean, mean - half, mean + half
