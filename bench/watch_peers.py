#!/usr/bin/env python3
"""Plants a delay in one place of a training loop and asks profilers for it: which of them names the cause?

    watch_peers.py [--tools T,...] [--places P,...] [--kinds K,...] [--workers N,...] [--steps N] [--json FILE]

Tools: watch (pymillrace watch), torch (torch.profiler with stacks), lightning (its simple profiler), traceml (TraceML,
`traceml run`), py-spy (`py-spy record`). Each runs the same loop with 20 ms planted per step, in the data set, in the
second of three transforms, in collate, or in the update, as CPU time (cpu) or as a sleep (blocked). Each tool is used as
its first page says; py-spy with --subprocesses, and with --idle, without which it leaves sleeping threads out.

What a tool answers counts as
  place    its largest entry, or entries that hold at least half of what was planted, name the planted function or part
  phase    its largest entry says no more than that the loop waits for the loader, or updates
  -        neither
A tool that is not installed is reported as such. Needs torch; pip names: traceml-ai, py-spy, lightning.
"""
import argparse
import collections
import inspect
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/python"))
import watch_plants as plants_of

TOOLS = ("watch", "torch", "lightning", "traceml", "py-spy")
PLACES = ("dataset", "transform", "collate", "update")
STEPS, BATCH, PLANTED_S = 60, 4, 0.02
# Function that holds the plant, for tools that show functions. They show methods by file and line.
FUNCTIONS = {"dataset": "planted_read", "collate": "planted_collate", "update": "planted_update"}


def names_plant(place, frame):
    """Returns whether a frame, as FILE.py(LINE): NAME or NAME (FILE.py:LINE), is the function that holds the plant."""
    if place != "transform":
        return FUNCTIONS[place] in frame
    lines, first = inspect.getsourcelines(plants_of.PlantedTransform.__call__)
    line = re.search(r"watch_plants\.py[:(](\d+)", frame)
    return line is not None and first <= int(line[1]) < first + len(lines)


# --- the loop

def make_loop(place, kind, workers, steps, log):
    """Returns a loader, and a function that updates a model by one batch. The plant measures itself."""
    import torch

    def plant(where, seconds):
        return plants_of.Plant(log, where, kind, 1e3 * seconds) if place == where else plants_of.NoPlant()

    read = plant("dataset", PLANTED_S / BATCH)
    planted = plants_of.PlantedTransform(plant("transform", PLANTED_S / BATCH))
    chain = plants_of.Compose([plants_of.Nothing(), planted, plants_of.Nothing()])
    collate, update = plant("collate", PLANTED_S), plant("update", PLANTED_S)

    def planted_read():
        read()
        return torch.zeros(16)

    class Samples(torch.utils.data.Dataset):
        def __init__(self):
            self.transform = chain

        def __len__(self):
            return steps * BATCH

        def __getitem__(self, index):
            return self.transform(planted_read()), index % 2

    def planted_collate(samples):
        collate()
        return torch.utils.data.default_collate(samples)

    model = torch.nn.Linear(16, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def planted_update(values, labels):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(values), labels)
        update()
        loss.backward()
        optimizer.step()

    loader = torch.utils.data.DataLoader(Samples(), batch_size=BATCH, num_workers=workers, collate_fn=planted_collate)
    return loader, planted_update, model


def run_plain(loader, update, model):
    for values, labels in loader:
        update(values, labels)


def run_torch(loader, update, model, out):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
        run_plain(loader, update, model)
    profiler.export_chrome_trace(out)


