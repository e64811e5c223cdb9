"""Time of the trainer's thread: at any moment it is in exactly one span of one loader, or between loaders.

A loader's table has a row per step. A row covers the time from the start of its step to the start of the next, so that
the rows of any loader add up to the time since the recording began.
"""
from __future__ import annotations

# Spans of a row, in the order of the columns of steps.csv. FIRST_BATCH and LOAD count as load, UPDATE and LOOP as
# update, the others as other.
SETUP, FIRST_BATCH, LOAD, UPDATE, LOOP, EVALUATE, LOG, BETWEEN = range(8)
NAMES = ("setup", "first_batch", "load", "update", "loop", "evaluate", "log", "between")

NONE = [0] * len(NAMES)


class Row:
    """One step of a loader."""
    __slots__ = ("epoch", "images", "iter_ns", "ns", "step")

    def __init__(self) -> None:
        self.epoch = self.step = self.images = self.iter_ns = 0
        self.ns = NONE.copy()


class Table:
    """Steps of one loader. `rows` are finished and not yet written; `row` is under way."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.row = Row()
        self.epoch = self.steps = self.images = 0
        self.iter_ns = 0
        self._total = [0] * len(NAMES)
        self._summed = 0  # rows that _total holds
        self.idle_mark = self.busy_mark = 0  # the timeline's counters when this loader lost the foreground

    def close_row(self) -> None:
        self.iter_ns += self.row.iter_ns
        self.rows.append(self.row)
        self.row = Row()

    @property
    def total(self) -> list[int]:
        """Sums of the finished rows, by span. They are made here, because every step closes a row."""
        if self._summed < len(self.rows):
            new = [row.ns for row in self.rows[self._summed:]]
            self._total = [sum(column) for column in zip(self._total, *new)]
            self._summed = len(self.rows)
        return self._total

    def take_rows(self) -> list[Row]:
        """Returns the finished rows and forgets them."""
        self._total, rows = self.total, self.rows
        self.rows, self._summed = [], 0
        return rows


class Timeline:
    """Hands each stretch of time to the loader in the foreground, in turn."""

    def __init__(self, now: int) -> None:
        self.begin = self._since = now
        self._idle = self._busy = 0
        self.stack: list[Table] = []
        self._forward = self._step_begin = self._step_end = 0

    # Marks of torch's hooks, in the body of the loop.

    def forward(self, now: int) -> None:
        if self._forward == 0:
            self._forward = now

    def step_begins(self, now: int) -> None:
        if self._step_begin == 0:
            self._step_begin = now

    def step_ended(self, now: int) -> None:
        self._step_end = now

    @property
    def stepped(self) -> bool:
        """Returns whether an optimizer has stepped since the body of the loop began."""
        return self._step_end != 0

    # Transitions. Each ends the stretch that began with the one before.

    def _leave(self, now: int) -> None:
        """Ends a stretch in the body of the foreground's loop, or between loaders."""
        if not self.stack:
            self._idle += now - self._since
        else:
            ns, whole = self.stack[-1].row.ns, now - self._since
            begin = self._forward or self._step_begin
            if 0 < self._step_begin < begin:  # a step for the batch before, ahead of the forward
                begin = self._step_begin
            if self._step_end != 0 and begin != 0:
                update = self._step_end - begin
                ns[LOOP] += whole - update
                ns[UPDATE] += update
            else:
                ns[LOOP] += whole
            self._busy += whole
        self._since = now
        self._forward = self._step_begin = self._step_end = 0

    def _add(self, table: Table, span: int, now: int) -> None:
        table.row.ns[span] += now - self._since
        self._busy += now - self._since
        self._since = now

    def _away(self, table: Table) -> None:
        table.idle_mark, table.busy_mark = self._idle, self._busy

    def _back(self, table: Table) -> None:
        """Accounts for the time since a loader lost the foreground."""
        table.row.ns[SETUP if table.steps == 0 and table.epoch == 0 else BETWEEN] += self._idle - table.idle_mark
        table.row.ns[EVALUATE] += self._busy - table.busy_mark

    def _front(self, table: Table) -> None:
        """Brings a loader to the foreground; those above it in the stack were abandoned by their loops."""
        if self.stack and self.stack[-1] is table:
            return
        if table in self.stack:
            while self.stack[-1] is not table:
                self._away(self.stack.pop())
        else:
            if self.stack:
                self._away(self.stack[-1])
            self.stack.append(table)
        self._back(table)

    def iter_begins(self, table: Table, now: int) -> None:
        self._leave(now)
        self._front(table)
        if table.row.step != 0:
            table.close_row()
        table.epoch += 1

    def iter_ended(self, table: Table, now: int) -> int:
        """Returns the time that iter() took."""
        begin = self._since
        self._add(table, LOAD if table.steps else FIRST_BATCH, now)
        table.row.iter_ns += now - begin
        return now - begin

    def next_begins(self, table: Table, now: int) -> None:
        self._leave(now)
        if not self.stack or self.stack[-1] is not table:
            self._front(table)

    def next_ended(self, table: Table, now: int, images: int) -> None:
        """Begins the body of the loop with a new batch."""
        waited = now - self._since
        self._since = now
        self._busy += waited
        if table.row.step != 0:
            table.close_row()
        row = table.row
        row.ns[LOAD if table.steps else FIRST_BATCH] += waited
        table.steps += 1
        table.images += images
        row.epoch, row.step, row.images = table.epoch, table.steps, images

    def exhausted(self, table: Table, now: int) -> int:
        """Ends an iteration: next() raised StopIteration or an error. Returns the time that this call took."""
        begin = self._since
        self._add(table, LOAD if table.steps else FIRST_BATCH, now)
        self.drop(table)
        return now - begin

    def drop(self, table: Table) -> None:
        self._away(table)
        self.stack.remove(table)
        if self.stack:
            self._back(self.stack[-1])

    def logged_after_next(self, table: Table, now: int) -> None:
        """Ends a stretch in which the recorder itself worked, right after next()."""
        self._add(table, LOG, now)

    def close(self, tables: list[Table], now: int) -> None:
        """Ends the recording: every row is closed."""
        self._leave(now)
        while self.stack:
            self._away(self.stack.pop())
            if self.stack:
                self._back(self.stack[-1])
        for table in tables:
            self._back(table)
            self._away(table)
            table.close_row()
