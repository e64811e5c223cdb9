"""Discrete-event replay of a training loop behind a DataLoader: predicts its rate under other settings.

The process model is torch's. Batch i belongs to worker i modulo the number of workers, which makes its batches one
after the other. `prefetch * workers` batches are outstanding; handing one out dispatches the next. Batches are handed
out in order. A feeder thread of each worker sends what the worker has made, and next() rebuilds it. Threads that want
more cores than there are share them equally. Threads of a pool spin until the last of them has done its part, as
OpenMP's do: they get on only while all of them have a core.

The replay is pure arithmetic, without clocks and random numbers: equal input gives equal output.
"""
from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Demand:
    """Work of one thread: seconds on a core and seconds blocked. Each of `threads` threads takes the CPU seconds."""
    cpu: float = 0.0
    blocked: float = 0.0
    threads: int = 1

    @property
    def seconds(self) -> float:
        return self.cpu + self.blocked


NOTHING = Demand()


@dataclass(frozen=True)
class Setup:
    """A loop and its demands."""
    workers: int
    prefetch: int  # per worker
    batch: int  # samples
    cores: int
    fetch: tuple[Demand, ...]  # per batch, in turn: data set, transforms, collate
    send: Demand = NOTHING  # per batch, in the worker's feeder thread
    receive: Demand = NOTHING  # per batch, in next()
    hand: Demand = NOTHING  # per batch, in next(), also without workers
    update: Demand = NOTHING  # per step: the body of the loop
    steps: int = 200  # counted steps, rounded up to whole rounds over the workers
    spins: bool = True  # whether threads of a pool spin while they wait for each other


@dataclass(frozen=True)
class Rates:
    """Result of a replay. Seconds are per step."""
    images_per_s: float
    load_s: float
    update_s: float


EQUAL_S = 1e-12  # ends that lie closer to each other are the same moment
MOST_SLOWED = 60  # times that a pool gets slower beside busy processes (docs/results/2026-11-27-without-workers.md)
FIT_STEPS, FIT_ROUNDS = 24, 7  # of the replays that find an update's demand, to 0.8%


@dataclass(order=True)
class _Task:
    """A stretch of one thread, on `threads` cores or blocked (0). Those that end together end in the order of starts."""
    end: float  # on the clock of its kind
    number: int
    threads: int = field(compare=False)
    then: Callable[[], None] = field(compare=False)


def progress(threads: int, wanted: int, cores: int, spins: bool = True) -> float:
    """Returns how fast `threads` threads get on, 1 on cores of their own, while `wanted` threads share the cores.

    If they spin, that is the probability that all of them are among those which have a core.
    """
    if wanted <= cores:
        return 1.0
    if threads == 1 or not spins:
        return cores / wanted
    return max(1 / MOST_SLOWED, math.prod((cores - i) / (wanted - i) for i in range(min(threads, cores))))


class _Pace:
    """Running tasks of equally many threads, which all get on equally fast.

    Their ends lie on a clock of their own, which advances as they get on: tasks end in an order that is known when they
    start, however their pace changes.
    """

    def __init__(self) -> None:
        self.served = 0.0  # seconds on a core that each has had since the start
        self.tasks = list[_Task]()  # a heap


class _Machine:
    """Runs tasks. Those that need cores share them."""

    def __init__(self, cores: int, spins: bool) -> None:
        self.now, self._cores, self._spins = 0.0, cores, spins
        self._wanted = self._started = 0
        self._blocked = list[_Task]()  # a heap
        self._running: dict[int, _Pace] = {}  # by number of threads
        self._due = deque[Callable[[], None]]()

    def start(self, demand: Demand, then: Callable[[], None]) -> None:
        """Runs the blocked part of a demand, then its CPU part."""
        def compute() -> None:
            self._add(demand.cpu, demand.threads, then)

        self._add(demand.blocked, 0, compute)

    def _add(self, seconds: float, threads: int, then: Callable[[], None]) -> None:
        if seconds <= 0:
            self._due.append(then)
            return
        self._started += 1
        if threads:
            pace = self._running.setdefault(threads, _Pace())
            heapq.heappush(pace.tasks, _Task(pace.served + seconds, self._started, threads, then))
            self._wanted += threads
        else:
            heapq.heappush(self._blocked, _Task(self.now + seconds, self._started, 0, then))

    def step(self) -> bool:
        """Does what is due, then advances to the next end of a task. Returns False if nothing runs."""
        while self._due:
            self._due.popleft()()
        running = [(pace, progress(threads, self._wanted, self._cores, self._spins))
                   for threads, pace in self._running.items() if pace.tasks]
        if not self._blocked and not running:
            return False
        time = min([one.end - self.now for one in self._blocked[:1]] +
                   [(pace.tasks[0].end - pace.served) / speed for pace, speed in running])
        self.now += time
        ended = []
        while self._blocked and self._blocked[0].end <= self.now + EQUAL_S:
            ended.append(heapq.heappop(self._blocked))
        for pace, speed in running:
            pace.served += time * speed
            while pace.tasks and pace.tasks[0].end <= pace.served + EQUAL_S:
                ended.append(heapq.heappop(pace.tasks))
                self._wanted -= ended[-1].threads
        self._due.extend(task.then for task in sorted(ended, key=lambda task: task.number))
        return True


