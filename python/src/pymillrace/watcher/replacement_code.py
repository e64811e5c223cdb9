"""Lines of Python that replace a recorded loader by millrace's own: `pymillrace what-if RUN --show-code`.

A record is data: what it says of transforms is read by words.py and written again from the classes of this package, and
the folder is written as a string.
"""
from __future__ import annotations

import dataclasses
from typing import Any

from .. import builtin_ops, recipes
from ..errors import DataError
from ..op import Compound, Op
from .words import parse


def code(name: str, counterpart: dict[str, Any], workers: int) -> list[str]:
    """Returns the lines. `name`: of the loader, as file:line. Raises DataError for a value that no class takes."""
    source, ops, normalisation = counterpart["source"], list[Op](), dict[str, tuple[float, ...]]()
    for word in counterpart["words"]:
        key, found = parse(word)
        if key == "augment":
            ops.append(_op(*found))
        else:
            numbers = [found] if isinstance(found, str) else found
            normalisation[key.removeprefix("output.")] = tuple(map(float, numbers))
    if len(normalisation) == 1:
        raise DataError(f"the record has output.{next(iter(normalisation))} alone, not mean and std",
                        "record the run again with this version")
    lines = [f"# In place of the DataLoader that {name} iterates over:",
             "import pymillrace as mr",
             "",
             "loader = mr.Loader(",
             f"    mr.Folder({source['folder']!r}),",
             "    [",
             *(f"        {_written(op)}," for op in ops),
             "    ],",
             f'    "loader.workers={workers}",']
    if not source["shuffle"]:
        lines.append('    "loader.shuffle=none",')
    if source["drop_last"]:
        lines.append('    "loader.drop_last=true",')
    lines.append(f"    batch={source['batch']},")
    if normalisation:
        lines.append(f"    normalize=mr.{recipes.Normalize(**normalisation)!r},")
    return [*lines, ")", f"assert len(loader.dataset) == {source['images']}"]


def _op(name: str, given: dict[str, Any]) -> Op:
    of_class = next(one for one in map(vars(builtin_ops).__getitem__, builtin_ops.__all__) if one._op == name)
    known = {field.name: field for field in dataclasses.fields(of_class)}
    values = {}
    for key, value in given.items():
        if key == "ops" and issubclass(of_class, Compound):
            values["transforms"] = tuple(_op(*one) for one in value)
        elif key in known and key != "transforms":
            values[key] = tuple(map(_literal, value)) if isinstance(value, list) else _literal(value)
        else:
            raise DataError(f"the record's {name} has the parameter {key}, which {of_class.__name__} has not",
                            "record the run again with this version")
    missing = [key for key, field in known.items() if field.default is dataclasses.MISSING and key not in values]
    if missing:
        raise DataError(f"the record's {name} has no {missing[0]}", "record the run again with this version")
    op: Op = of_class(**values)
    return op


def _literal(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def _written(op: Op) -> str:
    """Returns the call of an op's class with those of its values that are not the default."""
    def value(one: Any) -> str:
        if isinstance(one, Op):
            return _written(one)
        if isinstance(one, tuple) and one and isinstance(one[0], Op):
            return f"[{', '.join(map(_written, one))}]"
        return repr(one)

    given = [(field.name, getattr(op, field.name)) for field in dataclasses.fields(op)
             if field.default is dataclasses.MISSING or getattr(op, field.name) != field.default]
    return f"mr.{type(op).__name__}({', '.join(f'{name}={value(one)}' for name, one in given)})"
