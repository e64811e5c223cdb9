"""Interval of a median by order statistics, for paired measurements."""
import math
import statistics


def median_interval(values, level=0.95):
    """Returns the median and the interval that holds the distribution's median with this probability."""
    values, count, below, tail = sorted(values), len(values), 0, 0.0
    while True:  # the largest number of values that may be left out on each side
        tail += math.comb(count, below) * 0.5**count
        if tail > (1 - level) / 2:
            break
        below += 1
    if below == 0:
        raise SystemExit(f"{count} pairs are too few for an interval; give at least 6")
    return statistics.median(values), values[below - 1], values[count - below]
