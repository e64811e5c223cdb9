"""Hostile web servers and buckets: bounded time, one line, a documented exit code, no wrong batch, no file outside the
cache, and no credentials for another host."""
import contextlib
import gzip
import itertools
import re
import shutil
import socketserver
import struct
import threading
import time

import limits
import mutate
import program
import strangers
from campaign import Failure, Group

BOUND_S = 60      # data.remote.deadline is 1 s, and a set has few objects
SECRET = "Bearer soak-secret"
HOLD, RESET = object(), object()  # keeps the connection open; resets it
END = "\r\n"


def head(status, **fields):
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
    return (END.join(lines) + END + END).encode(errors="surrogateescape")


def endless(piece, pause=0.0):
    while True:
        yield piece() if callable(piece) else piece
        time.sleep(pause)


def redirect(to):
    return lambda good: [head("302 Found", Location=to(good) if callable(to) else to, Content_Length=0)]


def refusal(status, **fields):
    return lambda good: [head(status, Content_Length=4, **fields) + b"sad\n"]


def listing(keys, tokens=None, size=10):
    """Returns a page of a bucket's list."""
    entries = "".join(f"<Contents><Key>{key}</Key><Size>{size}</Size><ETag>\"1\"</ETag></Contents>" for key in keys)
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{tokens}</NextContinuationToken>" if tokens else (
        "<IsTruncated>false</IsTruncated>")
    body = f'<?xml version="1.0"?><ListBucketResult><Name>bucket</Name>{more}{entries}</ListBucketResult>'.encode()
    return [head("200 OK", Content_Length=len(body)) + body]


def raw(body):
    return [head("200 OK", Content_Length=len(body)) + body]


LAUGHS = ('<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a0 "ha">' +
    "".join( f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12)) +
     "]><ListBucketResult>&a11;</ListBucketResult>").encode()