@dataclass
class _Worker:
    """A worker process: its main thread and its feeder thread."""
    asked: deque[int] = field(default_factory=deque)
    made: deque[int] = field(default_factory=deque)
    fetching: bool = False
    sending: bool = False


class _Loop:
    """The trainer's thread and its workers."""

    def __init__(self, setup: Setup, steps: int) -> None:
        self.setup, self.steps = setup, steps
        self.machine = _Machine(setup.cores, setup.spins)
        self.workers = [_Worker() for _ in range(setup.workers)]
        self.arrived: set[int] = set()
        self.step = self.dispatched = 0
        self.waiting = False  # in next(), for a batch that has not arrived
        self.asked = self.got = 0.0
        self.marks: list[tuple[float, float, float]] = []  # per step: next() was called, it returned, the body ended

    def run(self) -> None:
        for _ in range(self.setup.prefetch * self.setup.workers):
            self._dispatch()
        self._next()
        while self.step < self.steps and self.machine.step():
            pass

    # Trainer

    def _next(self) -> None:
        self.asked = self.machine.now
        if not self.workers:
            self.machine.start(self._fetch_of(self.step), self._hand)
        elif self.step in self.arrived:
            self._receive()
        else:
            self.waiting = True

    def _receive(self) -> None:
        self.waiting = False
        self.arrived.discard(self.step)
        self.machine.start(self.setup.receive, self._hand)

    def _hand(self) -> None:
        if self.workers:
            self._dispatch()
        self.machine.start(self.setup.hand, self._train)

    def _train(self) -> None:
        self.got = self.machine.now
        self.machine.start(self.setup.update, self._trained)

    def _trained(self) -> None:
        self.marks.append((self.asked, self.got, self.machine.now))
        self.step += 1
        if self.step < self.steps:
            self._next()

    # Workers

    def _fetch_of(self, batch: int) -> Demand:
        return self.setup.fetch[batch % len(self.setup.fetch)]

    def _dispatch(self) -> None:
        worker = self.workers[self.dispatched % len(self.workers)]
        worker.asked.append(self.dispatched)
        self.dispatched += 1
        self._fetch(worker)

    def _fetch(self, worker: _Worker) -> None:
        if worker.fetching or not worker.asked:
            return
        worker.fetching, batch = True, worker.asked.popleft()

        def made() -> None:
            worker.fetching = False
            worker.made.append(batch)
            self._send(worker)
            self._fetch(worker)

        self.machine.start(self._fetch_of(batch), made)

    def _send(self, worker: _Worker) -> None:
        if worker.sending or not worker.made:
            return
        worker.sending, batch = True, worker.made.popleft()

        def sent() -> None:
            worker.sending = False
            self.arrived.add(batch)
            if self.waiting and batch == self.step:
                self._receive()
            self._send(worker)

        self.machine.start(self.setup.send, sent)


def replay(setup: Setup) -> Rates:
    """Runs the simulation. Raises ValueError for input without cores, samples, demands or outstanding batches."""
    if setup.cores < 1 or setup.batch < 1 or setup.workers < 0 or not setup.fetch or setup.steps < 1:
        raise ValueError("a replay needs cores, samples, demands and steps")
    if setup.workers and setup.prefetch < 1:
        raise ValueError("workers need a prefetch of at least 1")
    if setup.update.seconds + setup.hand.seconds + max(one.seconds for one in setup.fetch) <= 0:
        raise ValueError("a replay needs work that takes time")
    round_of = max(1, setup.workers)  # the hand-out comes in rounds over the workers; count whole ones
    warm_up = 2 * round_of * max(1, setup.prefetch) + 8
    steps = (setup.steps + round_of - 1) // round_of * round_of
    loop = _Loop(setup, warm_up + steps)
    loop.run()
    counted = loop.marks[warm_up:]
    begin = loop.marks[warm_up - 1][2]
    load = sum(got - asked for asked, got, _ in counted)
    update = sum(end - got for _, got, end in counted)
    return Rates(steps * setup.batch / (counted[-1][2] - begin), load / steps, update / steps)


def without_spinning(setup: Setup, seconds: float) -> Setup:
    """Returns the setup with as much CPU time per update as makes the replay's update take `seconds`.

    Threads of a pool beside workers compute while they wait for each other, and what was measured holds that too.
    """
    if setup.update.threads == 1 or not setup.workers:
        return setup

    def of(part: float) -> Setup:
        return replace(setup, update=replace(setup.update, cpu=part * setup.update.cpu))

    low, high = 0.0, 1.0
    for _ in range(FIT_ROUNDS):
        middle = 0.5 * (low + high)
        slow = replay(replace(of(middle), steps=FIT_STEPS)).update_s > seconds
        low, high = (low, middle) if slow else (middle, high)
    return of(high)
