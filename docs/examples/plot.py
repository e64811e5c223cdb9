#!/usr/bin/env python3
"""Draws figures of `millrace report --csv` for a paper: FILE.csv becomes FILE.svg and FILE.png, 86 mm wide."""
import argparse
import csv
import pathlib

import numpy
from matplotlib import pyplot

COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#a39800", "#8c8c8c"]  # Okabe and Ito


def read(path):
    """The labels of x and y, and each series' rows: x, y and, where they exist, the interval's low and high."""
    header, *lines = csv.reader(path.open(newline="", encoding="utf-8"))
    series, at = {}, 1
    if header[0] == "series":  # each line names its series
        for name, *row in lines:
            series.setdefault(name, []).append(row)
        return header[1], header[2], series
    while at < len(header):  # each column is a series; NAME low and NAME high follow NAME
        width = 3 if header[at + 1:at + 3] == [f"{header[at]} low", f"{header[at]} high"] else 1
        series[header[at]] = [[line[0], *line[at:at + width]] for line in lines]
        at += width
    return header[0], header[1] if len(series) == 1 else "", series


def draw(axes, series, bars, stacked):
    below = 0
    for place, (name, rows) in enumerate(series.items()):
        x = [row[0] for row in rows]
        y, *ends = numpy.array([[value or "nan" for value in row[1:]] for row in rows], float).T
        style = {"label": name, "color": COLOURS[place % len(COLOURS)],
                 "yerr": numpy.maximum(0, [y - ends[0], ends[1] - y]) if ends else None, "capsize": 2}
        if bars:
            n = 1 if stacked else len(series)
            axes.bar(numpy.arange(len(x)) + 0.8 * (place % n + 0.5) / n - 0.4, y, 0.8 / n, below, **style)
            axes.set_xticks(range(len(x)), x, rotation=30 if max(map(len, x)) > 6 else 0)
        elif stacked:
            axes.fill_between([*map(float, x)], below, below + y, label=name, color=style["color"])
        else:
            axes.errorbar([*map(float, x)], y, marker="." if len(x) <= 60 else None, **style)
        below = below + y if stacked else 0


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--stacked", action="store_true", help="the series add up")
parser.add_argument("--y", help="the label of the y axis, with its unit")
parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE.csv")
options = parser.parse_args()
pyplot.rcParams.update({"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "plot", "text.parse_math": False})
for path in options.files:
    x_label, y_label, series = read(path)
    bars = not all(row[0].replace(".", "").replace("e-", "").isdigit() for rows in series.values() for row in rows)
    figure, axes = pyplot.subplots(figsize=(86 / 25.4, 60 / 25.4), layout="constrained")
    draw(axes, series, bars, options.stacked)
    axes.set(xlabel=x_label, ylabel=options.y or y_label)
    axes.legend(frameon=False) if len(series) > 1 else None
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=300)
