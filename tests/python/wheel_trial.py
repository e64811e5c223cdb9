"""Tries an installed wheel: its loader, its decoders and its commands. Run by check_wheel.sh, with numpy alone."""
import base64
import importlib.metadata
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import zlib


def children_cpu():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def import_seconds():
    """Returns the CPU seconds that `import pymillrace` adds to an empty program, the least of some runs."""
    def cpu(code):
        before = children_cpu()
        subprocess.run([sys.executable, "-c", code], check=True)
        return children_cpu() - before

    return min(cpu("import pymillrace as mr; mr.Loader") for _ in range(5)) - min(cpu("pass") for _ in range(5))


def png(width, height):
    rows = b"".join(b"\0" + bytes(x * y % 256 for x in range(3 * width)) for y in range(height))
    file = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)),
                       (b"IEND", b"")):
        file += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return file


def tiff(width, height):
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: width * height}
    return (struct.pack("<2sHI", b"II", 42, 8 + width * height) + bytes(width * height) + struct.pack("<H", len(tags)) +
            b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items()) + bytes(4))


WEBP = base64.b64decode("UklGRjYAAABXRUJQVlA4TCkAAAAvAkAAAC8gFkyGlf8VokAgyZ9hoLFGZv6DhwligECAMlYcc0FE/2N9AAA=")


def command(*words, code=0):
    done = subprocess.run([sys.executable, "-m", "pymillrace", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, (words, done)
    return done.stdout


def main():
    spent = import_seconds()
    assert spent <= 0.2, f"import takes {spent:.3f} s of CPU time"
    import pymillrace as mr
    assert "torch" not in sys.modules and "numpy" not in sys.modules
    scripts = [one.name for one in importlib.metadata.distribution("pymillrace").entry_points]
    assert scripts == ["pymillrace"], "a command millrace would shadow the trainer"
    recipe = ("mnist-lenet", "data.reader=synthetic", "data.synthetic.channels=1", "data.synthetic.count=640")
    loader = mr.Loader(*recipe, numpy=True)
    assert sum(len(labels) for _, labels in loader) == 640
    with tempfile.TemporaryDirectory() as folder:
        pictures = os.path.join(folder, "pictures", "a")
        os.makedirs(pictures)
        for name, file in {"1.png": png(20, 30), "2.tif": tiff(40, 20), "3.webp": WEBP}.items():
            with open(os.path.join(pictures, name), "wb") as out:
                out.write(file)
        words = ("imagenet-rrc", f"data.path={folder}/pictures", "loader.batch=2")
        assert len(next(iter(mr.Loader(*words, numpy=True))).labels) == 2
        assert json.loads(command("bench", *words, "--hash", "--json"))["images"] == 3
        command("inspect", *words, "--out", f"{folder}/sheet.png")
        command("data", "make", "photos", f"{folder}/photos", "--count", "16")
        command("plugins", "list")
        with open(f"{folder}/echo.py", "w") as script:
            script.write("import sys\nprint(sys.argv[1])\n")
        command("sweep", "--command", f"{sys.executable} {folder}/echo.py {{x}}", "--shell", "none", "x=1,2",
                "--repeats", "1", "--metric", "(\\d+)", "--run", f"{folder}/sweep")  # a bare root has no shell
        command("report", f"{folder}/sweep", "--html", f"{folder}/report.html")
        command("bench", "mnist-lenet", "loader.worker=1", code=2)
        command("watch", code=2)
        with open(os.path.join(pictures, "4.bmp"), "wb") as out:
            out.write(b"BM" + bytes(60))
        command("bench", *words, code=3)  # BMP needs OpenCV
    ours = ("libtbb", "libjpeg", "libfmt", "libxxhash", "libtoml", "libyaml-cpp", "libpng", "libtiff", "libwebp", "libjbig",
            "libz")
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if any(os.path.basename(line).startswith(name) for name in ours)}
    foreign = {file for file in loaded if "pymillrace.libs" not in file and "libz" not in file}
    assert loaded and not foreign, foreign
    print(f"Python {sys.version.split()[0]} runs the wheel with {len(loaded)} bundled libraries; import: {spent:.3f} s")


if __name__ == "__main__":
    main()
