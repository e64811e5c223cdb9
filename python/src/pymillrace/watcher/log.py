"""Figures of a run under way for a function of the user's, as `log=` of watch() and watching() takes it.

The trainer's thread collects the figures, when it writes rows anyway, in 0.3 ms of CPU time. Another one calls the
function, so that one that waits, as for a server, holds nobody up. Only rank 0 calls it.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .faults import is_of_signal_handler, text_of
from .loop_facts import LoopFacts
from .messages import say
from .periodic import Periodic
from .run_directory import seconds
from .spans import FIRST_BATCH, LOAD, LOOP, SETUP, UPDATE, Table
from .verdict import classify

Call = Callable[[dict[str, Any]], object]
INTERVAL_S = 10.0  # between two calls
PATIENCE = 2.0  # seconds that the last call waits for one that has not returned


class Log(Periodic):
    """Calls of one function. Its exceptions go no further, and the first is noted on stderr."""

    def __init__(self, call: Call) -> None:
        super().__init__("log", INTERVAL_S, INTERVAL_S)
        self.call = call
        self._noted = False
        self._table: Table | None = None  # of the main loader
        self._before = 0, 0, 0, 0, 0  # steps, images, load, update and all of the main loader at the last call

    def tell(self, table: Table, loop: LoopFacts, cores: int) -> None:
        """Begins a call with the figures since the last one."""
        figures = self._figures(table, loop, cores)
        self.begin(lambda: self._call(figures))

    def end(self, table: Table, loop: LoopFacts, cores: int) -> None:
        """Calls the function for the last time, in this thread: a process that ends starts no other."""
        self.wait(PATIENCE)
        if table.steps > (self._before[0] if table is self._table else 0):
            self._call(self._figures(table, loop, cores))

    def _call(self, figures: dict[str, Any]) -> None:
        try:
            self.call(figures)
        except (Exception, SystemExit) as error:
            if is_of_signal_handler(error):
                raise
            if not self._noted:
                self._noted = True
                say(f"pymillrace watch: log={getattr(self.call, '__name__', self.call)}: {text_of(error)}; the "
                    "training goes on")

    def _figures(self, table: Table, loop: LoopFacts, cores: int) -> dict[str, Any]:
        """Returns the figures of the steps since the last call; bound and verdict are those of the whole run."""
        if table is not self._table:  # an optimizer has stepped in its loop
            self._table, self._before = table, (0, 0, 0, 0, 0)
        ns = table.spans
        now = (table.steps, table.images, ns[FIRST_BATCH] + ns[LOAD], ns[UPDATE] + ns[LOOP], sum(ns) - ns[SETUP])
        steps, images, *spent = (one - before for one, before in zip(now, self._before))
        self._before = now
        load, update, whole = map(seconds, spent)
        verdict = classify(loop, cores)
        each = 1e3 / max(1, steps)
        return {"step": table.steps, "epoch": table.epoch, "images": table.images,
                "load_share": load / whole if whole else 0.0, "update_share": update / whole if whole else 0.0,
                "load_ms": each * load, "update_ms": each * update, "step_ms": each * whole,
                "images_per_s": images / (load + update) if images and load + update else None,
                "workers_needed": verdict.workers_needed, "bound": verdict.bound, "verdict": verdict.sentence}
