"""A fault of the recorder ends the recording, and never what a script does.

The oracle is the script itself: its output and its exit code are those of a run without watching.
"""
import ast
import atexit
import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="NOT TESTED with PyTorch: it cannot be imported", exc_type=ImportError)
from conftest import LONG
from torch.utils.data import DataLoader, Dataset

PACKAGE = Path(importlib.util.find_spec("pymillrace").origin).parent / "watcher"
PROGRAM = os.environ.get("MILLRACE_PROGRAM", "")
STOPPED = "pymillrace watch: recording stopped: "
# A process's first optimizer imports torch._dynamo. Forked processes have it from here.
torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)


# Faults in hooks: every `try` of the package whose handler calls stop() is one.


def calls_stop(handler):
    return any(isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)
               and getattr(one.value.func, "id", "") in ("stop", "_stop") for one in handler.body)


def hooks_in(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Try) and any(map(calls_stop, node.handlers))]


def hooks():
    """Returns (file, number in the file, place) of each hook, once at its begin and once at its end."""
    found = []
    for file in sorted(PACKAGE.glob("*.py")):
        for number, hook in enumerate(hooks_in(ast.parse(file.read_text()))):
            found.append((file.stem, number, "begin"))
            if not isinstance(hook.body[-1], (ast.Return, ast.Raise)):
                found.append((file.stem, number, "end"))
    return found


class Planter(importlib.abc.MetaPathFinder):
    """Imports the recorder with a call of planted.fire() in one of its hooks."""

    def __init__(self, stem, number, place):
        self.stem, self.number, self.place = stem, number, place

    def find_spec(self, name, path, target=None):
        if name != f"pymillrace.watcher.{self.stem}":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader.get_code = functools.partial(self.code, spec.origin)
        return spec

    def code(self, origin, name):
        tree = ast.parse(Path(origin).read_text())
        body = hooks_in(tree)[self.number].body
        body.insert(0 if self.place == "begin" else len(body), ast.parse("__import__('planted').fire()").body[0])
        return compile(ast.fix_missing_locations(tree), origin, "exec")


class Samples(Dataset):
    def __init__(self, count, bad=None):
        self.count, self.bad, self.transform = count, bad, self.scaled

    def scaled(self, sample):
        return sample / 7

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index == self.bad:
            raise KeyError(f"sample {index}")
        return self.transform(torch.tensor([float(index), 1.0])), torch.rand(1)


def init(worker):
    torch.manual_seed(worker)


def script(watched):
    """Trains, checks, forks, fails: prints what a recorder could change."""
    torch.manual_seed(3)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    train = DataLoader(Samples(24), batch_size=4, shuffle=True, num_workers=1, worker_init_fn=init)
    check = DataLoader(Samples(8), batch_size=2)
    for epoch in range(2):
        for images, noise in train:
            loss = (model(images) - noise).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(epoch, f"{loss.item():.9f}", flush=True)
        iterator = iter(check)
        print("checked", next(iterator)[0].sum().item())
        del iterator  # leaves it in the middle
    print(type(torch.compile(model, backend="eager")).__name__)
    for loader in (DataLoader(Samples(8, bad=5), batch_size=2), DataLoader(Samples(8, bad=5), num_workers=1)):
        try:
            print(sum(1 for _ in loader))
        except KeyError as error:
            print("raised", type(error).__name__, "sample 5" in str(error), error.__context__)
    stateful = type("StatefulDataLoader", (DataLoader,), {"__module__": "torchdata.tests"})
    print(len(list(stateful(Samples(4)))), train.worker_init_fn is init)
    try:
        iter(DataLoader(Samples(4), batch_size=None, sampler=RaisesAt(0)))
    except ValueError as error:
        print("raised", error, error.__context__)
    for loader in ([1, 2, 3], RaisesAt(2), RaisesAt(0)):
        try:
            for number in watched(loader):
                print("number", number)
        except ValueError as error:
            print("raised", error, error.__context__)
    pipelines = other_project()
    print(list(pipelines([6, 7])), len(list(pipelines([]))))
    iterator = iter(watched([4, 5]))
    print("left", next(iterator))
    del iterator
    child = os.fork()
    if child == 0:
        os._exit(len(list(check)))
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), float(torch.rand(1)))


