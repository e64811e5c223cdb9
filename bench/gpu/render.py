"""Tables of docs/results/DATE-gpu.md from the results of bench/gpu/run."""
import json
import re
import statistics

import plan

LOSS_TOLERANCE = 1e-4  # relative, of the first steps against the CPU's, with TF32 off


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def number(value, scale=1.0, digits=3):
    return "-" if value is None else f"{scale * value:,.{digits}f}"


DRIVER_ONLY = {"gpu_utilization"}  # keys that a summary has only where a driver measures them
# Keys that have a figure only where a device does; a sample recorded without one may lack it.
DEVICE_ONLY = DRIVER_ONLY | {"device_gap_load_s", "device_parts", "device_submissions", "device_starved"}


class Source:
    """Results by name of the run. What is missing becomes a dash and is counted, and so are the keys asked for."""

    def __init__(self, results):
        self.runs = results["runs"]
        self.missing = []
        self.asked = set()  # (document, key) pairs

    def of(self, name, key, where="summary"):
        self.asked.add((where, key.split(".")[0]))
        value = self.runs.get(name, {}).get(where, {})
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        self.count(name, key, value)
        return value

    def losses(self, name):
        losses = self.runs.get(name, {}).get("losses")
        self.count(name, "losses", losses)
        return losses or []

    def peer_epoch(self, name):
        """Returns the seconds of the second epoch that torch_lenet.py has printed."""
        lines = [json.loads(line) for line in self.runs.get(name, {}).get("text", "").splitlines() if line[:1] == "{"]
        seconds = next((line["s"] for line in lines if line.get("epoch") == 2), None)
        self.count(name, "its second epoch", seconds)
        return seconds

    def count(self, name, key, value):
        """Notes a figure that is not there although its run was not skipped."""
        if value is None and key.split(".")[0] not in DEVICE_ONLY and "skipped" not in self.runs.get(name, {}):
            self.missing.append(f"{name}: {key}")


SKIPPED = re.compile(r"^\[  SKIPPED \] (\d+) tests?", re.MULTILINE)  # GoogleTest's closing line


def ended(run):
    if run is None:
        return "not run"
    if "skipped" in run:
        return "skipped: " + run["skipped"]
    if run.get("ended"):
        return run["ended"]
    if run["exit"] != 0:
        return f"failed (exit {run['exit']})"
    skipped = SKIPPED.search(run.get("text", ""))
    return f"SKIPPED by itself: {skipped[1]} tests" if skipped else "passed"


def worst_loss(source, name, reference):
    """Returns the largest relative difference of the losses that both have; None without any."""
    pairs = list(zip(source.losses(name), source.losses(reference)))
    return max((abs(a - b) / abs(b) for a, b in pairs), default=None)


def runs_table(source, stages):
    rows = []
    for stage in stages:
        for run in stage.runs:
            result = source.runs.get(run.name)
            rows.append([stage.name, run.name, ended(result), number((result or {}).get("s"), digits=1)])
    return "## Runs\n\n" + table(["stage", "run", "end", "s"], rows)


def losses_table(source):
    rows = []
    for normalize in ("loader", "device"):
        for clock in ("sync", "async", "graphs", "step"):
            name = f"mode-{clock}-{normalize}"
            worst = worst_loss(source, name, "mode-cpu")
            rows.append([clock, normalize, "-" if worst is None else f"{worst:.1e}",
                         "-" if worst is None else "yes" if worst <= LOSS_TOLERANCE else "NO",
                         number(source.of(name, "top1"), 100, 2)])
    return ("## First 20 losses beside the CPU's\n\nTF32 is off and algorithms are deterministic. The limit is "
            f"{LOSS_TOLERANCE:.0e}, relative.\n\n" +
            table(["clock", "normalisation", "largest difference", "within it", "top-1 after 2 epochs, %"], rows))


