"""Ctrl-C while a loader waits for a server that does not answer."""
import faulthandler
import http.server
import json
import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pymillrace as mr
import pytest


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder on 127.0.0.1; while `stalls` is set, answers to requests for archives never come."""

    daemon_threads = True

    def __init__(self, folder):
        server = self
        self.stalls = False
        self.asked, self.dropped, self.released = threading.Event(), threading.Event(), threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                self.answer(False)

            def do_GET(self):
                self.answer(True)

            def answer(self, body):
                if server.stalls and self.path.endswith(".tar"):
                    server.asked.set()
                    while not server.released.is_set():
                        if select.select([self.connection], [], [], 0.05)[0]:  # the client has hung up
                            server.dropped.set()
                            break
                    self.close_connection = True
                    return
                file = folder / self.path.lstrip("/")
                data = file.read_bytes() if file.is_file() else None
                if data is None:
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                first, found = 0, re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                part = data
                if found:
                    first = int(found[1])
                    part = data[first:int(found[2]) + 1 if found[2] else None]
                self.send_response(206 if found else 200)
                if found:
                    self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
                self.send_header("Content-Length", str(len(part)))
                self.send_header("ETag", f'"{len(data)}"')
                self.end_headers()
                if body:
                    self.wfile.write(part)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}/"
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def own_stderr(request):
    """A file that pytest does not capture."""
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        file = os.fdopen(os.dup(2), "w")
    yield file
    file.close()


@pytest.fixture(autouse=True)
def time_limit(own_stderr):
    """Ends this process, with all stacks, where a defect would make it wait for good."""
    faulthandler.dump_traceback_later(120, exit=True, file=own_stderr)
    yield
    faulthandler.cancel_dump_traceback_later()


def packed(program, source, folder):
    folder.mkdir(exist_ok=True)
    subprocess.run([program, "data", "pack", str(source), str(folder), "--shards", "3"], check=True,
                   capture_output=True)
    return folder


@pytest.fixture(scope="module")
def archive(program, data, tmp_path_factory):
    return packed(program, data / "photos", tmp_path_factory.mktemp("archive"))


@pytest.fixture
def server(archive):
    one = Server(archive)
    yield one
    one.released.set()
    one.shutdown()
    one.server_close()


def words(server, cache, workers):
    return ["data.reader=tar", f"data.path={server.address}", f"data.remote.cache={cache}", "data.remote.deadline=600",
            "augment+=random_resized_crop{size=16}", "loader.batch=8",
            f"loader.workers={workers}", "loader.shuffle=none"]


def interrupt_when_asked(server, delay=0):
    def wait():
        if server.asked.wait(60) and not server.released.is_set():
            time.sleep(delay)
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_ends_the_wait_and_the_workers_and_the_batch_is_not_lost(server, tmp_path, workers):
    loader = mr.Loader(*words(server, tmp_path / "cache", workers), numpy=True)
    expected = len(loader.dataset)
    server.stalls = True
    interrupt_when_asked(server)
    seen = 0
    with pytest.raises(KeyboardInterrupt):
        for batch in loader:  # opening it has fetched the first archive
            seen += len(batch.labels)
    state = loader.state_dict()
    assert (state["epoch"], 8 * state["batch"]) == (0, seen) and seen < expected
    loader.close()  # leaves no worker behind in its read, which would go on for 30 s
    assert server.dropped.wait(15)
    server.stalls = False
    server.released.set()
    loader.load_state_dict(state)
    assert sum(len(batch.labels) for batch in loader) == expected - seen


def test_ctrl_c_ends_the_wait_while_the_set_is_opened(server, tmp_path):
    server.stalls = True  # the first image decides on the shape of batches
    interrupt_when_asked(server)
    with pytest.raises(KeyboardInterrupt):
        mr.Loader(*words(server, tmp_path / "cache", 2), numpy=True)
    server.released.set()
    server.stalls = False
    assert len(mr.Loader(*words(server, tmp_path / "cache", 2), numpy=True)) > 0


@pytest.mark.parametrize("call", (lambda loader: loader.profile(64),
                                  lambda loader: [loader.dataset.name(i) for i in range(len(loader.dataset))]))
def test_ctrl_c_ends_other_calls_that_wait_for_the_server(server, tmp_path, call):
    loader = mr.Loader(*words(server, tmp_path / "cache", 0), numpy=True)
    server.stalls = True
    interrupt_when_asked(server)
    with pytest.raises(KeyboardInterrupt):
        call(loader)
    assert server.dropped.wait(15)
    server.stalls = False
    server.released.set()
    assert sum(len(batch.labels) for batch in loader) == len(loader.dataset)


@pytest.mark.parametrize("call", (lambda loader: loader.profile(64),
                                  lambda loader: [loader.dataset.name(i) for i in range(len(loader.dataset))]))
@pytest.mark.parametrize("workers", [0, 2])
def test_after_ctrl_c_in_another_call_the_iteration_goes_on(server, tmp_path, workers, call):
    loader = mr.Loader(*words(server, tmp_path / "cache", workers), numpy=True)
    server.stalls = True
    batches = iter(loader)
    names = next(batches).names  # of the first archive, which is there
    with pytest.raises(KeyboardInterrupt):
        interrupt_when_asked(server, 0.3)  # workers may have asked before the call
        call(loader)
    server.stalls = False
    server.released.set()
    for batch in batches:
        names += batch.names
    assert names == [loader.dataset.name(i) for i in range(len(loader.dataset))] and loader.failures == []


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_in_another_call_leaves_a_thread_in_next_waiting(server, tmp_path, workers):
    loader = mr.Loader(*words(server, tmp_path / "cache", workers), numpy=True)
    server.stalls = True
    names, errors = [], []

    def iterate():
        try:
            for batch in loader:
                names.extend(batch.names)
        except BaseException as error:
            errors.append(error)

    other = threading.Thread(target=iterate, daemon=True)
    other.start()
    assert server.asked.wait(60)  # by next(), which needs the second archive
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        [loader.dataset.name(i) for i in range(len(loader.dataset))]
    assert other.is_alive() and errors == []
    server.stalls = False
    server.released.set()
    other.join(60)
    assert not other.is_alive() and errors == [] and loader.failures == []
    assert names == [loader.dataset.name(i) for i in range(len(loader.dataset))]


@mr.augmentation
def endless_for_remote(image):
    """Returns once `released` is set."""
    began.set()
    while not released.is_set():
        pass
    return image


began, released = threading.Event(), threading.Event()


def test_ctrl_c_ends_a_python_function_that_never_returns(server, tmp_path):
    loader = mr.Loader(*words(server, tmp_path / "cache", 0), "augment+=endless_for_remote", numpy=True)

    def interrupt():
        if began.wait(60):
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader))


def test_ctrl_c_gives_up_the_rest_of_the_batch_at_once(program, tmp_path):
    subprocess.run([program, "data", "make", "photos", str(tmp_path / "photos"), "--count", "400"], check=True,
                   capture_output=True)
    server = Server(packed(program, tmp_path / "photos", tmp_path / "archive"))
    began.clear()
    try:
        loader = mr.Loader(*words(server, tmp_path / "cache", 0), "augment+=endless_for_remote", "loader.batch=256",
                           "loader.on_error=replace", numpy=True)
        sent = []

        def interrupt():
            if began.wait(60):
                sent.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
        assert time.monotonic() - sent[0] < 5  # 50 ms per sample would be 13 s
        released.set()
        next(iter(loader))  # failures come with a batch
        assert loader.failures == []
    finally:
        released.clear()
        server.released.set()
        server.shutdown()
        server.server_close()


def test_a_script_that_leaves_its_loop_ends_while_workers_wait_for_the_server(server, tmp_path):
    code = textwrap.dedent("""
        import json, sys
        import pymillrace as mr

        loader = mr.Loader(*json.loads(sys.argv[1]), numpy=True)
        print("opened", flush=True)
        sys.stdin.readline()
        batches = iter(loader)
        next(batches)
        print("stepped", flush=True)
        sys.stdin.readline()
    """)
    script = subprocess.Popen([sys.executable, "-c", code, json.dumps(words(server, tmp_path / "cache", 2))],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert script.stdout.readline() == "opened\n"
        server.stalls = True
        script.stdin.write("go\n")
        script.stdin.flush()
        assert script.stdout.readline() == "stepped\n"
        assert server.asked.wait(60)
        script.communicate("end\n", timeout=60)
    finally:
        script.kill()
        script.wait()
    assert script.returncode == 0 and server.dropped.wait(15)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_script_ends_at_once(server, tmp_path, workers):
    """Its deadline is 600 s, so a script that ends does so because of the signal."""
    code = textwrap.dedent("""
        import json, sys
        import pymillrace as mr

        loader = mr.Loader(*json.loads(sys.argv[1]), numpy=True)
        print("opened", flush=True)
        sys.stdin.readline()
        for batch in loader:
            pass
    """)
    script = subprocess.Popen([sys.executable, "-c", code, json.dumps(words(server, tmp_path / "cache", workers))],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert script.stdout.readline() == "opened\n"
        server.stalls = True
        script.stdin.write("go\n")
        script.stdin.flush()
        assert server.asked.wait(60)
        script.send_signal(signal.SIGINT)
        _, errors = script.communicate(timeout=60)
    finally:
        script.kill()
        script.wait()
    assert script.returncode == -signal.SIGINT and errors.rstrip().endswith("KeyboardInterrupt"), errors
