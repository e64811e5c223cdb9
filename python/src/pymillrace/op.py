"""Augmentations as Python objects: what all have in common. builtin_ops.py holds those of millrace."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar


def as_written(value: Any) -> str:
    """Returns a value as recipes write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, str)):
        return str(value)
    return "[" + ",".join(as_written(item) for item in value) + "]"


@dataclasses.dataclass(frozen=True)
class Op:
    """Base of the augmentations. They run in the order given, each image with draws of its own."""

    _op: ClassVar[str] = ""

    def override(self) -> str:
        """Returns the augmentation as an override of a recipe."""
        return f"augment+={self._op}{{{','.join(self._values())}}}"

    def parts(self) -> list[Op]:
        """Returns the augmentation itself, or those that it applies."""
        return [self]

    def _values(self) -> list[str]:
        """Returns name=value of each parameter."""
        return [f"{field.name}={as_written(getattr(self, field.name))}" for field in dataclasses.fields(self)]


@dataclasses.dataclass(frozen=True)
class Compound(Op):
    """Base of the augmentations that apply others, which a recipe lists in the parameter `ops`."""

    transforms: Sequence[Op]

    def parts(self) -> list[Op]:
        """Returns the augmentations that it applies."""
        return [part for one in self.transforms for part in one.parts()]

    def _values(self) -> list[str]:
        """Returns name=value of each parameter, `ops` at the end."""
        ops = ";".join(op.override().removeprefix("augment+=") for op in self.transforms)
        rest = (field.name for field in dataclasses.fields(self) if field.name != "transforms")
        return [*(f"{name}={as_written(getattr(self, name))}" for name in rest), f"ops={ops}"]
