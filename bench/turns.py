"""Ways of doing the same work that take turns: their CPU seconds, and what is printed of them."""
import itertools
import multiprocessing
import statistics
import time

from cpu_seconds import of_process


def cpu_s():
    """Returns the CPU seconds of this process and its workers."""
    return time.process_time() + sum(of_process(child.pid) for child in multiprocessing.active_children())


def in_turns(ways, count, measure):
    """Calls measure(way) for each way in each of `count` turns, in an order that alternates. Returns lists by way."""
    found = {way: [] for way in ways}
    for number in range(count):
        for way in ways if number % 2 == 0 else reversed(ways):
            found[way].append(measure(way))
    return found


def rate_of(batches, size, images, warm_up, check):
    """Returns images per CPU-second over about `images` images in batches of `size`, after the first `warm_up` batches.

    Calls check(batch) for each.
    """
    for _ in itertools.islice(batches, warm_up):
        pass
    begin, count = cpu_s(), max(1, images // size)
    for batch in itertools.islice(batches, count):
        check(batch)
    return count * size / (cpu_s() - begin)


def spread(values, digits):
    """Returns the median with the range."""
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def print_rates(workload, rates):
    """Prints a row per way: images per CPU-second, and those of `ours` over them in the same turn."""
    for way, own in rates.items():
        ratios = [ours / one for ours, one in zip(rates["ours"], own)]
        print(f"| {workload} | {way} | {spread(own, 0)} | {spread(ratios, 2)} |", flush=True)
