"""Limits of control groups, which are all that a process may use in a container or a job."""
import pytest

from pymillrace.watcher import cgroup, proc, room

MOUNTS = {"own": "12:memory:/docker/ab\n0::/\n", "two": "0::/jobs/7/step\n", "none": "3:cpu:/\n"}


@pytest.mark.parametrize("case, found", (
    ("own", ["{}/v1"]), ("two", ["{}/v2/jobs/7/step", "{}/v2/jobs/7", "{}/v2/jobs", "{}/v2"]), ("none", [])))
def test_the_folders_of_a_control_group_are_found(tmp_path, monkeypatch, case, found):
    (tmp_path / "v1").mkdir()
    (tmp_path / "v2/jobs/7/step").mkdir(parents=True)
    mounts = (f"32 31 0:32 /docker/ab {tmp_path}/v1 rw shared:1 - cgroup cgroup rw,memory\n"
              f"33 31 0:33 / {tmp_path}/v2 rw - cgroup2 cgroup2 rw,nsdelegate\n")
    files = {"/proc/self/cgroup": MOUNTS[case].encode(), "/proc/self/mountinfo": mounts.encode()}
    monkeypatch.setattr(cgroup, "read", files.get)
    assert list(cgroup.folders.__wrapped__()) == [one.format(tmp_path) for one in found]


def test_a_limit_of_any_group_above_counts(tmp_path, monkeypatch):
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("900\n")
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("inactive_file 100\nactive_file 50\n")
    monkeypatch.setattr(cgroup, "folders", lambda: (str(inner), str(tmp_path)))
    assert room.memory() == (750, 1000)
    for name in ("memory.max", "memory.current"):
        (tmp_path / name).unlink()
    (tmp_path / "memory.limit_in_bytes").write_text("2000\n")
    (tmp_path / "memory.usage_in_bytes").write_text("1900\n")
    (tmp_path / "memory.stat").write_text("inactive_file 9\ntotal_inactive_file 200\ntotal_active_file 0\n")
    assert room.memory() == (1700, 2000)


def test_files_of_the_kernel_are_read_to_their_end():
    found = proc.read("/proc/self/maps")  # the kernel gives it a page at a time
    assert len(found) > 4096 and found.endswith(b"\n") and b"[stack]" in found
    assert proc.read("/proc/self/none") is None
