#!/usr/bin/env python3
"""Prints times of kernel_bench as ratios, one table per SIMD level, in Markdown.

    python3 bench/kernel_table.py [--build build] [--core 1] [--repetitions 25] [--levels avx2,avx512]

At avx2, OpenCV runs without AVX-512 too. A time is the lowest CPU time of the repetitions, which take turns in
random order. kernel_bench compares all results before it times anything.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

CAP = {"avx2": "AVX512-SKX,AVX512-COMMON", "avx512": ""}  # value of OPENCV_CPU_DISABLE


def times(arguments, level):
    """Lowest microseconds by work and library."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "times.json"
        bench = subprocess.run(
            ["taskset", "-c", str(arguments.core), str(arguments.build / "kernel_bench"),
             f"--benchmark_filter=/(scalar|{level}|opencv.*)$", "--benchmark_min_time=0.01",
             f"--benchmark_repetitions={arguments.repetitions}", "--benchmark_enable_random_interleaving=true",
             f"--benchmark_out={out}"],
            env={**os.environ, "OPENCV_CPU_DISABLE": CAP[level]}, capture_output=True, text=True)
        if bench.returncode != 0:
            sys.exit(f"error: kernel_bench: {(bench.stdout + bench.stderr).strip()}")
        result = json.loads(out.read_text())
    if level == "avx2" and result["context"]["opencv_avx512"] != "no":
        sys.exit("error: OpenCV uses AVX-512 whatever OPENCV_CPU_DISABLE says: not the same instructions")
    least = {}
    for run in result["benchmarks"]:
        if run["run_type"] != "iteration":
            continue
        work, who = run["name"].split("/")[:2]
        by = least.setdefault(work, {})
        by[who] = min(by.get(who, run["cpu_time"]), run["cpu_time"])
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--core", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=25)
    parser.add_argument("--levels", type=lambda text: text.split(","), default=list(CAP))
    arguments = parser.parse_args()
    for level in arguments.levels:
        print(f"| work | scalar / {level} | OpenCV / {level} |\n| --- | --- | --- |")
        for work, by in sorted(times(arguments, level).items()):
            peers = ", ".join(f"{by[who] / by[level]:.2f} {who.removeprefix('opencv').strip('_')}".strip()
                              for who in sorted(by) if who.startswith("opencv"))
            print(f"| {work} | {by['scalar'] / by[level]:.1f} | {peers} |")
        print()


if __name__ == "__main__":
    main()