def other_project():
    """Returns a class of loaders from a package of the name of one that is known to have them."""
    folder = Path("packages/spdl/pipeline")
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("class Pipeline(list):\n    def get_iterator(self): return list.__iter__(self)\n"
                                        "    def __iter__(self): return self.get_iterator()\n")
    sys.path.insert(0, os.path.abspath("packages"))
    return importlib.import_module("spdl.pipeline").Pipeline


class RaisesAt:
    def __init__(self, number):
        self.number = number

    def __len__(self):
        return self.number

    def __iter__(self):
        if self.number == 0:
            raise ValueError("iter")
        return self.numbers()

    def numbers(self):
        yield 1
        raise ValueError(self.number)


def planted_fault(mark, error):
    """Returns a module whose fire() leaves a mark and raises, or asks for a signal."""
    module = types.ModuleType("planted")

    def fire():
        with open(mark, "a") as file:
            file.write("x")
        if error is None:
            signal.raise_signal(signal.SIGUSR1)
        else:
            raise error

    module.fire = fire
    return module


def in_child(folder, body):
    """Runs a function in a forked process, to its end with exit handlers. Returns its exit code, stdout and stderr.

    Ends what it leaves behind: a worker of torch that starts after its parent's end waits for ever.
    """
    folder.mkdir(exist_ok=True)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        code = 70
        try:
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), number)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
            atexit._clear()
            os.chdir(folder)
            torch.set_num_threads(1)
            body()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            atexit._run_exitfuncs()
            for thread in threading.enumerate():
                if thread.name == "pymillrace line":  # which says what was planted in it
                    thread.join(60)
            sys.stdout.flush()
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return status, (folder / "out").read_text(), (folder / "err").read_text()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    done = in_child(tmp_path_factory.mktemp("plain"), lambda: script(lambda loader: loader))
    assert done[0] == 0, done[2]
    return done[1]


def watched_script(folder, site, error):
    """Runs the script in both ways of watching a process, with a summary after every few steps."""
    sys.modules["planted"] = planted_fault(folder / "mark", error)
    sys.meta_path.insert(0, Planter(*site))
    import pymillrace as mr
    from pymillrace.watcher import live, provisional, watchdog
    from pymillrace.watcher.api import start_when_imported
    from pymillrace.watcher.command_line import EVERY

    own = ValueError("of the script")
    watchdog.LOOK_S = 0.01
    provisional.FIRST_S = provisional.INTERVAL_S = live.FIRST_S = 0.0
    os.environ[EVERY] = "0"
    start_when_imported(torch.utils.data.dataloader, str(folder / "run"))
    try:
        with mr.watching(run=folder / "raising"):
            raise own
    except ValueError as passed:
        assert passed is own
    with mr.watching(run=folder / "inner", log=lambda figures: None):
        script(lambda loader: mr.watch(loader, run=folder / "given"))
    for _ in DataLoader(Samples(8), batch_size=2):  # in the recording of the process, which writes lines
        pass


# Each is a training of its own: some are tried, with MILLRACE_LONG_TESTS=1 all.
SITES = hooks() if LONG else hooks()[::17]


@pytest.mark.parametrize("site", SITES, ids=lambda site: "-".join(map(str, site)))
def test_a_fault_in_a_hook_changes_nothing(tmp_path, plain, site):
    fault = OSError(28, "No space left on device", "/planted")
    code, out, err = in_child(tmp_path, lambda: watched_script(tmp_path, site, fault))
    assert (tmp_path / "mark").exists(), "no part of the script reaches this hook: extend script()"
    assert (code, out) == (0, plain), err
    assert f"{STOPPED}/planted: No space left on device; the training goes on" in err
    if site[0] not in ("stalls", "watchdog", "worker", "session"):  # workers and children are processes of their own
        assert err.count(STOPPED) == 1, err
    assert "Traceback" not in err, err


def test_all_recording_is_off_after_a_fault(tmp_path):
    hooks_of_iterators = hooks_in(ast.parse((PACKAGE / "iterators.py").read_text()))
    first_batch = next(at for at, hook in enumerate(hooks_of_iterators)
                       if "watched.recorder" in ast.unparse(hook.body) and "moves_here" in ast.unparse(hook.body))

    def body():
        watched_script(tmp_path, ("iterators", first_batch, "begin"), OSError(28, "No space left on device"))

    in_child(tmp_path, body)
    assert not (tmp_path / "run/summary.json").exists() and not (tmp_path / "given").exists()


