"""Compares training curves: a Markdown table on stdout and a plot, from our metrics.jsonl files and the output of
cifar10_torch.py. Combines runs with the same label: mean, lowest and highest.

    python3 bench/curves.py --svg curves.svg millrace=runs/s0 millrace=runs/s1 PyTorch=torch0.jsonl ...

A run is a run directory or a file of JSON lines. Needs only Python.
"""
import argparse
import html
import json
import os
import statistics

COLOURS = ["#1b6ca8", "#d1495b", "#3a7d44", "#8e5ea2", "#c98b1b"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360, 260, 52, 12, 30, 38  # sizes of a panel, in pixels


def read_run(path):
    path = os.path.join(path, "metrics.jsonl") if os.path.isdir(path) else path
    with open(path) as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    if not rows:
        raise SystemExit(f"{path}: no epoch in it")
    for row in rows:
        row["train_s"] = row["train_s"] if "train_s" in row else row["load_s"] + row["update_s"]
    return rows


def by_epoch(runs, key):
    """Returns [(epoch, mean, lowest, highest)] over the epochs that all runs of a label have."""
    values = {}
    for run in runs:
        for row in run:
            if row.get(key) is not None:
                values.setdefault(row["epoch"], []).append(row[key])
    return [(epoch, statistics.fmean(v), min(v), max(v)) for epoch, v in sorted(values.items()) if len(v) == len(runs)]


def table(groups):
    lines = ["| | runs | epochs | train loss | test loss | top-1 | s an epoch, training |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for label, runs in groups.items():
        cells = [label, str(len(runs))]
        last = {key: by_epoch(runs, key)[-1:] for key in ("train_loss", "test_loss", "top1")}
        cells.append(str(max((point[0][0] for point in last.values() if point), default="-")))
        for key, scale, form in ("train_loss", 1, "{:.4f}"), ("test_loss", 1, "{:.4f}"), ("top1", 100, "{:.2f}%"):
            if not last[key]:
                cells.append("-")
                continue
            _, mean, low, high = (scale * number for number in last[key][0])
            spread = f" ({form.format(low)} to {form.format(high)})" if len(runs) > 1 else ""
            cells.append(form.format(mean) + spread)
        cells.append(f"{statistics.median(row['train_s'] for run in runs for row in run):.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def panel(groups, key, title, scale, x0):
    """Draws one plot: for each label a line of means and a band from lowest to highest."""
    curves = {label: [(e, scale * m, scale * a, scale * b) for e, m, a, b in by_epoch(runs, key)]
              for label, runs in groups.items()}
    points = [point for curve in curves.values() for point in curve]
    if not points:
        return f'<text x="{x0 + LEFT}" y="{TOP}">{title}: not recorded</text>'
    last = max(max(point[0] for point in points), 2)
    low, high = min(point[2] for point in points), max(point[3] for point in points)
    high = high if high > low else low + 1

    def at(epoch, value):
        x = x0 + LEFT + (epoch - 1) / (last - 1) * (WIDTH - LEFT - RIGHT)
        y = TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return f"{x:.1f},{y:.1f}"

    out = [f'<text x="{x0 + LEFT}" y="{TOP - 12}" font-weight="bold">{title}</text>']
    for step in range(5):
        value = low + step / 4 * (high - low)
        x, y = at(1, value).split(",")
        out.append(f'<line x1="{x}" x2="{x0 + WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>'
                   f'<text x="{float(x) - 6}" y="{float(y) + 4}" text-anchor="end">{value:.3g}</text>')
    for epoch in sorted({1, (last + 1) // 2, last}):
        x = at(epoch, low).split(",")[0]
        out.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{epoch}</text>')
    for colour, curve in zip(COLOURS, curves.values()):
        band = [at(e, a) for e, _, a, _ in curve] + [at(e, b) for e, _, _, b in reversed(curve)]
        out.append(f'<polygon points="{" ".join(band)}" fill="{colour}" fill-opacity="0.15"/>')
        out.append(f'<polyline points="{" ".join(at(e, m) for e, m, _, _ in curve)}" fill="none" '
                   f'stroke="{colour}" stroke-width="2"/>')
    return "\n".join(out)


def plot(groups):
    panels = [("train_loss", "train loss", 1), ("test_loss", "test loss", 1), ("top1", "top-1, %", 100)]
    body = [panel(groups, key, title, scale, i * WIDTH) for i, (key, title, scale) in enumerate(panels)]
    for i, (label, colour) in enumerate(zip(groups, COLOURS)):
        x = LEFT + 170 * i
        body.append(f'<line x1="{x}" x2="{x + 24}" y1="{HEIGHT - 4}" y2="{HEIGHT - 4}" stroke="{colour}" '
                    f'stroke-width="2"/><text x="{x + 30}" y="{HEIGHT}">{html.escape(label)}</text>')
    size = f'{len(panels) * WIDTH} {HEIGHT + 10}'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="LABEL=RUN")
    parser.add_argument("--svg", help="file for the plot; epochs run along the x axis")
    args = parser.parse_args()
    groups = {}
    for run in args.runs:
        label, _, path = run.partition("=")
        if not path:
            parser.error(f"{run}: LABEL=RUN is needed")
        groups.setdefault(label, []).append(read_run(path))
    if len(groups) > len(COLOURS):
        parser.error(f"{len(groups)} labels: at most {len(COLOURS)} can be told apart")
    print(table(groups))
    if args.svg:
        with open(args.svg, "w") as file:
            file.write(plot(groups))


if __name__ == "__main__":
    main()
