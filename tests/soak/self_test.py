"""Tests that the campaign detects planted differences and programs that end badly."""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import bits
import formats
import mutate
import program
import recorder
import servers
import strangers
import threads
import tracing

STEPS = ("epoch,step,load_s,update_s,other_s,images,loss,forward_s\n"
         "1,1,0.1,0.2,0.3,30,2.3025,0.1\n1,2,0.1,0.2,0.3,30,2.3011,0.1\n")


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def stub(self, script):
        """Returns a program that runs the shell script `script`, whatever its arguments."""
        file = self.folder / "stub"
        file.write_text("#!/bin/bash\n" + script + "\n")
        file.chmod(0o755)
        return file


class Oracle(Folder):
    def write_run(self, name, **changes):
        run = self.folder / name
        last = run / "checkpoints" / "step-2"
        last.mkdir(parents=True)
        (run / "checkpoints" / "last").symlink_to("step-2")
        files = {
            "summary.json": '{"parameters_hash": "0123", "steps": 2, "wall_s": 1.5}',
            "metrics.jsonl": '{"epoch": 1, "train_loss": 2.3018, "load_s": 0.2}\n',
            "steps.csv": STEPS, "quarantine.jsonl": '{"sample": 3}\n',
            "checkpoints/step-2/model.safetensors": "weights", **changes}
        for file, text in files.items():
            (run / file).write_text(text)
        return run

    def test_times_are_exempt(self):
        expected = bits.bits_of(self.write_run("one"))
        other = self.write_run("other", **{
            "steps.csv": STEPS.replace("0.1,0.2", "0.7,0.9"),
            "summary.json": '{"parameters_hash": "0123", "steps": 2, "wall_s": 9}'})
        self.assertEqual(bits.compare(expected, other), [])

    def test_each_planted_difference_is_noticed(self):
        expected = bits.bits_of(self.write_run("one"))
        planted = {
            "steps.csv": (STEPS.replace("2.3011", "2.3012"), "steps.csv loss, row 2"),
            "summary.json": ('{"parameters_hash": "0124", "steps": 2}', "parameters_hash"),
            "metrics.jsonl": ('{"epoch": 1, "train_loss": 2.3019}\n', "train_loss"),
            "quarantine.jsonl": ("", "quarantine.jsonl"),
            "checkpoints/step-2/model.safetensors": ("Weights", "model.safetensors"),
        }
        for number, (file, (text, named)) in enumerate(planted.items()):
            found = bits.compare(expected, self.write_run(f"run{number}", **{file: text}))
            self.assertEqual(len(found), 1, found)
            self.assertIn(named, found[0])
        longer = self.write_run("longer", **{"steps.csv": STEPS + STEPS.splitlines()[2] + "\n"})
        self.assertIn("3 values, expected 2", bits.compare(expected, longer)[0])
        damaged = self.write_run("damaged", **{"summary.json": "{"})
        self.assertIn("cannot be read", bits.compare(expected, damaged)[0])

    def test_temporaries_are_found(self):
        run = self.write_run("one")
        self.assertEqual(bits.temporaries(run), [])
        (run / "checkpoints" / "step-3.tmp").mkdir()
        self.assertEqual(bits.temporaries(run), ["left behind: checkpoints/step-3.tmp"])


class Endings(Folder):
    def complaints(self, script, timeout=30, **options):
        stub = program.Program(self.stub(script), self.folder)
        return "; ".join(program.complaints(stub.run(timeout=timeout), **options))

    def test_good_endings_pass(self):
        self.assertEqual(self.complaints("exit 0"), "")
        self.assertEqual(self.complaints("echo 'millrace: x is damaged' >&2; exit 3"), "")

    def test_bad_endings_do_not(self):
        line = "echo 'millrace: x' >&2; "
        for script, named in (
                ("kill -SEGV $$", "SIGSEGV"), (line + "exit 5", "exit code 5"),
                ("exit 1", "no line"), (line + line + "exit 1", "2 lines"),
                (line + "head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1", "5000 characters"),
                (line + "for i in {1..3000}; do echo some more text to fill it; done >&2; exit 1",
                 "bytes on stderr"),
                ("printf 'millrace: \\033[2J\\n' >&2; exit 1", "0x1b"),
                (line + "echo 'terminate called after' >&2; exit 1", "library's own"),
                (line + "exit 3", "exit code 3, expected one of 0")):
            with self.subTest(script):
                codes = (0, 1, 2) if "exit 3" in script else program.DOCUMENTED
                self.assertIn(named, self.complaints(script, codes=codes))
        self.assertIn("still running", self.complaints("sleep 60", timeout=0.2))
        self.assertIn("MB of memory", self.complaints("exit 0", most_memory=1000))

    def test_processes_left_behind_are_found(self):
        stub = program.Program(self.stub("sleep 60 & exit 0"), self.folder)
        child = stub.start()
        child.wait(30)
        self.assertEqual(len(child.left(patience=0)), 1)
        self.assertEqual(child.left(), [])


