"""Measures the CPU time of millrace's own loader for the sampled files of a record, which may be untrusted."""
from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import resource
import signal
import statistics
from contextlib import ExitStack
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Any

from ..errors import Error, RunError
from .records import open_record

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

MEASURED_S, MOST_EPOCHS = 0.5, 20  # CPU seconds of a measurement, and epochs
# Bounds per file, and of the child that loads them. A chain may ask for images of 65,535 pixels per side.
MOST_SAMPLE_BYTES, MOST_MEMORY_BYTES, MOST_CPU_S, MOST_WALL_S = 64 << 20, 4 << 30, 60, 120
SHOWS_BYTES = ": it looks like"  # from here on, a decoder's message tells what is in the file
OUT_OF_MEMORY = 3  # exit code of the child


def measure_cpu(words: list[str], samples: list[str], batch: int) -> float:
    """Returns the CPU seconds per image of millrace's loader for these files. Raises Error if it cannot load them.

    Files and chain may be a stranger's. A child loads them, with bounds on its time and memory.
    """
    if importlib.util.find_spec("pymillrace._core") is None:
        raise RunError("this installation has no data pipeline (pymillrace._core)", "install pymillrace again")
    import multiprocessing
    import tempfile

    with ExitStack() as stack:
        files = [stack.enter_context(open_record(sample, MOST_SAMPLE_BYTES)).fileno() for sample in samples]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pymillrace-")))
        with open(folder / "samples.csv", "w", encoding="utf-8", newline="") as manifest:
            csv.writer(manifest).writerows([("path", "label"), *((f"/proc/self/fd/{file}", 0) for file in files)])
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        stack.enter_context(ours)
        child = context.Process(target=_measure_in_child,
                                args=(theirs, words, folder / "samples.csv", min(batch, len(files))))
        child.start()
        theirs.close()
        try:
            found = json.loads(ours.recv_bytes()) if ours.poll(MOST_WALL_S) else {"reason": _ending(-signal.SIGXCPU)}
        except EOFError:
            child.join()
            found = {"reason": _ending(child.exitcode)}
        finally:
            child.kill()
            child.join()
    if "reason" in found:  # which names the descriptors
        names = dict(zip(map(str, files), samples))
        reason = found["reason"].partition(SHOWS_BYTES)[0]
        raise RunError(re.sub(r"/proc/self/fd/(\d+)", lambda place: names.get(place[1], place[0]), reason))
    return float(found["cpu"])


def _ending(code: int | None) -> str:
    if code == -signal.SIGXCPU:
        return f"measuring its files takes more than {MOST_CPU_S} s"
    if code == OUT_OF_MEMORY:
        return f"measuring its files takes more than {MOST_MEMORY_BYTES >> 30} GiB of memory"
    return f"measuring its files ended with exit code {code}"


def _measure_in_child(result: Connection, words: list[str], manifest: Path, batch: int) -> None:
    """Sends the loader's cost, or the reason why it is unknown. Prints nothing, because decoders may name a file."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        found: dict[str, Any] = {"cpu": _cpu_per_image(words, manifest, batch)}
    except Error as error:
        found = {"reason": error.what}
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except (OSError, ImportError, UnicodeError) as error:
        found = {"reason": str(error)}
    result.send_bytes(json.dumps(found).encode())


def _cpu_per_image(words: list[str], manifest: Path, batch: int) -> float:
    from ..loader import Loader

    loader = Loader("data.reader=manifest", f"data.path={manifest}", "loader.shuffle=none", "loader.workers=0",
                    f"loader.batch={batch}", *words, numpy=importlib.util.find_spec("numpy") is not None)
    found: list[float] = []
    spent = 0.0
    for epoch in range(MOST_EPOCHS + 1):
        begin = thread_time()
        images = sum(len(one.labels) for one in loader)
        cpu = thread_time() - begin
        if epoch > 0:  # the first one warms up
            found.append(cpu / images)
            spent += cpu
        if spent >= MEASURED_S:
            break
    loader.close()
    return statistics.median(found)
