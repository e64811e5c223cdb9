"""Runs a command under strace, and finds what it did beyond reading: connections, programs, libraries, writes."""
import codecs
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import program

CHANGES = ("unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "link", "linkat",
           "symlink", "symlinkat", "truncate", "chmod", "fchmodat", "chown", "lchown", "fchownat", "mknod", "mknodat",
           "utimensat", "setxattr", "lsetxattr")
OPENS = ("open", "openat", "openat2", "creat")
SENDS = ("connect", "bind", "sendto", "sendmsg", "sendmmsg")
LAUNCHES = ("execve", "execveat")
WRITING = re.compile(r"\bO_(WRONLY|RDWR|CREAT|TRUNC)\b")
# A path, with the folder of the descriptor that it is relative to.
PATH = re.compile(r'(?:\w+<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
HARMLESS = ("/dev/null", "/dev/tty", "/dev/shm/", "/proc/")
NAME_SERVICE = 'sun_path="/var/run/nscd/socket"'
# Directories from which a program may load code.
SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/local/")


def missing():
    """Returns why nothing can be traced here; empty if it can."""
    if not shutil.which("strace"):
        return "strace is not installed: apt-get install strace"
    tried = subprocess.run(["strace", "-qq", "-e", "trace=none", "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"strace cannot trace here: {tried.stderr.strip()[:200]}"


@dataclasses.dataclass
class Rules:
    """What a traced command may do. All paths are absolute."""
    folder: pathlib.Path         # where it starts
    execute: tuple               # programs
    load: tuple                  # folders of libraries, beside the system's
    write: tuple                 # folders
    hostile: tuple = ()          # folders from which nothing may be loaded, although they lie in one of `load`
    unread: tuple = ()           # folders in which no file may be opened
    trap: int = 0                # port of the server that records name
    network: bool = False        # a user named an address on the command line
    anywhere: bool = False       # ... or an output


def within(path, folders):
    return any(path == str(folder) or path.startswith(f"{folder}/") for folder in folders)


def calls(file):
    """Yields the traced calls as (name, arguments, result)."""
    begun = {}
    for line in pathlib.Path(file).read_text(errors="surrogateescape").splitlines():
        pid, _, text = line.partition(" ")
        text = text.strip()
        if text.endswith(" <unfinished ...>"):
            begun[pid] = text.removesuffix(" <unfinished ...>")
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>", text):
            text = begun.pop(pid, "") + text[resumed.end():]
        if found := re.match(r"(\w+)\((.*)\) += (.*)$", text, re.S):
            yield found.groups()
    for text in begun.values():  # killed in the call
        name, _, arguments = text.partition("(")
        yield name, arguments, "?"


def unescaped(text):
    return os.fsdecode(codecs.escape_decode(text.encode(errors="surrogateescape"))[0])


def paths(arguments, folder):
    """Returns the absolute paths in a call's arguments. Links in their folders are followed, as the system does."""
    found = []
    for base, name in PATH.findall(arguments):
        path = os.path.join(unescaped(base) or str(folder), unescaped(name))
        home, last = os.path.split(path.rstrip("/"))
        found.append(os.path.join(os.path.realpath(home), last) if last not in ("..", ".") else os.path.realpath(path))
    return found


def descriptor(text):
    """Returns the path that strace prints behind the number of a descriptor."""
    found = re.match(r"\d+<(.*?)(?:<char [^>]*>)?>", text)
    return unescaped(found[1]) if found else None


def forbidden(name, arguments, result, rules):
    """Returns what is wrong with a call, or None."""
    if name in SENDS:
        return sent(name, arguments, rules)
    if name in LAUNCHES:
        started = paths(arguments.partition(", [")[0], rules.folder)[:1]
        return None if within(started[0] if started else "?", rules.execute) else f"executes {started}"
    if name == "mmap":
        if "PROT_EXEC" not in arguments or not (file := re.search(r"\d+<(/[^>]*)>", arguments)):
            return None
        allowed = within(file[1], rules.load) or file[1].startswith(SYSTEM)
        return None if allowed and not within(file[1], rules.hostile) else f"loads {file[1]}"
    if name in OPENS:
        path = descriptor(result) or (paths(arguments, rules.folder) or [None])[0]
        if path is None or path.startswith(HARMLESS):
            return None
        if name == "creat" or WRITING.search(arguments):
            return None if rules.anywhere or within(path, rules.write) else f"opens {path} for writing"
        return f"reads {path}" if within(path, rules.unread) and "O_PATH" not in arguments else None
    if name in CHANGES and not rules.anywhere and result != "-1 EEXIST (File exists)":
        touched = paths(arguments, rules.folder)
        touched = touched[-1:] if name.startswith("symlink") else touched
        outside = [path for path in touched if not within(path, rules.write) and not path.startswith(HARMLESS)]
        return f"{name} {outside[0]}" if outside else None
    return None


def sent(name, arguments, rules):
    """Judges a call that names an address. Ranks of one run connect to each other on the loopback device."""
    family = re.search(r"sa_family=AF_(\w+)", arguments)
    if rules.network or not family or family[1] == "NETLINK" or NAME_SERVICE in arguments:
        return None
    port = re.search(r"sin6?_port=htons\((\d+)\)", arguments)
    local = re.search(r'inet_addr\("127\.0\.0\.1"\)|"::1"', arguments)
    number = int(port[1]) if port else 0
    if local and number != rules.trap and (number >= 1024 or name == "bind"):
        return None
    return f"{name} {arguments[arguments.find('{'):arguments.find('}') + 1]}"


def trace(program_, words, file, rules, limit_s, patience_s=10, **options):
    """Runs a command under strace; after `limit_s` seconds asks it to end. Returns how it ended, what it did that
    `rules` forbid, and whether it was asked."""
    prefix = ["strace", "-f", "-qq", "--seccomp-bpf", "-y", "-s", "64", "-e", "signal=none", "-o", file,
              "-e", "trace=mmap," + ",".join(OPENS + SENDS + LAUNCHES + CHANGES)]
    child = program_.start(*words, prefix=prefix, cwd=rules.folder, **options)
    while child.running() and time.monotonic() - child.begun < limit_s:
        time.sleep(0.005)
    asked = child.running()
    if asked:
        for pid in program.children_of(child.pid):
            os.kill(pid, signal.SIGTERM)
    ended = child.wait(patience_s)
    found = dict.fromkeys(filter(None, (forbidden(*call, rules) for call in calls(file))))
    return ended, list(found), asked
