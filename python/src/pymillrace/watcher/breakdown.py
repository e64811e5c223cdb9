"""Wait breakdown: splits each wait for a batch along that batch's own history, by place and by kind.

The parts of a wait are stretches between measured times, so they add up to the wait to the nanosecond. What one worker
did before it began the awaited batch counts for its place too: the wait was for that work.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from .clocks import UNKNOWN, kinds
from .records import Record

PLACES = ("dataset", "transform", "collate", "transfer", "startup", "handover", "unknown")
KINDS = ("cpu", "blocked", "cores", "unknown")
DATASET, TRANSFORM, COLLATE, TRANSFER, STARTUP, HANDOVER, NOWHERE = range(7)

DEMANDS = 256
KEPT = 64  # records per worker; no wait reaches back over more

Kinds = tuple[float, float, float, float]  # ns of each kind
Share = tuple[int, Kinds]  # place and what was done there


class Wait(NamedTuple):
    """One call of next() that returned a batch."""
    generation: int
    batch: int  # UNKNOWN: the iterator does not tell
    asked: int
    received: int  # the batch's bytes were read from the pipe; 0: in an earlier call or without a pipe; UNKNOWN: pinned
    rebuilt: int  # its tensors were rebuilt from them
    rebuild_cpu: int
    rebuild_delay: int
    got: int
    read_cpu: int = 0  # CPU time of reading its bytes, before `received`


class Stretch(NamedTuple):
    """Time of one thread of a worker, with the proportions of what it did."""
    begin: int
    end: int
    shares: tuple[Share, ...]


def shares_of(place: int, wall: int, cpu: int, delay: int) -> tuple[Share, ...]:
    return ((place, kinds(wall, cpu, delay)),)


class TransformRow:
    """Sums over the sampled batches of one transform."""
    __slots__ = ("cpu", "wall")

    def __init__(self) -> None:
        self.wall = self.cpu = 0


class Breakdown:
    """Sums of one loader."""

    def __init__(self, transforms: list[str]) -> None:
        self.waits = [[0.0] * len(KINDS) for _ in PLACES]  # ns of load
        self.work = [[0.0] * len(KINDS) for _ in PLACES]  # ns of the workers, whether waited for or not
        self.names = transforms
        self.rows = [TransformRow() for _ in transforms]
        self.batches = self.missing = self.overruns = self.sampled_batches = self.sampled_samples = 0
        self.steady = [0.0] * len(PLACES)  # waits after the first
        self.demands: deque[tuple[float, float]] = deque(maxlen=DEMANDS)  # CPU and blocked ns of the latest batches
        self.rebuilt = [0.0] * len(KINDS)  # ns in which batches were rebuilt, by kind
        self.handed = 0.0  # ns of next() that are neither fetching nor waiting
        self.rebuilds = self.hands = 0
        self._generation = 0
        self._ratio: dict[int, tuple[float, float]] = {}  # per worker: transforms' share of the stage's CPU and rest
        # The latest records per worker, for the waits that reach back to them; of its main thread, and of its feeder.
        self._fetched: dict[int, deque[Record]] = {}
        self._fed: dict[int, deque[Record]] = {}
        self._started: dict[int, Stretch] = {}

    def add_wait(self, place: int, ns: float, of: Kinds | None = None) -> None:
        """Adds waiting time of one place, with the proportions of `of`; without them its kind is unknown."""
        row = self.waits[place]
        self.steady[place] += ns
        whole = of[0] + of[1] + of[2] + of[3] if of is not None else 0
        if of is None or whole <= 0:
            row[3] += ns
            return
        scale = ns / whole
        self._add_four(row, (scale * of[0], scale * of[1], scale * of[2], scale * of[3]))

    def set_transforms(self, names: list[str]) -> None:
        """Begins rows of other transforms."""
        self.names, self.rows = names, [TransformRow() for _ in names]
        self.sampled_batches = self.sampled_samples = 0

    def add_outside(self, place: int, reading: tuple[int, int, int], ns: float) -> None:
        """Adds `ns` of the trainer's own thread, whose clocks read wall, CPU and delay meanwhile."""
        self.add_wait(place, ns, kinds(*reading))

    def end_first_wait(self) -> None:
        """Begins the steady state, from which the verdict is made."""
        self.steady = [0.0] * len(PLACES)

    # One batch

    def add(self, wait: Wait, record: Record | None, started: int, in_order: bool) -> None:
        """Splits a wait. `started`: when the workers' processes were started; 0 without workers."""
        self.batches += 1
        if record is None:
            self.missing += 1
            self.add_wait(NOWHERE, wait.got - wait.asked)
            return
        if wait.generation != self._generation:
            self._generation = wait.generation
            if started != 0:
                self._fetched.clear()
                self._fed.clear()
        shares = self._remember(record, started)
        at = wait.asked
        if started == 0 and at <= record.begin:  # the wait holds the whole batch
            for place, one in shares:
                self._add_four(self.waits[place], one)
                self.steady[place] += sum(one)
            own = wait.got - at - (record.end - record.begin)
            self.add_wait(HANDOVER, own)
            self.handed += own
            self.hands += 1
            return
        if record.end > at:
            at = self._walk(self._fetch_stretches(record.worker, at), at, min(record.end, wait.got),
                            HANDOVER if in_order else NOWHERE)
        if started == 0:
            self.add_wait(HANDOVER, wait.got - at)
            return
        arrived = wait.received if 0 < wait.received < wait.got else wait.got
        if not record.sent:
            self._add_if(TRANSFER, arrived - at)
        else:
            if record.send_end > at:
                at = self._walk(self._feed_stretches(record.worker, at), at, min(record.send_end, arrived), HANDOVER)
            # The thread that pins memory also rebuilds the batch.
            self._add_if(TRANSFER if wait.received == UNKNOWN else HANDOVER, arrived - at)
        at = max(at, arrived)
        if wait.received > 0 and wait.rebuilt > at:
            rebuilt = kinds(wait.rebuilt - wait.received, wait.rebuild_cpu, wait.rebuild_delay)
            self.add_wait(TRANSFER, wait.rebuilt - at, rebuilt)
            self._add_four(self.rebuilt, rebuilt)
            self.rebuilt[0] += wait.read_cpu
            self.handed += wait.got - wait.rebuilt
            self.rebuilds += 1
            self.hands += 1
            at = wait.rebuilt
        self._add_if(HANDOVER, wait.got - at)

    def _add_if(self, place: int, ns: int) -> None:
        if ns > 0:
            self.add_wait(place, ns)

    def _walk(self, stretches: Iterator[Stretch], begin: int, end: int, gap: int) -> int:
        """Splits [begin, end) along a thread's stretches; the time between them counts for `gap`. Returns its end."""
        at = begin
        for one in stretches:
            if one.end <= at:
                continue
            if one.begin >= end:
                break
            if one.begin > at:
                self.add_wait(gap, one.begin - at)
                at = one.begin
            until = min(one.end, end)
            self._along(one, until - at)
            at = until
        self._add_if(gap, end - at)
        return max(at, end)

    def _along(self, stretch: Stretch, ns: int) -> None:
        whole = sum(sum(one) for _, one in stretch.shares)
        for place, one in stretch.shares:
            self.add_wait(place, ns * sum(one) / whole if whole > 0 else ns / len(stretch.shares), one)

    def _fetch_stretches(self, worker: int, since: int) -> Iterator[Stretch]:
        """Yields what a worker's main thread did after a moment."""
        start = self._started.get(worker)
        if start is not None and start.end > since:
            yield start
        for record in _ended_after(self._fetched[worker], since, "end"):
            if record.collate == UNKNOWN:
                yield Stretch(record.begin, record.end, _nowhere(record))
            else:
                yield Stretch(record.begin, record.collate, self._dataset_shares(record))
                yield Stretch(record.collate, record.end, _collate_shares(record))

    def _feed_stretches(self, worker: int, since: int) -> Iterator[Stretch]:
        """Yields what a worker's feeder thread did after a moment."""
        for record in _ended_after(self._fed[worker], since, "send_end"):
            yield Stretch(record.send_begin, record.send_end, _send_shares(record))

    # A worker's record

    def _remember(self, record: Record, started: int) -> tuple[Share, ...]:
        """Adds a record to the work. Returns what the worker's main thread did for it."""
        worker = record.worker
        if worker not in self._fetched:
            self._fetched[worker], self._fed[worker] = deque(maxlen=KEPT), deque(maxlen=KEPT)
        if started != 0:
            before = self._started.get(worker)
            if before is None or before.begin != started:
                shares = shares_of(STARTUP, record.begin - started, record.start_cpu, record.start_delay)
                self._started[worker] = Stretch(started, record.begin, shares)
                self._work(shares)
            if record.sent:
                self._fed[worker].append(record)
                self._work(_send_work(record))
        self._fetched[worker].append(record)
        if record.collate == UNKNOWN:
            shares = _nowhere(record)
        else:
            if record.transform != UNKNOWN:
                self._sample(record)
            shares = (*self._dataset_shares(record), *_collate_shares(record))
            cpu = blocked = 0.0
            for _, one in shares:
                cpu += one[0]
                blocked += one[1] + one[3]
            self.demands.append((cpu, blocked))
        self._work(shares)
        return shares

    def _work(self, shares: tuple[Share, ...]) -> None:
        for place, one in shares:
            self._add_four(self.work[place], one)

    @staticmethod
    def _add_four(row: list[float], one: Kinds) -> None:
        row[0] += one[0]
        row[1] += one[1]
        row[2] += one[2]
        row[3] += one[3]

    def _dataset_shares(self, record: Record) -> tuple[Share, ...]:
        """Splits the time in the data set into its transforms and the rest, as the latest sampled batch measured."""
        cpu, blocked, cores, unknown = kinds(record.collate - record.begin, record.dataset_cpu, record.dataset_delay)
        ratio = self._ratio.get(record.worker)
        if ratio is None:
            return ((DATASET, (cpu, blocked, cores, unknown)),)
        of_cpu, of_rest = ratio
        t_cpu, t_blocked, t_cores, t_unknown = of_cpu * cpu, of_rest * blocked, of_rest * cores, of_rest * unknown
        return ((DATASET, (cpu - t_cpu, blocked - t_blocked, cores - t_cores, unknown - t_unknown)),
                (TRANSFORM, (t_cpu, t_blocked, t_cores, t_unknown)))

    def _sample(self, record: Record) -> None:
        self.sampled_batches += 1
        self.sampled_samples += record.samples
        for row, wall, cpu in zip(self.rows, record.parts[::2], record.parts[1::2]):
            row.wall += wall
            row.cpu += cpu
        wall = record.collate - record.begin
        cpu = min(record.dataset_cpu, wall)
        rest = wall - cpu
        of_cpu = min(1.0, record.transform_cpu / cpu) if cpu > 0 else 0.0
        of_rest = min(1.0, max(0, record.transform - record.transform_cpu) / rest) if rest > 0 else 0.0
        self._ratio[record.worker] = (of_cpu, of_rest)