def repeat_table(source):
    whole, killed = (source.of(name, "parameters_hash") for name in ("whole", "killed"))
    same = "-" if None in (whole, killed) else "yes" if whole == killed else "NO"
    interrupted = source.runs.get("killed", {}).get("killed")
    rows = [["kill -9 and resume: same bits as a whole run", same if interrupted else "- (it was not killed)"]]
    for amp in ("bf16", "f16"):
        rows.append([f"top-1 with {amp}, %", number(source.of("amp-" + amp, "top1"), 100, 2)])
    rows.append(["top-1 with ddp over NCCL, one rank, %", number(source.of("ddp", "top1"), 100, 2)])
    rows.append(["the same, each step one graph, %", number(source.of("ddp-step", "top1"), 100, 2)])
    return "## Resumption, precision, NCCL\n\n" + table(["check", "result"], rows)


def gap_per_step(source, name):
    """Returns the seconds per step in which the device waited for a batch."""
    gap, submissions = source.of(name, "device_gap_load_s"), source.of(name, "device_submissions")
    return gap / submissions if gap is not None and submissions else None


def step_rows(source, names):
    for label, name in names:
        parts = [source.of(name, "device_parts." + part) for part in ("forward_s", "backward_s", "graph_s", "step_s")]
        steps = [source.of(name, "device_parts.steps") or 0, source.of(name, "device_parts.graph_steps") or 0]
        each = [1e3 * part / max(1, count) if part is not None else None
                for part, count in zip(parts, (steps[0], steps[0], steps[1], sum(steps)))]
        submissions = source.of(name, "device_submissions")
        starved = source.of(name, "device_starved")
        yield [label, number(source.of(name, "update_s_per_step_median"), 1e3), number(
            source.of(name, "update_s_per_step"), 1e3), number(source.of(name, "load_s_per_step"), 1e3),
            number(gap_per_step(source, name), 1e3),
            number(source.of(name, "setup_update_s"), 1, 2), *(
                number(value) if value is not None else "not measured" for value in each),
            f"{100 * starved / submissions:.0f}" if submissions else "-",
            number(source.of(name, "peak_device_bytes"), 1e-6, 0),
            number(source.of(name, "gpu_utilization"), 100, 0), str(source.of(name, "bound") or "-")]


STEP_HEADER = ["run", "update, median", "mean", "load", "device waits for load", "set-up, s", "device: forward", "backward", "graph", "step",
               "starved, %", "peak MB", "GPU busy, %", "bound"]


def steps_table(source):
    names = [(f"LeNet {clock}, {workers} workers", f"s4-{clock}-{workers}")
             for workers in (0, 1, 2, 4) for clock in ("eager", "async", "graphs", "step")]
    names += [(f"{recipe}, amp {amp}", f"{recipe}-{amp}") for recipe in ("cifar10-resnet50", "cifar10-vgg19")
              for amp in ("off", "bf16")]
    names.append(("cifar10-resnet50, bf16, hwc, step, 8 workers", "resnet-0"))
    return ("## Steps\n\nMilliseconds per step where nothing else is said. Device times are between events, so they "
            "contain waits for the host's launches.\n\n" + table(STEP_HEADER, step_rows(source, names)))


def costs_table(source):
    rows = []
    for name, recipe, key, one, other, pairs in plan.COSTS:
        both = [[source.of(f"{name}-{value}-{pair}", "update_s_per_step_median") for pair in range(1, pairs + 1)]
                for value in (one, other)]
        ratios = [a / b - 1 for a, b in zip(*both) if a and b]
        rows.append([f"{recipe}: {key}={one}", other, str(len(ratios)),
                     number(statistics.median(ratios) if ratios else None, 100, 2)])
    return ("## What keys cost\n\nDifference of the median update. `train.device_parts` is to stay within 1%.\n\n" +
            table(["key", "beside", "pairs", "median difference, %"], rows))