def hooks_of_next():
    """Returns the numbers of the hooks in iterators.py through which each batch goes."""
    numbered = enumerate(hooks_in(ast.parse((PACKAGE / "iterators.py").read_text())))
    return [number for number, hook in numbered if re.search(r"recorder\.(begin|end)\(", ast.unparse(hook.body))]


@pytest.mark.parametrize("number", hooks_of_next())
@pytest.mark.parametrize("error", (KeyboardInterrupt("now"), SystemExit("now")), ids=("interrupt", "exit"))
def test_what_ends_a_script_passes_through_the_hooks(tmp_path, error, number):
    def body():
        try:
            watched_script(tmp_path, ("iterators", number, "begin"), error)
        except type(error) as passed:
            print("passed", passed is error)

    code, out, err = in_child(tmp_path, body)
    assert (code, STOPPED in err) == (0, False) and "passed True" in out, err


class Alarm(Exception):
    """What a script's handler of a signal raises."""


@pytest.mark.parametrize("number", hooks_of_next())
def test_what_a_handler_of_a_signal_raises_is_the_scripts(tmp_path, number):
    def handler(given, number, frame):
        raise Alarm(given)

    def body():
        signal.signal(signal.SIGUSR1, functools.partial(handler, "time is up"))
        try:
            watched_script(tmp_path, ("iterators", number, "begin"), None)
        except Alarm as passed:
            print("passed", passed)

    code, out, err = in_child(tmp_path, body)
    assert (code, STOPPED in err) == (0, False) and "passed time is up" in out, err


def test_a_fault_in_the_hooks_of_torch_changes_nothing(tmp_path):
    """These are compiled; torch's dictionary of hooks is what may fail under them."""
    def body():
        import pymillrace as mr
        from pymillrace.watcher.api import _every

        class Broken(dict):
            def __delitem__(self, key):
                print("removed")
                raise MemoryError

        model = torch.nn.Linear(2, 1)
        with mr.watching(run=tmp_path / "run"):
            for step, (images, _) in enumerate(DataLoader(Samples(8), batch_size=2)):
                if step == 1:
                    _every[-1].marks.put_while_armed(Broken(), 0, print)
                model(images)
                print(step)

    code, out, err = in_child(tmp_path, body)
    assert (code, out) == (0, "0\nremoved\n1\nremoved\n2\nremoved\n3\n"), err


# Faults of the machine, under `pymillrace watch -- python train.py`.

TRAIN = """
import os, resource, shutil, signal, subprocess, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)

class Samples(Dataset):
    def __len__(self):
        return 10_000
    def __getitem__(self, index):
        return torch.tensor([float(index % 7), 1.0])

def at(step):
    pass
STEPS, WORKERS = 900, 0
# HERE
torch.manual_seed(1)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.001)
for step, images in enumerate(DataLoader(Samples(), batch_size=2, shuffle=True, num_workers=WORKERS)):
    at(step)
    loss = model(images).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, f"{loss.item():.9f}", flush=True)
    if step == STEPS:
        break
print("done")
sys.exit(7)
"""


class Trained:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def __eq__(self, other):
        return (self.code, self.out) == (other.code, other.out)


def train(folder, here="", watched=True, around=(), run="run", **options):
    """Runs the training, with more lines in it, watched or not."""
    (folder / "train.py").write_text(TRAIN.replace("# HERE", textwrap.dedent(here)))
    watch = [sys.executable, "-m", "pymillrace", "watch", "--run", str(folder / run), "--"] if watched else []
    return Trained(subprocess.run([*around, *watch, sys.executable, str(folder / "train.py")], cwd=folder, text=True,
                                  timeout=300, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}))


def stops_with(trained, what):
    """Returns whether recording ended with one line that says why."""
    lines = [line for line in trained.err.splitlines() if line.startswith(STOPPED)]
    return len(lines) == 1 and re.search(what, lines[0]) and lines[0].endswith("; the training goes on")


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory):
    done = train(tmp_path_factory.mktemp("unwatched"), watched=False)
    assert done.code == 7 and done.out.endswith("done\n"), done.err
    return done


