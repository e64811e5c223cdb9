"""cuda_stubs.py TORCH FOLDER: makes empty versions of the CUDA libraries that a torch wheel needs and this machine lacks.

The wheel's libtorch_python.so is linked with all of CUDA, so `import torch` fails without gigabytes of libraries that no
test on a CPU calls. Each stub has the right name and the symbols that the wheel's libraries refer to; none does anything.
"""
import collections
import ctypes
import pathlib
import re
import subprocess
import sys


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], capture_output=True, text=True, check=True).stdout


def is_there(library):
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def main(torch, folder):
    files = sorted((pathlib.Path(torch) / "lib").glob("*.so*"))
    own = {file.name for file in files}
    needed, versioned, undefined = set(), collections.defaultdict(set), set()
    for file in files:
        dynamic = readelf("-d", str(file))
        needed |= set(re.findall(r"NEEDED\).*\[(lib(?:cu|nv|nccl)[^]]+)\]", dynamic))
        homes, home = {}, ""
        for line in readelf("-V", str(file)).splitlines():
            if found := re.search(r"Version: 1 +File: (\S+)", line):
                home = found[1]
            elif found := re.search(r" Name: (\S+) +Flags", line):
                homes[found[1]] = home
        for line in readelf("--dyn-syms", str(file)).splitlines():
            fields = line.split()
            if len(fields) < 8 or fields[6] != "UND":
                continue
            name, _, version = fields[7].partition("@")
            if version:
                versioned[homes.get(version, "")].add((name, version))
            else:
                undefined.add(name)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for library in sorted(needed - own):
        if (folder / library).exists() or is_there(library):
            continue
        stem = re.match(r"lib(\w+?)(_host)?\.so", library)[1].lower()
        symbols = {(name, "") for name in undefined if name.lower().startswith(stem)} | versioned[library]
        script = collections.defaultdict(list)
        for name, version in symbols:
            script[version].append(name)
        text = "".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in script.items() if version)
        if text and script[""]:
            text = text.replace("global:", f"global: {'; '.join(script[''])};", 1)
        map_file = folder / f"{library}.map"
        map_file.write_text(text or "{ global: *; };\n")
        code = "".join(f"void {name}(void) {{}}\n" for name in sorted({name for name, _ in symbols}))
        subprocess.run(
            ["gcc", "-shared", "-w", "-fPIC", "-fno-builtin", "-x", "c", "-", "-o", str(folder / library),
             f"-Wl,-soname,{library}", f"-Wl,--version-script={map_file}"],
            input=code, text=True, check=True)
        print(f"{library}: {len(symbols)} symbols")


if __name__ == "__main__":
    main(*sys.argv[1:])
