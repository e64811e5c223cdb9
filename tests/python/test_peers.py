"""Tests what bench/peers compares: millrace's batches from Python, and the programs that the table needs."""
import pathlib
import subprocess
import sys

import numpy as np
import pytest

PEERS = pathlib.Path(__file__).parents[2] / "bench" / "peers"


@pytest.fixture
def peers(monkeypatch):
    """Modules of bench/peers, as feed.py imports them."""
    monkeypatch.syspath_prepend(str(PEERS))
    import feed
    import pymillrace_peer
    yield feed, pymillrace_peer
    for name in ("feed", "pymillrace_peer", "workloads"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["w1", "w4", "w6"])
def test_batches_from_python_have_the_shape_of_the_workload(peers, data, tmp_path, name):
    feed, peer = peers
    for folder, made in (("mnist", "digits"), ("imagenet", "photos")):
        (tmp_path / folder).symlink_to(data / made)
    work = feed.WORKS[name]
    batches = peer.loader(feed.Task(work, str(tmp_path), {}))
    described = feed.check(batches, 2 * work.batch)
    batches.close()
    assert (described["shape"], described["dtype"]) == (list(work.shape), work.dtype)
    assert described["images"] == 2 * work.batch
    assert described["contiguous"] and all(np.array(described["std"]) > 0)


def test_the_table_names_the_command_that_builds_missing_programs(tmp_path):
    build = tmp_path / "a build"
    build.mkdir()
    (build / "millrace").touch()
    ended = subprocess.run([sys.executable, "-B", PEERS / "table.py", "--data", tmp_path, "--build", build,
                            "--workloads", "w4,w6"], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [f"error: {build} has no decode_alone, copy_alone",
                                         f"  build them: ninja -C '{build}' decode_alone copy_alone"]
