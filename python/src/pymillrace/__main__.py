"""Runs `pymillrace COMMAND`: watch, what-if, compare and top here, all other commands in the package's program."""
import os
import sys

from .installed import installed


def main() -> int:
    """Returns the exit code of watch, what-if, compare and top, and does not return from other commands."""
    words = sys.argv[1:]
    if words and words[0] in ("watch", "what-if", "compare", "top"):
        try:
            return _in_python(words)
        except BrokenPipeError:  # `| head` has seen what it wanted
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the exit
            return 0
    program = installed("pymillrace")
    try:
        os.execv(program, [str(program), *words])  # it looks for decoders beside its name
    except OSError as error:
        print(f"pymillrace: {program} cannot be run: {error.strerror}; install the package again", file=sys.stderr)
    return 1


def _in_python(words: list[str]) -> int:
    if words[0] == "top":  # by itself: it starts in a fraction of the others' time
        from .watcher.top import main as top

        return top(words[1:])
    from .watcher.command import main as command

    return command(words)


if __name__ == "__main__":
    sys.exit(main())
