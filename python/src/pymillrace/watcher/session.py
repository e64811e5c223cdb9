"""Recording of one run in one process: its loaders, its timeline and its files."""
from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from . import faults, ranks, summary, trace
from .._watch import StepHooks
from .clocks import ThreadClock
from .deaths import AT_EXIT, Deaths
from .errors import InUse, WatchError
from .faults import stop
from .hooks import TorchHooks
from .lane import Lane, WaitHook
from .live import Live, interval
from .log import Call, Log
from .memory import Loop, Memory
from .messages import say
from .place import place, place_in_torch, place_is_known
from .plan import PlannedEnd, an_optimizer_exists, exit_soon, steps_of_plan, threads_of_plan
from .printable import printable
from .provisional import Provisional
from .run_directory import RunDirectory, beside_parent, dump, is_of_one_launch, write_file
from .signals import without_signals_of_workers
from .spans import LOAD
from .stalls import LEAST_S, Stalls, Wait, of_worker, remove_files
from .threads import apply
from .watchdog import Watchdog
from .watched_loader import WatchedLoader, weak
from .worker_activity import of_workers

if TYPE_CHECKING:
    from .summary_record import Summary


def _forks() -> None:
    """Ends threads: Python warns of a fork beside them, and a lock that one holds would stay locked in the child."""
    try:
        for session in list(faults.recording):
            session.pause()
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


def _weak_call(method: Callable[[], None]) -> Callable[[], None]:
    """Returns a function that calls a method while its object lives, for a hook that must not keep it alive."""
    weak_method = weakref.WeakMethod(method)

    def call() -> None:
        try:
            living = weak_method()
            if living is not None:
                living()
        except Exception as error:
            stop(error)

    return call


def _uncaught() -> BaseException | None:
    """Returns the exception that ends this process; torch's mp.spawn turns it into SystemExit."""
    ends = sys.exc_info()[1]
    return ends.__context__ if isinstance(ends, SystemExit) and ends.code else getattr(sys, "last_value", None)


