"""Writes the Markdown of docs/results/peers.md from table.py's measurements."""
import os
import platform
import statistics
import subprocess
import sys
import textwrap
import time

from workloads import GOALS, OVERHEAD_GOALS, SCALING_GOALS, WORKS

INTRODUCTION = """# Comparison with other data loaders

This page compares millrace with other loaders on the same work, on the CPU and without a model. One command makes the
page. [bench/peers](../bench/peers/README.md) describes the method, what each peer does and where its work differs.

- All loaders run on one core and take turns: the peer, millrace, the peer, millrace, then in the opposite order.
- Images per CPU-second use the user and system time of the whole process tree: a long run minus a short one, so that
  start-up cancels out. Every turn is a new process. A peer's two runs share one process, because its imports alone vary
  by more than a measuring window; millrace's and the yardsticks' are two processes.
- Files are in the page cache. Results are compared before anything is timed.
- "Speed-up" is millrace's rate over the row's in the same turn: the median over the rounds, with the smallest and the
  largest value in brackets.
- Memory is the peak resident set of the largest process in the long run. It includes what a peer imports.
"""


class Machine:
    """Machine, date, and disturbances during the run."""

    def __init__(self, root):
        self.commit = subprocess.run(["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12"],
                                     capture_output=True, text=True).stdout.strip() or "unknown"
        self.stolen = _stolen()
        self.load = os.getloadavg()[0]

    def end(self, seconds):
        self.seconds = seconds
        self.stolen = _stolen() - self.stolen
        self.load = f"{self.load:.1f} and {os.getloadavg()[0]:.1f}"
        return self

    def lines(self, rounds, window, quick, command, origin, versions):
        os_name = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
        with open("/proc/meminfo") as file:
            memory = int(file.readline().split()[1]) / 2**20
        named = [f"{environment}: " + ", ".join(f"{name} {number}" for name, number in sorted(found.items()))
                 for environment, found in sorted(versions.items())]
        yield f"- Machine: {os.cpu_count()} x {_cpu()}, {memory:.0f} GiB, {os_name}, Linux {platform.release()}"
        yield (f"- {time.strftime('%Y-%m-%d', time.gmtime())}, millrace at {self.commit}, {rounds} rounds, "
               f"{window:g} CPU seconds per window" + (", a quick run with short windows" if quick else ""))
        yield f"- Data: {origin}"
        yield (f"- Load average at the start and at the end {self.load}; {self.stolen:.1f} s of CPU time stolen by the host in "
               f"{self.seconds:.0f} s")
        yield _wrapped("- Versions: " + "; ".join(named or ["no peers"]))
        yield _wrapped(f"- `{command}`")


