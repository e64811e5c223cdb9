"""Run directories of strangers: whatever lies in one, nothing runs, nothing is contacted, nothing hangs.

READERS lists every reader of a record in the package, with the file that it reads (docs/reference/records.md has the
same table). Each is given something else in the file's place. Values inside summary.json follow below.
"""
import copy
import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pymillrace import _core, builtin_ops, recipes
from pymillrace.errors import DataError, Error
from pymillrace.watcher import (command, estimates, loader_cpu, ranks, recorded, records, replacement,
                                run_directory, top, trace, verify, words)
from pymillrace.watcher.fields import Field
from pymillrace.watcher.printable import printable
from watch_records import summary_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python/src/pymillrace"
LIMIT_S = 120


@pytest.fixture(autouse=True)
def limit():
    """Ends a test that hangs, with a failure."""
    def fail(*_):
        raise AssertionError(f"it takes more than {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# Every reader of a record

def what_if(run, _):
    return command.main(["what-if", str(run)])


def verification_summary(run, monkeypatch):
    script = verify.Script(["true"], run.parent, 10)
    monkeypatch.setattr(verify.Script, "latest", run)
    script.run({})


def steps_of_verification(run, _):
    verify.counted_steps(run, 0, 1)


def completion_by_ranks(run, _):
    assert ranks.complete(run) is None


def completion_without_a_rank(run, _):
    rank = {"rank": 0, "world_size": 2, "steps": 11, "load_s": 1.0, "first_batch_s": 0.0, "update_s": 1.1,
            "images_per_s": 10.0, "bound": "dataset"}
    (run / "summary.json").write_text(json.dumps(rank))
    assert [row["rank"] for row in ranks.complete(run)["ranks"]] == [0]


def wait_for_rank_0(run, monkeypatch):
    monkeypatch.setattr(run_directory, "RANK_PATIENCE", 0.1)
    monkeypatch.setenv("RANK", "1")
    run_directory.RunDirectory(run, "")


def lock_of_a_run(run, _):
    run_directory.RunDirectory(run, "")


def steps_of_a_timeline(run, _):
    assert trace._spans(run / "steps.csv") == []


def sampled_file(run, _):
    summary = valid()
    summary["loaders"][0]["counterpart"] = {"words": [], "samples": [str(run / "sample.jpg")], "reason": None}
    assert replacement.row(summary)["reason"]


def compared(run, _):
    if not os.path.lexists(run / "summary.json"):
        (run / "summary.json").write_text(json.dumps({"command": "watch", "loader": "a", "loaders": [{"name": "a"}],
                                                      "world_size": 1}))
    estimates.read(run)


def topped(run, _):
    shown = {**summary_of(True), "world_size": 2}
    for name in ("summary.json", "summary.rank1.json"):
        if not os.path.lexists(run / name):
            (run / name).write_text(json.dumps(shown))
    return top.main([str(run), "--once"]) or None


READERS = (("compare A B", "summary.json", compared),
           ("compare A B", "steps.csv", compared),
           ("top RUN", "summary.json", topped),
           ("top RUN", "summary.rankR.json", topped),
           ("top RUN", "steps.csv", topped),
           ("top RUN", "metrics.jsonl", topped),
           ("top RUN", "run.lock", topped),
           ("what-if RUN", "summary.json", what_if),
           ("what-if RUN", "a sampled file", sampled_file),
           ("what-if --verify", "summary.json", verification_summary),
           ("what-if --verify", "steps.csv", steps_of_verification),
           ("watch, several ranks", "summary.json", completion_by_ranks),
           ("watch, several ranks", "summary.rankR.json", completion_without_a_rank),
           ("watch, several ranks", "ranks.lock", completion_by_ranks),
           ("watch, several ranks", "config.toml", wait_for_rank_0),
           ("watch", "run.lock", lock_of_a_run),
           ("watch, timeline", "steps.csv", steps_of_a_timeline))
FILES = {"a sampled file": "sample.jpg", "summary.rankR.json": "summary.rank1.json"}


def fifo(path):
    os.mkfifo(path)


def bound_socket(path):
    folder = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"/proc/self/fd/{folder}/{path.name}")  # a socket's path is short
    os.close(folder)


