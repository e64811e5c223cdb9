"""The commands that the package shares with the program: the same output, messages and exit codes."""
import base64
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import zlib

import pytest

import pymillrace as mr
from batches import SYNTHETIC, hash_of

PYMILLRACE = [sys.executable, "-m", "pymillrace"]


def run(command, *words, **more):
    return subprocess.run([*command, *map(str, words)], capture_output=True, text=True, timeout=300, **more)


def bench(command, *words):
    result = run(command, "bench", *words, "--hash", "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_bench_hashes_as_the_program_and_the_loader_do(program, data):
    for recipe in (("mnist-lenet", f"data.path={data}/digits"),
                   ("imagenet-rrc", f"data.path={data}/photos", "loader.batch=16"), SYNTHETIC):
        hashes = {bench([program], *recipe)["batch_hash"]}
        for workers in (0, 1, 2):
            with_workers = (*recipe, f"loader.workers={workers}")
            hashes.add(bench(PYMILLRACE, *with_workers)["batch_hash"])
            hashes.add(hash_of(mr.Loader(*with_workers, numpy=True)))
        assert len(hashes) == 1, recipe


def png(width, height):
    rows = b"".join(b"\0" + bytes((x * y + c) % 256 for x in range(width) for c in range(3)) for y in range(height))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def tiff(width, height):
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: width * height}
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    pixels = bytes(3 * i % 256 for i in range(width * height))
    return (struct.pack("<2sHI", b"II", 42, 8 + len(pixels)) + pixels + struct.pack("<H", len(tags)) + directory +
            bytes(4))


WEBP = base64.b64decode("UklGRjYAAABXRUJQVlA4TCkAAAAvAkAAAC8gFkyGlf8VokAgyZ9hoLFGZv6DhwligECAMlYcc0FE/2N9AAA=")


def test_png_webp_and_tiff_decode_as_in_the_program(program, tmp_path):
    files = {"a/1.png": png(40, 30), "a/2.tiff": tiff(32, 24), "b/3.webp": WEBP, "b/4.png": png(9, 50)}
    for name, file in files.items():
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).write_bytes(file)
    words = ("imagenet-rrc", f"data.path={tmp_path}/images", "loader.batch=2", "loader.on_error=fail")
    expected = bench([program], *words)
    assert expected["images"] == 4
    assert hash_of(mr.Loader(*words, numpy=True)) == expected["batch_hash"] == bench(PYMILLRACE, *words)["batch_hash"]


