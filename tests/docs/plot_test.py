#!/usr/bin/env python3
"""Tests docs/examples/plot.py on files of `millrace report --csv`: plot_test.py MILLRACE. Exits with 77 without matplotlib."""
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "docs/examples/plot.py"
try:
    import matplotlib  # noqa: F401
except ImportError:
    print("NO FIGURE WAS DRAWN: matplotlib is missing; install the package python3-matplotlib")
    sys.exit(77)


def plot(*arguments):
    subprocess.run([sys.executable, SCRIPT, *arguments], check=True)


def texts(csv):
    """The words of the SVG file of `csv`; its PNG file must exist too."""
    assert csv.with_suffix(".png").read_bytes().startswith(b"\x89PNG"), csv
    words = {"".join(node.itertext()).strip() for node in xml.etree.ElementTree.parse(csv.with_suffix(".svg")).iter()
             if node.tag.endswith("}text")}
    return words


def shapes(csv, colour):
    return csv.with_suffix(".svg").read_text().count(colour)


def check_written(folder):
    """Each form of a CSV file: series as columns with intervals and gaps, series as rows, names as x."""
    wide, rows, bars = folder / "wide.csv", folder / "rows.csv", folder / "bars.csv"
    wide.write_text("epoch,a,a low,a high,_b$1$\n1,2,1,3,5\n2,,,,6\n3,4,3,5,1e-05\n")
    rows.write_text("series,step,ms,low,high\na,1,2,1,3\na,2,3,2,4\nb,5,6,,\n")
    bars.write_text('change,images/s\n"loader.workers=2, ""x""",10\n</svg>,20\n')
    plot("--y", "loss", wide)
    plot(rows, bars)
    assert {"epoch", "loss", "a"} <= texts(wide), texts(wide)
    assert {"step", "ms", "a", "b"} <= texts(rows), texts(rows)
    assert {"change", "images/s", 'loader.workers=2, "x"', "</svg>"} <= texts(bars), texts(bars)
    first = wide.with_suffix(".svg").read_bytes()
    plot("--y", "loss", wide)
    assert wide.with_suffix(".svg").read_bytes() == first, "equal input gives equal files"
    assert shapes(bars, "#0072b2") >= 2, "two bars"
    plot("--stacked", wide)
    assert wide.with_suffix(".svg").read_bytes() != first, "areas"


def check_report(folder, program):
    """Every figure of a real report."""
    run = folder / "run"
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "cwd": folder}
    subprocess.run([program, "data", "make", "digits", "digits", "--train", "200", "--test", "20", "-q"], **quiet)
    subprocess.run([program, "train", "mnist-lenet", "data.path=digits", "train.device=simulated", "train.epochs=2",
                    "simulated.update_ms=1", "--run", run, "-q"], **quiet)
    subprocess.run([program, "report", run, "--csv", "-q"], **quiet)
    step, epoch, rate = (run / "report" / f"{name}.csv" for name in ("step-time", "epoch-time", "throughput"))
    plot("--stacked", "--y", "ms per step", step)
    plot("--stacked", "--y", "seconds", epoch)
    plot(rate)
    assert {"step", "ms per step", "load", "update"} <= texts(step), texts(step)
    assert {"epoch", "seconds", "load", "update"} <= texts(epoch), texts(epoch)
    assert {"epoch", "images/s"} <= texts(rate), texts(rate)


lines = SCRIPT.read_text().count("\n")
assert lines <= 60, f"{SCRIPT} has {lines} lines; it is an example that fits on a page"
with tempfile.TemporaryDirectory(prefix="millrace-plot-") as temporary:
    check_written(pathlib.Path(temporary))
    check_report(pathlib.Path(temporary), pathlib.Path(sys.argv[1]).resolve())
print("plot.py draws every form of CSV")