def device(path):
    path.symlink_to("/dev/zero")


def terminal(path):
    path.symlink_to("/dev/ptmx")


def folder(path):
    path.mkdir()


def loop(path):
    path.symlink_to(path.name)


def sparse(path):
    path.touch()
    os.truncate(path, 100 << 30)


def endless(path):
    path.symlink_to("/proc/self/mem")  # regular by its mode, of size 0, and not to be read from its start


def nested(path):
    path.write_text("[" * 200_000)


def no_json(path):
    path.write_bytes(b"\x00\xff{")


PLANTS = (fifo, bound_socket, device, terminal, folder, loop, sparse, endless, nested, no_json)


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("reader, file, read", READERS, ids=[f"{reader}: {file}" for reader, file, _ in READERS])
def test_a_reader_survives_what_lies_in_the_place_of_its_file(tmp_path, monkeypatch, capsys, plant, reader, file, read):
    lock = file.endswith(".lock")
    if lock and plant in (sparse, endless, nested, no_json):
        return  # nobody reads a lock
    run = tmp_path / "run"
    run.mkdir()
    plant(run / FILES.get(file, file))
    try:
        code = read(run, monkeypatch)
        assert code in (None, 3) or plant is loop and code == 3
    except (Error, TimeoutError, records.NotARecord) as error:  # watch reports the last two as faults
        assert "\n" not in str(error)
    said = capsys.readouterr()
    if read is topped and file != "summary.json":
        assert said.out.startswith("ended, ") and said.err == ""
    if read is what_if or read is topped and file == "summary.json":
        assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith(f"pymillrace: {run}/summary.json ")


def test_a_lock_that_is_a_link_leads_nowhere(tmp_path):
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "run.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(records.NotARecord, match="is a link"):
        records.open_lock(tmp_path / "run.lock")
    assert (tmp_path / "victim").read_text() == "kept"


def test_the_documents_list_the_readers():
    text = (ROOT / "docs/reference/records.md").read_text().partition("## Hostile records")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `?([^|`]+?)`? \| `?([^|`]+?)`? \|", text, re.MULTILINE)
    assert set(rows[2:]) == {(reader, file) for reader, file, _ in READERS}


# Lines that open files and read no record: they write, or read the kernel's or this installation's files.
OTHER_OPENS = {"run_directory.py": 2, "verify.py": 3, "loader_cpu.py": 2, "proc.py": 1, "threads.py": 1,
               "watched_loader.py": 1, "worker.py": 1}


def test_only_one_module_opens_records():
    found = {}
    for file in (PACKAGE / "watcher").rglob("*.py"):
        count = sum(bool(re.search(r"(?<!def )(?<![\w.])open\(|os\.open\(|read_text|read_bytes|RecordRing\(", line))
                    for line in file.read_text().splitlines())
        if count and file.name != "records.py":
            found[file.name] = count
    assert found == OTHER_OPENS, "a record is opened by open_record, read_record, read_json or open_lock"


# Values in summary.json

DEMAND = {"cpu": 0.01, "blocked": 0.001, "threads": 1}


def valid():
    """A summary as watch writes it, without what what-if does not read."""
    work = {place: {"cpu": 1.0, "blocked": 0.5} for place in ("dataset", "transform", "collate")}
    demands = {name: dict(DEMAND) for name in ("fetch", "send", "receive", "hand", "update")}
    row = {"change": "num_workers=2", "overrides": {"num_workers": 2}, "ratio": 2.0, "low": 1.8,
           "high": 2.2, "loading_only": False, "images_per_s": 200.0, "loader_images_per_s": 300.0}
    saved = {**row, "change": "persistent_workers=True", "overrides": {"persistent_workers": True},
             "saved_s_per_epoch": 1.0}
    return {"advice": "advice: try num_workers=2", "loader": "a.py:1",
            "loaders": [{"name": "a.py:1", "work": work,
                         "counterpart": {"words": ["augment+=hflip{p=0.5}"], "samples": ["/none"], "reason": None}}],
            "what_if": {"images_per_s": 100.0, "loader_images_per_s": 150.0, "rows": [row, saved],
                        "doubts": {"fetch": 0.02, "update": 0.02, "spinning": 1.0},
                        "settings": {"num_workers": 1, "prefetch_factor": 2, "batch": 8, "cores": 2,
                                     **demands}}}


def places(value, at=()):
    """Yields the place of each value in a summary."""
    yield at
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*at, key))