def test_a_directory_that_is_removed_ends_the_recording(tmp_path, unwatched):
    done = train(tmp_path, f"""
        def at(step):
            if step == 300:
                shutil.rmtree({str(tmp_path / 'run')!r})
    """)
    assert done == unwatched and stops_with(done, "run/steps.csv: No such file"), done.err


@pytest.mark.parametrize("handler", ("SIG_IGN", "SIG_DFL"))
def test_a_limit_of_file_sizes_ends_the_recording(tmp_path, unwatched, handler):
    done = train(tmp_path, f"""
        signal.signal(signal.SIGXFSZ, signal.{handler})
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    """)
    assert done == unwatched and stops_with(done, "File too large"), done.err


def test_workers_live_with_a_limit_of_file_sizes(tmp_path):
    limit = "signal.signal(signal.SIGXFSZ, signal.SIG_DFL); WORKERS, STEPS = 2, 100; " \
            "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    done = train(tmp_path, limit)
    assert done == train(tmp_path, limit, watched=False) and stops_with(done, "File too large"), done.err


def namespace(folder, mount, then):
    """Returns the command that mounts a small disk before a command, where only that sees it."""
    user = ["--user", "--map-root-user"] if os.geteuid() else []
    around = ["unshare", *user, "--mount", "--propagation", "private", "sh", "-c",
              f"mount -t tmpfs -o {mount} none '{folder}' && exec \"$@\"", "sh"]
    tried = subprocess.run([*around, "sh", "-c", then], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip("A DISK THAT IS REALLY FULL IS NOT TESTED: no tmpfs can be mounted here "
                    f"({tried.stderr.strip()}); run as root, or where users may make namespaces")
    return around


@pytest.mark.parametrize("at_300, what", (
    ("open('disk/filler', 'wb', buffering=0).write(bytes(1 << 20))", "No space left"),
    # The kernel refuses to remount what has a file open for writing, as errors of a disk would.
    ("subprocess.run(['sh', '-c', 'mount --bind disk disk && mount -o remount,bind,ro disk'], check=True)",
     "Read-only file system"),
    ("subprocess.run(['umount', '-l', 'disk'], check=True)", "No such file")), ids=("full", "read-only", "gone"))
@pytest.mark.parametrize("workers", (0, 2))
def test_a_disk_that_fails_ends_the_recording(tmp_path, unwatched, workers, at_300, what):
    (tmp_path / "disk").mkdir()
    around = namespace(tmp_path / "disk", "size=1m", "true")
    done = train(tmp_path, f"""
        WORKERS = {workers}
        def at(step):
            if step == 300:
                {at_300}
    """, around=around, run="disk/run")
    assert done == unwatched and stops_with(done, what), done.err


def test_a_run_directory_that_cannot_be_made_is_refused_before_the_script_runs(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/thesis.txt").write_text("mine")
    for run, what in (("file/run", "Not a directory"), ("folder", "files that are not a run")):
        done = train(tmp_path, "print('it ran')", run=run)
        assert (done.code, done.out) == (2, "") and what in done.err, done.err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "folder", "train.py"]


def test_a_script_that_watches_goes_on_without_a_run_directory(tmp_path, unwatched):
    (tmp_path / "file").write_text("")
    here = f"""
        import pymillrace as mr
        loader = DataLoader(Samples())
        assert mr.watch(loader, run={str(tmp_path / 'file/run')!r}) is loader
        with mr.watching(run={str(tmp_path / 'file/run')!r}):
            pass
    """
    done = train(tmp_path, here, watched=False)
    assert done == unwatched and stops_with(done, "file/run.*Not a directory"), done.err


def test_a_script_may_close_all_descriptors_and_use_their_numbers(tmp_path, unwatched):
    done = train(tmp_path, f"""
        def at(step):
            global mine
            if step == 300:
                os.closerange(3, 100)
                mine = [open({str(tmp_path / 'mine')!r} + str(i), "w") for i in range(20)]
            if step == 800:
                for file in mine:
                    file.write("mine")
                    file.flush()
                    os.fstat(file.fileno())
    """)
    assert done == unwatched, done.err
    assert [(tmp_path / f"mine{i}").read_text() for i in range(20)] == ["mine"] * 20
    assert summary_of(tmp_path / "run")["complete"] is True


@pytest.mark.parametrize("here", (
    "os.environ.clear()", "os.umask(0o777) and None", "os.chdir('/')", "sys.stderr = None",
    "sys.stderr = open(os.devnull, 'r')", "sys.stderr.close()",
    "resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))", "sys.meta_path.insert(0, sys.meta_path.pop())"))
def test_what_a_script_does_to_its_process_stays_without_effect(tmp_path, unwatched, here):
    first = "os.environ.clear()" in here
    done = train(tmp_path, here) if not first else train_after_clearing(tmp_path)
    assert done == unwatched, done.err
    assert summary_of(tmp_path / "run")["complete"] is True


def train_after_clearing(folder):
    text, before = TRAIN, "import os; path = os.environ['PATH']; os.environ.clear()\n"
    try:
        globals()["TRAIN"] = before + text
        return train(folder)
    finally:
        globals()["TRAIN"] = text


@pytest.mark.parametrize("handler", ("SIG_IGN", "SIG_DFL"))
def test_nobody_needs_to_read_stderr(tmp_path, unwatched, handler):
    read, write = os.pipe()
    os.close(read)
    try:
        done = train(tmp_path, f"signal.signal(signal.SIGPIPE, signal.{handler})", stderr=write)
    finally:
        os.close(write)
    assert done == unwatched
    assert summary_of(tmp_path / "run")["complete"] is True


# Runs that are cut off.


def summary_of(run):
    return json.loads((run / "summary.json").read_text())


@pytest.mark.parametrize("end, code", (("os.kill(os.getpid(), signal.SIGKILL)", 137), ("os._exit(5)", 5)))
def test_a_run_that_is_cut_off_leaves_a_verdict(tmp_path, end, code):
    done = train(tmp_path, f"""
        times = []
        def at(step):
            time.sleep(0.01)
            times.append(time.monotonic())
            if times[-1] - times[0] > 4:
                {end}
    """)
    assert done.code == code, done.err
    summary, rows = summary_of(tmp_path / "run"), (tmp_path / "run/steps.csv").read_text().splitlines()[1:]
    assert summary["complete"] is False and 0 < summary["steps"] <= len(rows) + 1
    assert summary["verdict"] in done.err and "nothing was recorded" not in done.err
    assert f"was cut off; the figures cover {summary['steps']} steps" in done.err
    assert not list((tmp_path / "run").glob("*.tmp-*"))
    shown = subprocess.run([sys.executable, "-m", "pymillrace", "what-if", str(tmp_path / "run")],
                           capture_output=True, text=True)
    assert shown.returncode == 0 and "num_workers=1" in shown.stdout, shown.stderr
    assert f"was cut off; the figures cover {summary['steps']} steps" in shown.stdout
    if os.access(PROGRAM, os.X_OK):
        report = subprocess.run([PROGRAM, "report", "--md", str(tmp_path / "run")], capture_output=True, text=True)
        assert f"cut off; the figures cover {summary['steps']} steps" in report.stdout, report.stderr


def test_a_run_that_is_cut_off_at_once_says_how_many_steps_it_had(tmp_path):
    done = train(tmp_path, """
        def at(step):
            if step == 600:
                os._exit(0)
    """)
    steps = len((tmp_path / "run/steps.csv").read_text().splitlines()) - 1
    if (tmp_path / "run/summary.json").exists():  # a slow machine
        steps = summary_of(tmp_path / "run")["steps"]
    assert steps > 0 and f"was cut off; the figures cover {steps} steps" in done.err and done.code == 0, done.err


def test_summaries_of_a_run_under_way_lie_10_s_apart_and_none_follows_the_last(tmp_path, monkeypatch):
    from pymillrace.watcher import periodic, provisional, run_directory

    now = [100.0]
    monkeypatch.setattr(periodic.time, "monotonic", lambda: now[0])
    one = provisional.Provisional(tmp_path / "summary.json")
    written = []
    for now[0] in (100.0, 100.9, 101.0, 105.0, 110.9, 111.0, 115.0, 121.5):
        if one.due():
            written.append(now[0])
            one.write({"complete": False, "at": now[0]}, lambda: ["09-"])
            one._thread.join()
    assert written == [101.0, 111.0, 121.5] and summary_of(tmp_path) == {
        "complete": False, "at": 121.5, "worker_activity": ["09-"]}
    one.end()
    run_directory.write_file(tmp_path / "summary.json", "{}")
    one.write({"complete": False}, lambda: None)
    one._thread.join()
    assert summary_of(tmp_path) == {} and [file.name for file in tmp_path.iterdir()] == ["summary.json"]


def test_a_provisional_summary_is_synced_before_it_has_its_name_and_measures_nothing(tmp_path, monkeypatch):
    import pymillrace as mr
    from pymillrace.watcher import predict, provisional, replacement

    done, measured = [], []
    fsync, replace = os.fsync, Path.replace

    def seen_sync(file):
        fsync(file)
        done.append(("synced", os.readlink(f"/proc/self/fd/{file}"), os.fstat(file).st_size))

    def seen_replace(self, target):
        done.append(("named", str(self), self.stat().st_size))
        return replace(self, target)

    def seen_measurement(module, name):
        measure = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given: measured.append(name) or measure(*given))

    run = tmp_path / "run"
    for _ in mr.watch(DataLoader(torch.rand(200, 8), batch_size=4), run=run):
        pass
    session = mr.watcher.api._sessions[os.path.abspath(run)]
    monkeypatch.setattr(os, "fsync", seen_sync)
    monkeypatch.setattr(Path, "replace", seen_replace)
    seen_measurement(predict, "measure")  # of paging
    seen_measurement(replacement, "row")
    monkeypatch.setattr(session, "_provisional", provisional.Provisional(run / "summary.json"))
    session._provisional._due = 0.0
    session.summarise()
    session._provisional._thread.join()
    written, summary = done[:], summary_of(run)
    assert [what for what, *_ in written] == ["synced", "named"], written
    assert written[0][1:] == written[1][1:] and written[0][2] == (run / "summary.json").stat().st_size, written
    assert summary["complete"] is False and summary["what_if"] is None and summary["replay"]["images_per_s"] > 0
    assert summary["replay"]["tensors"] == 1 == predict.recorded_from(summary["replay"])[0].tensors
    assert not {"paging", "shared_memory"} & (summary.keys() | summary["replay"].keys()) and not measured
    session.close()
    assert summary_of(run)["what_if"]["shared_memory"] and measured == ["measure"], "the last summary measures"


