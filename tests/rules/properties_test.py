#!/usr/bin/env python3
"""Do properties arrive at the tests of GoogleTest?  properties_test.py CTEST BUILD

Those that compare clocks must run alone, and all keep caches and keys in the build folder.
"""
import json
import subprocess
import sys

ALONE = ("Planted", "StorageTiming", "TrainerTiming", "Timing", "RefusalTime")  # suites


def main():
    ctest, build = sys.argv[1:]
    listed = json.loads(subprocess.run([ctest, "--test-dir", build, "--show-only=json-v1"], check=True, text=True,
                                       stdout=subprocess.PIPE).stdout)["tests"]
    tests = {test["name"]: {one["name"]: one["value"] for one in test["properties"]} for test in listed}
    problems = []
    for suite in ALONE:
        found = [name for name in tests if name.startswith(f"{suite}.")]
        problems += [f"{name} may run beside others" for name in found if not tests[name].get("RUN_SERIAL")]
        if not found:
            problems.append(f"there are no tests {suite}.*")
    discovered = [name for name, properties in tests.items() if "SKIP_REGULAR_EXPRESSION" in properties]
    if not discovered:
        problems.append("no test of GoogleTest was found")
    for name in discovered:
        if (tests[name].get("ENVIRONMENT") != [f"XDG_CACHE_HOME={build}/cache"] or
                tests[name].get("ENVIRONMENT_MODIFICATION") != [f"XDG_STATE_HOME=set:{build}/state"]):
            problems.append(f"{name} keeps caches or keys elsewhere")
    print("\n".join(problems[:20]) or f"{len(discovered)} tests have their properties")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
