"""Recording of one run in one process: its loaders, its timeline and its files."""
from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any, NamedTuple

from . import faults, ranks, summary, trace
from .._watch import FLUSH, Receipts, RecordFile, StepHooks, Steps
from .breakdown import STARTUP, Breakdown
from .clocks import SCHEDSTAT, ThreadClock, between
from .device import DeviceGaps, device_gaps
from .errors import WatchError
from .faults import pass_on, stop
from .live import Live, interval
from .messages import say, without_signals_of_writes
from .plan import end_at, steps_of_plan, threads_of_plan
from .predict import Usage
from .provisional import Provisional
from .hooks import TorchHooks, evaluates
from .lane import Lane
from .replacement import counterpart_of
from .run_directory import RunDirectory, dump, place, place_is_known, write_file
from .spans import BETWEEN, EVALUATE, LOOP, SETUP, UPDATE, Table
from .stalls import LEAST_S, Watchdog, of_worker
from .threads import Facts, Threads, apply
from .transforms import TransformTimer
from .worker import exits_of

SLOTS = 4096  # records of workers


def _forks() -> None:
    """Ends threads: Python warns of a fork beside them, and a lock that one holds would stay locked in the child."""
    try:
        for session in list(faults.recording):
            session.watchdog.pause()
        for watch in of_worker:
            watch.end()
    except Exception as error:
        stop(error)


def _forked() -> None:
    try:
        for session in list(faults.recording):
            session.close_in_child()
    except Exception as error:
        stop(error)


os.register_at_fork(before=_forks, after_in_child=_forked)


@contextmanager
def without_signals_of_workers() -> Iterator[None]:
    """Puts off torch's handler of SIGCHLD, which raises wherever the process happens to be when a worker has died."""
    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGCHLD)):
        yield
        return
    late: list[Any] = []
    handler = signal.signal(signal.SIGCHLD, lambda *arguments: late.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)
        if late and callable(handler):
            handler(*late[0])


def bytes_in(data: Any) -> int:
    """Returns the bytes of a batch's arrays."""
    if isinstance(data, Mapping):
        data = list(data.values())
    if isinstance(data, (list, tuple)):
        return sum(map(bytes_in, data))
    try:
        return int(getattr(data, "nbytes", 0))
    except Exception as error:  # a sparse tensor has no bytes to tell
        pass_on(error)
        return 0


def _weak(inner: Any) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(inner)
    except TypeError:  # a list or a tuple
        return None


class Stretch(NamedTuple):
    """Sums at the begin or the end of a stretch in which the body of the loop is measured."""
    steps: int  # whose body has ended
    waits: int  # that were not yet split
    body: int  # ns
    others: int  # ns in which something else ran
    cpu: int  # ns of all threads of the process
    own: int  # ns of CPU time of the trainer's thread
    delay: int  # ns in which the trainer's thread had no core