class Whole(Folder):
    """The whole campaign, with programs that accept everything or always crash."""

    def soak(self, script, *words):
        build = self.folder / "build"
        build.mkdir(exist_ok=True)
        return subprocess.run(
            [sys.executable, pathlib.Path(__file__).with_name("main.py"), "--build", build,
             "--program", self.stub(script), "--smoke", "--only", "idx", *words],
            capture_output=True, text=True, check=False)

    def test_crashes_are_failures_with_a_command_that_repeats_them(self):
        ended = self.soak("kill -ABRT $$", "--seed", "5")
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn("| `idx` |", ended.stdout)
        self.assertIn("| 3 | 0 | 3 |", ended.stdout)
        self.assertIn("FAILED: idx:1, seed 5: verify: ended by SIGABRT", ended.stderr)
        self.assertIn("--seed 5", ended.stderr)
        self.assertIn("--case idx:1", ended.stderr)
        again = self.soak("kill -ABRT $$", "--seed", "5", "--case", "idx:1")
        self.assertEqual(again.returncode, 1)
        self.assertIn("idx:1 failed", again.stderr)

    def test_a_campaign_goes_on_where_it_ended(self):
        stopped = self.soak("kill -ABRT $$", "--minutes", "0")
        self.assertIn("TIME IS UP", stopped.stderr)
        whole = self.soak("kill -ABRT $$")
        self.assertEqual(whole.stderr.count("FAILED: idx:1, seed 1"), 1)
        again = self.soak("kill -ABRT $$")
        self.assertIn("3 cases are done", again.stderr)
        self.assertNotIn("seed 1: verify", again.stderr)
        self.assertEqual(again.returncode, 1, "the failures of before still count")
        self.assertEqual(again.stdout.split("\n\n")[1], whole.stdout.split("\n\n")[1])

    def test_disagreement_of_reader_and_verify_is_a_failure(self):
        sound = """case $1 in
        data) echo '{"sound": true, "problems": [], "splits": [{"name": "train"}]}';;
        *) echo 'millrace: the set is damaged' >&2; exit 3;; esac"""
        ended = self.soak(sound)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("exit code 3, expected one of 0", ended.stderr)

    def test_skipped_groups_are_said(self):
        ended = self.soak("exit 0", "--only", "jpeg")
        self.assertIn("SKIPPED: jpeg:", ended.stderr)
        self.assertIn("| SKIPPED:", ended.stdout)


