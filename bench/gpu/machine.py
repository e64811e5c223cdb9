"""Where bench/gpu/run finds the program, LibTorch and data, and how it runs one command."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
KEPT_TEXT = 4000


class Refused(Exception):
    """A message and what to do about it."""

    def __init__(self, message, hint):
        super().__init__(f"{message}\n  hint: {hint}")


def torch_folder(named):
    """Returns the folder torch of the wheel: the one named, or the one that this Python would import."""
    if named:
        return pathlib.Path(named)
    for folder in (HERE.parent.parent / ".deps/torch/torch", *(pathlib.Path(p) / "torch" for p in sys.path if p)):
        if (folder / "lib/libtorch_cpu.so").exists():
            return folder
    raise Refused("no torch was found", "install the wheel (pip install torch==VERSION), or name its folder: --torch")


def torch_version(folder):
    """Returns a wheel's version without what follows +, such as 2.11.0."""
    try:
        text = (folder / "version.py").read_text()
    except OSError as error:
        raise Refused(f"{folder}: {error.strerror}", "name the folder torch of an unpacked wheel: --torch") from None
    found = re.search(r"__version__ = '([^'+]+)", text)
    if not found:
        raise Refused(f"{folder}/version.py names no version", "name the folder of another wheel: --torch")
    return found[1]


class Machine:
    """A pack, or a source tree that is built."""

    def __init__(self, torch, scratch):
        root = HERE.parent.parent
        facts = root / "pack.json"
        self.packed = facts.exists()
        self.root = root if self.packed else root / "build"
        if not (self.root / "millrace").exists():
            raise Refused(f"{self.root}/millrace is missing", "build it (bash tools/quickstart), or run from a pack")
        self.source = root
        self.torch = torch_folder(torch)
        self.version = torch_version(self.torch)
        self.built_with = json.loads(facts.read_text())["torch"] if self.packed else \
            torch_version(root / ".deps/torch/torch") if (root / ".deps/torch/torch").exists() else self.version
        if self.version != self.built_with:
            raise Refused(f"torch {self.version} in {self.torch}, but millrace was built with {self.built_with}",
                          f"install torch=={self.built_with}, or name its folder: --torch")
        self.scratch = pathlib.Path(scratch)

    def environment(self, words, hide_devices=False):
        """Returns the environment of a command. Debian's libraries of the pack (libstdc++, libz) come first for our
        programs only: PyTorch's Python brings its own."""
        site = self.torch.parent
        folders = [self.root / "lib", self.torch / "lib", *sorted(site.glob("nvidia/*/lib"))]
        if any(word.endswith("watch_cuda.py") for word in words):  # pymillrace
            folders.append(self.root / "system")
        if self.packed and any(word in map(str, (self.root / "millrace", self.root / "torch_test")) for word in words):
            folders.insert(1, self.root / "system")
        env = dict(os.environ)
        env["PYTHONPATH"] = ":".join([str(site), str(self.root / "python"), env.get("PYTHONPATH", "")]).rstrip(":")
        env["LD_LIBRARY_PATH"] = ":".join([*map(str, folders), env.get("LD_LIBRARY_PATH", "")]).rstrip(":")
        if hide_devices:
            env["CUDA_VISIBLE_DEVICES"] = ""
        else:
            env["MILLRACE_DEVICE_TESTS"] = "required"
        return env

    def words(self, command):
        places = {"root": str(self.root), "scratch": str(self.scratch), "python": sys.executable,
                  "data": str(self.scratch / "digits"), "objects": str(self.scratch / "objects"),
                  "photos": str(self.scratch / "photos")}
        for name in ("mnist", "cifar10"):
            if self.packed and (self.root / "data" / name).exists():
                places["data" if name == "mnist" else "objects"] = str(self.root / "data" / name)
        filled = [re.sub(r"\{(\w+)\}", lambda m: places[m[1]], word) for word in command]
        if not self.packed and filled[1:] and filled[1].endswith(".py"):
            filled[1] = str(self.source / pathlib.Path(filled[1]).relative_to(self.root))
        return filled

    def make_data(self):
        for kind in ("digits", "objects", "photos"):
            if not (self.scratch / kind).exists():
                size = ["--count", "1024"] if kind == "photos" else []
                done = self.call([str(self.root / "millrace"), "data", "make", kind, str(self.scratch / kind), *size,
                                  "--quiet"], 120)
                if done["exit"] != 0:
                    raise Refused(f"millrace data make {kind}: {done['text']}", "see the message above")

    def call(self, words, limit_s, kill_when=None, hide_devices=False):
        """Runs a command in a process group of its own, and ends all of it at the limit, or as soon as kill_when()
        says so."""
        begin = time.monotonic()
        try:
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     env=self.environment(words, hide_devices), cwd=self.scratch, start_new_session=True)
        except OSError as error:
            return {"exit": 127, "s": 0.0, "text": f"{words[0]}: {error.strerror}", "out": ""}
        ended = ""
        out = err = b""
        while True:
            try:
                out, err = child.communicate(timeout=0.05 if kill_when else limit_s)
                break
            except subprocess.TimeoutExpired:
                if kill_when and kill_when():
                    ended = "killed"
                elif time.monotonic() - begin >= limit_s:
                    ended = "over its limit"
                else:
                    continue
                os.killpg(child.pid, signal.SIGKILL)
                out, err = child.communicate()
                break
        result = {"exit": child.returncode, "s": round(time.monotonic() - begin, 3)}
        if ended:
            result["ended"] = ended
        text = err.decode(errors="replace") or out.decode(errors="replace")
        result["text"] = text[-KEPT_TEXT:]
        result["out"] = out.decode(errors="replace")
        return result