class WatchedLoader:
    """A watched loader."""

    def __init__(self, session: Session, name: str, number: int, kind: str) -> None:
        self.name, self.number, self.kind = name, number, kind
        self.line = ("", "")
        self.table = Table()
        self.breakdown = Breakdown()
        self.recorder = Steps(session.marks, self.table, self.breakdown)
        self.workers = self.prefetch = self.batch = 0
        self.in_order = True
        self.samples: int | None = None
        self.length: int | None = None  # batches of an epoch
        self.dataset, self.start_method, self.persistent = "", "", False
        self.transforms: list[str] = []
        self.counterpart: dict[str, Any] | None = None  # of its data set, in millrace's own loader
        self.parts = 0
        self.records: RecordFile | None = None
        self.object: weakref.ref[Any] | None = None  # the loader given to watch()
        self.inner: weakref.ref[Any] | None = None  # the loader that was iterated over last
        self.data: weakref.ref[Any] | None = None  # its data set
        self.iterator: weakref.ref[Any] | None = None  # torch's, of the iteration under way
        self.stepped = False
        self.ended_ns = 0  # waits for an iterator's end
        self.looks = self.evaluations = 0  # looks at its loop, and those that saw an evaluation
        self.epochs: list[dict[str, Any]] = []
        self.usage = Usage()
        self.threads = Threads()
        self.device: DeviceGaps | None = None
        self.extras = session.planned_steps is not None  # each next() also counts a plan's steps or measures the device
        self.batch_bytes = 0  # of the first batch
        self._stretch: Stretch | None = None  # under way, of the loop's body
        self.lane: Lane | None = None  # of the other thread that iterates over it
        self.session, self._timeline = session, session.marks.timeline
        self._steps_before = 0  # of the iteration under way
        self._iter_reading: tuple[int, int, int] | None = None
        self._epoch_begin = self.table.total

    @property
    def sees_inside(self) -> bool:
        return self.kind == "DataLoader"

    # iter()

    def iter_begins(self, loader: Any) -> int:
        """Returns the number of this iteration, from 1; 0 if it is not recorded."""
        if not self.session.takes_part():
            if not self.is_free():
                return 0
            self._enter_lane()
        self.session.open()
        self.flush()  # the next iteration numbers its batches from 0 again
        self.recorder.generation += 1
        self.recorder.probe = None
        self._timeline.iter_begins(self.table, perf_counter_ns())
        self._steps_before, self.inner = self.table.steps, _weak(loader)
        self._iter_reading = self.clock.read()
        if loader is not None:
            self._describe(loader)
        return self.recorder.generation

    # Threads

    @property
    def clock(self) -> ThreadClock:
        return self.lane.clock if self.lane is not None and self.lane.is_here else self.session.clock

    @property
    def thread(self) -> int:
        """Returns the identifier of the thread that iterates over it."""
        return (self.session.marks if self.lane is None else self.lane.marks).thread

    def is_free(self) -> bool:
        """Returns whether this thread, which is not the trainer's, may begin an iteration that is recorded."""
        if self.session.closed or not self.session.records_threads:
            return False
        if self.lane is not None and (self.lane.is_here or not self.lane.lives):
            return True
        return not self._timeline.holds(self.table)

    def _enter_lane(self) -> None:
        if self.lane is not None:
            self.lane.enter()
            return
        self.lane = Lane(self.session.marks)
        self.recorder.move(self.lane.marks)
        self._timeline, self.device = self.lane.marks.timeline, None

    def moves_here(self, generation: int, receipts: Receipts | None) -> bool:
        """Begins a call of next() in a thread other than the one that iterated so far.

        Returns whether it is recorded: so is an iteration whose first batch another thread takes than called iter().
        """
        session = self.session
        if session.closed or generation != self.recorder.generation:
            return False
        owner = session.is_here if self.lane is None else self.lane.is_here
        if owner or not session.records_threads or self.table.steps != self._steps_before:
            session.foreign_calls += not owner
            return False
        self._enter_lane()
        assert self.lane is not None
        if receipts is not None:
            receipts.set_clock(self.lane.clock)
        if self.recorder.probe is not None:
            self.recorder.probe.restart_clock(SCHEDSTAT)
        return self.recorder.begin(generation, receipts)

    def _is_owned(self) -> bool:
        return self.lane is not None or self.session.takes_part()

    def _describe(self, loader: Any) -> None:
        self.workers = loader.num_workers
        self.prefetch = getattr(loader, "prefetch_factor", None) or 0
        self.batch = (getattr(loader, "batch_size", None) or
                      getattr(getattr(loader, "batch_sampler", None), "batch_size", None) or 0)
        self.persistent = bool(getattr(loader, "persistent_workers", False))
        self.in_order = self.recorder.in_order = bool(getattr(loader, "in_order", True))  # from torch 2.6 on
        context = getattr(loader, "multiprocessing_context", None)
        if self.workers:
            import torch.multiprocessing

            self.start_method = (context or torch.multiprocessing).get_start_method()
        self.dataset = type(loader.dataset).__name__
        try:
            self.samples = len(loader.dataset)
        except Exception as error:  # it has no length, or does what it likes
            pass_on(error)
            self.samples = None
        self.length = self.samples // self.batch if self.samples and self.batch else None
        if self.counterpart is None:
            self.counterpart = counterpart_of(loader.dataset)
        transforms = TransformTimer(loader.dataset).names
        if transforms != self.transforms or self.recorder.first:
            self.transforms, self.parts = transforms, len(transforms)
            self.breakdown.set_transforms(len(transforms))
            self.records = None
        slots = max(SLOTS, 4 * self.workers * self.prefetch)
        if self.workers and (self.records is None or self.records.slots < slots):
            self.flush()
            with without_signals_of_writes():  # a limit of files' sizes holds for memory too
                self.records = RecordFile(slots, self.parts)
        self.recorder.records = self.records
        if not (self.persistent and self.recorder.started != 0):
            self.recorder.started = perf_counter_ns() if self.workers else 0

    def iter_ended(self) -> None:
        if self._iter_reading is None:
            return
        ns = self._timeline.iter_ended(self.table, perf_counter_ns())
        self.breakdown.add_outside(STARTUP, list(between(self._iter_reading, self.clock.read())), ns)
        self._iter_reading = None
        self.session.watchdog.start()

    # next()

    def before_next(self) -> None:
        """Does what a call of next() needs only with a plan or a device."""
        if self.session.planned_steps is not None and self.lane is None:  # the loop would wait for its thread for ever
            end_at(self.session, self.session.planned_steps)
        if self.device is not None:
            self.device.next_begins()

    def after_next(self, data: Any, due: int) -> None:
        """Does what not every call of next() needs. `due`: FLUSH, or MEASURE without a stretch under way."""
        if self.device is not None:
            self.device.next_ended()
        if due == FLUSH:
            if self.recorder.first:
                self.batch_bytes = bytes_in(data)
            self._measure(self.table.steps - 1)
            self._look()
            self.flush()
            self._read_threads()
            self.session.summarise()
            self._timeline.logged_after_next(self.table, perf_counter_ns())
        if self._stretch is None:
            self._stretch = self._stretch_from_here()
            self.recorder.measures = True

    def next_failed(self, error: BaseException, workers: Sequence[Any] = ()) -> None:
        """Ends an iteration: at its regular end, or with an error, to which it adds how its workers have ended."""
        self.recorder.waiting_since = 0
        if self._is_owned() and self._timeline.holds(self.table):
            with without_signals_of_workers():
                failed = isinstance(error, Exception) and not isinstance(error, StopIteration)
                exits = exits_of(workers, error) if failed else []
                if exits:  # shown below the message from Python 3.11 on
                    setattr(error, "__notes__", [*getattr(error, "__notes__", ()), *exits])
                self._end_iteration(error)

    def _end_iteration(self, error: BaseException) -> None:
        ns = self._timeline.exhausted(self.table, perf_counter_ns())
        self._measure(self.table.steps)
        self._look()
        self.flush()
        self.breakdown.add_wait(STARTUP, ns)
        self.ended_ns += ns
        if isinstance(error, StopIteration):
            self._end_epoch(exhausted=True)
        else:
            self.session.failed(error)

    def iterator_dies(self, generation: int) -> bool:
        """Begins the end of an iterator whose loop was left. Returns whether it is recorded."""
        if generation != self.recorder.generation or self.session.closed or not self._is_owned():
            return False
        if not self._timeline.holds(self.table):
            return False
        self._timeline.next_begins(self.table, perf_counter_ns())
        self._measure(self.table.steps)
        self._look()
        return True

    def iterator_died(self) -> None:
        ns = self._timeline.exhausted(self.table, perf_counter_ns())
        self.breakdown.add_wait(STARTUP, ns)
        self.ended_ns += ns
        self._end_epoch(exhausted=False)

    # The loop's body

    def _stretch_from_here(self) -> Stretch:
        """Returns a stretch that begins with the body of the current step."""
        spans = self.table.spans
        _, own, delay = self.clock.read()
        return Stretch(self.table.steps - 1, self.recorder.waits, spans[UPDATE] + spans[LOOP],
                       spans[SETUP] + spans[EVALUATE] + spans[BETWEEN], process_time_ns(), own, delay)

    def _measure(self, steps: int) -> None:
        """Adds what the bodies of the steps used since the stretch began, if nothing else ran. `steps`: ended ones."""
        begin, self._stretch = self._stretch, None
        self.recorder.measures = False
        if begin is None or steps <= begin.steps:
            return
        end = self._stretch_from_here()
        if end.others != begin.others:
            return
        next_cpu, next_delay = self.recorder.used_in_next(begin.waits)
        self.usage.steps += steps - begin.steps
        self.usage.ns += end.body - begin.body
        self.usage.cpu += end.cpu - begin.cpu - next_cpu
        self.usage.others += max(0, (end.cpu - begin.cpu) - (end.own - begin.own))
        self.usage.delay += end.delay - begin.delay - next_delay
        next_others, _, body_others, _ = self.recorder.others
        if next_others > 0:
            self.usage.in_next = next_others / (next_others + body_others)

    def _look(self) -> None:
        """Looks in the loop's thread, after at least a step, whether the loop computes outputs only."""
        if self.lane is None and self.table.steps > 1:
            self.looks += 1
            self.evaluations += evaluates(self.session.marks)

    # Records

    def flush(self) -> None:
        """Splits the waits since the last call and writes the rows that have ended."""
        self._stretch = None
        self.recorder.measures = False
        if self.device is None:
            self.device = device_gaps() if self.lane is None else None
            self.extras = self.extras or self.device is not None
        else:
            self.device.collect()
        rows = self.recorder.flush()
        if rows:
            self.session.write_rows(self, rows)

    def _read_threads(self) -> None:
        if self.session.main is self and self.lane is None:
            busy = self.threads.read(self)
            if busy is not None:
                self.recorder.follow(busy)

    def facts(self) -> Facts:
        """Returns what is known of the threads beside the loop's own; nothing where that is one of them."""
        if self.lane is not None:
            return Facts()
        cpu, wall, _, _ = self.recorder.others
        return self.threads.facts(cpu / wall if wall > 0 else 0.0)

    @property
    def infers(self) -> bool:
        """Returns whether its loop only computes outputs: no optimizer steps, and no gradient can be wanted."""
        return self.lane is None and self.table.updates == 0 and 0 < self.looks == self.evaluations

    def _end_epoch(self, exhausted: bool) -> None:
        ended = self.table.spans
        spans = [after - before for after, before in zip(ended, self._epoch_begin)]
        self._epoch_begin = ended
        before = self.epochs[-1]["step"] if self.epochs else 0
        whole = exhausted or (self.length is not None and self.table.steps - before >= self.length)
        line = summary.epoch_line(self, spans, whole)
        self.epochs.append(line)
        self.session.write_epoch(self, line)