def written(run, summary):
    run.mkdir(exist_ok=True)
    (run / "summary.json").write_text(json.dumps(summary))
    return run


def changed(place, value):
    summary = copy.deepcopy(valid())
    if not place:
        return value
    inner = summary
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return summary


ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r\n\ud800"
VALUES = (None, True, -1, 10**9, 10**30, 1e308, -1e308, 5e-324, float("nan"), float("inf"), "", ESCAPES, "x" * 100_000,
          [], {}, [[[]]], [None] * 5000, {"cpu": {}}, 0, 0.5)


@pytest.mark.parametrize("place", list(places(valid())), ids=lambda place: ".".join(map(str, place)) or "whole")
def test_no_value_in_a_summary_disturbs_what_if(tmp_path, monkeypatch, capsys, place):
    monkeypatch.setattr(replacement.row, "__defaults__", (lambda *_: 0.001,))  # without a measurement
    monkeypatch.setattr(os.path, "exists", lambda _: True)
    for value in VALUES:
        code = command.main(["what-if", str(written(tmp_path / "run", changed(place, value)))])
        said = capsys.readouterr()
        assert code in (0, 2, 3), value
        assert (said.err.count("\n"), bool(said.out)) == ((0, True) if code == 0 else (1, False)), (value, said.err)
        assert all(one == "\n" or one.isprintable() for one in said.out + said.err), value
        assert len(said.out + said.err) < 20_000, value


@pytest.mark.parametrize("place, value, text", (
    (("num_workers",), 10**9, "what_if.settings.num_workers is 1000000000, not a whole number from 0 to 2048"),
    (("num_workers",), "2", "num_workers is '2', not a whole number"),
    (("cores",), float("nan"), "cores is nan, not a whole"), (("batch",), -4, "batch is -4, not a whole number"),
    (("fetch", "cpu"), 1e308, "fetch.cpu is 1e+308, not a number from 0"),
    (("tensors",), 0.5, "tensors is 0.5, not a whole number"),
    (("tensor_wait",), -1, "tensor_wait is -1, not a number from 0"),
    (("prefetch_factor",), 16385, "prefetch_factor is 16385, not"), (("send",), None, "send.cpu")))
def test_a_wrong_setting_is_named_with_its_range(tmp_path, capsys, place, value, text):
    run = written(tmp_path / "run", changed(("what_if", "settings", *place), value))
    assert command.main(["what-if", str(run)]) == 3
    said = capsys.readouterr()
    if value is not None:
        assert text in said.err
    assert said.err.startswith(f"pymillrace: {run}/summary.json: what_if.settings.")
    assert "record the run again" in said.err


def test_a_measured_number_of_threads_is_taken_however_large_it_is(tmp_path):
    summary = changed(("what_if", "settings", "update", "threads"), 170_000)  # of a short update
    assert command.main(["what-if", str(written(tmp_path / "run", summary))]) == 0


