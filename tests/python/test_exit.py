"""The end of the interpreter while daemon threads are in the package, under each interpreter of this machine."""
import concurrent.futures
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import textwrap

import pytest
from conftest import LONG
from exit_scenes import SCENES
from interpreters import interpreters

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = HERE.parents[1] / ".deps/interpreters"  # where tools/test --all puts what the package needs, per version
PROCESSES = 20 if LONG else 2  # of each scene
PROCESSES_OF_OTHERS = 20 if LONG else 1  # under each other interpreter
PATIENCE = 120  # seconds: 2 are waited for what cannot be ended, and other programs disturb


def environment(version):
    """Returns an environment in which an interpreter finds the package and what it needs, or None."""
    if version[:2] == sys.version_info[:2]:
        return dict(os.environ)
    needed = PACKAGES / f"{version[0]}.{version[1]}"
    if not needed.exists():
        return None
    package = next(path for path in os.environ["PYTHONPATH"].split(":") if os.path.exists(f"{path}/pymillrace"))
    return {**os.environ, "PYTHONPATH": f"{package}:{needed}"}


PYTHONS = [pytest.param(path, environment(version), id=".".join(map(str, version)),
                        marks=pytest.mark.skipif(environment(version) is None, reason=f"NOT TESTED: no {PACKAGES}"))
           for version, path in interpreters().items()]


@pytest.fixture(scope="module")
def port():
    """Port of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as server:
        yield server.getsockname()[1]


def ends(python, environment, scene, port):
    """Returns exit codes and error outputs of processes that end at random moments of a scene."""
    def run(moment):
        done = subprocess.run([python, str(HERE / "exit_scenes.py"), scene, str(moment), str(port)], env=environment,
                              capture_output=True, text=True, timeout=PATIENCE)
        return done.returncode, done.stderr

    count = PROCESSES if python == sys.executable else PROCESSES_OF_OTHERS
    moments = random.Random(scene)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return set(pool.map(run, [moments.uniform(0, 0.05) for _ in range(count)]))


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("python, environment", PYTHONS)
def test_a_process_ends_in_order_while_daemon_threads_are_in_the_package(python, environment, scene, port):
    assert ends(python, environment, scene, port) == {(0, "")}


@pytest.mark.skipif(shutil.which("cc") is None, reason="NOT TESTED: there is no C compiler")
@pytest.mark.parametrize("scene", SCENES)
def test_a_process_ends_where_the_interpreter_blocks_threads_as_from_python_3_14_on(tmp_path, scene, port):
    (tmp_path / "block.c").write_text("#include <unistd.h>\nvoid pthread_exit(void *value) { for (;;) pause(); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", tmp_path / "block.so", tmp_path / "block.c"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(tmp_path / "block.so")}
    assert ends(sys.executable, environment, scene, port) == {(0, "")}


def run(code):
    code = textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, cwd=HERE)


def test_an_exit_handler_that_runs_later_can_join_a_thread():
    done = run("""
        import atexit, threading

        def join():
            thread.join()
            print("joined", calls[-1])

        atexit.register(join)  # before the package registers its own, so it runs after that
        from exit_scenes import begun, make

        def iterate():
            try:
                loader = make()
                while True:
                    for _ in loader:
                        begun.set()
            finally:
                calls.append("finally")

        calls = []
        thread = threading.Thread(target=iterate, daemon=True)
        thread.start()
        begun.wait()
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "joined finally\n", "")


@pytest.mark.parametrize("late", [True, False])
def test_a_daemon_thread_that_imports_the_loader_while_the_interpreter_ends_is_told(late):
    code = f"""
        import atexit, sys, threading
        going, made, told = threading.Event(), threading.Event(), threading.Event()

        def wait_for_the_thread():
            going.set()
            print(told.wait(10) if {late} else made.wait(10), flush=True)

        if {late}:  # is called after the package's own function
            atexit.register(wait_for_the_thread)
        import pymillrace as mr
        if not {late}:
            atexit.register(wait_for_the_thread)

        def work():
            going.wait()
            try:
                loader = mr.Loader("mnist-lenet", "data.reader=synthetic", "data.synthetic.channels=1", numpy=True)
                while True:
                    for batch in loader:
                        made.set()
            except SystemExit:
                told.set()

        threading.Thread(target=work, daemon=True).start()
        sys.exit(3)
    """
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (3, "True\n", "")


def test_an_exit_handler_that_runs_later_can_use_a_loader():
    done = run("""
        import atexit
        atexit.register(lambda: print(sum(len(labels) for _, labels in loader)))
        import exit_scenes
        loader = exit_scenes.make("augment+=computes", "loader.workers=0")
        next(iter(loader))
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1000\n", "")


def test_arrays_may_outlive_the_interpreter():
    done = run("""
        import ctypes
        import exit_scenes
        loader = exit_scenes.make()
        batch = next(iter(loader))
        for kept in (batch, batch.images, batch.samples, iter(loader), loader):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_forked_child_does_not_wait_for_the_threads_of_its_parent():
    done = run("""
        import os, sys, threading, time
        from exit_scenes import SCENES, begun
        for _ in range(2):
            threading.Thread(target=SCENES["sleeps without workers"], daemon=True).start()
        begun.wait()
        if os.fork() == 0:
            begin = time.monotonic()
            import atexit
            atexit._run_exitfuncs()
            print(time.monotonic() - begin < 1.5, flush=True)
            os._exit(0)
        os.wait()
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
