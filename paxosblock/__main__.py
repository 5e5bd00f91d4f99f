"""The `paxosblock` command of a process: the console script, and `python -m paxosblock`."""

from __future__ import annotations

# `signal` without its enums, which take milliseconds; it has no source.
import _signal  # pyright: ignore[reportMissingModuleSource]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    # Until a verb begins its work, Ctrl-C ends the process without a traceback. Nothing comes
    # before this that can be left for later.
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import gc
import os
import sys
from typing import Final, NoReturn

COMMAND_YOUNG_MAX: Final = 100_000
"""Python looks for garbage when this many more objects were made than freed, but a command makes
none by importing. With Python's 700 it looks 200 times, a quarter of the time of `fs cat`."""


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    _open_what_is_closed()
    gc.set_threshold(COMMAND_YOUNG_MAX)
    from paxosblock.cli.main import main as run_and_exit  # noqa: PLC0415 - see above

    try:
        run_and_exit()
    finally:
        gc.freeze()  # spares the interpreter a last look through everything


def _open_what_is_closed() -> None:
    """Give a process that was started without standard input or output (`>&-`) one in which
    reading or writing is an error of the system, and which no socket or file gets instead.
    """
    for descriptor, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest that is free
    # Python has None for each that was closed.
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", 1, closefd=False)


if __name__ == "__main__":
    main()