@unittest.skipIf(tracing.missing(), "NOT TESTED: strace is missing")
class Traced(Folder):
    """Programs that do one thing that a reader of records may not do."""

    def trace(self, code, limit_s=20):
        file = self.folder / "code.py"
        file.write_text(code)
        (self.folder / "out").mkdir(exist_ok=True)
        rules = tracing.Rules(
    folder=self.folder,
    execute=(
        sys.executable,
        ),
        hostile=(
            self.folder,
            ),
            trap=9,
            load=(
                sys.prefix,
                sys.base_prefix),
                write=(
                    self.folder /
                    "out",
                    ),
                    unread=(
                        "/etc/hostname",
                        ))
        return tracing.trace(program.Program(sys.executable, self.folder), ["-IBS", file], self.folder / "trace", rules,
                             limit_s, patience_s=1)

    def test_each_forbidden_act_is_seen(self):
        library = self.folder / "evil.so"
        shutil.copy("/lib/x86_64-linux-gnu/libz.so.1" if os.path.exists("/lib/x86_64-linux-gnu/libz.so.1") else
                    next(iter(pathlib.Path("/usr/lib").rglob("libz.so.1"))), library)
        (self.folder / "link").symlink_to("/tmp")
        for code, named in (
                ("import socket; socket.socket().connect_ex(('127.0.0.1', 9))", "connect"),
                ("import socket; socket.socket(2, 2).sendto(b'x', ('127.0.0.2', 5000))", "sendto"),
                ("import os; os.system('true')", "executes"),
                (f"import ctypes; ctypes.CDLL({str(library)!r})", f"loads {library}"),
                ("open('/etc/hostname')", "reads /etc/hostname"),
                ("open('new', 'w')", "new for writing"),
                ("open('link/soak-self-test', 'w').close(); import os; os.unlink('link/soak-self-test')",
                 "/tmp/soak-self-test"),
                ("import os; os.mkdir('new-folder')", "mkdir"),
                ("import os; os.rename('out', 'other')", "rename"),
                ("import os; f = os.open('out', os.O_RDONLY); os.unlink('../stub', dir_fd=f)", "unlink"),
                ("import os; os.truncate('code.py', 0)", "truncate")):
            with self.subTest(code):
                self.stub("exit 0")
                found = self.trace(code)[1]
                self.assertIn(named, "; ".join(found))

    def test_reading_and_the_output_are_allowed(self):
        ended, found, asked = self.trace(
            "import os, socket\nopen('code.py').read()\nopen('out/a', 'w').close()\nos.rename('out/a', 'out/b')\n"
            "os.mkdir('out/c')\nos.unlink('out/b')\nopen('/dev/null', 'w')\n"
            "with socket.create_server(('127.0.0.1', 0)) as one: socket.create_connection(one.getsockname())")
        self.assertEqual((ended.code, found, asked), (0, [], False), ended.said())

    def test_hangs_are_told_from_work_that_ends_when_asked(self):
        # The first one needs time to start: until then SIGTERM ends it.
        judged = [strangers.judged(*self.hang(script, limit_s), long) for script, limit_s, long in (
            ("import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)", 8, True),
            ("import time; time.sleep(60)", 1, False), ("import time; time.sleep(60)", 1, True))]
        self.assertIn("hangs beyond SIGTERM", judged[0][0])
        self.assertIn("until SIGTERM", judged[1][0])
        self.assertEqual(judged[2], [])

    def hang(self, script, limit_s):
        ended, _, asked = self.trace(script, limit_s=limit_s)
        return ended, asked


