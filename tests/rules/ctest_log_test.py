"""Runs a small suite with planted failures through tools/ctest_log.py.

  ctest_log_test.py CTEST
"""

import subprocess
import sys
import tempfile
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "ctest_log.py"
PASSING = 120
LOUD = """\
print("100% tests passed, 0 tests failed out of 1")
for number in range(300):
    print("line", number, "x" * 300)
raise SystemExit(1)
"""


def write_suite(folder):
    """Writes passing tests, one that is skipped, and two that fail: one prints a lot, the other nothing."""
    lines = [f"add_test(passes_{number} true)" for number in range(PASSING)]
    (folder / "loud.py").write_text(LOUD)
    lines += [f"add_test(loud [==[{sys.executable}]==] [==[{folder / 'loud.py'}]==])",
              "add_test(silent false)",
              "add_test(skipped sh -c [==[exit 77]==])",
              "set_tests_properties(skipped PROPERTIES SKIP_RETURN_CODE 77)"]
    (folder / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")


def tool(*arguments):
    done = subprocess.run([sys.executable, "-B", TOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=100)
    return done.returncode, done.stdout


def check(condition, what, text):
    if not condition:
        sys.exit(f"{what}, in:\n{text}")


def check_failing_run(ctest, folder):
    closing = folder / "closing.txt"
    status, log = tool("run", "--closing", closing, ctest, "--test-dir", folder, "--output-on-failure")
    check(status == 8, f"exit status {status}, not ctest's 8", log)
    check(log.count("passes_") == 0, "passing tests are listed", log)
    check(f"100/{PASSING + 3} tests done" in log, "no progress", log)
    check("line 0 x" in log and "***Failed" in log, "the output of a failing test is missing", log)
    check("out of 1\n" in log, "the lines of a nested ctest are missing", log)
    end = closing.read_text()
    check(end.startswith(f"98% tests passed, 2 tests failed out of {PASSING + 3}\n"), "closing lines", end)
    check("(Failed)" in end and "skipped (Skipped)" in end, "closing lines", end)

    status, section = tool("failed", folder / "Testing" / "Temporary")
    lines = section.splitlines()
    check(status == 0 and lines[0] == "== 2 failed, the last 40 lines of each", "first line", section)
    check(lines[1] == "---- loud" and lines[2].startswith("   line 260 x"), "the loud test's lines", section)
    check(len(lines) == 1 + 1 + 40 + 1 and lines[-1] == "---- silent: no output", "number of lines", section)
    check(max(map(len, lines)) == 3 + 200, "width of lines", section)


def check_passing_run(ctest, folder):
    (folder / "Testing" / "Temporary" / "LastTestsFailed.log").unlink()
    status, log = tool("run", "--closing", folder / "closing.txt", ctest, "--test-dir", folder, "-R", "passes_1$")
    check(status == 0, f"exit status {status}", log)
    check("100% tests passed" in (folder / "closing.txt").read_text(), "closing lines", log)
    check(tool("failed", folder / "Testing" / "Temporary") == (0, ""), "a section without failures", log)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_suite(folder)
        check_failing_run(sys.argv[1], folder)
        check_passing_run(sys.argv[1], folder)


main()