def resnet_ratios(source, kind, runs):
    """Returns load over update, and the step with load over PyTorch's step, of each run."""
    loaded, steps = [], []
    for name in (f"{kind}-{number_of}" for number_of in range(runs)):
        update, load = (source.of(name, key) for key in ("update_s_per_step_median", "load_s_per_step"))
        loaded.append(load / update if load is not None and update else None)
        mean = source.of(name, "update_s_per_step")  # without the steps that set something up, as theirs
        theirs = source.runs.get(f"torch-{name}", {}).get("json", {}).get("step_s")
        source.count(f"torch-{name}", "step_s", theirs)
        steps.append((mean + load) / theirs if mean and load is not None and theirs else None)
    return loaded, steps


def goals_table(source):
    names = [f"goal-{seed}" for seed in range(plan.GOAL_RUNS)]
    loops = [None if None in (load, update) else load + update
             for load, update in ((source.of(name, "load_s"), source.of(name, "update_s")) for name in names)]
    walls, loads, tops = ([source.of(name, key) for name in names] for key in ("wall_s", "load_s_per_step", "top1"))

    def spread(values, scale=1.0):
        known = sorted(value for value in values if value is not None)
        if not known:
            return ["-", "-"]
        return [number(statistics.median(known), scale), f"{number(known[0], scale)} to {number(known[-1], scale)}"]

    loaded, steps = resnet_ratios(source, "resnet", plan.GOAL_RUNS)
    _, rank_steps = resnet_ratios(source, "ddp-resnet", plan.RANK_RUNS)
    peers = [source.peer_epoch(f"torch-{name}") for name in names]
    ratios = [loop / (plan.GOAL_EPOCHS * peer) for loop, peer in zip(loops, peers) if loop is not None and peer]
    clocks = [f"- {name}: " + (source.runs.get("clocks-" + name.replace(" ", "-"), {}).get("text", "").strip() or "-")
              for name in ("before lenet", "after lenet", "before resnet", "after resnet")]
    large = [source.of(f"goal512-{seed}", "wall_s") for seed in range(plan.GOAL_RUNS)]
    eager = source.of("eager-resnet", "update_s_per_step")
    theirs = source.runs.get("torch-eager-resnet", {}).get("json", {}).get("step_s")
    source.count("torch-eager-resnet", "step_s", theirs)
    rows = [["S4, ten epochs of batches of 512, with start-up and one evaluation, s", "2", *spread(large)],
            ["S4, ten epochs of batches of 64: training loop, s", "", *spread(loops)],
            ["the same with start-up and one evaluation, s", "", *spread(walls)],
            ["the same in torch_lenet.py, 8 workers: its second epoch, s", "", *spread(peers)],
            ["the same: training loop over ten of these, by pairs", "", *spread(ratios)],
            ["the same: load per step, 8 workers, µs", "15", *spread(loads, 1e6)],
            ["the same: top-1 with seeds 0, 1 and 2, %", "98.9", *spread(tops[:3], 100)],
            ["ResNet-50, bf16: load over the median update, %", "1", *spread(loaded, 100)],
            ["ResNet-50, bf16: step with load over PyTorch's (channels_last, CUDA graph, nothing loaded)", "1",
             *spread(steps)],
            ["ResNet-50, bf16, one rank: the same over PyTorch's DistributedDataParallel in a CUDA graph", "1",
             *spread(rank_steps)],
            ["ResNet-50, bf16, no graph: step over PyTorch's", "1", *spread([eager / theirs if eager and theirs else None])]]
    return ("## Goals\n\nRuns in turn. Those of S4 count only on MNIST (`pack --mnist`). Device, driver, memory, clock,\n"
            "temperature, power and throttling:\n\n" + "\n".join(clocks) + "\n\n" +
            table(["what", "goal", "median", "range"], rows))


def limits_table(source):
    rows = []
    for name, _, _, label, expected in plan.LIMITS:
        bound, verdict = (source.of("limit-" + name, key) for key in ("bound", "verdict"))
        rows.append([label, " or ".join(sorted(expected)), str(bound or "-"),
                     "-" if bound is None else "yes" if bound in expected else "NO", str(verdict or "-")])
    return "## Known limits\n\n" + table(["what limits", "expected", "bound", "right", "verdict"], rows)