def test_a_damaged_picture_is_one_failed_sample(tmp_path):
    folder = tmp_path / "images" / "a"
    folder.mkdir(parents=True)
    for kind, file in {"png": png(40, 30), "tiff": tiff(32, 24), "webp": WEBP}.items():
        (folder / f"whole.{kind}").write_bytes(file)
        (folder / f"cut.{kind}").write_bytes(file[: len(file) * 2 // 3])
    loader = mr.Loader(mr.Folder(str(tmp_path / "images")), [mr.Resize(8), mr.CenterCrop(8)], "loader.on_error=skip",
                       batch=6, numpy=True)
    images, labels = next(iter(loader))
    assert len(images) == len(labels) == 3
    assert sorted(failure.name for failure in loader.failures) == [
        str(folder / f"cut.{kind}") for kind in ("png", "tiff", "webp")]


@pytest.mark.parametrize("words, code", [
    (["bench", "mnist-lenet", "loader.worker=2"], 2),
    (["bench", "no-such-recipe"], 2),
    (["bench", "mnist-lenet", "data.path=/no/such/folder"], 3),
    (["report", "/no/such/run"], 2),
    (["inspect", "mnist-lenet", "data.reader=synthetic"], 2),
    (["data", "verify", "/no/such/folder"], 3),
    (["data", "make", "nonsense", "x"], 2),
    (["plugins", "info", "no_such_op"], 2),
    (["plugins", "check", "/no/such.so"], 3),
    (["sweep", "mnist-lenet", "loader.workers=0", "--repeats", "none"], 2),
    (["recipe", "mnist-lenet", "loader.batch=-1"], 2),
    (["keys", "no.such"], 2),
])
def test_errors_are_the_programs(program, tmp_path, words, code):
    ours, theirs = run(PYMILLRACE, *words, cwd=tmp_path), run([program], *words, cwd=tmp_path)
    assert ours.returncode == theirs.returncode == code, (ours.stderr, theirs.stderr)
    assert ours.stderr.replace("pymillrace ", "millrace ") == theirs.stderr
    assert ours.stdout == theirs.stdout


def test_the_commands_work_without_the_program(tmp_path):
    made = run(PYMILLRACE, "data", "make", "digits", tmp_path / "digits", "--train", "64", "--test", "8")
    assert made.returncode == 0
    sheet = tmp_path / "sheet.png"
    done = run(PYMILLRACE, "inspect", "mnist-lenet", f"data.path={tmp_path}/digits", "--out", sheet)
    assert done.returncode == 0, done.stderr
    assert sheet.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    units = run(PYMILLRACE, "plugins", "list").stdout
    assert all(name in units for name in ("png", "webp", "tiff", "random_affine"))
    sweep = run(PYMILLRACE, "sweep", "--command", f"{sys.executable} -c 'print(\"score\", {{x}})'", "x=1,2",
                "--repeats", "2", "--metric", r"score (\d+)", "--run", tmp_path / "sweep")
    assert sweep.returncode == 0, sweep.stderr
    report = run(PYMILLRACE, "report", tmp_path / "sweep", "--html", tmp_path / "report.html")
    assert report.returncode == 0, report.stderr
    assert "2 repeats" in report.stdout and (tmp_path / "report.html").stat().st_size > 10_000


def test_a_sweep_of_a_recipe_runs_a_simulated_device(tmp_path):
    made = run(PYMILLRACE, "data", "make", "digits", tmp_path / "digits", "--train", "64", "--test", "8")
    assert made.returncode == 0, made.stderr
    sweep = run(PYMILLRACE, "sweep", "mnist-lenet", f"data.path={tmp_path}/digits", "train.device=simulated",
                "train.steps=3", "loader.workers=0,1", "--repeats", "1", "--run", tmp_path / "sweep")
    assert sweep.returncode == 0, sweep.stderr
    real = run(PYMILLRACE, "train", "mnist-lenet", f"data.path={tmp_path}/digits", "train.steps=3")
    assert real.returncode == 4 and "libmillrace_torch.so" in real.stderr


def test_help_lists_the_packages_commands_and_examples():
    text = run(PYMILLRACE, "--help").stdout
    listed = {line.split()[0] for line in text.split("Subcommands:", 1)[1].splitlines() if line.strip()}
    assert {"bench", "inspect", "data", "plugins", "report", "sweep", "watch", "what-if"} <= listed
    assert not {"train", "eval", "launch"} & listed
    assert "pymillrace bench" in run(PYMILLRACE, "bench", "--help").stdout
    nothing = run(PYMILLRACE)
    assert nothing.returncode == 2 and "pymillrace bench" in nothing.stderr


def test_a_missing_program_is_one_line(tmp_path):
    source = os.path.dirname(mr.__file__)
    (tmp_path / "pymillrace").mkdir()
    for name in os.listdir(source):
        if name != "pymillrace":
            (tmp_path / "pymillrace" / name).symlink_to(os.path.realpath(os.path.join(source, name)))
    result = run(PYMILLRACE, "bench", env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1 and "install the package again" in result.stderr


EDITABLE = """
import importlib.machinery, importlib.util, runpy, sys

built, suffix = sys.argv[1], sys.argv[3]

class Redirect:
    # As scikit-build-core's editable installs do: compiled modules lie elsewhere.
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in ("pymillrace._core", "pymillrace._predict", "pymillrace._watch"):
            file = built + "/" + name.split(".")[1] + suffix
            loader = importlib.machinery.ExtensionFileLoader(name, file)
            return importlib.util.spec_from_file_location(name, file, loader=loader)

sys.meta_path.insert(0, Redirect)
import pymillrace as mr
assert mr.__file__.startswith(sys.argv[2])
print(mr.Loader("mnist-lenet", "data.reader=synthetic", numpy=True).num_workers, flush=True)
sys.argv[1:] = ["keys"]
runpy.run_module("pymillrace", run_name="__main__")
"""


def test_an_editable_install_finds_its_program_and_its_recipes(tmp_path):
    built = pathlib.Path(mr.__file__).parent
    shutil.copytree(built, tmp_path / "pymillrace", ignore=lambda folder, names: [
        name for name in names if not name.endswith(".py") and name != "watcher" and name != "start"])
    suffix = next(built.glob("_core.*.so")).name.removeprefix("_core")
    done = run([sys.executable], "-c", EDITABLE, built, tmp_path, suffix, env={
        **os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"})
    assert done.returncode == 0, done.stderr
    assert "loader.workers" in done.stdout


def test_commands_propose_commands_of_this_package(tmp_path):
    made = run(PYMILLRACE, "data", "make", "photos", tmp_path / "photos", "--count", "16").stdout
    packed = run(PYMILLRACE, "data", "pack", tmp_path / "photos", tmp_path / "packed").stdout
    digits = run(PYMILLRACE, "data", "make", "digits", tmp_path / "digits", "--train", "64", "--test", "8").stdout
    assert "next: pymillrace bench imagenet-rrc" in made and "next: pymillrace bench" in packed
    assert "next: pymillrace bench mnist-lenet" in digits
    assert "\npymillrace keys augment" in run(PYMILLRACE, "keys").stdout
    assert "\npymillrace recipe NAME" in run(PYMILLRACE, "recipe").stdout


def test_hints_name_the_commands_of_this_package(tmp_path):
    with pytest.raises(mr.Error) as error:
        mr.Loader("mnist-lenet", f"data.path={tmp_path / 'missing'}", numpy=True)
    assert "pymillrace data make" in error.value.hint and " millrace data" not in error.value.hint
