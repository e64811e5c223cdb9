"""Runs `python -m pymillrace watch -- COMMAND`."""
import sys

from .watcher.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