def run_lightning(loader, update, model, out):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.automatic_optimization = model, False

        def training_step(self, batch, index):
            update(*batch)

        def configure_optimizers(self):
            return None

    trainer = lightning.Trainer(max_epochs=1, profiler="simple", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")
    trainer.fit(Module(), loader)
    Path(out).write_text(json.dumps({name: sum(times) for name, times in trainer.profiler.recorded_durations.items()}))


def run_traceml(loader, update, model):
    import traceml_ai as traceml

    traceml.init()
    for values, labels in loader:
        with traceml.trace_step(model):
            update(values, labels)


# --- what each tool answers: (its largest entry, how far it names the place)

def grade(place, shares, planted_s):
    """Grades {function: seconds}: which holds the plant?"""
    held = sum(seconds for name, seconds in shares.items() if names_plant(place, name))
    return "place" if held >= planted_s / 2 else "-"


def answer_watch(place, kind, folder):
    summary = json.loads((folder / "summary.json").read_text())
    if place == "update":
        named = summary["update_s"] > summary["load_s"]
        return f"update {summary['update_s']:.2f} s of {summary['wall_s']:.2f} s", "place" if named else "-"
    parts = {name: value for name, value in summary["blame"].items() if name != "load_s"}
    part, seconds = max(parts.items(), key=lambda item: item[1])
    # Time without a core is other programs' doing.
    kinds = summary["loaders"][0]["blame_table"][part]
    what = max((kind for kind in kinds if kind != "cores"), key=kinds.get)
    return f"{part} {seconds:.2f} s, {what}", "place" if part == place and what == kind else "phase"


def answer_torch(place, trace, planted_s):
    events = [one for one in json.loads(Path(trace).read_text())["traceEvents"] if "dur" in one]
    shares = collections.Counter()
    for event in events:
        shares[event["name"]] += event["dur"] * 1e-6
    graded = grade(place, {name: s for name, s in shares.items() if ".py(" in name}, planted_s)
    waits = sum(s for name, s in shares.items() if name.startswith("enumerate(DataLoader)"))
    if graded == "-" and place != "update" and waits >= planted_s / 2:
        return f"enumerate(DataLoader) {waits:.2f} s", "phase"
    held = {name: s for name, s in shares.items() if names_plant(place, name)}
    return (f"{max(held, key=held.get)} {max(held.values()):.2f} s" if held else "nothing of it"), graded


def answer_lightning(place, out, planted_s):
    times = json.loads(Path(out).read_text())
    wait = sum(s for name, s in times.items() if name.endswith("train_dataloader_next"))
    step = sum(s for name, s in times.items() if name.endswith("training_step") and "Strategy" in name)
    mine = step if place == "update" else wait
    return f"train_dataloader_next {wait:.2f} s, training_step {step:.2f} s", "phase" if mine >= planted_s / 2 else "-"


def answer_traceml(place, folder):
    text = next(folder.rglob("final_summary.txt")).read_text()
    verdict = re.search(r"Verdict: *([A-Z -]+?) *(\(|\n|\|)", text)
    said = verdict.group(1).strip() if verdict else "no verdict"
    right = ("COMPUTE", "RESIDUAL") if place == "update" else ("INPUT",)
    return said, "phase" if said.startswith(right) else "-"


def answer_py_spy(place, raw, planted_s, rate):
    """Each line of the raw format is a stack and the number of samples in which it was seen."""
    shares = collections.Counter()
    for line in Path(raw).read_text().splitlines():
        stack, count = line.rsplit(" ", 1)
        for frame in set(stack.split(";")):
            shares[frame] += int(count) / rate
    graded = grade(place, shares, planted_s)
    held = {name: s for name, s in shares.items() if names_plant(place, name)}
    return (f"{max(held, key=held.get)} {sum(held.values()):.2f} s" if held else "nothing of it"), graded


# --- running

def ask(tool, place, kind, workers, steps):
    """Returns the tool's answer and its grade."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        loop = [__file__, "--loop", tool, "--places", place, "--kinds", kind, "--workers", str(workers),
                "--steps", str(steps), "--out", str(folder / "out"), "--log", str(folder / "plants")]
        prefix, rate = [sys.executable], 100
        if tool == "watch":
            prefix = [sys.executable, "-m", "pymillrace", "watch", "--run", str(folder), "--", sys.executable]
        elif tool == "traceml":
            prefix = [sys.executable, "-c", "from traceml_ai.launcher.cli import main; main()", "run"]
            loop = [loop[0], "--mode", "summary", "--logs-dir", str(folder), "--args", *loop[1:]]
        elif tool == "py-spy":
            prefix = ["py-spy", "record", "--subprocesses", "--idle", "--format", "raw", "--rate", str(rate),
                      "--output", str(folder / "out"), "--", sys.executable]
        done = subprocess.run([*prefix, *loop], capture_output=True, text=True, cwd=folder, timeout=600)
        try:
            planted_s = plants_of.measured(folder / "plants")[place].wall
            if tool == "watch":
                return answer_watch(place, kind, folder)
            if tool == "torch":
                return answer_torch(place, folder / "out", planted_s)
            if tool == "lightning":
                return answer_lightning(place, folder / "out", planted_s)
            if tool == "traceml":
                return answer_traceml(place, folder)
            return answer_py_spy(place, folder / "out", planted_s, rate)
        except (OSError, ValueError, KeyError, StopIteration) as error:
            lines = (done.stderr.strip() or str(error)).splitlines()
            return f"failed: {lines[-1][:120] if lines else error!r}", "failed"


def is_installed(tool):
    if tool == "py-spy":
        return any(os.access(os.path.join(folder, "py-spy"), os.X_OK) for folder in os.environ["PATH"].split(":"))
    module = {"watch": "pymillrace", "torch": "torch", "lightning": "lightning", "traceml": "traceml_ai"}[tool]
    return importlib.util.find_spec(module) is not None


def main():
    def words(text):
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=words, default=list(TOOLS))
    parser.add_argument("--places", type=words, default=list(PLACES))
    parser.add_argument("--kinds", type=words, default=["cpu", "blocked"])
    parser.add_argument("--workers", type=words, default=["0", "1"])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--json")
    parser.add_argument("--loop", choices=TOOLS, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    parser.add_argument("--log", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.loop:
        made = make_loop(arguments.places[0], arguments.kinds[0], int(arguments.workers[0]), arguments.steps, arguments.log)
        run = {"torch": run_torch, "lightning": run_lightning}.get(arguments.loop)
        if run is not None:
            run(*made, arguments.out)
        else:
            (run_traceml if arguments.loop == "traceml" else run_plain)(*made)
        return
    tools = [tool for tool in arguments.tools if is_installed(tool)]
    for tool in set(arguments.tools) - set(tools):
        print(f"{tool} is not installed", file=sys.stderr)
    rows = []
    print(f"| planted | workers | {' | '.join(tools)} |\n| --- | --- |{' --- |' * len(tools)}")
    for place in arguments.places:
        for kind in arguments.kinds:
            for workers in arguments.workers:
                answers = {tool: ask(tool, place, kind, int(workers), arguments.steps) for tool in tools}
                rows.append({"place": place, "kind": kind, "workers": workers, "answers": answers})
                cells = " | ".join(f"{graded}: {text}" for text, graded in answers.values())
                print(f"| {place}, {kind} | {workers} | {cells} |", flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