class Session:
    """One run. Its trainer's thread is the one that first iterates over a loader."""

    def __init__(self, path: Path | None, live: bool = False) -> None:
        self.wanted = None if path is None else path.absolute()  # the script may change its folder
        self._wants_lines = live
        self._live: Live | None = None
        self._log: Log | None = None
        self.begin = perf_counter_ns()
        self.marks = StepHooks(self.begin)
        self.wall_begin = time.monotonic()
        self.loaders: list[WatchedLoader] = []
        self.main: WatchedLoader | None = None
        self.closed = self._forked = False
        self.error: str | None = None
        self.interrupted = False
        self.planned_steps = steps_of_plan()
        self.trains: bool | None = None  # whether an optimizer exists; None: nobody has asked
        self._ending_since: int | None = None  # the end of a plan, which is no part of a step
        self.foreign_calls = 0  # calls from other threads
        self._thread: int | None = None
        self._clock: ThreadClock | None = None
        self.hooks: TorchHooks | None = None
        self._waits: WaitHook | None = None
        self._directory: RunDirectory | None = None
        self._provisional: Provisional | None = None
        self.watchdog = Watchdog(self._look_around)
        self.stalls = Stalls()
        self.memory = Memory(self._loop_with_workers)
        self.deaths = Deaths()
        faults.recording.add(self)
        atexit.register(self.close)

    @property
    def opened(self) -> bool:
        """Returns whether the run has a directory."""
        return self._directory is not None

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
        directory = self._directory
        if directory is not None and not directory.follow_torch() and self._thread is None:
            directory.leave()
            self._directory = directory = None
        if directory is not None or (wait and not place_is_known()):
            return
        path = self.wanted
        if path is None:
            if place()[1] > 1:
                raise WatchError("several ranks need one directory for their records: give run=DIR")
            path = (Path("runs") / time.strftime("watch-%Y%m%d-%H%M%S")).absolute()
        if place()[1] > 1:
            path = beside_parent(path)
        try:
            self._directory = RunDirectory(path, summary.CONFIG)
        except InUse:
            if not is_of_one_launch(path) or (not wait and place_in_torch() is not None):
                raise
            if not wait:  # it does not know of the other ranks
                self._directory = RunDirectory(path.with_name(f"{path.name}.pid{os.getpid()}"), summary.CONFIG)

    def open(self) -> None:
        """Begins to record in this thread."""
        self.open_directory()
        if self._thread is not None:
            return
        summary.version()  # looks through all packages: not in the loop
        self._thread = threading.get_ident()
        self._clock = ThreadClock()
        if multiprocessing.parent_process() is not None:  # a fork ends by os._exit(), a spawned one forgets its error
            Finalize(None, self.close, exitpriority=0)
        self.deaths.begin()
        self._provisional = Provisional(self.directory.path / self.file_name("summary", "json", 1))
        every = interval() if self._wants_lines and self.directory.rank == 0 else None
        self._live = None if every is None else Live(every, self.directory)
        self.marks.thread, self.marks.open = self._thread, True
        if (threads := threads_of_plan("threads")) is not None:
            apply(threads)
        if "torch" in sys.modules:
            self.hooks = TorchHooks(self.marks)
            self.marks.on_step = _weak_call(self._stepped)
            self.marks.on_step_elsewhere = _weak_call(self._stepped_elsewhere)

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
            return not multiprocessing.current_process().daemon and (not self._forked or place_in_torch() is not None)
        return threading.get_ident() == self._thread

    def start_watchdog(self) -> None:
        if not self.closed:
            self.watchdog.start()
            if self.stalls.start():
                self._check_stalls()

    def pause(self) -> None:
        """Ends the threads until the next step: the process is about to fork."""
        self.stalls.pause()
        self.watchdog.pause()

    def follow_waits(self) -> None:
        """Measures from now on how long the trainer's thread waits for others, of which one takes batches ahead."""
        if self._waits is None:
            self._waits = WaitHook(self.marks)

    def _remove_hooks(self) -> None:
        if self.hooks is not None:
            self.hooks.remove()
        if self._waits is not None:
            self._waits.remove()

    def end_if_planned(self) -> None:
        """Raises PlannedEnd at the first call of next() after the main loader's last step of a plan.

        Where another thread takes the batches, it is the first step of an optimizer after them.
        """
        main = self.main
        if main is None or self.planned_steps is None or main.table.steps < self.planned_steps:
            return
        begin = perf_counter_ns()
        if not main.stepped:
            if self.trains is None:
                self.trains = an_optimizer_exists()
                self.marks.timeline.logged(begin, perf_counter_ns())
            if self.trains:
                return
        self._ending_since = perf_counter_ns()
        self.close()
        if main.lane is not None:
            exit_soon()
        raise PlannedEnd(0)

    def close_in_child(self) -> None:
        """Leaves the run to the process that began it, in a forked child.

        If no process has begun it, the child may begin one of its own, as a rank.
        """
        if self._directory is None and self._thread is None:
            self._forked = True
            return
        self.closed, self.marks.open = True, False
        faults.recording.discard(self)
        self._remove_hooks()

    def loader(self, line: str, kind: str, inner: Any, given: bool) -> WatchedLoader:
        """Returns the recording of a loader, named by a line of the script.

        A `given` loader, of watch(), has a recording of its own; it continues that of an earlier one which was made at
        the same line and is gone. Other loaders share a recording if they have the line and the data set in common, or
        its kind where the earlier one is gone. One that alternates with another is begun anew in the middle of a loop,
        at a line of its own.
        """
        for one in self.loaders:
            if one.alternates and one.inner is not None and one.inner() is inner and (self.is_here or one.is_free()):
                return one
        dataset = type(getattr(inner, "dataset", inner)).__name__
        data = getattr(inner, "dataset", None)
        for one in self.loaders:
            if one.line != (line, dataset) or not (self._thread is None or self.is_here or one.is_free()):
                continue
            if not given and one.data is not None and all(one.data() is not each for each in (None, data)):
                continue  # another data set, which still exists
            if not given or one.object is None or one.object() in (None, inner):
                one.object = weak(inner) if given else None
                return one
        same = sum(1 for one in self.loaders if one.line[0] == line)
        loader = WatchedLoader(self, line if same == 0 else f"{line}#{same + 1}", len(self.loaders) + 1, kind)
        loader.line, loader.object = (line, dataset), weak(inner) if given else None
        loader.data = weak(data)
        self.loaders.append(loader)
        if self.main is None:
            self.main = loader
        return loader

    def _stepped(self) -> None:
        """Makes the loader in whose loop an optimizer stepped the main one."""
        front = self.marks.timeline.front
        if self.main is None:
            return
        if self.main.stepped:  # called for plans: the loop itself calls no next() that could end it
            self.end_if_planned()
            return
        loader = next((one for one in self.loaders if one.table is front), None)
        if front is None:  # another thread takes the batches
            loader = max((one for one in self.loaders if one.lane is not None), default=None,
                         key=lambda one: one.table.steps)
        if loader is None:
            return
        loader.stepped = True
        if self.planned_steps is None or loader.lane is None:
            self.marks.on_step = None
        self._make_main(loader)

    def _stepped_elsewhere(self) -> None:
        """Makes this thread the trainer's, if the one that iterated first only takes the batches ahead.

        No optimizer has stepped there, and no module was called.
        """
        if self.main is None or self.closed:
            return
        self.marks.on_step_elsewhere = None
        if self.marks.computes:
            return
        if any(one.stepped or (one.lane is not None and one.lane.is_here) for one in self.loaders):
            return
        lane = Lane(self.marks.leave_thread(), self.marks, self.clock)
        self._thread, self._clock = threading.get_ident(), ThreadClock()
        for one in self.loaders:
            if one.lane is None:
                one.stay_in(lane)
        self.follow_waits()
        self._stepped()

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
            text = f"{type(error).__name__}: {first}"
            exits = [note for note in getattr(error, "__notes__", ()) if note.startswith("DataLoader worker ")]
            self.error = "; ".join([text, *exits])
            self._tell_of_deaths(text)

    def _tell_of_deaths(self, error: str | None) -> None:
        if self._directory is None:  # nothing was iterated over
            return
        for one in self.loaders:
            workers = getattr(None if one.iterator is None else one.iterator(), "_workers", ())
            self.deaths.note(one.name, one.table.steps, one.shared_memory_needed, workers, AT_EXIT)
        self.deaths.tell(self._directory, error)

    def log_to(self, call: Call | None) -> None:
        """Gives figures to a function, in place of an earlier one; None changes nothing."""
        if call is None:
            return
        if self._log is None:
            self._log = Log(call)
        self._log.call = call

    def summarise(self) -> None:
        """Writes a summary of what was recorded so far and a line on stderr, and logs figures, from time to time."""
        if self._provisional is not None and self.main is not None and self._provisional.due():
            self._provisional.write(summary.make(self._facts(), self.main, self.loaders, complete=False),
                                    partial(of_workers, self.main.workers, self.main.records, perf_counter_ns()))
        if self._live is not None and self.main is not None and self._live.due():
            self._live.tell(self.main.name, self.main.table, self.main.loop(), summary.cores())
        if self._log is not None and self.main is not None and self.directory.rank == 0 and self._log.due():
            self._log.tell(self.main.table, self.main.loop(), summary.cores())
        self.start_watchdog()  # a fork has ended its thread

    # The watchdog's thread

    def _look_around(self) -> bool:
        """Looks at the loop, and returns whether the recording goes on."""
        if self.closed:
            return False
        self._tell_if_late()
        self._check_stalls()
        self.memory.look()
        return True

    def _check_stalls(self) -> None:
        self.stalls.check([Wait(one.name, one.recorder, one.table.steps, one.table.total[LOAD], one.iterator, one.data,
                                one.thread) for one in list(self.loaders)], self.directory, self.writes_lines)

    def _loop_with_workers(self) -> Loop | None:
        """Returns the main loader's loop, for a sample of memory; None while no iterator has workers."""
        iterators = [one.iterator() for one in list(self.loaders) if one.iterator is not None]
        workers = [[worker.pid for worker in getattr(one, "_workers", ())] for one in iterators]
        workers, main = [one for one in workers if one], self.main
        if not workers or main is None:
            return None
        before, length = (main.epochs[-1]["step"], main.epochs[-1]["steps"]) if main.epochs else (0, main.length)
        return Loop(main, main.table.epoch, main.table.steps, before, length, workers, self.directory,
                    self.writes_lines)

    def _tell_if_late(self) -> None:
        """Writes the line that is due on stderr while the trainer's thread is in a long step."""
        if self._live is not None and self.main is not None and self._live.due(LEAST_S):
            self._live.tell(self.main.name, self.main.table, self.main.loop(), summary.cores())

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
        self._remove_hooks()
        self.pause()
        if self._directory is not None:
            remove_files(self._directory.path)
        if self._provisional is not None:
            self._provisional.end()
        if self._directory is None or self.main is None:
            return
        uncaught = _uncaught()
        if self.error is None and not self.interrupted and isinstance(uncaught, (Exception, KeyboardInterrupt)):
            self.failed(uncaught)
        if not self.interrupted:
            self._tell_of_deaths(None)  # of an exception that the script has caught
        now, facts = perf_counter_ns(), self._facts()
        if self._ending_since is not None:
            self.marks.timeline.logged(self._ending_since, now)
        is_cut = self.interrupted or self.error is not None
        self.marks.timeline.close([one.table for one in self.loaders if one.lane is None], now, is_cut)
        for loader in self.loaders:
            if loader.lane is not None:
                loader.end_ahead()
                loader.lane.marks.timeline.close([loader.table], now)
        for loader in self.loaders:
            try:
                loader.flush()
            except Exception as error:  # of the last rows: the verdict knows them
                stop(error)
        if self.main.infers:  # before a training whose optimizer is not one of torch's
            others = [one for one in self.loaders if not one.infers]
            self._make_main(max(others, key=lambda one: one.table.steps, default=self.main))
        record = summary.make(facts, self.main, self.loaders, complete=True)
        record["worker_activity"] = of_workers(self.main.workers, self.main.records, now)
        try:
            self.directory.join()
            write_file(self.directory.path / self.file_name("summary", "json", 1), dump(record, indent=2))
            if record["world_size"] > 1 and not self.directory.is_apart:
                record = self._with_ranks(record)
        except Exception as error:  # the verdict needs no file
            stop(error)
        if self.directory.rank == 0:
            say("\n".join(map(printable, summary.lines(self.directory.path, record))))  # some are of other ranks' files
        elif self.directory.is_apart:
            say(f"pymillrace watch: rank {self.directory.rank} found no run of rank 0 to join; its records are in "
                f"{self.directory.path}; watch rank 0 as well, with the same directory")
        if self._log is not None and self.directory.rank == 0:
            self._log.end(self.main.table, self.main.loop(), summary.cores())
        tracks = [trace.Loader(one.number, one.name, self.directory.path / self.file_name("steps", "csv", one.number),
                               one.workers, one.records) for one in self.loaders]
        # Last: nothing else is lost with it.
        trace.write(self.directory.path / self.file_name("timeline", "json", 1), self.begin, now, tracks)

    def _facts(self) -> summary.Run:
        return summary.Run(time.monotonic() - self.wall_begin, self.directory.rank, self.directory.world_size,
                           self.interrupted, self.error, self.foreign_calls, self.stalls.reports,
                           len(self.deaths.reports), self.memory.facts, self.memory.warning)

    def _with_ranks(self, record: Summary) -> Summary:
        """Adds this rank to the summary of rank 0. Returns the summary to print, on rank 0 with the others' rows."""
        path = self.directory.path
        completed = ranks.complete(path) or record
        if self.directory.rank > 0:
            return record
        return completed if self.interrupted or self.error else ranks.wait_for_all(path, completed)
