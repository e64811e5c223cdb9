#!/usr/bin/env python3
"""Measures remote data against local data, from an nginx of its own on 127.0.0.1.

bench/remote.py throughput IMAGES.tar [--pairs 7] [--delay 20] [--connections 8] [--work DIR]
bench/remote.py hosts IMAGES.tar [--work DIR]

throughput: one worker runs an epoch of W4 (imagenet-rrc) over archives on this disk, and over the same archives from
nginx with an empty cache, in pairs whose order alternates: directly, and through a relay that delays each byte by MS in
each direction. All runs must have the same batch hash, and nginx must have sent each archive once. Prints all pairs,
the median ratio of images/s from the start of the loader to the epoch's end, and its 95% interval by order statistics;
and what the runs cost: median CPU seconds of the program, nginx, the relay and the rest of the machine, and those of
the program's kinds of threads in one more run of each side, which is watched and does not count.

hosts: 1, 2 and 8 hosts run an epoch, each with a cache of its own, by whole archives and by ranges. Prints the bytes
that nginx has sent to each.

IMAGES.tar holds JPEGs, each of which becomes several samples: --copies. Needs nginx, and build/millrace or --millrace.
"""

import argparse
import collections
import contextlib
import fcntl
import json
import multiprocessing
import os
import pathlib
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import tarfile
import tempfile
import threading
import time
import urllib.request

import cpu_seconds
from make_shards import member
from median_interval import median_interval

HERE = pathlib.Path(__file__).resolve().parent


def make_set(images, folder, options):
    """Packs copies of the images into archives, and indexes them. Returns the number of samples."""
    with tarfile.open(images) as source:
        jpegs = [source.extractfile(one).read() for one in source if one.isfile()]
    folder.mkdir(parents=True)
    total = len(jpegs) * options.copies
    for shard, begin in enumerate(range(0, total, options.per_shard)):
        with open(folder / f"train-{shard:06}.tar", "wb") as out:
            for i in range(begin, min(total, begin + options.per_shard)):
                out.write(member(f"{i:09}.jpg", jpegs[i % len(jpegs)]) +
                          member(f"{i:09}.cls", str(i % len(jpegs)).encode()))
            out.write(bytes(1024))
    subprocess.run([options.millrace, "data", "index", folder, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    return total


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Nginx:
    """Serves a folder, and counts what it sends by the query of the request."""

    def __init__(self, root, folder):
        folder.mkdir()
        self.port, self.log = free_port(), folder / "requests"
        temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n"
                            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "conf").write_text(f"""
daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{ worker_connections 256; }}
http {{
  log_format sent '$body_bytes_sent $uri $args';
  access_log {folder}/requests sent; sendfile on; tcp_nopush on; keepalive_requests 1000000;
  {temporary}
  server {{ listen 127.0.0.1:{self.port}; root {root}; }}
}}
""")
        self.process = subprocess.Popen(["nginx", "-c", folder / "conf", "-e", folder / "errors"])
        self.seen = 0
        for _ in range(500):
            with contextlib.suppress(OSError):
                direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                direct.open(f"http://127.0.0.1:{self.port}/train-000000.tar.index").read()
                break
            if self.process.poll() is not None:
                raise SystemExit("nginx does not start: " + (folder / "errors").read_text())
            time.sleep(0.01)
        self.sent()

    def sent(self):
        """Returns what was sent since the last call: [(bytes, path, query)]."""
        time.sleep(0.1)  # the log is written behind the answers
        with open(self.log, encoding="utf-8") as log:
            log.seek(self.seen)
            lines = log.read().splitlines()
            self.seen = log.tell()
        return [(int(count), path, query) for count, path, query in (line.split(" ", 2) for line in lines)]

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


CHUNK = 1 << 20
MOST_UNDERWAY = 16 << 20  # bytes per connection and direction


def forward(source, sink, delay):
    """Moves a connection's bytes, each `delay` seconds late. They lie in pipes meanwhile, and are never copied."""
    late, idle, underway = collections.deque(), [], 0
    changed = threading.Condition()

    def send():
        nonlocal underway
        while True:
            with changed:
                changed.wait_for(lambda: late)
                due, pipe, count = late.popleft()
            time.sleep(max(0.0, due - time.monotonic()))
            with contextlib.suppress(OSError):
                if count == 0:
                    sink.shutdown(socket.SHUT_WR)
                    return
                left = count
                while left > 0:
                    left -= os.splice(pipe[0], sink.fileno(), left)
            with changed:
                idle.append(pipe)
                underway -= count
                changed.notify_all()
            if count == 0:
                return

    threading.Thread(target=send, daemon=True).start()
    while True:
        with changed:
            changed.wait_for(lambda: underway < MOST_UNDERWAY)
            pipe = idle.pop() if idle else None
        if pipe is None:
            pipe = os.pipe()
            fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, CHUNK)
        try:
            count = os.splice(source.fileno(), pipe[1], CHUNK)
        except OSError:
            count = 0
        with changed:
            late.append((time.monotonic() + delay, pipe, count))
            underway += count
            changed.notify_all()
        if count == 0:
            return