def test_a_rank_that_goes_on_has_no_row_and_is_waited_for(tmp_path, monkeypatch):
    from pymillrace.watcher import ranks

    monkeypatch.setattr(ranks, "PATIENCE", 0.1)
    row = {"steps": 2, "load_s": 1.0, "first_batch_s": 0.5, "update_s": 1.0, "images_per_s": 1.0, "bound": "device",
           "world_size": 2}
    for rank, complete in ((0, True), (1, False)):
        (tmp_path / ranks.summary_name(rank)).write_text(json.dumps({**row, "rank": rank, "complete": complete}))
    found = ranks.wait_for_all(tmp_path, {**row, "rank": 0})
    assert [one["rank"] for one in found["ranks"]] == [0]
    (tmp_path / ranks.summary_name(0)).write_text(json.dumps({**row, "rank": 0, "complete": False}))
    assert ranks.complete(tmp_path) is None


@pytest.mark.parametrize("change", ({"workers": 10**9}, {"workers": True}, {"fetch": []}, {"fetch": [["x", 1]]},
                                    {"fetch": 3}, {"update": [float("nan"), 0, 1]}, {"batch_bytes": 1 << 60},
                                    {"cores": 0}, {"send": [1, 2]}, {"tensors": -1}))
def test_predictions_from_a_hostile_record_are_none(change):
    from pymillrace.watcher import predict

    record = {"workers": 1, "prefetch": 2, "batch": 4, "cores": 2, "fetch": [[0.01, 0.0]] * 4, "send": [0.0, 0.0, 1],
              "receive": [0.0, 0.0, 1], "hand": [0.0, 0.0, 1], "update": [0.01, 0.0, 1], "images_per_s": 100.0,
              "blocked_in_dataset": 0.0, "batch_bytes": 0, "collate_cpu": 0.0}
    assert predict.predictions_from(record)["rows"] and predict.recorded_from(record)[0].tensors == 0  # of an older one
    for broken in ({**record, **change}, None, [], {}):
        assert predict.predictions_from(broken) is None
