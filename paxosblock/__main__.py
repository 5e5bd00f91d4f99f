"""The `paxosblock` command of a process: the console script, and `python -m paxosblock`."""

from __future__ import annotations

import gc
import signal
from typing import Final, NoReturn

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until the program is imported, Ctrl-C ends it without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


COMMAND_YOUNG_MAX: Final = 100_000
"""Python looks for garbage when this many more objects were made than freed, but a command makes
none by importing. With Python's 700 it looks 200 times, a quarter of the time of `fs cat`."""


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    gc.set_threshold(COMMAND_YOUNG_MAX)
    from paxosblock.cli.main import main as run_and_exit  # noqa: PLC0415 - see above

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run_and_exit()
    finally:
        gc.freeze()  # spares the interpreter a last look through everything


if __name__ == "__main__":
    main()
