"""Writes the files of the Python package that are made from declarations: the augmentations, and the package's stub.

    python3 tools/python_classes.py build/millrace           writes both files
    python3 tools/python_classes.py build/millrace --check   exits with 1 if they would change

The classes, builtin_ops.py, come from the declarations in augment/ops, which the program prints: kPython names the
class, kParams and kHelp give the arguments and their descriptions. The stub, __init__.pyi, tells editors and type
checkers which names the package has, since __init__.py imports them on first use.
"""
from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import textwrap
from typing import Any

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "python/src/pymillrace"
WIDTH = 120
MADE = "tools/python_classes.py makes this file"
HEADER = f'''"""The built-in augmentations. {MADE} from the declarations in augment/ops."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .op import Compound, Op
'''


@dataclasses.dataclass
class Argument:
    """An argument of a class: a parameter of the op, with Python's type and default."""

    name: str
    type: str
    default: str | None  # as Python writes it; None: the argument is required
    help: str


def declarations(program: str) -> list[dict[str, Any]]:
    """Returns the declarations of the built-in augmentations."""
    done = subprocess.run([program, "plugins", "info", "augmentations", "--json"], stdout=subprocess.PIPE, check=True)
    units: list[dict[str, Any]] = json.loads(done.stdout)["units"]
    return units


def in_python(value: Any) -> str:
    """Returns a default as Python writes it: whole numbers without a fraction, one of a list without the list."""
    if isinstance(value, list):
        items = [in_python(one) for one in value]
        return items[0] if len(items) == 1 else f"({', '.join(items)})"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return f'"{value}"' if isinstance(value, str) else repr(value)


def type_of(parameter: dict[str, Any]) -> str:
    """Returns the annotation of a parameter."""
    plain = {"boolean": "bool", "integer": "int", "number": "float", "choice": "str", "integers": "int",
             "numbers": "float"}[parameter["type"]]
    if parameter["type"] not in ("integers", "numbers"):
        return plain
    return f"{plain} | Sequence[{plain}]" if 1 in parameter["lengths"] else f"Sequence[{plain}]"


def described(parameter: dict[str, Any], default: str | None) -> str:
    """Returns a line on a parameter: its help, what it may be, and its default."""
    expects = re.sub("^a list of 1 (or|to) ", "one number or a list of ", parameter["expects"])
    if parameter["type"] == "boolean":
        expects = "True or False"
    if parameter["type"] == "choice":
        expects = "one of " + ", ".join(f'"{one}"' for one in parameter["choices"])
    return f"{parameter['help']} ({expects}{'' if default is None else f'; default {default}'})"


def arguments(unit: dict[str, Any]) -> list[Argument]:
    """Returns the arguments of a class: those that kPython names in its order, then the others as declared."""
    parameters = {one["name"]: one for one in unit["parameters"]}
    order: dict[str, str | None] = {}
    for word in re.findall(r"[^(), ]+", unit["python"].partition("(")[2]):
        name, is_optional, own = word.partition("=")
        order[name] = None if not is_optional else own or in_python(parameters[name]["default"])
    order |= {name: in_python(one["default"]) for name, one in parameters.items() if name not in order}
    found = []
    for name, default in order.items():
        if name == "ops":
            found.append(Argument("transforms", "Sequence[Op]", default, "the augmentations, in order"))
        else:
            found.append(Argument(name, type_of(parameters[name]), default, described(parameters[name], default)))
    return found


def class_of(unit: dict[str, Any]) -> tuple[str, str]:
    """Returns the name and the text of the class that stands for an op."""
    name = unit["python"].partition("(")[0]
    given = arguments(unit)
    is_compound = any(one.name == "transforms" for one in given)
    summary = unit["help"].replace("`ops`", "`transforms`").rstrip(".")
    lines = ["@dataclasses.dataclass(frozen=True)", f"class {name}({'Compound' if is_compound else 'Op'}):",
             f'    """{summary[0].upper()}{summary[1:]}.', "", "    Args:"]
    for one in given:
        lines += textwrap.wrap(f"{one.name}: {one.help}", WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12)
    lines += ['    """', ""]
    lines += [f"    {one.name}: {one.type}" + ("" if one.default is None else f" = {one.default}") for one in given]
    return name, "\n".join([*lines, f'    _op = "{unit["name"]}"', ""])


def module_of(units: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """Returns the text of builtin_ops.py and the names of its classes."""
    classes = dict(sorted(class_of(unit) for unit in units))
    exported = "__all__ = [\n" + "".join(f'    "{name}",\n' for name in classes) + "]\n"
    return "\n\n".join([HEADER + "\n" + exported, *classes.values()]), list(classes)


def stub_of(names: list[str]) -> str:
    """Returns the text of __init__.pyi from the names in __init__.py and those of the classes."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    homes = next(ast.literal_eval(node.value) for node in tree.body
                 if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES")
    text = f'"""Public names of the package. {MADE} from __init__.py and augment/ops."""\n'
    for home, held in sorted((homes | {"builtin_ops": names}).items()):
        text += f"from .{home} import (\n" + "".join(f"    {name} as {name},\n" for name in sorted(held)) + ")\n"
    every = sorted([*names, *(name for held in homes.values() for name in held)])
    return text + "\n__all__ = [\n" + "".join(f'    "{name}",\n' for name in every) + "]\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("program", help="the built program, whose declarations are read")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file would change")
    given = parser.parse_args()
    module, names = module_of(declarations(given.program))
    texts = {PACKAGE / "builtin_ops.py": module, PACKAGE / "__init__.pyi": stub_of(names)}
    changed = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    if given.check:
        for path in changed:
            print(f"{path.name} differs from the declarations; run tools/python_classes.py", file=sys.stderr)
        return 1 if changed else 0
    for path in changed:
        path.write_text(texts[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
