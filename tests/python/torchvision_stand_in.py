"""Stands in for torchvision where that is not installed: classes that from_torchvision() takes for torchvision's."""
import sys
import types

import pytest

_module = types.ModuleType("torchvision.transforms")


def transform(name, **attributes):
    """Returns an object of torchvision.transforms' class of this name, with these attributes."""
    if not hasattr(_module, name):
        setattr(_module, name, type(name, (), {"__module__": _module.__name__, "__call__": lambda self, value: value}))
    step = getattr(_module, name)()
    vars(step).update(attributes)
    return step


@pytest.fixture
def stand_in(monkeypatch):
    """Makes the classes torchvision's for one test."""
    monkeypatch.setitem(sys.modules, _module.__name__, _module)
