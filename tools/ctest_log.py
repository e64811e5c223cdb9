#!/usr/bin/env python3
"""Keeps the log of a long ctest run short, and puts what failed at its end.

  ctest_log.py run --closing FILE COMMAND...   runs ctest: prints every 100th result, whatever is not a pass, and
                                               the output of failing tests; keeps ctest's closing lines in FILE
  ctest_log.py failed FOLDER                   prints the last lines of each failed test of the run in FOLDER

`run` ends with ctest's exit status. Standard output that is a terminal is left to ctest.
"""

import re
import subprocess
import sys
from pathlib import Path

EVERY = 100  # passes per line of progress
LINES = 40  # of each failed test's output
WIDTH = 200  # of each line
SHOWN = 20  # failed tests with output; further ones are only named by ctest's closing lines

START = re.compile(r"\s+Start\s+\d+: ")
RESULT = re.compile(r"\s*(\d+)/(\d+) Test\s+#\d+: (.*)")
UNREMARKABLE = re.compile(r"(\s{3}Passed|\*\*\*(Skipped|Not Run \(Disabled\)))\s+[\d.]+ sec$")
CLOSING = re.compile(r"\d+% tests passed, \d+ tests? failed out of \d+$")


def shorten(lines):
    """Yields ("log", line) for what is printed at once and ("closing", line) for ctest's last lines.

    A test may print the output of a ctest of its own, so only the last closing lines of all count.
    """
    held = []
    for line in lines:
        result = RESULT.match(line)
        if held and (result or CLOSING.match(line)):
            yield from (("log", one) for one in held)
            held = []
        if held or CLOSING.match(line):
            held.append(line)
        elif result and UNREMARKABLE.search(line):
            if int(result[1]) % EVERY == 0:
                yield "log", f"{result[1]}/{result[2]} tests done"
        elif not START.match(line):
            yield "log", line
    yield from (("closing", one) for one in held)


def run(closing, command):
    closing.parent.mkdir(parents=True, exist_ok=True)
    closing.write_text("")
    if sys.stdout.isatty():
        status = subprocess.run(command).returncode
    else:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace") as ctest, closing.open("w") as file:
            for place, line in shorten(line.rstrip("\n") for line in ctest.stdout):
                print(line, file=file if place == "closing" else sys.stdout, flush=True)
        status = ctest.returncode
    return status if status >= 0 else 128 - status  # as a shell reports a signal


def outputs(log, names):
    """Yields (name, lines) of the named tests in the text of a LastTest.log."""
    # A test's output may hold any line, also one that looks like the beginning of a test. Only one that
    # repeats the name, as ctest does, ends the output of the test before it.
    beginning = re.compile(r"^\d+/\d+ Testing: (.*)\n\d+/\d+ Test: \1\n", re.MULTILINE)
    matches = list(beginning.finditer(log))
    for match, following in zip(matches, [*matches[1:], None]):
        if match[1] in names:
            text = log[match.end():following.start() if following else len(log)]
            _, _, text = text.partition("\nOutput:\n")
            text = text.rpartition("\n<end of output>")[0] or text
            yield match[1], text.splitlines()[1:]


def failed(folder):
    listed = folder / "LastTestsFailed.log"
    if not listed.exists():
        return
    names = [line.partition(":")[2] for line in listed.read_text(errors="replace").splitlines()]
    if not names:
        return
    print(f"== {len(names)} failed, the last {LINES} lines of each")
    found = dict(outputs((folder / "LastTest.log").read_text(errors="replace"), set(names)))
    for name in names[:SHOWN]:
        lines = found.get(name, [])
        print(f"---- {name[:WIDTH]}" + ("" if lines else ": no output"))
        for line in lines[-LINES:]:
            print("   " + (line if len(line) <= WIDTH else line[:WIDTH - 1] + "…"))
    if len(names) > SHOWN:
        print(f"---- and {len(names) - SHOWN} more; their output is in {folder / 'LastTest.log'}")


def main(arguments):
    match arguments:
        case ["run", "--closing", closing, _, *_]:
            return run(Path(closing), arguments[3:])
        case ["failed", folder]:
            failed(Path(folder))
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
