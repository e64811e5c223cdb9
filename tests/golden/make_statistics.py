"""Writes statistics.json: results of scipy, statsmodels and plain simulation for small studies.

Run it with scipy 1.17 and statsmodels 0.15; the tests only read its result.

    python tests/golden/make_statistics.py
"""
import json
import pathlib

import numpy as np
from scipy import stats
from statsmodels.stats.power import TTestPower

random = np.random.default_rng(20261121)


def t_cases():
    cases = []
    for n in (2, 3, 5, 8, 20):
        values = random.normal(0.02, 0.05, n)
        for confidence in (0.90, 0.95):
            low, high = stats.t.interval(confidence, n - 1, values.mean(), stats.sem(values))
            cases.append(dict(values=values.tolist(), confidence=confidence, mean=values.mean(),
                              low=low, high=high))
    return cases


def dunnett_cases():
    """Quantiles of the largest |t| of rows with their own variances, by simulation."""
    cases = []
    studies, batch = 4_000_000, 100_000
    for blocks, rows in ((5, 2), (5, 3), (5, 8), (7, 4), (9, 2), (9, 15)):
        largest = []
        for _ in range(studies // batch):
            reference = random.standard_normal((batch, blocks), dtype=np.float32)
            most = np.zeros(batch)
            for _ in range(rows):
                y = random.standard_normal((batch, blocks), dtype=np.float32) - reference
                t = np.abs(y.mean(1)) / (y.std(1, ddof=1) / np.sqrt(blocks))
                np.maximum(most, t, out=most)
            largest.append(most)
        largest = np.sort(np.concatenate(largest))
        count = len(largest)
        half = 4 * np.sqrt(0.05 * 0.95 * count)  # four standard errors of the rank
        cases.append(dict(blocks=blocks, rows=rows,
                          low=largest[int(0.95 * count - half)],
                          high=largest[int(0.95 * count + half)]))
    return cases


def pooled_cases():
    """Dunnett's quantiles for infinitely many degrees of freedom: multivariate normal with correlation 1/2."""
    cases = []
    for rows in (1, 2, 3, 5, 8):
        w, weight = np.polynomial.hermite_e.hermegauss(80)
        weight = weight / weight.sum()

        def inside(c):
            root = np.sqrt(2)
            return float((weight * (stats.norm.cdf(w + c * root) - stats.norm.cdf(w - c * root))
                          ** rows).sum())
        low, high = 1.0, 5.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if inside(middle) < 0.95 else (low, middle)
        cases.append(dict(rows=rows, critical=low))
    return cases


def bootstrap_cases():
    """Symmetric bootstrap-t of the largest |t| over rows; draws whole blocks."""
    cases = []
    for n, rows, kind in ((10, 1, "normal"), (12, 3, "normal"), (20, 2, "skewed")):
        y = random.normal(0, 0.03, (rows, n)) if kind == "normal" else \
            random.exponential(0.05, (rows, n))
        draws = random.integers(0, n, (400_000, n))
        most = np.zeros(len(draws))
        for row in y:
            sample = row[draws] - row.mean()
            t = np.abs(sample.mean(1)) / (sample.std(1, ddof=1) / np.sqrt(n))
            most = np.maximum(most, t)
        # Range of the result with 9999 resamples: four standard errors of the rank.
        half = 4 * np.sqrt(0.95 * 0.05 / 9999)
        cases.append(dict(rows=y.tolist(), low=np.quantile(most, 0.95 - half),
                          high=np.quantile(most, 0.95 + half)))
    return cases


def power_cases():
    """Effects that a two-sided t test of 5% finds four times out of five."""
    return [dict(count=n, deviation=0.04, critical=stats.t.ppf(0.975, n - 1),
                 effect=0.04 * float(TTestPower().solve_power(nobs=n, alpha=0.05, power=0.8)))
            for n in (5, 9, 30)]


if __name__ == "__main__":
    result = dict(t=t_cases(), dunnett=dunnett_cases(), pooled=pooled_cases(),
                  bootstrap=bootstrap_cases(), power=power_cases())
    path = pathlib.Path(__file__).with_name("statistics.json")
    path.write_text(json.dumps(result, indent=1) + "\n")
