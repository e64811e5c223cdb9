"""Runs small suites with planted failures through tools/ctest_log.py.

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
# What GoogleTest prints of a suite: one case passes, one is skipped, one fails, one ends the process before
# the last begins.
SUITE = """\
print("[==========] Running 5 tests from 1 test suite.")
print("[ RUN      ] Of/Suite.Passes/0", "[       OK ] Of/Suite.Passes/0 (1 ms)", sep="\\n")
print("[ RUN      ] Of/Suite.Skips/0", "[  SKIPPED ] Of/Suite.Skips/0 (0 ms)", sep="\\n")
print("[ RUN      ] Of/Suite.Fails/0", "expected 1", "[  FAILED  ] Of/Suite.Fails/0, where GetParam() = 7 (3 ms)",
      sep="\\n")
print("[ RUN      ] Of/Suite.Crashes/0", *map("address {}".format, range(100)), sep="\\n")
raise SystemExit(1)
"""
CASE = """\
print("[==========] Running 1 test from 1 test suite.")
print("[ RUN      ] Single.Passes", "[       OK ] Single.Passes (1 ms)", sep="\\n")
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


def check_cases(ctest, folder):
    (folder / "suite.py").write_text(SUITE)
    (folder / "case.py").write_text(CASE)
    (folder / "CTestTestfile.cmake").write_text("".join(
        f"add_test([==[{name}]==] [==[{sys.executable}]==] [==[{folder / script}]==] --gtest_filter=any)\n"
        for name, script in (("tsan.Of/Suite.*", "suite.py"), ("Single.Passes", "case.py"))))
    tool("run", "--closing", folder / "closing.txt", ctest, "--test-dir", folder)
    records = folder / "Testing" / "Temporary"
    status, text = tool("cases", records)
    check(status == 0 and text.splitlines() == [
        "== cases of GoogleTest: 2 passed, 1 skipped, 2 failed; 2 processes",
        "Skipped in suites:", "\ttsan.Of/Suite.Skips/0",
        "The following cases FAILED:", "\ttsan.Of/Suite.Fails/0 (failed)", "\ttsan.Of/Suite.Crashes/0 (did not end)",
        "\ttsan.Of/Suite.*: 1 of 5 cases did not run"], "cases", text)
    lines = tool("failed", records)[1].splitlines()
    check(lines[:4] == ["== 1 failed, the last 40 lines of each", "---- tsan.Of/Suite.Fails/0", "   expected 1",
                        "   [  FAILED  ] Of/Suite.Fails/0, where GetParam() = 7 (3 ms)"], "the failed case", text)
    check(lines[4:6] == ["---- tsan.Of/Suite.Crashes/0", "   address 60"] and len(lines) == 45, "the crash", text)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_suite(folder)
        check_failing_run(sys.argv[1], folder)
        check_passing_run(sys.argv[1], folder)
        check_cases(sys.argv[1], folder)


main()
