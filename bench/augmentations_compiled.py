#!/usr/bin/env python3
"""CPU time of pixel loops that Numba compiles, beside the same loops in a C++ plugin.

    augmentations_compiled.py [--rounds N] [--images N] [--workers N]

The loops: vignette (a product with floating point), solarize (a comparison), and blend (each row with the row above). A
loader generates images of 224x224x3 and applies one. What a loop takes is the CPU time per image of the process with
it, less that without, in turns; both versions have to give the same bytes. With one worker and with several, the rate
shows whether workers run side by side. Needs numba and a C++ compiler, which builds the plugin with -O3, as the project
of `millrace plugins new` does.
"""
import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import pymillrace as mr

INCLUDE = Path(__file__).resolve().parents[1] / "include"
PLUGIN = """
#include <millrace/millrace.hpp>
using millrace::Call;
using millrace::Image;
struct Vignette {
  static constexpr const char* kName = "cpp_vignette";
  static constexpr const char* kHelp = "darken towards the corners";
  explicit Vignette(const millrace::Values&) {}
  void apply(Image image, Call&) const {
    const double w = image.width, h = image.height;
    for (int y = 0; y < image.height; ++y)
      for (int x = 0; x < image.width; ++x) {
        const double dx = (2 * x + 1 - w) / w, dy = (2 * y + 1 - h) / h;
        const double light = 1 - 0.5 * (dx * dx + dy * dy) / 2;
        std::uint8_t* pixel = image.data + y * image.row + x * image.channels;
        for (int c = 0; c < image.channels; ++c) pixel[c] = static_cast<std::uint8_t>(pixel[c] * light);
      }
  }
};
struct Solarize {
  static constexpr const char* kName = "cpp_solarize";
  static constexpr const char* kHelp = "negate bright levels";
  explicit Solarize(const millrace::Values&) {}
  void apply(Image image, Call&) const {
    for (int y = 0; y < image.height; ++y) {
      std::uint8_t* row = image.data + y * image.row;
      for (int i = 0; i < image.width * image.channels; ++i)
        row[i] = row[i] >= 128 ? static_cast<std::uint8_t>(255 - row[i]) : row[i];
    }
  }
};
struct Blend {
  static constexpr const char* kName = "cpp_blend";
  static constexpr const char* kHelp = "blend each row with the one above";
  explicit Blend(const millrace::Values&) {}
  void apply(Image image, Call&) const {
    for (int y = image.height - 1; y > 0; --y) {
      std::uint8_t* row = image.data + y * image.row;
      for (int i = 0; i < image.width * image.channels; ++i)
        row[i] = static_cast<std::uint8_t>((3 * row[i] + row[i - image.row] + 2) / 4);
    }
  }
};
MILLRACE_PLUGIN("cpp_loops", "1.0", "MIT", Vignette, Solarize, Blend);
"""


def vignette(image):
    height, width, channels = image.shape
    for y in range(height):
        for x in range(width):
            dx, dy = (2 * x + 1 - width) / width, (2 * y + 1 - height) / height
            light = 1 - 0.5 * (dx * dx + dy * dy) / 2
            for c in range(channels):
                image[y, x, c] = int(image[y, x, c] * light)


def solarize(image):
    rows = image.reshape(image.shape[0], -1)
    for y in range(rows.shape[0]):
        row = rows[y]
        for i in range(row.shape[0]):
            if row[i] >= 128:
                row[i] = 255 - row[i]


def blend(image):
    rows = image.reshape(image.shape[0], -1)
    for y in range(rows.shape[0] - 1, 0, -1):
        row, above = rows[y], rows[y - 1]
        for i in range(row.shape[0]):
            row[i] = (3 * row[i] + above[i] + 2) // 4


def loader(images, workers, plugin, *ops):
    return mr.Loader("overhead", "data.reader=synthetic", "data.synthetic.width=224", "data.synthetic.height=224",
                     f"data.synthetic.count={images}", "loader.batch=32", f"loader.workers={workers}",
                     "loader.shuffle=none", f"plugins.path={plugin}", *(f"augment+={op}" for op in ops), numpy=True)


def cpu_per_image(*arguments):
    one = loader(*arguments)
    next(iter(one))
    begin, count = time.process_time(), 0
    for images, _ in one:
        count += len(images)
    return (time.process_time() - begin) / count


def rate(images, workers, plugin, op):
    """Images/s with so many workers, of a loop that runs eight times, so that it is most of the work."""
    one = loader(images, workers, plugin, *[op] * 8)
    iterator = iter(one)
    next(iterator)
    begin = time.perf_counter()
    return sum(len(batch.images) for batch in iterator) / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    for function in (vignette, solarize, blend):
        mr.augmentation(name=f"numba_{function.__name__}", compile=True)(function)
    with tempfile.TemporaryDirectory() as folder:
        source, plugin = Path(folder, "loops.cpp"), Path(folder, "loops.so")
        source.write_text(PLUGIN)
        build = ["c++", "-std=c++20", "-O3", "-shared", "-fPIC", f"-I{INCLUDE}"]
        subprocess.run([*build, source, "-o", plugin], check=True)
        print("| loop | C++, us | Numba, us | ratio | C++, images/s | Numba, images/s |")
        print("| --- | --- | --- | --- | --- | --- |")
        for name in ("vignette", "solarize", "blend"):
            ops = (f"cpp_{name}", f"numba_{name}")
            first = [next(iter(loader(32, 0, plugin, op))).images for op in ops]
            if not np.array_equal(*first):
                raise SystemExit(f"{name}: the versions give other bytes")
            times = {op: [] for op in ("", *ops)}
            for _ in range(arguments.rounds):
                for op, found in times.items():
                    found.append(cpu_per_image(arguments.images, 0, plugin, *filter(None, [op])))
            base, cpp, numba = (statistics.median(found) for found in times.values())
            rates = [rate(arguments.images, workers, plugin, op) for op in ops for workers in (1, arguments.workers)]
            print(f"| {name} | {1e6 * (cpp - base):.1f} | {1e6 * (numba - base):.1f} | "
                  f"{(numba - base) / (cpp - base):.2f} | {rates[0]:,.0f}, {rates[1]:,.0f} | "
                  f"{rates[2]:,.0f}, {rates[3]:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
