"""Puts the program through faults: killed processes, damaged files, full disks, strangers' records and servers.

A campaign has many cases in groups, all drawn from --seed. It keeps its records in its work folder, and continues
from them when started again. Each failure prints the command that repeats it.
"""
import argparse
import os
import signal
import sys

import garbage
import inputs
import kills
import limits
import recorder
import saved
import servers
import strangers
import threads
from campaign import Campaign, say

GROUPS = [*kills.GROUPS, *inputs.GROUPS, *saved.GROUPS, *limits.GROUPS, *garbage.GROUPS, *strangers.GROUPS,
          *servers.GROUPS, *recorder.GROUPS, *threads.GROUPS]


def options_of(arguments):
    parser = argparse.ArgumentParser(prog="tools/soak", description=__doc__.splitlines()[0],
                                     epilog="Example:\n  tools/soak --seed 7 --minutes 20 --only kill",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=115,
                        help="start no case after so many (115); the same command goes on then")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same cases (1)")
    parser.add_argument("--only", action="append", metavar="GROUP",
                        help="this group; may be given again")
    parser.add_argument("--list", action="store_true", help="the groups and how many cases each has")
    parser.add_argument("--case", metavar="GROUP:NUMBER", help="one case, whatever the records say")
    parser.add_argument("--fresh", action="store_true",
                        help="forget what was done before with this seed and program")
    parser.add_argument("--smoke", action="store_true", help="one to three cases of each group")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="try cases in N processes at once (one per core)")
    parser.add_argument("--build", default="build", help="build folder (build)")
    parser.add_argument("--program", help="the program to try (BUILD/millrace)")
    parser.add_argument("--work", help="folder for records and files of failures (BUILD/soak)")
    parser.add_argument("--every", type=float, default=30,
                        help="seconds between lines of progress (30)")
    return parser.parse_args(arguments)


def main(arguments):
    options = options_of(arguments)
    # A shell's background job inherits an ignored SIGINT, and would hand it on to every case.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if options.list:
        for group in GROUPS:
            print(f"{group.name:12} {group.cases:5,} cases  {group.about}")
        return 0
    names = [group.name for group in GROUPS]
    if unknown := set(options.only or ()) - set(names):
        say(f"soak: no group {', '.join(sorted(unknown))}\n  hint: there are {', '.join(names)}")
        return 2
    groups = [group for group in GROUPS if not options.only or group.name in options.only]
    try:
        return Campaign(options, groups).run()
    except KeyboardInterrupt:
        say("soak: interrupted; the same command goes on")
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