def test_the_largest_settings_are_replayed_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(replacement.row, "__defaults__", (lambda *_: 0.001,))
    monkeypatch.setattr(os.path, "exists", lambda _: True)
    summary = valid()
    summary["what_if"]["settings"] |= {"num_workers": recorded.MOST_WORKERS, "cores": recorded.MOST_CORES,
                                       "prefetch_factor": recorded.MOST_OUTSTANDING // recorded.MOST_WORKERS}
    assert command.main(["what-if", str(written(tmp_path / "run", summary))]) == 0


@pytest.mark.parametrize("place", (("advice",), ("what_if", "rows", 0, "change"), ("loader",),
                                   ("loaders", 0, "counterpart", "reason"),
                                   ("loaders", 0, "counterpart", "samples", 0)))
def test_text_is_printed_as_the_programs_reports_do(tmp_path, capsys, place):
    text = "/\x1b[31m\x9b\u202e\x7f"
    summary = changed(place, text)
    if place == ("loader",):
        summary["loaders"][0]["name"] = text
    assert command.main(["what-if", str(written(tmp_path / "run", summary))]) == 0
    said = capsys.readouterr().out
    assert place == ("loader",) or r"/\u001b[31m\u009b\u202e\u007f" in said
    assert all(one == "\n" or one.isprintable() for one in said)


def test_escapes_are_those_of_the_program():
    """Tries every character, and each byte that is not UTF-8."""
    characters = "".join(map(chr, [*range(0xd800), *range(0xe000, 0x110000)]))
    assert printable(characters) == _core.printable(characters.encode())
    odd = bytes(range(0x80, 0x100))
    assert printable(os.fsdecode(odd)) == _core.printable(odd)
    assert printable("\ud800") == r"\ud800"  # JSON may hold one


# Words and samples of a record

def field(value):
    return Field(value, Path("summary.json"), "words")


HOSTILE_WORDS = (
    "plugins.path=/tmp/evil.so", "data.path=http://127.0.0.1:9/set", "data.reader=tar", "data.cache=/home", "seed=1",
    "seed", "recipe.toml", "/tmp/recipe.toml", "loader.workers=1000000000", "output.dtype=f16",
    "output.mean=/etc/passwd;x", "output.mean=[0.5,nan]", "output.mean=[0.5", "output.mean=", "output.std=inf,",
    "eval.augment+=hflip", "augment.hflip.p=1", "augment+=", "augment+=nothing_like_it",
    "augment+=hflip{p=0.5}@before:x", "augment+=hflip{p=/etc/passwd}", "augment+=hflip{p=http://a}",
    "augment+=hflip{p=0.5", "augment+=hflip{p}", "augment+=hflip{p=0.5}x", "augment+=hflip{p=\"0\"}",
    "augment+=hflip{p=0.5}\nplugins.path=x", "augment+=random_apply{ops=nothing_like_it}",
    "augment+=random_apply{ops=hflip;evil{path=/x}}", "augment+=random_apply{p=0.5,ops=}", "augment+=hflip{p=[[1]]}",
    "augment+=hflip{p=1e9999}", "augment+=hflip{../x=1}", "augment+=" + "random_apply{ops=" * 9 + "hflip" + "}" * 9,
    "augment+=hflip{" + "p=1," * 2000 + "p=1}", "augment += hflip", " augment+=hflip", "augment+=HFLIP", "",
    "\0", 3, None, ["x"])


@pytest.mark.parametrize("word", HOSTILE_WORDS, ids=lambda word: repr(word)[:40])
def test_words_that_are_no_augmentation_are_refused(tmp_path, capsys, word):
    with pytest.raises(DataError):
        words.allowed_words(field(["augment+=hflip", word]))
    run = written(tmp_path / "run", changed(("loaders", 0, "counterpart", "words"), ["augment+=hflip", word]))
    assert command.main(["what-if", str(run)]) == 3
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "counterpart.words[1]" in said.err


def test_an_augmentation_of_a_plugin_or_in_python_is_refused():
    numpy = pytest.importorskip("numpy", reason="NOT TESTED: NumPy is missing")
    import pymillrace as mr

    mr.augmentation(name="of_a_stranger")(lambda image: numpy.flip(image, 0))
    with pytest.raises(DataError, match="not one of the built-in augmentations"):
        words.allowed_words(field(["augment+=of_a_stranger"]))


def test_every_word_of_a_counterpart_is_allowed():
    ops = [getattr(builtin_ops, name) for name in builtin_ops.__all__] + [recipes.Grayscale]
    chains = [op(*[8 for each in dataclasses.fields(op) if each.default is dataclasses.MISSING])
              for op in ops if op is not builtin_ops.RandomApply]
    chains.append(builtin_ops.RandomApply(chains[:2]))
    assert len(chains) == 39
    found = [op.override() for op in chains] + recipes.IMAGENET.overrides()
    found += ["augment+=random_apply{p=0.8,ops=color_jitter{brightness=[0.4],hue=[-0.1,1e-05]}; hflip{}}",
              "augment+=rand_augment"]
    assert words.allowed_words(field(found)) == found


def test_words_are_limited_in_number():
    with pytest.raises(DataError, match="a list of at most 64"):
        words.allowed_words(field(["augment+=hflip"] * 65))


@pytest.mark.parametrize("sample", ("http://127.0.0.1:9/a.jpg", "s3://bucket/a.jpg", "a.jpg", "../a.jpg", "", "/a\0b",
                                    "/\ud800", 3, None))
def test_a_sample_that_is_no_local_path_is_refused(tmp_path, capsys, sample):
    run = written(tmp_path / "run", changed(("loaders", 0, "counterpart", "samples"), [sample]))
    assert command.main(["what-if", str(run)]) == 3
    assert "samples[0]" in capsys.readouterr().err


def test_a_sample_that_is_no_image_is_not_printed(tmp_path, capsys):
    secret = tmp_path / "secret"
    secret.write_text("root:x:0:0:hunter2\n" * 100)
    run = written(tmp_path / "run", changed(("loaders", 0, "counterpart", "samples"), [str(secret)]))
    assert command.main(["what-if", str(run)]) == 0
    said = capsys.readouterr().out
    assert f"not predicted: {secret}" in said and "hunter2" not in said and "72 6f" not in said


def test_a_measurement_is_limited_in_memory_and_time(data, monkeypatch):
    files = [str(one) for one in sorted((data / "photos").rglob("*.jpg"))[:8]]
    with pytest.raises(Error, match="more than 4 GiB of memory|memory"):
        loader_cpu.measure_cpu(["augment+=resize{size=[65535,65535]}"], files, 8)
    monkeypatch.setattr(loader_cpu, "MOST_CPU_S", 1)
    with pytest.raises(Error, match="takes more than 1 s"):
        loader_cpu.measure_cpu(["augment+=resize{size=[2048,2048]}", *["augment+=elastic{alpha=[50]}"] * 60], files, 8)


# From outside, with everything that might happen in view

CONSTRUCTOR = """
#include <stdlib.h>
#include <fcntl.h>
__attribute__((constructor)) static void run(void) { close(open(getenv("CONSTRUCTED"), O_CREAT | O_WRONLY, 0600)); }
"""


class Server:
    """Counts connections on 127.0.0.1."""

    def __init__(self):
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}/set"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            connection, _ = self._socket.accept()
            self.connections += 1
            connection.close()