def _wrapped(item):
    return textwrap.fill(item, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _stolen():
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def _cpu():
    fields = {}
    with open("/proc/cpuinfo") as file:
        for line in file:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    return (f"{fields.get('model name', platform.machine())} (family {fields.get('cpu family', '?')}, "
            f"model {fields.get('model', '?')})")


def number(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def middle(values, form=number):
    return f"**{form(statistics.median(values))}** [{form(min(values))} .. {form(max(values))}]"


def times(value):
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def speed_rows(entries):
    yield "| | images per CPU-second | speed-up | MB | remarks |\n| --- | --- | --- | --- | --- |"
    for entry in entries:
        if not entry.rates:
            yield f"| {entry.name} | failed | | | {entry.failure} |"
            continue
        ratio = middle(entry.ratios, times) + " times" if entry.ratios else ""
        yield (f"| {entry.name} | {middle(entry.rates)} | {ratio} | {entry.peak_rss / 1e6:.0f} | "
               f"{remarks(entry)} |")


def overhead_rows(entries):
    copy = [us for entry in entries if entry.kind == "yardstick" for us in entry.batch_us]
    bare = statistics.median(copy) if copy else 0.0
    yield (f"The copy itself takes {bare:.2f} µs per batch.\n\n| | µs of CPU per batch | beyond the copy | MB | remarks |\n"
           "| --- | --- | --- | --- | --- |")
    for entry in entries:
        if entry.kind == "yardstick" and entry.rates:
            continue
        if not entry.rates:
            yield f"| {entry.name} | failed | | | {entry.failure} |"
            continue
        yield (f"| {entry.name} | {middle(entry.batch_us)} | {number(statistics.median(entry.batch_us) - bare)} | "
               f"{entry.peak_rss / 1e6:.0f} | {remarks(entry)} |")


def remarks(entry):
    said = [*entry.remarks, f"then failed: {entry.failure}" if entry.failure else ""]
    return "; ".join(part for part in said if part)


def goal_rows(results, scaling):
    for goal in GOALS:
        if goal.work not in results:
            continue
        found = {entry.name: entry for entry in results[goal.work]}
        if goal.ours not in found or goal.of not in (None, *found):
            continue  # left out by --rows
        ours = found[goal.ours].rates
        if goal.of is None:
            yield goal.work, f"{goal.ours}, images per CPU-second", f"{goal.least:,}", ours, goal.least, number
        else:
            other = found[goal.of]
            # Those two take turns with each other; others run once per round.
            share = other.ratios if goal.ours == other.against else [o / y for o, y in zip(ours, other.rates)]
            yield goal.work, f"{goal.ours} / {goal.of}", f"{goal.least:g}", share, goal.least, times
    if scaling and not scaling["failure"]:
        gains = {name: [two / one for one, two in pairs] for name, pairs in scaling["runs"].items()}
        share = [o / d for o, d in zip(gains["millrace"], gains["decode"])]
        yield "w4", "gain of a second worker / gain of a second decode thread", str(SCALING_GOALS["share"]), share, \
            SCALING_GOALS["share"], times


def ceilings(results, scaling):
    """Goals that are upper limits."""
    if "w6" in results:
        copy = [us for entry in results["w6"] if entry.kind == "yardstick" for us in entry.batch_us]
        for entry in results["w6"]:
            if entry.name in OVERHEAD_GOALS and copy:
                beyond = [us - statistics.median(copy) for us in entry.batch_us]
                yield "w6", f"{entry.name}, µs of CPU per batch beyond the copy", OVERHEAD_GOALS[entry.name], beyond
    if scaling and not scaling["failure"]:
        yield "w4", "peak resident MB with two workers", SCALING_GOALS["memory"], [scaling["memory"] / 1e6]


def goals(results, scaling):
    rows = ["| | what | goal | measured | |", "| --- | --- | --- | --- | --- |"]
    for work, what, said, values, least, form in goal_rows(results, scaling):
        reached = "no result" if not values else "reached" if statistics.median(values) >= least else "missed"
        rows.append(f"| {work.upper()} | {what} | at least {said} | {middle(values, form) if values else ''} | {reached} |")
    for work, what, most, values in ceilings(results, scaling):
        reached = "no result" if not values else "reached" if statistics.median(values) <= most else "missed"
        rows.append(f"| {work.upper()} | {what} | at most {most} | {middle(values) if values else ''} | {reached} |")
    return rows if len(rows) > 2 else []


def scaling_rows(scaling):
    if scaling["failure"]:
        yield f"No result: {scaling['failure']}"
        return
    yield "| | one | two | gain |\n| --- | --- | --- | --- |"
    for name, title in (("decode", "plain decode threads"), ("millrace", "millrace's workers")):
        one, two = zip(*scaling["runs"][name])
        gain = [b / a for a, b in scaling["runs"][name]]
        yield f"| {title} | {middle(one)} | {middle(two)} | {middle(gain, times)} |"
    yield f"\nPeak resident memory of `bench` with two workers: {scaling['memory'] / 1e6:.0f} MB."


def command_line(arguments):
    """Returns the command line without the machine's own paths."""
    words, hide = ["python3 bench/peers/table.py"], {"--data": "DIR", "--source": "ARCHIVES", "--env": "ENVIRONMENTS",
                                                     "--build": "build", "--json": "FILE"}
    given = iter(sys.argv[1:])
    for word in given:
        option, equals, _ = word.partition("=")
        if option in hide:
            if not equals:
                next(given, None)
            word = f"{option} {hide[option]}"
        words.append(word)
    return " ".join(words)


def markdown(table, results, scaling, machine):
    with open(os.path.join(table.arguments.data, "origin.txt")) as file:
        origin = file.read().strip()
    parts = [INTRODUCTION, *machine.lines(table.rounds, table.window, table.arguments.quick,
                                          command_line(table.arguments), origin, table.versions)]
    for name, entries in results.items():
        parts += ["", f"## {WORKS[name].title}", "", *(overhead_rows if name == "w6" else speed_rows)(entries)]
    if scaling:
        parts += ["", "## W4 with two workers", "", "Images per second of wall time on both cores.", "", *scaling_rows(scaling)]
    if rows := goals(results, scaling):
        parts += ["", "## Goals", "", *rows]
    return "\n".join(parts) + "\n"


def plain(results, scaling):
    """Returns every measurement in machine-readable form."""
    kept = ("name", "kind", "against", "check", "remarks", "rates", "ratios", "batch_us", "peak_rss", "failure")
    return {"workloads": {name: [{key: getattr(entry, key) for key in kept} for entry in entries]
                          for name, entries in results.items()}, "scaling": scaling}