# What a server does in place of a good answer: a function of that answer that yields bytes, HOLD or RESET.
BEHAVIOURS = {
    "reset": lambda good: [RESET],
    "close": lambda good: [],
    "silence": lambda good: [HOLD],
    "slow header": lambda good: itertools.chain([b"HTTP/1.1 200 OK\r\nX: "], endless(b"x", 0.2)),
    "endless headers": lambda good: itertools.chain([b"HTTP/1.1 200 OK\r\n"], endless(b"X-More: and more\r\n" * 50)),
    "header of 20 MB": lambda good: [b"HTTP/1.1 200 OK\r\nX: " + b"x" * (20 << 20) + b"\r\n\r\n"],
    "garbage": lambda good: [good.draw.randbytes(5000)],
    "status line": lambda good: [b"HTTP/9.9 banana\r\n\r\nx"],
    "status 999": refusal("999 What"),
    "status -1": refusal("-1 What"),
    "no header": lambda good: [good.body],
    "zero bytes": lambda good: [b"HTTP/1.1 200 OK\r\nETag: \"\0\"\r\n\0: \0\r\nContent-Length: 3\r\n\r\nabc"],
    "line feeds": lambda good: [good.head.replace(b"\r\n", b"\n") + good.body],
    "endless 100": lambda good: endless(b"HTTP/1.1 100 Continue\r\n\r\n", 0.001),
    "endless 103": lambda good: endless(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 0.001),
    "too short": lambda good: [good.head + good.body[:len(good.body) // 2]],
    "half, then silence": lambda good: [good.head + good.body[:len(good.body) // 2], HOLD],
    "too long": lambda good: [good.head + good.body + b"more" * 1000],
    "negative length": lambda good: [head("200 OK", Content_Length=-5) + good.body],
    "huge length": lambda good: [head("200 OK", Content_Length=2**63 - 1) + good.body, HOLD],
    "length 10^40": lambda good: [head("200 OK", Content_Length=10**40) + good.body],
    "two lengths": lambda good: [good.head.replace(b"\r\n\r\n", b"\r\nContent-Length: 7\r\n\r\n") + good.body],
    "damaged chunks": lambda good: [head("200 OK", Transfer_Encoding="chunked") + b"zz\r\nabc\r\n"],
    "huge chunk": lambda good: [head("200 OK", Transfer_Encoding="chunked") + b"f" * 16 + b"\r\n" + good.body, HOLD],
    "endless chunks": lambda good: itertools.chain([head("200 OK", Transfer_Encoding="chunked")],
                                                   endless(b"10000\r\n" + bytes(1 << 16) + b"\r\n")),
    "endless body": lambda good: itertools.chain([head("200 OK", Connection="close")], endless(bytes(1 << 16))),
    "bomb": lambda good: raw_bomb(),
    "drip": lambda good: itertools.chain([good.head], (good.body[i:i + 200] for i in range(0, len(good.body), 200))),
    "circle": redirect(lambda good: good.path),
    "endless redirects": redirect(lambda good: f"/r{good.number}/{good.draw.random()}"),
    "another host": redirect(lambda good: good.other + good.path.partition("?")[0]),
    "another user": redirect(lambda good: good.other.replace("//", "//user:word@") + "/set/x.tar"),
    "file": redirect("file:///etc/passwd"),
    "ftp": redirect("ftp://127.0.0.1:9/x"),
    "https": redirect(lambda good: good.other.replace("http:", "https:")),
    "long location": redirect("/" + "x" * (1 << 20)),
    "no location": redirect(""),
    "escapes": refusal("403 \x1b[2J\x1b]0;owned\x07"),
    "whole for range": lambda good: [head("200 OK", ETag='"1"', Content_Length=len(good.whole)) + good.whole],
    "other range": lambda good: [head("206 Partial Content", ETag='"1"', Content_Length=len(good.body),
                                      Content_Range=f"bytes 1-{len(good.body)}/{len(good.whole)}") + good.body],
    "range of nothing": lambda good: [head("206 Partial Content", Content_Range="bytes */*", Content_Length=0)],
    "range overflow": lambda good: [head("206 Partial Content", Content_Range=f"bytes {2**64}-{2**65}/{2**66}",
                                         Content_Length=len(good.body)) + good.body],
    "416": refusal("416 Range Not Satisfiable", Content_Range="bytes */0"),
    "multipart": lambda good: [head("206 Partial Content", Content_Type="multipart/byteranges; boundary=x",
                                    Content_Length=len(good.body)) + good.body],
    "new ETags": lambda good: [good.head.replace(b'"1"', f'"{good.number}"'.encode()) + good.body],
    "new contents": lambda good: [good.head + flipped(good)],
    "damaged": lambda good: raw(mutate.mutated(good.body, good.draw, (b"../", b"/etc/passwd", b"\x1b[2J"))),
    "empty": lambda good: raw(b""),
    "other paths": lambda good: raw(good.body.replace(b"train-", b"../../").replace(b"shard-", b"../../")),
    "wait for years": refusal("503 Slow Down", Retry_After=999999999),
    "wait for nothing": refusal("429 Too Many Requests", Retry_After=-1),
    "500": refusal("500 Internal Server Error"),
    "401": refusal("401 Unauthorized", WWW_Authenticate='Basic realm="\x1b[2J"'),
    "404": refusal("404 Not Found"),
    "endless list": lambda good: listing([f"set/train-{good.number:06}.tar"], good.number),
    "endless list of nothing": lambda good: listing([], good.draw.random()),
    "list in a circle": lambda good: listing(["set/train-000000.tar"], "same"),
    "list of foreign keys": lambda good: listing([
        "../../x.tar", "/etc/passwd.tar", "set/\x1b[2J.tar", "set/" + "y" * 5000]),
    "list of huge sizes": lambda good: listing(["set/train-000000.tar"], size=2**63),
    "laughing list": lambda good: raw(LAUGHS),
    "deep list": lambda good: raw(b"<a>" * 300_000),
}


def raw_bomb():
    body = gzip.compress(bytes(200 << 20))
    return [head("200 OK", Content_Encoding="gzip", Content_Length=len(body)) + body]


def flipped(good):
    at = good.draw.randrange(len(good.body) or 1)
    return good.body[:at] + bytes([good.body[at] ^ 1]) + good.body[at + 1:] if good.body else b"x"


class Good:
    """The answer of a proper server."""

    def __init__(self, server, path, request, number):
        self.path, self.number, self.draw, self.other = path, number, server.draw, server.other
        name = path.partition("?")[0].rpartition("/")[2]
        file = server.folder / name
        self.whole = self.body = file.read_bytes() if name and file.is_file() else b""
        asked = re.search(r"\r\nRange: bytes=(\d+)-(\d*)", request, re.I)
        if "list-type=2" in path:
            keys = [f"set/{each.name}" for each in sorted(server.folder.glob("*.tar"))]
            self.head, _, self.body = listing(keys)[0].partition(b"\r\n\r\n")
            self.head += b"\r\n\r\n"
        elif not file.is_file() or server.listed and name == "set.index":
            self.head, self.body = head("404 Not Found", Content_Length=0), b""
        elif asked:
            first, last = int(asked[1]), min(int(asked[2] or len(self.whole)), len(self.whole) - 1)
            self.body = self.whole[first:last + 1]
            self.head = head("206 Partial Content", ETag='"1"', Content_Length=len(self.body),
                             Content_Range=f"bytes {first}-{last}/{len(self.whole)}")
        else:
            self.head = head("200 OK", ETag='"1"', Content_Length=len(self.body))


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        with contextlib.suppress(OSError):
            text = b""
            self.request.settimeout(1)
            while not self.server.stopping:
                try:
                    piece = self.request.recv(1 << 16)
                except TimeoutError:
                    continue
                if not piece:
                    return
                text += piece
                while b"\r\n\r\n" in text:
                    request, _, text = text.partition(b"\r\n\r\n")
                    if not self.answer(request.decode("latin-1") + END):
                        return

    def answer(self, request):
        """Returns whether the connection stays open."""
        server = self.server
        number = server.count(request)
        good = Good(server, request.split(" ")[1], request, number)
        bad = server.behaviour and server.first <= number < server.first + server.times and (
            not server.listed or "list-type=2" in request)
        sent = server.behaviour(good) if bad else [good.head + (b"" if request.startswith("HEAD") else good.body)]
        for piece in sent:
            if server.stopping:
                return False
            if piece is HOLD:
                server.stopped.wait()
                return False
            if piece is RESET:
                self.request.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SOL_SOCKET, SO_LINGER
                return False
            self.request.settimeout(BOUND_S)
            self.request.sendall(piece)
            self.request.settimeout(1)
        return not bad


class Server(socketserver.ThreadingTCPServer):
    """Serves a folder on 127.0.0.1; from request `first` on, `times` answers are those of a behaviour."""
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, folder, draw, behaviour=None, first=0, times=0, listed=False, other=""):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.draw, self.behaviour, self.first, self.times = folder, draw, behaviour, first, times
        self.listed, self.other = listed, other
        self.requests = []
        self.lock, self.stopped = threading.Lock(), threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    stopping = property(lambda self: self.stopped.is_set())

    def count(self, request):
        with self.lock:
            self.requests.append(request)
            return len(self.requests) - 1

    def handle_error(self, request, client_address):
        pass  # clients leave when they like

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.shutdown()
        self.server_close()


class Hostile(Group):
    name = "server"
    about = f"{len(BEHAVIOURS)} hostile behaviours of web servers and buckets: `bench`, `data verify`"
    cases = 10 * len(BEHAVIOURS)
    batch = 2
    smoke = 2
    guess_s = 8

    def packed(self, place):
        def make(folder):
            ended = place.program.run("data", "pack", limits.photos(place), folder / "set", "--shards", "2")
            if ended.code != 0:
                raise RuntimeError(f"pack failed: {ended.said()}")
            (folder / "bench.json").write_bytes(self.bench(place, folder / "set").out)

        return place.once("served", make)

    def bench(self, place, path, *more, **options):
        return place.program.run(
    "bench",
    "overhead",
    "data.reader=tar",
    f"data.path={path}",
    "loader.batch=4",
    "augment+=resize{size=[16,16]}",
    "bench.epochs=1",
    "--hash",
    "--json",
    *more,
     **options)

    def run(self, place, indexes):
        for index in indexes:
            packed = self.packed(place)
            name = list(BEHAVIOURS)[index % len(BEHAVIOURS)]
            draw = place.draw(self.name, index)
            home = place.folder / "home"
            before = strangers.make_home(home)
            story, wrong = self.attack(place, draw, index, packed, name, home)
            after = strangers.state(home)
            wrong += [f"{each} was changed" for each in {**before, **after} if before.get(each) != after.get(each)]
            if wrong:
                yield Failure(index, f"{story}: " + "; ".join(wrong[:3]))

    def attack(self, place, draw, index, packed, name, home):
        case = place.folder / f"case-{index}"
        case.mkdir()
        lists = "list" in name
        bucket = lists or draw.random() < 0.2
        times = 10**9 if lists else draw.choice((1, 3, 10**9, 10**9))
        first = 0 if lists else draw.choice((0, 0, 0, 1, 1, 2, 3, 4))
        with Server(packed / "set", draw) as other:
            # Another host, by its name.
            foreign = other.url.replace("127.0.0.1", "localhost")
            with Server(packed / "set", draw, BEHAVIOURS[name], first, times, lists, foreign) as server:
                env = {
    **strangers.homes(home),
    "MILLRACE_REMOTE_AUTHORIZATION": SECRET,
    "MILLRACE_S3_ADDRESSING": "path",
    "AWS_ENDPOINT_URL_S3": server.url,
     "MILLRACE_REMOTE_QUERY": "key=soak-secret"}
                path = "s3://bucket/set/" if bucket else f"{server.url}/set/"
                more = ["data.remote.deadline=1", f"data.remote.cache={case}/cache", "loader.io_threads=2",
                        f"data.remote.fetch={draw.choice(('shards', 'shards', 'ranges')) if not bucket else 'shards'}"]
                how = draw.random()
                if how < 0.1 and not bucket and times < 10**9:  # the deadline of `verify` is 120 s
                    more = []
                    ended = place.program.run("data", "verify", path, "--json", env=env, timeout=3 * BOUND_S, cwd=case)
                else:
                    ended = self.bench(place, path, *more, env=env, timeout=BOUND_S, cwd=case)
        wrong = program.complaints(ended, codes=(0, 1, 2, 3), most_memory=1 << 30)
        if ended.code == 0 and more and ended.document() is not None:
            expected = strangers.json.loads((packed / "bench.json").read_text())["batch_hash"]
            if ended.document().get("batch_hash") != expected:
                wrong.append("other batches than from the disk")
        if any(re.search(r"soak-secret|AWS4-HMAC|AKIDEXAMPLE", request) for request in other.requests):
            wrong.append("credentials went to another host")
        if "soak-secret" in ended.text():
            wrong.append("credentials are printed")
        if left := [each.name for each in case.iterdir() if each.name != "cache"]:
            wrong.append(f"files outside the cache: {left}")
        shutil.rmtree(case)
        which = "all" if times == 10**9 else times
        story = f"{name}, {'bucket' if bucket else 'server'}, {which} answers from {first} on"
        return story, [f"{line}: {ended.said(300)}" for line in wrong]


GROUPS = [Hostile()]