def test_what_if_runs_no_plugin_and_contacts_nobody(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc") or pytest.skip("NOT TESTED: there is no C compiler")
    (tmp_path / "evil.c").write_text(CONSTRUCTOR)
    subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", str(tmp_path / "evil.so"), str(tmp_path / "evil.c")],
                   check=True)
    server = Server()
    environment = {**os.environ, "CONSTRUCTED": str(tmp_path / "constructed"),
                   "MILLRACE_REMOTE_AUTHORIZATION": "Bearer secret"}
    (tmp_path / "a.jpg").touch()
    for word in (f"plugins.path={tmp_path}/evil.so", f"data.path={server.address}"):
        summary = changed(("loaders", 0, "counterpart"),
                          {"words": [word], "samples": [str(tmp_path / "a.jpg")], "reason": None})
        done = subprocess.run([sys.executable, "-m", "pymillrace", "what-if", str(written(tmp_path / "run", summary))],
                              env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        assert not (tmp_path / "constructed").exists() and server.connections == 0
        assert done.returncode == 3 and done.stderr.count("\n") == 1 and "augmentation" in done.stderr, done.stderr


@pytest.mark.parametrize("load", ("1e300", "-1", "inf", "nan", "9e18"))
def test_times_that_no_run_lasts_are_not_drawn(tmp_path, load):
    steps, names = tmp_path / "steps.csv", run_directory.HEADER.strip().split(",")

    def write(value):
        row = {name: "0" for name in names} | {"load": value}
        steps.write_text(run_directory.HEADER + ",".join(row[name] for name in names) + "\n")

    write("0.5")
    assert [ns for _, spans in trace._spans(steps) for _, ns in spans if ns] == [500_000_000]
    write(load)
    assert trace._spans(steps) == []