class Verdicts(Folder):
    def ended(self, code=0, out="", err=""):
        return program.Ended([], code, out.encode(), err.encode(), 1, 0, False)

    def test_escape_sequences_on_stdout_are_found(self):
        self.assertIn("0x1b", strangers.judged(self.ended(out="\x1b[2J"), False, False)[0])
        self.assertIn("lines on stderr", strangers.judged(self.ended(err="a\n" * 50), False, False)[0])
        self.assertEqual(strangers.judged(self.ended(out="a table\n"), False, False), [])

    def test_a_changed_home_is_noticed(self):
        before = strangers.make_home(self.folder / "home")
        (self.folder / "home" / ".cache" / "own").write_text("")
        self.assertEqual(strangers.state(self.folder / "home"), before)
        (self.folder / "home" / "thesis-backup.tar").unlink()
        self.assertNotEqual(strangers.state(self.folder / "home"), before)

    def test_scripts_that_watching_changed_are_found(self):
        group = recorder.Recorder()
        group.expected = ["ready", "epoch 0 1.0"]
        words = ["python", "train.py", "0", "7"]
        good, text = self.ended(7, "ready\nepoch 0 1.0\n"), "ready\nepoch 0 1.0\ngot SIGUSR1\n"
        self.assertEqual(group.verdict(good, words, None), [])
        self.assertEqual(group.verdict(self.ended(7, text), words, signal.SIGUSR1), [])
        self.assertEqual(group.verdict(self.ended(9, "ready\ngot SIGTERM\n"), words, signal.SIGTERM), [])
        for ended, number, named in (
                (self.ended(1, "ready\nepoch 0 1.0\n"), None, "exit code 1"),
                (self.ended(7, "ready\n"), None, "printed"),
                (self.ended(7, text + "got SIGUSR1\n"), signal.SIGUSR1, "2 times"),
                (self.ended(-10, "ready\n"), signal.SIGUSR1, "did not arrive"),
                (self.ended(7, "ready\nepoch 0 1.0\n", "Traceback (most recent call last)\n"), None, "a traceback")):
            self.assertIn(named, "; ".join(group.verdict(ended, words, number)))

    def test_exits_of_other_codes_and_words_are_found(self):
        verdict = threads.Exit().verdict
        self.assertEqual(verdict(self.ended(7), 7, "exit"), [])
        self.assertEqual(verdict(self.ended(1, err="Traceback\nValueError: planted\n"), 1, "error"), [])
        self.assertIn("exit code -6", verdict(self.ended(-6), 7, "exit")[0])
        self.assertIn("terminate", verdict(self.ended(7, err="terminate called\n"), 7, "exit")[0])

    def test_fields_of_documents_are_all_reached(self):
        document = {"a": 1, "b": {"c": [1, {"d": 2}]}}
        self.assertEqual(list(strangers.fields(document)),
                         [("a",), ("b",), ("b", "c"), ("b", "c", 0), ("b", "c", 1), ("b", "c", 1, "d")])
        for text in (strangers.toml({"seed": 1, "data": {"path": "\x1b",
                     "x": strangers.RAW + "nan"}, "augment": [{"op": "a"}]}),):
            read = strangers.tomllib.loads(text)
            self.assertEqual((read["data"]["path"], read["augment"]), ("\x1b", [{"op": "a"}]))


class Servers(Folder):
    """A program that accepts what a server says, and one that tells its password to everybody."""

    def attack(self, script, behaviour):
        group = servers.Hostile()
        group.bench = lambda place, path, *more, **options: place.program.run(path, *more, **options)
        (self.folder / "set").mkdir(exist_ok=True)
        (self.folder / "bench.json").write_text('{"batch_hash": "1"}')
        place = type("Place", (), {"folder": self.folder, "program": program.Program(self.stub(script), self.folder)})
        strangers.make_home(self.folder / "home")
        draw = random.Random(3)
        return group.attack(place, draw, 0, self.folder, behaviour, self.folder / "home")[1]

    def test_wrong_batches_and_foreign_files_are_found(self):
        self.assertEqual(self.attack("echo '{\"batch_hash\": \"1\"}'", "empty"), [])
        self.assertIn("other batches", "; ".join(self.attack("echo '{\"batch_hash\": \"2\"}'", "empty")))
        self.assertIn(
    "outside the cache",
    "; ".join(
        self.attack(
            "touch here; echo '{\"batch_hash\": \"1\"}'",
             "empty")))

    def test_credentials_for_another_host_are_found(self):
        ask = f"""{sys.executable} -IBS - "$1" <<'END'
import sys, urllib.error, urllib.request
for _ in range(9):
    try:
        urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers={{"Authorization": "{servers.SECRET}"}}))
    except urllib.error.URLError:
        pass
END"""
        script = ask + "\necho 'millrace: x' >&2; exit 3"
        self.assertIn("credentials went", "; ".join(self.attack(script, "another host")))


class Damage(unittest.TestCase):
    def test_same_numbers_same_damage(self):
        data = bytes(range(200))
        one, two = (mutate.mutated(data, random.Random(3), (b"word",), (b"other",)) for _ in "ab")
        self.assertEqual(one, two)
        changed = sum(mutate.mutated(data, random.Random(i)) != data for i in range(200))
        self.assertGreater(changed, 190)

    def test_checksums_are_mended(self):
        image = formats.png(random.Random(1))
        spoilt = image[:17] + b"\x10" + image[18:]
        self.assertNotEqual(mutate.with_png_sums(spoilt), spoilt)
        self.assertEqual(mutate.with_png_sums(image), image)
        archive = formats.tar([("a.bmp", b"x")])
        self.assertEqual(mutate.with_tar_sums(archive), archive)


if __name__ == "__main__":
    unittest.main()
