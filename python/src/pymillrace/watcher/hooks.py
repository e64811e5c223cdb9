"""Hooks into torch: the first forward of a module after a batch that is recorded in detail, and every optimizer step.

The hook on modules is removed by its own first call, because a global hook slows every module's call down, and when
compiled code begins, because torch.compile would compile it too. The hooks act in the trainer's thread only.
"""
from __future__ import annotations

import sys
from typing import Any

from .._watch import Around, StepHooks
from .faults import stop
from .import_finder import Finder

COMPILER = "torch._dynamo.eval_frame"
ENTRIES = ("_maybe_set_eval_frame", "set_eval_frame")  # functions that enter compiled code; older torch has the second alone


def evaluates(marks: StepHooks) -> bool:
    """Returns whether the calling thread computes no gradients, or the latest module is in evaluation mode."""
    torch = sys.modules.get("torch")
    return torch is not None and (marks.evaluates or not torch.is_grad_enabled())


class TorchHooks:
    """Hooks of one session."""

    def __init__(self, marks: StepHooks) -> None:
        from torch.nn.modules import module
        from torch.optim import optimizer

        self._marks = marks
        hook: Any = marks.before_forward
        handle = module.register_module_forward_pre_hook(hook)
        handle.remove()  # its number stays our own, also while the hook is taken out
        marks.put_while_armed(module._global_forward_pre_hooks, handle.id, hook)
        self._steps = [optimizer.register_optimizer_step_pre_hook(marks.before_step),
                       optimizer.register_optimizer_step_post_hook(marks.after_step)]
        self._replaced: list[tuple[Any, str, Any]] = []
        self._enters_compiled = False
        self._finder = Finder({COMPILER: self._follow_compiler}, stop)
        if COMPILER in sys.modules:
            self._follow_compiler(sys.modules[COMPILER])
        else:
            sys.meta_path.insert(0, self._finder)

    def _follow_compiler(self, compiler: Any) -> None:
        """Takes the hook on modules out where compiled code begins, as soon as something is compiled."""
        self._replace(compiler.OptimizedModule, "__call__", self._marks.before_forward)
        if compiler.always_optimize_code_objects.values:
            self._enter_compiled(compiler)
        else:
            self._replace(compiler.OptimizeContext, "__init__", lambda *_, **__: self._enter_compiled(compiler))

    def _replace(self, of_class: Any, method: str, before: Any) -> None:
        plain = getattr(of_class, method)
        self._replaced.append((of_class, method, plain))
        setattr(of_class, method, Around(before, plain))

    def _enter_compiled(self, compiler: Any) -> None:
        try:
            if not self._enters_compiled:
                self._enters_compiled = True
                name = next(one for one in ENTRIES if hasattr(compiler, one))
                enter = getattr(compiler, name)
                self._marks.put_while_armed(vars(compiler), name, Around(self._marks.before_compiled, enter), enter)
        except Exception as error:
            stop(error)

    def remove(self) -> None:
        self._marks.remove()
        self._marks.on_step = self._marks.on_step_elsewhere = None
        for handle in self._steps:
            handle.remove()
        for of_class, method, plain in self._replaced:
            setattr(of_class, method, plain)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
