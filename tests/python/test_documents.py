"""Runs the Python snippets of the documents, each page's in order in a folder with small data sets."""
import importlib.util
import pathlib
import re
import shutil

import pytest
from conftest import needs_torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/how-to/python.md", "docs/how-to/any-source.md", "python/README.md"]


@needs_torch
@pytest.mark.parametrize("page", PAGES)
def test_snippets_run(page, data, tmp_path, monkeypatch):
    shutil.copytree(data, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    names = {}
    for number, block in enumerate(blocks):
        if "from torchvision" in block and importlib.util.find_spec("torchvision") is None:
            continue
        exec(compile(block, f"{page}, block {number}", "exec"), names)
