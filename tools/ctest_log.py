#!/usr/bin/env python3
"""Keeps the log of a long ctest run short, and puts what failed at its end.

  ctest_log.py run --closing FILE COMMAND...   runs ctest: prints every 100th result, whatever is not a pass, and
                                               the output of failing tests; keeps ctest's closing lines in FILE
  ctest_log.py failed FOLDER                   prints the last lines of each failed test of the run in FOLDER
  ctest_log.py cases FOLDER                    prints how many cases of GoogleTest that run had, and names those that
                                               failed: one test of ctest may be a whole suite

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
RUN = re.compile(r"\[ RUN      \] (\S+)$")
END = re.compile(r"\[ {1,7}(OK|FAILED|SKIPPED) {1,2}\] (\S+?)(?:, where .*)? \(\d+ ms\)$")
WANTED = re.compile(r"\[==========\] Running (\d+) tests? from ")
PASSED = re.compile(r"\[  PASSED  \] (\d+) tests?\.$")  # all that --gtest_brief says
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


def outputs(log):
    """Yields (name, command, lines of output) of each test in the text of a LastTest.log."""
    # A test's output may hold any line, also one that looks like the beginning of a test. Only one that
    # repeats the name, as ctest does, ends the output of the test before it.
    beginning = re.compile(r"^\d+/\d+ Testing: (.*)\n\d+/\d+ Test: \1\n", re.MULTILINE)
    matches = list(beginning.finditer(log))
    for match, following in zip(matches, [*matches[1:], None]):
        text = log[match.end():following.start() if following else len(log)]
        command, _, text = text.partition("\nOutput:\n")
        text = text.rpartition("\n<end of output>")[0] or text
        yield match[1], command, text.splitlines()[1:]


def cases_of(name, lines):
    """Returns [(case, its lines, how it ended)] of the output of one test; a case that did not end has None.

    `name`: of the test. PREFIXsuite.* is a whole suite, whose cases are PREFIXsuite.case.
    """
    cases = []
    for line in lines:
        started, ended = RUN.search(line), END.search(line)
        if started:
            full = name.removesuffix("*") + started[1].partition(".")[2] if name.endswith(".*") else name
            cases.append([full, started[1], [], None])
        elif cases and cases[-1][3] is None:
            cases[-1][2].append(line)
            if ended and ended[2] == cases[-1][1]:
                cases[-1][3] = ended[1]
    return [(full, own, end) for full, _, own, end in cases]


def failed(folder):
    listed = folder / "LastTestsFailed.log"
    if not listed.exists():
        return
    names = [line.partition(":")[2] for line in listed.read_text(errors="replace").splitlines()]
    if not names:
        return
    parts = {name: [(name, [])] for name in names}
    for name, _, lines in outputs((folder / "LastTest.log").read_text(errors="replace")):
        if name in parts:
            bad = [(case, own) for case, own, end in cases_of(name, lines) if end not in ("OK", "SKIPPED")]
            parts[name] = bad if name.endswith(".*") and bad else [(name, lines)]
    print(f"== {len(names)} failed, the last {LINES} lines of each")
    shown = [part for name in parts for part in parts[name]]
    for name, lines in shown[:SHOWN]:
        print(f"---- {name[:WIDTH]}" + ("" if lines else ": no output"))
        for line in lines[-LINES:]:
            print("   " + (line if len(line) <= WIDTH else line[:WIDTH - 1] + "…"))
    if len(shown) > SHOWN:
        print(f"---- and {len(shown) - SHOWN} more; their output is in {folder / 'LastTest.log'}")


def cases(folder):
    processes, counts, skipped, bad = 0, {"OK": 0, "SKIPPED": 0, "FAILED": 0, None: 0}, [], []
    for name, command, lines in outputs((folder / "LastTest.log").read_text(errors="replace")):
        if "--gtest_filter=" not in command:
            continue
        processes += 1
        found = cases_of(name, lines)
        for case, _, end in found:
            counts[end] += 1
            if end == "SKIPPED" and name.endswith(".*"):
                skipped.append(case)  # ctest lists the others
            elif end != "OK" and end != "SKIPPED":
                bad.append(f"{case} ({'failed' if end else 'did not end'})")
        brief = [int(match[1]) for match in map(PASSED.match, lines) if match] if not found else []
        counts["OK"] += sum(brief[-1:])
        wanted = [int(match[1]) for match in map(WANTED.match, lines) if match][:1]
        if wanted and len(found) < wanted[0]:
            bad.append(f"{name}: {wanted[0] - len(found)} of {wanted[0]} cases did not run")
    print(f"== cases of GoogleTest: {counts['OK']} passed, {counts['SKIPPED']} skipped, "
          f"{counts['FAILED'] + counts[None]} failed; {processes} processes")
    for title, names in (("Skipped in suites:", skipped), ("The following cases FAILED:", bad)):
        if names:
            print(title, *names, sep="\n\t")


def main(arguments):
    match arguments:
        case ["run", "--closing", closing, _, *_]:
            return run(Path(closing), arguments[3:])
        case ["failed", folder]:
            failed(Path(folder))
            return 0
        case ["cases", folder]:
            cases(Path(folder))
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
