"""Times the recorder's own code alone, in loops without work between the steps."""
import statistics
import tempfile
from pathlib import Path
from time import thread_time_ns

import torch


class Fetcher:
    """A fetcher whose work takes no time."""

    def __init__(self):
        self.collate_fn = lambda samples: samples

    def fetch(self, index):
        return self.collate_fn(index)


def recorder(blocks, steps=256):
    """Returns the µs of CPU time per step that the recorder's own code takes, for each of some blocks."""
    from pymillrace._watch import DETAIL
    from pymillrace.watcher.session import Session
    from pymillrace.watcher.worker import FetchTimer

    batch, fetcher, timer = [torch.zeros(16, 12), torch.zeros(16)], Fetcher(), FetchTimer(0, None, 0)
    timer.recorder.next_batch = 0
    timer.install(fetcher)
    index, found = list(range(16)), []
    with tempfile.TemporaryDirectory() as run:
        session = Session(Path(run) / "run")
        session.open()
        loader = session.loader("bench", "DataLoader", [], given=False)
        generation = loader.iter_begins(None)
        loader.recorder.probe = timer.recorder
        loader.iter_ended()
        marks, steps_of = session.marks, loader.recorder
        for _ in range(blocks):
            begin = thread_time_ns()
            for _ in range(steps):
                depth = steps_of.begin(generation, None)
                if depth == DETAIL:
                    fetcher.fetch(index)
                due = steps_of.end(timer.recorder.next_batch - 1, batch, None)
                if due:
                    loader.after_next(batch, due)
                if depth == DETAIL:
                    marks.before_forward()
                marks.before_step()
                marks.after_step()
            found.append(1e-3 * (thread_time_ns() - begin) / steps)
        session.close()
    return found


def recorder_with_worker(blocks, steps=256):
    """Returns the µs of CPU time per step, for each of some blocks: of the trainer's thread, and of the worker.

    Both take turns in this thread.
    """
    from pymillrace._watch import DETAIL, OUTLINE, FetchProbe, Receipts, RecordRing, SendProbe, ThreadClock
    from pymillrace.watcher.clocks import SCHEDSTAT
    from pymillrace.watcher.session import Session

    batch, index, trainer, worker = [torch.zeros(16, 12), torch.zeros(16)], list(range(16)), [], []
    with tempfile.TemporaryDirectory() as run:
        file = RecordRing(4096, 0)
        session = Session(Path(run) / "run")
        session.open()
        loader = session.loader("bench", "DataLoader", [], given=False)
        generation = loader.iter_begins(None)
        recorder = loader.recorder
        recorder.records, recorder.started = file, 1
        loader.iter_ended()
        receipts, marks = Receipts(ThreadClock(), False), session.marks
        probe, sender = FetchProbe(0, generation, SCHEDSTAT, file), SendProbe(SCHEDSTAT, file)
        for block in range(blocks):
            begin = thread_time_ns()
            for number in range(block * steps, (block + 1) * steps):
                probe.next_batch = number
                if probe.begin() != OUTLINE:
                    probe.collate()
                probe.finish(index)
                sender.begin((number, None))
                sender.pickled()
                sender.sent()
            middle = thread_time_ns()
            for number in range(block * steps, (block + 1) * steps):
                depth = recorder.begin(generation, receipts)
                if depth == DETAIL:
                    receipts.reads()
                    receipts.received()
                    receipts.rebuilt((number, None))
                due = recorder.end(number, batch, receipts)
                if due:
                    loader.after_next(batch, due)
                if depth == DETAIL:
                    marks.before_forward()
                marks.before_step()
                marks.after_step()
            trainer.append(1e-3 * (thread_time_ns() - middle) / steps)
            worker.append(1e-3 * (middle - begin) / steps)
        session.close()
    return trainer, worker


def show():
    rows = zip(("trainer, num_workers=0", "trainer, num_workers=1", "worker, num_workers=1"),
               (recorder(60), *recorder_with_worker(60)))
    for name, found in rows:
        print(f"recorder, {name}: fastest block {min(found):.1f}, median {statistics.median(found):.1f} µs of CPU per step")
