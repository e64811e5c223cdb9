"""Recording of one loader: its waits, the loop around it, and what its workers do."""
from __future__ import annotations

import weakref
from collections.abc import Sequence
from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from . import room, shared_memory
from .._watch import FIRST_STEPS, FLUSH, Receipts, RecordRing, StepHooks, Steps
from .batch_arrays import arrays_in, bytes_of, descriptors_of, tensors_of
from .breakdown import STARTUP, Breakdown
from .clocks import SCHEDSTAT, ThreadClock, between
from .counterpart import counterpart_of
from .deaths import Deaths, wait_for_the_end
from .device import DeviceGaps, device_gaps
from .faults import pass_on
from .figures import epoch_line
from .hooks import evaluates
from .lane import Lane
from .loop_facts import DeviceWaits, LoopFacts
from .run_directory import RunDirectory
from .shards import is_iterable, reads_generator, shards_of
from .signals import without_signals_of_workers, without_signals_of_writes
from .spans import BETWEEN, EVALUATE, LOOP, SETUP, UPDATE, Table
from .threads import Facts, Threads
from .transforms import TransformTimer
from .usage import Usage

if TYPE_CHECKING:
    from .summary_record import Counterpart

SLOTS = 4096  # records of workers


def weak(inner: Any) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(inner)
    except TypeError:  # a list or a tuple
        return None


class Given(NamedTuple):
    """What a loader that was given to watch() has in common with the one that a framework makes of it for a rank."""
    kind: type
    data: int  # the data set's identity: the recording keeps none alive
    batch: int | None

    @classmethod
    def of(cls, loader: Any) -> Given:
        return cls(type(loader), id(loader.dataset), loader.batch_size)


class Stretch(NamedTuple):
    """Sums at the begin or the end of a stretch in which the body of the loop is measured."""
    steps: int  # whose body has ended
    waits: int  # that were not yet split
    body: int  # ns
    others: int  # ns in which something else ran
    cpu: int  # ns of all threads of the process
    own: int  # ns of CPU time of the trainer's thread
    delay: int  # ns in which the trainer's thread had no core
    loop: int  # ns of the trainer's thread between loaders
    waited: int  # ns of these in which it waited for other threads


class Recording(Protocol):
    """What a loader asks of the run that it belongs to: a session."""
    marks: StepHooks
    planned_steps: int | None
    closed: bool
    foreign_calls: int
    deaths: Deaths
    main: WatchedLoader | None

    @property
    def clock(self) -> ThreadClock: ...
    @property
    def directory(self) -> RunDirectory: ...
    @property
    def is_here(self) -> bool: ...
    @property
    def records_threads(self) -> bool: ...
    @property
    def writes_lines(self) -> bool: ...
    def takes_part(self) -> bool: ...
    def open(self) -> None: ...
    def start_watchdog(self) -> None: ...
    def end_if_planned(self) -> None: ...
    def follow_waits(self) -> None: ...
    def summarise(self) -> None: ...
    def failed(self, error: BaseException) -> None: ...
    def write_rows(self, loader: WatchedLoader, rows: str) -> None: ...
    def write_epoch(self, loader: WatchedLoader, line: dict[str, Any]) -> None: ...