def _ended_after(records: deque[Record], since: int, field: str) -> list[Record]:
    """Returns the latest records whose `field` lies after a moment, oldest first. Each thread's times ascend."""
    found: list[Record] = []
    for record in reversed(records):
        if getattr(record, field) <= since:
            break
        found.append(record)
    found.reverse()
    return found


def _nowhere(record: Record) -> tuple[Share, ...]:
    return ((NOWHERE, (0.0, 0.0, 0.0, float(record.end - record.begin))),)


def _collate_shares(record: Record) -> tuple[Share, ...]:
    return shares_of(COLLATE, record.end - record.collate, record.collate_cpu, record.collate_delay)


def _send_work(record: Record) -> tuple[Share, ...]:
    """Returns what sending a batch took. Waiting until the trainer's process has read others is no part of it."""
    cpu, blocked, cores, unknown = shares_of(TRANSFER, record.send_end - record.send_begin, record.send_cpu,
                                             record.send_delay)[0][1]
    waited = min(blocked, record.send_waited), min(unknown, record.send_waited)
    return ((TRANSFER, (cpu, blocked - waited[0], cores, unknown - waited[1])),
            (HANDOVER, (0.0, waited[0], 0.0, waited[1])))


def _send_shares(record: Record) -> tuple[Share, ...]:
    return shares_of(TRANSFER, record.send_end - record.send_begin, record.send_cpu, record.send_delay)
