"""The `paxosblock` command of a process: the console script, and `python -m paxosblock`."""

from __future__ import annotations

import signal
from typing import NoReturn

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C ends a program that is still being imported as it ends any other, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    from paxosblock.cli.main import main as run_and_exit  # noqa: PLC0415 - see above

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_and_exit()


if __name__ == "__main__":
    main()
