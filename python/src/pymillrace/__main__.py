"""Runs `pymillrace COMMAND`: watch, what-if and compare here, all other commands in the package's program."""
import os
import sys

from .installed import installed


def main() -> int:
    """Returns the exit code of watch, what-if and compare, and does not return from other commands."""
    words = sys.argv[1:]
    if words and words[0] in ("watch", "what-if", "compare"):
        from .watcher.command import main as command

        try:
            return command(words)
        except BrokenPipeError:  # `| head` has seen what it wanted
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the exit
            return 0
    program = installed("pymillrace")
    try:
        os.execv(program, [str(program), *words])  # it looks for decoders beside its name
    except OSError as error:
        print(f"pymillrace: {program} cannot be run: {error.strerror}; install the package again", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
