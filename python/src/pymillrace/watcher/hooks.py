"""Hooks into torch: the first forward of a module after a batch, and every optimizer step.

The hook on modules is removed by its own first call, because a global hook slows every module's call down. The hooks
act in the trainer's thread only.
"""
from __future__ import annotations

import sys
import warnings
from typing import Any

from .._watch import StepHooks


def evaluates(marks: StepHooks) -> bool:
    """Returns whether the calling thread computes no gradients, or the latest module is in evaluation mode."""
    torch = sys.modules.get("torch")
    return torch is not None and (marks.evaluates or not torch.is_grad_enabled())


class TorchHooks:
    """Hooks of one session."""

    def __init__(self, marks: StepHooks) -> None:
        from torch.nn.modules import module
        from torch.optim import optimizer

        # torch warns of global hooks where a compiled module is called; this hook does not change what is compiled.
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks", UserWarning)
        self._marks = marks
        hook: Any = marks.before_forward
        handle = module.register_module_forward_pre_hook(hook)
        handle.remove()  # its number stays our own, also while the hook is taken out
        marks.hook_id, marks.hook, marks.forward_hooks = handle.id, hook, module._global_forward_pre_hooks
        self._steps = [optimizer.register_optimizer_step_pre_hook(marks.before_step),
                       optimizer.register_optimizer_step_post_hook(marks.after_step)]

    def remove(self) -> None:
        marks = self._marks
        for handle in self._steps:
            handle.remove()
        if marks.forward_hooks is not None:
            marks.forward_hooks.pop(marks.hook_id, None)
        marks.forward_hooks = marks.hook = marks.on_step = None
