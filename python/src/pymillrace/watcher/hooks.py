"""Marks of torch: the first forward of a module after a batch, and every optimizer step.

The hook on modules is removed by its own first call, because a global hook slows every module's call down.
"""
from __future__ import annotations

from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .spans import Timeline


class TorchHooks:
    """Hooks of one session. They act in the trainer's thread only."""

    def __init__(self, timeline: Timeline, thread: int, stepped: Any) -> None:
        from torch.nn.modules import module
        from torch.optim import optimizer

        self._timeline, self._thread, self._stepped = timeline, thread, stepped
        self._hook = self._before_forward
        self._forward_hooks = module._global_forward_pre_hooks
        handle = module.register_module_forward_pre_hook(self._before_forward)
        self._forward_id = handle.id  # stays our own, also while the hook is taken out
        handle.remove()
        self._steps = [optimizer.register_optimizer_step_pre_hook(self._before_step),
                       optimizer.register_optimizer_step_post_hook(self._after_step)]

    def arm(self) -> None:
        """Waits for the next forward."""
        self._forward_hooks[self._forward_id] = self._hook

    def _before_forward(self, *_: Any) -> None:
        if get_ident() == self._thread:
            self._forward_hooks.pop(self._forward_id, None)
            self._timeline.forward(perf_counter_ns())

    def _before_step(self, *_: Any) -> None:
        if get_ident() != self._thread:
            return
        self._timeline.step_begins(perf_counter_ns())

    def _after_step(self, *_: Any) -> None:
        if get_ident() != self._thread:
            return
        self._timeline.step_ended(perf_counter_ns())
        self._stepped()

    def remove(self) -> None:
        for handle in self._steps:
            handle.remove()
        self._forward_hooks.pop(self._forward_id, None)