class Session:
    """One run. Its trainer's thread is the one that first iterates over a loader."""

    def __init__(self, path: Path | None, live: bool = False) -> None:
        self.wanted = path
        self._wants_lines = live
        self._live: Live | None = None
        self.begin = perf_counter_ns()
        self.marks = StepHooks(self.begin)
        self.wall_begin = time.monotonic()
        self.loaders: list[WatchedLoader] = []
        self.main: WatchedLoader | None = None
        self.closed = False
        self.error: str | None = None
        self.interrupted = False
        self.planned_steps = steps_of_plan()
        self.trains: bool | None = None  # whether an optimizer exists; None: nobody has asked
        self.foreign_calls = 0  # calls from other threads
        self._thread: int | None = None
        self._clock: ThreadClock | None = None
        self.hooks: TorchHooks | None = None
        self._directory: RunDirectory | None = None
        self._provisional: Provisional | None = None
        self.watchdog = Watchdog(self)
        faults.recording.add(self)
        atexit.register(self.close)

    @property
    def directory(self) -> RunDirectory:
        assert self._directory is not None
        return self._directory

    @property
    def clock(self) -> ThreadClock:
        assert self._clock is not None
        return self._clock

    def open_directory(self, wait: bool = False) -> None:
        """Makes the run directory. Raises WatchError if it belongs to somebody else.

        `wait`: not before the first iteration, if torch.distributed may tell the rank of this process until then.
        """
        if self._directory is not None or (wait and not place_is_known()):
            return
        path = self.wanted
        if path is None:
            if place()[1] > 1:
                raise WatchError("several ranks need one directory for their records: give run=DIR")
            path = Path("runs") / time.strftime("watch-%Y%m%d-%H%M%S")
        self._directory = RunDirectory(path.absolute(), summary.CONFIG)  # the script may change its folder

    def open(self) -> None:
        """Begins to record in this thread."""
        if self._thread is not None:
            return
        self.open_directory()
        summary.version()  # looks through all packages: not in the loop
        self._thread = threading.get_ident()
        self._clock = ThreadClock()
        self._provisional = Provisional(self.directory.path / self.file_name("summary", "json", 1))
        every = interval() if self._wants_lines and self.directory.rank == 0 else None
        self._live = None if every is None else Live(every)
        self.marks.thread, self.marks.open = self._thread, True
        if (threads := threads_of_plan("threads")) is not None:
            apply(threads)
        if "torch" in sys.modules:
            self.hooks = TorchHooks(self.marks)
            itself = weakref.ref(self)

            def stepped() -> None:
                try:
                    session = itself()
                    if session is not None:
                        session._stepped()
                except Exception as error:
                    stop(error)

            self.marks.on_step = stepped

    @property
    def is_here(self) -> bool:
        return self._thread == threading.get_ident()

    @property
    def records_threads(self) -> bool:
        """Returns whether loaders that other threads iterate over are recorded: once the trainer's thread is known."""
        return self._thread is not None and not self.closed

    def takes_part(self) -> bool:
        """Returns whether this thread of this process is the trainer's."""
        if self.closed:
            return False
        if self._thread is None:  # nothing was recorded yet; a worker of somebody's loader is no place to begin
            return not multiprocessing.current_process().daemon
        return threading.get_ident() == self._thread

    def close_in_child(self) -> None:
        """Leaves the run to the process that began it, in a forked child."""
        self.closed, self.marks.open = True, False
        faults.recording.discard(self)
        if self.hooks is not None:
            self.hooks.remove()

    def loader(self, line: str, kind: str, inner: Any, given: bool) -> WatchedLoader:
        """Returns the recording of a loader, named by a line of the script.

        A `given` loader, of watch(), has a recording of its own; it continues that of an earlier one which was made at
        the same line and is gone. Other loaders share a recording if
        they have the line and the data set in common, or its kind where the earlier one is gone.
        """
        dataset = type(getattr(inner, "dataset", inner)).__name__
        data = getattr(inner, "dataset", None)
        for one in self.loaders:
            if one.line != (line, dataset) or not (self._thread is None or self.is_here or one.is_free()):
                continue
            if not given and one.data is not None and all(one.data() is not each for each in (None, data)):
                continue  # another data set, which still exists
            if not given or one.object is None or one.object() in (None, inner):
                one.object = _weak(inner) if given else None
                return one
        same = sum(1 for one in self.loaders if one.line[0] == line)
        loader = WatchedLoader(self, line if same == 0 else f"{line}#{same + 1}", len(self.loaders) + 1, kind)
        loader.line, loader.object = (line, dataset), _weak(inner) if given else None
        loader.data = _weak(data)
        self.loaders.append(loader)
        if self.main is None:
            self.main = loader
        return loader

    def _stepped(self) -> None:
        """Makes the loader in whose loop an optimizer stepped the main one."""
        front = self.marks.timeline.front
        if self.main is None or self.main.stepped:
            return
        loader = next((one for one in self.loaders if one.table is front), None)
        if front is None:  # another thread takes the batches
            loader = max((one for one in self.loaders if one.lane is not None), default=None,
                         key=lambda one: one.table.steps)
        if loader is None:
            return
        loader.stepped = True
        self.marks.on_step = None
        self._make_main(loader)

    def _make_main(self, loader: WatchedLoader) -> None:
        if self.main is None or loader is self.main:
            return
        self.main.number, loader.number = loader.number, self.main.number
        for stem, suffix in (("steps", "csv"), ("metrics", "jsonl")):
            self.directory.swap(self.file_name(stem, suffix, self.main.number),
                                self.file_name(stem, suffix, loader.number))
        self.main = loader

    # Files

    def file_name(self, stem: str, suffix: str, number: int) -> str:
        return self.directory.name(stem, suffix, number)

    def write_rows(self, loader: WatchedLoader, rows: str) -> None:
        self.directory.append_rows(self.file_name("steps", "csv", loader.number), rows)

    def write_epoch(self, loader: WatchedLoader, line: dict[str, Any]) -> None:
        self.directory.append(self.file_name("metrics", "jsonl", loader.number), dump(line))

    def failed(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            self.interrupted = True
        else:
            first = (str(error).strip().splitlines() or [""])[0]
            exits = [note for note in getattr(error, "__notes__", ()) if note.startswith("DataLoader worker ")]
            self.error = "; ".join([f"{type(error).__name__}: {first}", *exits])

    def summarise(self) -> None:
        """Writes a summary of what was recorded so far, and a line on stderr, from time to time."""
        if self._provisional is not None and self.main is not None and self._provisional.due():
            wall = time.monotonic() - self.wall_begin
            self._provisional.write(summary.make(self, self.main, wall, complete=False))
        if self._live is not None and self.main is not None and self._live.due():
            self._live.tell(self.main, summary.cores())
        self.watchdog.start()  # a fork has ended its thread

    def tell_if_late(self) -> None:
        """Writes the line that is due on stderr, in a thread other than the trainer's, which is in a long step."""
        if self._live is not None and self.main is not None and self._live.due(LEAST_S):
            self._live.tell(self.main, summary.cores())

    @property
    def writes_lines(self) -> bool:
        return self._live is not None

    def close(self) -> None:
        """Writes the summary and prints the verdict."""
        try:
            with without_signals_of_workers():
                self._close()
        except Exception as error:
            stop(error)

    def _close(self) -> None:
        atexit.unregister(self.close)
        faults.recording.discard(self)
        try:
            if not self.closed:
                self.closed, self.marks.open = True, False
                self._conclude()
        finally:
            if self._directory is not None:
                self._directory.close()

    def _conclude(self) -> None:
        if self.hooks is not None:
            self.hooks.remove()
        self.watchdog.end()
        if self._provisional is not None:
            self._provisional.end()
        if self._directory is None or self.main is None:
            return
        uncaught = getattr(sys, "last_value", None)
        if self.error is None and not self.interrupted and isinstance(uncaught, (Exception, KeyboardInterrupt)):
            self.failed(uncaught)
        now, wall = perf_counter_ns(), time.monotonic() - self.wall_begin
        self.marks.timeline.close([one.table for one in self.loaders if one.lane is None], now)
        for loader in self.loaders:
            if loader.lane is not None:
                loader.lane.marks.timeline.close([loader.table], now)
        for loader in self.loaders:
            try:
                loader.flush()
            except Exception as error:  # of the last rows: the verdict knows them
                stop(error)
        if self.main.infers:  # before a training whose optimizer is none of torch's
            others = [one for one in self.loaders if not one.infers]
            self._make_main(max(others, key=lambda one: one.table.steps, default=self.main))
        record = summary.make(self, self.main, wall, complete=True)
        try:
            write_file(self.directory.path / self.file_name("summary", "json", 1), dump(record, indent=2))
            if record["world_size"] > 1:
                record = self._with_ranks(record)
        except Exception as error:  # the verdict needs no file
            stop(error)
        if self.directory.rank == 0:
            say("\n".join(summary.lines(self.directory.path, record)))
        trace.write(self, now)  # last: nothing else is lost with it

    def _with_ranks(self, record: dict[str, Any]) -> dict[str, Any]:
        """Adds this rank to the summary of rank 0. Returns the summary to print, on rank 0 with the others' rows."""
        path = self.directory.path
        completed = ranks.complete(path) or record
        if self.directory.rank > 0:
            return record
        return completed if self.interrupted or self.error else ranks.wait_for_all(path, completed)
