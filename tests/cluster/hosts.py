"""Two hosts as network namespaces, joined by veth through a relay that delays and cuts:

    host-a, eth0 192.0.2.1 --- relay --- eth0 192.0.2.2, host-b

The namespaces have no names and belong to processes that die with this one, even if it is killed, so nothing is left.
Only root can make them. Nothing leaves them: they have no route but the one to each other."""
import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

PROGRAMS = ("ip", "tc", "nsenter", "setpriv")
PACKAGES = "iproute2 and util-linux"
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
HOSTS = {"host-a": "192.0.2.1", "host-b": "192.0.2.2"}  # addresses for documentation (RFC 5737)

CLONE_NEWUTS, CLONE_NEWNET = 0x04000000, 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def unshare(flags):
    if LIBC.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def die_with(parent):
    """Ends this process when the one that started it ends."""
    LIBC.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def missing():
    """Says why no namespaces can be made here; empty if they can."""
    absent = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    if absent:
        return f"{', '.join(absent)} not installed (Debian: {PACKAGES})"
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    done = subprocess.run([sys.executable, "-B", __file__, "probe"], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else f"the probe has failed: {done.stderr.strip()}"


def probe():
    """Says why a link between namespaces cannot be made or limited. Run it in a process that then ends."""
    try:
        unshare(CLONE_NEWNET | CLONE_NEWUTS)
    except OSError as error:
        return f"no network namespace can be made: {error.strerror} (CAP_SYS_ADMIN and CAP_NET_ADMIN)"
    for words in (["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1"], limit_of("eth0", "20mbit")):
        done = subprocess.run(words, env={**os.environ, "PATH": PATH}, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60)
        if done.returncode != 0:
            return f"{' '.join(words)}: {(done.stderr or done.stdout).strip()}"
    return ""


def limit_of(interface, rate):
    """Returns the words that limit what an interface sends."""
    return ["tc", "qdisc", "replace", "dev", interface, "root", "tbf", "rate", rate, "burst", "16kb",
            "latency", "500ms"]


class Hosts:
    """Use it as a context."""

    def __init__(self):
        self.processes = {}
        self.environment = {**os.environ, "PATH": PATH}

    def __enter__(self):
        try:
            for name in ("relay", *HOSTS):
                self.start(name)
            for number, (name, address) in enumerate(HOSTS.items()):
                host = self.processes[name].pid
                self.command("relay", "ip", "link", "add", f"r{number}", "type", "veth", "peer", "name", "eth0",
                             "netns", str(host))
                self.command("relay", "ip", "link", "set", f"r{number}", "up")
                self.command(name, "ip", "link", "set", "lo", "up")
                self.command(name, "ip", "address", "add", f"{address}/24", "dev", "eth0")
                # The relay carries frames, which have to be whole: of the link's size, with checksums.
                self.command(name, sys.executable, "-B", __file__, "plain", "eth0")
                self.command(name, "ip", "link", "set", "eth0", "up")
            self.ask("relay")
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        self.processes = {}

    def start(self, name):
        parent = os.getpid()
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-B", __file__, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: die_with(parent))
        self.answer(name)

    def answer(self, name):
        line = self.processes[name].stdout.readline()
        if line != "ok\n":
            raise RuntimeError(f"{name}: {line}")

    def ask(self, *words):
        """Has the relay do something."""
        self.processes["relay"].stdin.write(" ".join(str(word) for word in words) + "\n")
        self.processes["relay"].stdin.flush()
        self.answer("relay")

    def delay(self, seconds):
        """Holds every frame back, in both directions."""
        self.ask("delay", seconds)

    def cut(self):
        """Drops every frame from now on, without a sign to either host."""
        self.ask("cut")

    def join(self):
        self.ask("join")

    def limit(self, name, rate):
        """Limits what a host sends, as in "10mbit"; None lifts the limit."""
        if rate:
            self.command(name, *limit_of("eth0", rate))
        else:
            self.command(name, "tc", "qdisc", "delete", "dev", "eth0", "root")

    def enter(self, name):
        """Returns the words that run a command on a host."""
        return ["nsenter", "--target", str(self.processes[name].pid), "--net", "--uts", "--"]

    def command(self, name, *words):
        done = subprocess.run([*self.enter(name), *words], env=self.environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout


def set_plain(interface):
    """Turns off what hands the kernel's own large or unfinished frames to the other end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for feature in (0x17, 0x1F, 0x24):  # ETHTOOL_STXCSUM, _STSO, _SGSO
            value = ctypes.create_string_buffer(struct.pack("II", feature, 0))
            request = struct.pack("16sP", interface.encode(), ctypes.addressof(value))
            fcntl.ioctl(one, 0x8946, request)  # SIOCETHTOOL


class Relay:
    """Carries frames between r0 and r1."""

    def __init__(self):
        self.ends = [self.open(f"r{number}") for number in (0, 1)]
        self.delay = 0.0
        self.joined = True
        self.held = []  # heap of (time, order, number of the end it goes to, frame)
        self.order = itertools.count()

    @staticmethod
    def open(interface):
        every_protocol = 3  # ETH_P_ALL
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(every_protocol))
        end.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
        end.bind((interface, every_protocol))
        end.setblocking(False)
        return end

    def run(self):
        commands = sys.stdin.fileno()
        while True:
            wait = max(0.0, self.held[0][0] - time.monotonic()) if self.held else None
            ready, _, _ = select.select([commands, *self.ends], [], [], wait)
            for number, end in enumerate(self.ends):
                if end in ready:
                    self.take(end, 1 - number)
            if commands in ready:
                line = os.read(commands, 1000).decode()
                if not line:
                    return
                self.obey(*line.split())
            while self.held and self.held[0][0] <= time.monotonic():
                _, _, to, frame = heapq.heappop(self.held)
                with contextlib.suppress(OSError):  # a full queue loses frames, as a switch does
                    self.ends[to].send(frame)

    def take(self, end, to):
        for _ in range(64):
            try:
                frame, (_, _, kind, *_) = end.recvfrom(65536)
            except OSError:
                return
            if kind != socket.PACKET_OUTGOING and self.joined:
                heapq.heappush(self.held, (time.monotonic() + self.delay, next(self.order), to, frame))

    def obey(self, word, value="0"):
        if word == "delay":
            self.delay = float(value)
        if word in ("cut", "join"):
            self.joined = word == "join"
        if word == "cut":
            self.held = []
        print("ok", flush=True)


def main():
    if sys.argv[1] == "plain":
        return set_plain(sys.argv[2])
    if sys.argv[1] == "probe":
        return print(probe())
    if sys.argv[1] == "relay":
        unshare(CLONE_NEWNET | CLONE_NEWUTS)
        print("ok", flush=True)
        sys.stdin.readline()  # the ends are there
        relay = Relay()
        print("ok", flush=True)
        return relay.run()
    unshare(CLONE_NEWNET | CLONE_NEWUTS)
    socket.sethostname(sys.argv[1])
    print("ok", flush=True)
    sys.stdin.read()
    return None


if __name__ == "__main__":
    main()
