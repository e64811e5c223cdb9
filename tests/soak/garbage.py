"""Connections of strangers to a starting `launch`, which must start anyway and give the same bits."""
import collections
import os
import pathlib
import socket
import time

import bits
import kills
import program
from campaign import Failure, Group

CONNECTIONS = 1600
EACH = 100  # connections per launch, over the ports of the store and the control channel


def listening(pids):
    """Returns the TCP ports at which these processes listen, on any address."""
    inodes = set()
    for pid in pids:
        try:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        except OSError:  # the process has ended
            continue
    ports = {}
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            address, port = fields[1].split(":")
            if fields[3] == "0A" and fields[9] in inodes:
                ports[int(port, 16)] = address
    return ports


def is_loopback(address):
    """Returns whether an address of /proc/net/tcp is a loopback one."""
    return address in ("0100007F", "00000000000000000000000001000000",
                       "0000000000000000FFFF00000100007F")


class Garbage(Group):
    name = "garbage"
    about = f"launches that {EACH} strangers each connect to while they start: noise, silence, resets"
    cases = CONNECTIONS // EACH
    guess_s = 15
    # Most seconds by which strangers may delay a start, beyond its usual duration.
    most_more_s = 10

    def words(self, place):
        return ["launch", "-n", "2", "--", "train", "mnist-lenet",
                f"data.path={kills.idx_data(place)}", "train.strategy=ddp", "train.timeout=30",
                "train.threads=1", "loader.batch=30", "train.epochs=2", "--run"]

    def reference(self, place):
        def make(folder):
            ended = place.program.run(*self.words(place), folder / "run")
            if ended.code != 0:
                raise RuntimeError(f"the undisturbed run failed: {ended.said()}")
            (folder / "seconds").write_text(str(ended.seconds))

        folder = place.once(self.name, make)
        return bits.bits_of(folder / "run"), float((folder / "seconds").read_text())

    def run(self, place, indexes):
        for index in indexes:
            try:
                expected, seconds = self.reference(place)
            except RuntimeError as error:
                yield Failure(index, str(error))
                continue
            run = place.folder / f"run-{index}"
            child = place.program.start(*self.words(place), run)
            crowd = Crowd(place.draw(self.name, index))
            while child.running() and time.monotonic() - child.begun < 120:
                crowd.press(listening(program.session_of(child.pid)))
                time.sleep(0.01)
            crowd.leave()
            ended = child.wait(1)
            wrong = [f"{line}: {ended.said()}" for line in program.complaints(ended, codes=(0,))]
            if not wrong and ended.seconds > 2 * seconds + self.most_more_s:
                wrong.append(f"{ended.seconds:.0f} s, undisturbed {seconds:.0f} s")
            if exposed := [port for port, address in crowd.ports.items() if not is_loopback(address)]:
                wrong.append(f"listens beyond the loopback address: ports {exposed}")
            if not wrong and crowd.made == 0:
                wrong.append("no port was found that it listens at: nothing was tried")
            wrong = wrong or bits.compare(expected, run)
            if wrong:
                yield Failure(index, f"{crowd.made} connections: " + "; ".join(wrong[:3]))


class Crowd:
    """Connections that send nothing, or wrong bytes, and close in different ways."""

    def __init__(self, draw):
        self.draw = draw
        self.made = 0
        self.ports = {}
        self.tried = collections.Counter()  # port -> connections
        self.held = []

    def press(self, ports):
        self.ports.update(ports)
        for port in sorted(ports):
            for _ in range(self.draw.randint(1, 20)):
                if self.tried[port] < EACH // 2:
                    self.tried[port] += 1
                    self.connect(port)

    def connect(self, port):
        try:
            stranger = socket.create_connection(("127.0.0.1", port), timeout=2)
            self.made += 1
            kind = self.draw.randrange(5)
            if kind in (1, 2, 3):
                stranger.sendall(self.draw.choice((
                    b"GET / HTTP/1.1\r\n\r\n", b"\0", b"\xff" * 8, b"\0" * 4096,
                    self.draw.randbytes(64), self.draw.randbytes(1 << 14))))
            if kind == 3:  # a reset instead of an orderly close
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if kind in (0, 1):
                self.held.append(stranger)
            else:
                stranger.close()
        except OSError:  # closed by the program, or the port is already closed
            pass

    def leave(self):
        for stranger in self.held:
            stranger.close()


GROUPS = [Garbage()]