def watch_table(source):
    document = source.runs.get("watch", {}).get("json", {})
    found, cost = document.get("watch", []), document.get("cost")
    source.count("watch", "watch", found or None)
    rows = [[one["case"], number(one["data_set_ms"], digits=0), number(one["device_ms"], digits=0),
             number(one["step_ms"]), number(one["device_waits_ms"]), " to ".join(number(value, digits=1) for value in one["expected_ms"]),
             one["bound"], "yes" if one["right"] else "NO"] for one in found]
    text = "## pymillrace watch\n\nMilliseconds per step.\n\n" + table(
        ["loop", "data set", "device", "step without watch", "device waits for data", "expected", "bound", "right"],
        rows or [["-"] * 8])
    if cost:
        text += (f"\n\nWatching adds {cost['added_us']:.1f} µs to a step of {cost['step_us']:.0f} µs (median of "
                 f"{len(cost['turns_us'])} turns, {cost['turns_us'][0]:.1f} to {cost['turns_us'][-1]:.1f}).")
    return text


def profile_table(source):
    changes = source.of("profile", "what_if", "json") or []
    for key in ("change", "predicted", "measured", "error"):
        source.asked.add(("change", key))
        for row in changes:
            source.count("profile", " ".join(row.get("change") or ["a change"]) + " " + key, row.get(key))
    rows = [[" ".join(row.get("change", "-")), number(row.get("predicted"), digits=0),
             number(row.get("measured"), digits=0), number(row.get("error"), 100, 1)] for row in changes]
    return "## Predictions\n\n" + table(["change", "predicted, images/s", "measured", "error, %"], rows or [["-"] * 4])


def document(results, stages, date):
    source = Source(results)
    facts = results.get("machine", {})
    doctor = source.runs.get("doctor", {}).get("json", {})
    head = f"# {date}: on a GPU\n\n"
    if results.get("sample"):
        head += f"**{results['sample']}**\n\n"
    devices = doctor.get("cuda", {}).get("names", ["no device"])
    head += "\n".join([
        f"- Device: {', '.join(devices)}.",
        "- nvidia-smi: " + source.runs.get("nvidia-smi", {}).get("text", "-").strip() + ".",
        f"- Machine: {doctor.get('cpu', '-')}, {doctor.get('cores', {}).get('usable', '-')} cores.",
        f"- millrace {doctor.get('version', '-')} ({doctor.get('git', '-')}), LibTorch {facts.get('torch', '-')}."])
    parts = [losses_table(source), repeat_table(source), steps_table(source), goals_table(source), costs_table(source),
             limits_table(source), watch_table(source), profile_table(source), runs_table(source, stages)]
    return head + "\n\n" + "\n\n".join(parts) + "\n"


def rendered(sample):
    """Returns the source after every table was made from it."""
    source = Source(sample)
    for part in (losses_table, repeat_table, steps_table, goals_table, costs_table, limits_table, watch_table,
                 profile_table):
        part(source)
    return source


def holes(sample, stages):
    """Returns the runs that a sample lacks, and the figures that its tables ask for and do not find."""
    lacking = [f"the sample has no {run.name}" for stage in stages for run in stage.runs
               if run.name not in sample["runs"]]
    doctor = sample["runs"].get("doctor", {}).get("json", {})
    lacking += [f"the sample has no doctor: {key}" for key in ("cpu", "cores", "version", "git", "cuda")
                if not doctor.get(key)]
    return lacking + ["the sample has no " + one for one in rendered(sample).missing]


def renamed(sample, shapes):
    """Returns the keys that the tables ask for and that the program does not write. `shapes`: the keys that it wrote
    just now, by document."""
    return [f"the program writes no {key} into its {where}" for where, key in sorted(rendered(sample).asked)
            if key not in shapes[where] and key not in DRIVER_ONLY]