def relay(listener, port, delay):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", port))
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for pair in ((client, server), (server, client)):
            threading.Thread(target=forward, args=(*pair, delay), daemon=True).start()


@contextlib.contextmanager
def delayed(port, delay):
    """Yields a port that leads to `port` with a delay in each direction, and the process that does it."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    process = multiprocessing.get_context("fork").Process(target=relay, args=(listener, port, delay), daemon=True)
    process.start()
    try:
        yield listener.getsockname()[1], process.pid
    finally:
        process.kill()
        process.join()


def bench(options, path, keys=(), environment=None, shuffle=None, watched=False):
    """Runs an epoch with one worker. Returns the record of `millrace bench`; if watched, with "threads"."""
    keep = {name: value for name, value in os.environ.items()
            if not name.startswith("MILLRACE_REMOTE") and not name.lower().endswith("_proxy")}
    arguments = [options.millrace, "bench", "imagenet-rrc", "data.reader=tar", f"data.path={path}", "loader.workers=1",
                 f"loader.shuffle={shuffle or options.shuffle}", f"loader.prefetch={options.prefetch}", *keys, "--hash",
                 "--json", "--quiet"]
    process = subprocess.Popen(arguments, env=keep | (environment or {}), stdout=subprocess.PIPE, text=True)
    watch = cpu_seconds.ThreadWatch(process.pid) if watched else None
    text = process.communicate()[0]
    if process.returncode != 0:
        raise SystemExit(f"millrace ended with exit code {process.returncode}")
    record = json.loads(text)
    if watched:
        record["threads"] = watch.stop()
    return record


@contextlib.contextmanager
def empty_cache(work):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cache-", dir=work))
    try:
        yield f"data.remote.cache={folder}"
    finally:
        shutil.rmtree(folder)


def load():
    return pathlib.Path("/proc/loadavg").read_text().split()[0]


def rate(record):
    return record["images"] / record["wall_s"]


class Costs:
    """CPU seconds of runs: of the program, of servers, and of the rest of the machine."""

    def __init__(self, servers):
        self.servers, self.all = servers, collections.defaultdict(list)

    def now(self):
        seconds = {name: cpu_seconds.of_process(pid) for name, pid in self.servers.items()}
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds["millrace"] = ended.ru_utime + ended.ru_stime
        own = os.times()
        seconds["rest"] = cpu_seconds.of_machine() - sum(seconds.values()) - own.user - own.system
        return seconds

    @contextlib.contextmanager
    def counted(self, side):
        before = self.now()
        yield
        for name, seconds in self.now().items():
            self.all[side, name].append(seconds - before[name])

    def table(self, gigabytes, threads):
        """Returns a table with a row for each process and kind of thread."""
        names = ["millrace", *self.servers, "rest"]
        rows = [(name, *(statistics.median(self.all[side, name]) for side in ("local", "remote"))) for name in names]
        for kind in cpu_seconds.KINDS:
            if threads["local"][kind] or threads["remote"][kind]:
                rows.append((f"millrace, {kind} (watched)", threads["local"][kind], threads["remote"][kind]))
        return "\n".join(
            ["| CPU s of | local | remote | remote - local | per GB |", "| --- | --- | --- | --- | --- |"] +
            [f"| {name} | {local:.2f} | {remote:.2f} | {remote - local:+.2f} | {(remote - local) / gigabytes:+.2f} |"
             for name, local, remote in rows])


def throughput(options, folder, nginx):
    archives = sorted(folder.glob("*.tar"))
    size = sum(one.stat().st_size for one in archives)
    print(f"{len(archives)} archives, {size / 1e6:.0f} MB; loader.shuffle={options.shuffle} "
          f"loader.prefetch={options.prefetch}; load {load()}\n")

    def local(watched=False):
        return bench(options, folder, watched=watched)

    def remote(port, connections, watched=False):
        with empty_cache(options.work) as cache:
            record = bench(options, f"http://127.0.0.1:{port}/", (cache, f"loader.io_threads={connections}"),
                           watched=watched)
        fetched = collections.Counter(path for _, path, _ in nginx.sent() if path.endswith(".tar"))
        if fetched != collections.Counter("/" + one.name for one in archives):
            raise SystemExit(f"nginx has not sent each archive once: {fetched}")
        return record

    wanted = local()["batch_hash"]  # also brings the archives into the page cache
    results = []
    for title, delay, connections in (("direct", 0, 4), (f"{options.delay:g} ms", options.delay * 1e-3,
                                                         options.connections)):
        print(f"| {title}, {connections} connections: pair | local, images/s | remote, images/s | ratio | "
              "waits: first byte, transfer s | worker without a core: local, remote s | load |\n"
              "| --- | --- | --- | --- | --- | --- | --- |")
        ratios = []
        with delayed(nginx.port, delay) if delay else contextlib.nullcontext((nginx.port, None)) as (port, relay_pid):
            costs = Costs({"nginx": nginx.process.pid} | ({"relay": relay_pid} if delay else {}))
            sides = {"local": local, "remote": lambda watched=False: remote(port, connections, watched)}
            for pair in range(options.pairs):
                records = {}
                for name in sorted(sides, reverse=pair % 2 == 1):
                    with costs.counted(name):
                        records[name] = sides[name]()
                for name, record in records.items():
                    if record["batch_hash"] != wanted:
                        raise SystemExit(f"the batch hash of the {name} set is {record['batch_hash']}, not {wanted}")
                ratios.append(rate(records["remote"]) / rate(records["local"]))
                waits = records["remote"]["remote"]["storage"]
                print(f"| {pair + 1} | {rate(records['local']):.0f} | {rate(records['remote']):.0f} | "
                      f"{ratios[-1]:.3f} | {waits['first_byte']:.2f}, {waits['transfer']:.2f} | "
                      f"{records['local']['core_wait_s']:.2f}, {records['remote']['core_wait_s']:.2f} | {load()} |",
                      flush=True)
            threads = {name: run(watched=True)["threads"] for name, run in sides.items()}
        middle, low, high = median_interval(ratios)
        print("\n" + costs.table(size * 1e-9, threads) + "\n")
        results.append(f"| {title} | {connections} | **{middle:.3f}** [{low:.3f} .. {high:.3f}] | at least 0.9 | "
                       f"{'reached' if low >= 0.9 else 'missed'} |")
    print("| delay | connections | remote / local, median [95% interval] | goal of the lower bound | |\n"
          "| --- | --- | --- | --- | --- |")
    print("\n".join(results))
    print(f"\nbatch hash of all runs: {wanted}")


def hosts(options, folder, nginx, samples):
    size = sum(one.stat().st_size for one in folder.glob("*.tar"))
    print(f"{samples} samples in {len(list(folder.glob('*.tar')))} archives, {size / 1e6:.1f} MB\n")
    print("| loader.shuffle | data.remote.fetch | hosts | MB per host | largest, share of the set | all hosts, sets | "
          "requests per host |\n| --- | --- | --- | --- | --- | --- | --- |")
    for shuffle in ("global", options.shuffle):
        for fetch in options.fetch.split(","):
            keys = ("data.remote.fetch=ranges",) if fetch == "ranges" else ()  # the default fetches archives
            for world in (1, 2, 8):
                sent, requests = collections.Counter(), collections.Counter()
                images = 0
                for rank in range(world):
                    with empty_cache(options.work) as cache:
                        images += bench(options, f"http://127.0.0.1:{nginx.port}/",
                                        (cache, f"bench.rank={rank}", f"bench.world={world}", *keys),
                                        {"MILLRACE_REMOTE_QUERY": f"host={rank}"}, shuffle)["images"]
                if images != samples:
                    raise SystemExit(f"{world} hosts have read {images} of {samples} samples")
                for count, _, query in nginx.sent():
                    sent[query] += count
                    requests[query] += 1
                mean = statistics.fmean(sent.values())
                print(f"| {shuffle} | {fetch} | {world} | {mean / 1e6:.1f} | {100 * max(sent.values()) / size:.1f}% | "
                      f"{sum(sent.values()) / size:.2f} | {statistics.fmean(requests.values()):.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("throughput", "hosts"))
    parser.add_argument("images", type=pathlib.Path)
    parser.add_argument("--copies", type=int, default=16)
    parser.add_argument("--per-shard", type=int, default=125, help="samples per archive")
    parser.add_argument("--shuffle", default="window:500")
    parser.add_argument("--prefetch", type=int, default=4, help="batches that the loader makes ahead, on both sides")
    parser.add_argument("--fetch", default="shards,ranges", help="of hosts")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--delay", type=float, default=20, help="ms in each direction")
    parser.add_argument("--connections", type=int, default=8, help="with the delay")
    parser.add_argument("--work", type=pathlib.Path, help="folder for the set and the caches")
    parser.add_argument("--millrace", default=HERE.parent / "build" / "millrace", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        options.work = pathlib.Path(work)
        folder = options.work / "set"
        samples = make_set(options.images, folder, options)
        nginx = Nginx(folder, options.work / "nginx")
        try:
            if options.what == "hosts":
                hosts(options, folder, nginx, samples)
            else:
                throughput(options, folder, nginx)
        finally:
            nginx.stop()


if __name__ == "__main__":
    main()
