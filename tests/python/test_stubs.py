"""Compares the stubs of the compiled modules with them, and type-checks the documents' snippets."""
import ast
import importlib.util
import inspect
import os
import pathlib
import re
import subprocess
import sys

import pymillrace as mr
import pytest
from pymillrace import _core, _predict, _watch

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUBS = {module: ast.parse((ROOT / f"python/src/pymillrace/{module.__name__.rpartition('.')[2]}.pyi").read_text())
         for module in (_core, _predict, _watch)}
PAGES = ["README.md", "docs/how-to/python.md", "docs/how-to/any-source.md"]  # whose snippets are whole programs


CONSTANTS = (int, float, str, tuple)


def stub_members(body):
    return {node.name: node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))
            and not any(isinstance(one, ast.Attribute) for one in node.decorator_list)}  # setters


def members(thing):
    """Returns the names that a class or the module defines itself."""
    return {name for name, value in vars(thing).items()
            if (not name.startswith("_") or name == "__init__") and not isinstance(value, CONSTANTS)}


def signature(thing):
    """Returns the definition that nanobind knows, as text."""
    text = (thing.fget if isinstance(thing, property) else thing).__nb_signature__[0][0]
    text = text.replace("def (", "def getter(").replace("collections.abc.Sequence", "list")
    text = re.sub(r"\bpymillrace\._\w+\.", "", re.sub(r"\bobject\b", "Any", text))
    return ast.parse(re.sub(r"\\(\d+)", "DEFAULT", text) + ": ...").body[0]


def arguments(definition):
    """Returns name, type and whether there is a default, of each argument but self; no name where C++ gives none."""
    given = definition.args
    names = [*given.posonlyargs, *given.args]
    defaults = [False] * (len(names) - len(given.defaults)) + [True] * len(given.defaults)
    rows = [(None if one in given.posonlyargs else one.arg, one.annotation and ast.unparse(one.annotation), default)
            for one, default in zip(names, defaults)]
    return [row for row in rows if row[0] != "self"]


def result(definition):
    return ast.unparse(definition.returns)


def owners():
    for module, stubs in STUBS.items():
        yield module.__name__, module, stub_members(stubs.body)
        for name, node in stub_members(stubs.body).items():
            if isinstance(node, ast.ClassDef):
                yield name, getattr(module, name), stub_members(node.body)


def test_stubs_and_module_have_the_same_names():
    for name, thing, stubs in owners():
        made_by_python = {"__init__"} - stubs.keys()  # a class that Python cannot construct
        assert members(thing) - made_by_python == stubs.keys(), name


FUNCTIONS = [pytest.param(inspect.getattr_static(thing, name), node, id=f"{owner}.{name}")
             for owner, thing, stubs in owners() for name, node in stubs.items() if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("function, stub", FUNCTIONS)
def test_stubs_and_module_have_the_same_types(function, stub):
    known = signature(function)
    assert result(known) == result(stub)
    assert isinstance(function, property) == any(ast.unparse(one) == "property" for one in stub.decorator_list)
    if isinstance(function, property):
        return
    named = [(None if theirs[0] is None else ours[0], *ours[1:])
             for ours, theirs in zip(arguments(stub), arguments(known))]
    assert named == arguments(known)
    assert len(arguments(stub)) == len(arguments(known))


def test_every_public_name_and_method_says_what_it_is():
    for name in mr.__all__:
        thing = getattr(mr, name)
        assert thing.__doc__, name
        own = vars(thing).items() if inspect.isclass(thing) else ()
        for member, value in own:
            if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                assert value.__doc__, f"{name}.{member}"


def test_the_comparison_finds_a_difference():
    changed = ast.parse("def seek(self, epoch: str, batch: int) -> None: ...").body[0]
    with pytest.raises(AssertionError):
        test_stubs_and_module_have_the_same_types(inspect.getattr_static(_core.Engine, "seek"), changed)


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="NOT TESTED: mypy is not installed")
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the snippets use PyTorch")
def test_the_package_and_the_documents_snippets_are_clean_under_mypy_strict(tmp_path):
    # PyTorch's own types are left out, because checking them takes a minute.
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\n[mypy-torch.*]\nfollow_imports = skip\n"
                                       "[mypy-torchvision.*]\nignore_missing_imports = True\n")
    for page in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
        assert blocks
        (tmp_path / (pathlib.Path(page).stem + "_page.py")).write_text("\n".join(blocks))
    # An unused ignore is an error too, so this shows that the names and types of arguments are known.
    (tmp_path / "arguments.py").write_text(
        "import pymillrace as mr\nmr.RandomAffine(degrees=15, fill=(1, 2, 3))\n"
        "mr.RandomAffine(degree=15)  # type: ignore[call-arg]\nmr.RandomAffine('15')  # type: ignore[arg-type]\n"
        "mr.RandomAffin(15)  # type: ignore[attr-defined]\n")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(tmp_path / "mypy.ini"), "--cache-dir",
         str(tmp_path / "cache"), str(ROOT / "python/src/pymillrace"), *map(str, tmp_path.glob("*.py"))],
        env={**os.environ, "MYPYPATH": str(ROOT / "python/src")}, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("module", STUBS, ids=lambda module: module.__name__)
def test_stubs_and_module_have_the_same_constants(module):
    declared = {node.target.id for node in STUBS[module].body if isinstance(node, ast.AnnAssign)}
    assert declared == {name for name, value in vars(module).items()
                        if isinstance(value, CONSTANTS) and not name.startswith("_")}