class WatchedLoader:
    """A watched loader."""

    def __init__(self, session: Recording, name: str, number: int, kind: str) -> None:
        self.name, self.number, self.kind = name, number, kind
        self.line = ("", "")
        self.table = Table()
        self.breakdown = Breakdown()
        self.recorder = Steps(session.marks, self.table, self.breakdown)
        self.workers = self.prefetch = self.batch = 0
        self.takes_prefetch = True
        self.iterable, self.generator, self.shards = False, False, 0
        self.in_order = True
        self.samples: int | None = None
        self.length: int | None = None  # batches of an epoch
        self.dataset, self.start_method, self.persistent = "", "", False
        self.transforms: list[str] = []
        self.counterpart: Counterpart | None = None  # of its data set, in millrace's own loader
        self.parts = 0
        self.records: RecordRing | None = None
        self.object: weakref.ref[Any] | None = None  # the loader given to watch()
        self.given: Given | None = None  # the same, unless it was one rank's already
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
        self.batch_bytes = self.tensor_bytes = 0  # of the first batch, and of what it holds in shared memory
        self.tensors = 0  # of the first batch, that workers hand over to next() by descriptors
        self.free_shared_memory: int | None = None  # when workers first began
        self._stretch: Stretch | None = None  # under way, of the loop's body
        self.lane: Lane | None = None  # of the other thread that iterates over it
        self.session, self._timeline = session, session.marks.timeline
        self._steps_before = 0  # of the iteration under way
        self._iter_reading: tuple[int, int, int] | None = None
        self._epoch_begin = self.table.total

    @property
    def sees_inside(self) -> bool:
        return self.kind == "DataLoader"

    @property
    def alternates(self) -> bool:
        """Returns whether another loader of the same loop gives a batch in most of its steps."""
        return 2 * self.table.turns > self.table.steps

    def was_given_as(self, loader: Any) -> bool:
        """Returns whether a rank's loader may be made from the one that was given, which no loop iterates over."""
        given, inner, data = (None if one is None else one() for one in (self.object, self.inner, self.data))
        if self.data is not None and data is None:  # the identity may be another one's by now
            return False
        return self.given == Given.of(loader) and (given is None or inner is not given)

    @property
    def shared_memory_needed(self) -> int | None:
        """Returns the bytes that its batches in flight take in shared memory."""
        return shared_memory.needed(self.workers, self.prefetch, self.tensor_bytes)

    # iter()

    def iter_begins(self, loader: Any) -> int:
        """Returns the number of this iteration, from 1; 0 if it is not recorded."""
        if not self.session.takes_part():
            if not self.is_free():
                return 0
            self._enter_lane()
        elif self.recorder.is_inside_another:
            return 0
        self.session.open()
        self.flush()  # the next iteration numbers its batches from 0 again
        self.recorder.generation += 1
        self.recorder.probe = None
        self._timeline.iter_begins(self.table, perf_counter_ns())
        self._steps_before, self.inner = self.table.steps, weak(loader)
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
        self.lane = Lane.here(self.session.marks)
        self.session.follow_waits()
        self.recorder.move(self.lane.marks)
        self._timeline, self.device = self.lane.marks.timeline, None

    def stay_in(self, lane: Lane) -> None:
        """Goes on in its thread, which has turned out not to be the trainer's."""
        self.lane, self.device, self.usage = lane, None, Usage()
        self._stretch, self.recorder.measures = None, False
        self.recorder.stay(lane.marks)

    def moves_here(self, generation: int, receipts: Receipts | None) -> int:
        """Begins a call of next() in a thread other than the one that iterated so far.

        Returns the depth of its record; 0: none. An iteration whose first batch another thread takes than called iter()
        is recorded.
        """
        session = self.session
        if session.closed or generation != self.recorder.generation:
            return 0
        owner = session.is_here if self.lane is None else self.lane.is_here
        if owner or not session.records_threads or self.table.steps != self._steps_before:
            session.foreign_calls += not owner
            return 0
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
        self.takes_prefetch = "prefetch_factor" in getattr(loader, "__dict__", {})  # fastai's class has a fixed one
        self.batch = (getattr(loader, "batch_size", None) or
                      getattr(getattr(loader, "batch_sampler", None), "batch_size", None) or 0)
        self.recorder.batch_size = self.batch
        self.persistent = bool(getattr(loader, "persistent_workers", False))
        self.in_order = self.recorder.in_order = bool(getattr(loader, "in_order", True))  # from torch 2.6 on
        context = getattr(loader, "multiprocessing_context", None)
        if self.workers:
            import torch.multiprocessing

            self.start_method = (context or torch.multiprocessing).get_start_method()
        self.dataset = type(loader.dataset).__name__
        self.iterable, self.generator = is_iterable(loader.dataset), reads_generator(loader.dataset)
        self.shards = shards_of(loader.dataset, self.session.directory.world_size)
        try:
            self.samples = len(loader.dataset)
        except Exception as error:  # it has no length, or does what it likes
            pass_on(error)
            self.samples = None
        self.length = self.samples // self.batch if self.samples and self.batch else None
        if self.counterpart is None:
            self.counterpart = counterpart_of(loader)
        transforms = TransformTimer(loader.dataset).names
        if transforms != self.transforms or self.recorder.first:
            self.transforms, self.parts = transforms, len(transforms)
            self.breakdown.set_transforms(len(transforms))
            self.records = None
        slots = max(SLOTS, 4 * self.workers * self.prefetch)
        if self.workers and (self.records is None or self.records.slots < slots):
            self.flush()
            with without_signals_of_writes():  # a limit of files' sizes holds for memory too
                self.records = RecordRing(slots, self.parts)
        if self.workers and self.recorder.first:
            self.free_shared_memory = room.free(room.SHARED_MEMORY)
        self.recorder.records = self.records
        if not (self.persistent and self.recorder.started != 0):
            self.recorder.started = perf_counter_ns() if self.workers else 0

    def iter_ended(self) -> None:
        if self._iter_reading is None:
            return
        self.session.start_watchdog()  # after the workers: none is forked beside a thread
        ns = self._timeline.iter_ended(self.table, perf_counter_ns())
        self.breakdown.add_outside(STARTUP, list(between(self._iter_reading, self.clock.read())), ns)
        self._iter_reading = None

    # next()

    def before_next(self) -> None:
        """Does what a call of next() needs only with a plan or a device."""
        if self.session.planned_steps is not None and self.lane is None:  # this thread's end does not end the loop
            self.session.end_if_planned()
        if self.device is not None:
            self.device.next_begins()

    def after_next(self, data: Any, due: int) -> None:
        """Does what not every call of next() needs. `due`: FLUSH, or MEASURE without a stretch under way."""
        if self.device is not None:
            self.device.next_ended()
        if due == FLUSH:
            if self.recorder.first:
                self._look_into(data)
            self._measure(self.table.steps - 1)
            self._look()
            self.flush()
            self._read_threads()
            self.session.summarise()
            self._timeline.logged_after_next(self.table, perf_counter_ns())
        if self._stretch is None and self.table.steps > FIRST_STEPS:
            self._stretch = self._stretch_from_here()
            self.recorder.measures = True

    def next_failed(self, error: BaseException, workers: Sequence[Any] = ()) -> None:
        """Ends an iteration: at its regular end, or with an error, to which it adds how its workers have ended."""
        self.recorder.waits_no_more()
        if self._is_owned() and self._timeline.holds(self.table):
            with without_signals_of_workers():
                if isinstance(error, Exception) and not isinstance(error, StopIteration):
                    wait_for_the_end(workers, error)
                    exits = self.session.deaths.note(self.name, self.table.steps, self.shared_memory_needed, workers)
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

    def iterator_dies(self, generation: int, workers: Sequence[Any] = ()) -> bool:
        """Begins the end of an iterator whose loop was left. Returns whether it is recorded."""
        if generation != self.recorder.generation or self.session.closed or not self._is_owned():
            return False
        if not self._timeline.holds(self.table):
            return False
        self.session.deaths.note(self.name, self.table.steps, self.shared_memory_needed, workers)
        self._timeline.abandoned(self.table, perf_counter_ns())
        self._measure(self.table.steps)
        self._look()
        return True

    def iterator_died(self) -> None:
        ns = self._timeline.exhausted(self.table, perf_counter_ns())
        self.breakdown.add_wait(STARTUP, ns)
        self.ended_ns += ns
        self._end_epoch(exhausted=False)

    def _look_into(self, batch: Any) -> None:
        """Learns the size of the first batch, and whether as many as workers make fit into shared memory."""
        arrays = list(arrays_in(batch))
        tensors = tensors_of(arrays)
        self.batch_bytes = sum(map(bytes_of, arrays))
        iterator = None if self.iterator is None else self.iterator()
        if not getattr(iterator, "_pin_memory", False):  # else a thread of its own receives them, not next()
            self.tensors = descriptors_of(tensors)
        if not self.workers:
            return
        self.tensor_bytes = sum(map(bytes_of, tensors))
        if self.session.writes_lines:
            shared_memory.tell_if_full(self.name, self.workers, self.prefetch, self.tensor_bytes,
                                       self.free_shared_memory)

    # The loop's body

    def _stretch_from_here(self) -> Stretch:
        """Returns a stretch that begins with the body of the current step."""
        spans = self.table.spans
        loop, waited = (0, 0) if self.lane is None else self.session.marks.own_time
        own, delay = self.clock.read()[1:] if self.lane is None or self.lane.is_here else self.lane.used()
        return Stretch(self.table.steps - 1, self.recorder.waits, spans[UPDATE] + spans[LOOP],
                       spans[SETUP] + spans[EVALUATE] + spans[BETWEEN], process_time_ns(), own, delay, loop, waited)

    def _measure(self, steps: int) -> None:
        """Adds what the bodies of the steps used since the stretch began, if nothing else ran. `steps`: ended ones."""
        begin, self._stretch = self._stretch, None
        self.recorder.measures = False
        if begin is None or steps <= begin.steps:
            return
        end = self._stretch_from_here()
        if end.others != begin.others:
            return
        if self.lane is not None:
            waited = end.waited - begin.waited
            self.usage.add_loop(steps - begin.steps, max(0, end.loop - begin.loop - waited),
                                (end.cpu - begin.cpu) - (end.own - begin.own), waited)
            return
        next_cpu, next_delay = self.recorder.used_in_next(begin.waits)
        self.usage.add(steps - begin.steps, end.body - begin.body, end.cpu - begin.cpu - next_cpu,
                       max(0, (end.cpu - begin.cpu) - (end.own - begin.own)), end.delay - begin.delay - next_delay)
        next_others, _, body_others, _ = self.recorder.others
        if next_others > 0:
            self.usage.in_next = next_others / (next_others + body_others)

    def end_ahead(self) -> None:
        """Ends what is measured of a loop whose batches another thread takes, from the loop's thread."""
        if self.lane is not None and self.lane.lives:
            self._measure(self.table.steps - 1)

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
            busy = self.threads.read(self.breakdown, self.session.directory.world_size == 1)
            if busy is not None:
                self.recorder.follow(busy)

    def facts(self) -> Facts:
        """Returns what is known of the threads beside the loop's own; nothing where that is one of them."""
        if self.lane is not None:
            return Facts()
        cpu, wall, _, _ = self.recorder.others
        return self.threads.facts(cpu / wall if wall > 0 else 0.0)

    def loop(self) -> LoopFacts:
        """Returns what is known of its loop now."""
        total, first, gaps = self.table.total, self.table.first, self.device
        return LoopFacts(
            kind=self.kind, workers=self.workers, prefetch=self.prefetch, takes_prefetch=self.takes_prefetch,
            iterable=self.iterable, generator=self.generator, shards=self.shards, persistent=self.persistent,
            transforms=tuple(self.transforms), batch_bytes=self.batch_bytes, tensors=self.tensors,
            infers=self.infers, takes_ahead=self.lane is not None, alternates=self.alternates,
            epoch=self.table.epoch, steps=self.table.steps, images=self.table.images,
            update_s=1e-9 * (total[UPDATE] + total[LOOP]),
            first_steps=min(FIRST_STEPS, self.table.steps), first_update_s=1e-9 * (first[UPDATE] + first[LOOP]),
            epochs=tuple(self.epochs),
            breakdown=self.breakdown.copy(), usage=self.usage.copy(),
            device=None if gaps is None else DeviceWaits(gaps.waits, gaps.seconds, gaps.first_s), threads=self.facts())

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
        line = epoch_line(self.table, self.breakdown, self.epochs, spans, whole)
        self.epochs.append(line)
        self.session.write_epoch(self, line)
