"""Suites of others, run at a gateway and at the real thing, and compared.

What passes at the real thing must pass here, but what is named with a reason.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tests.outside.verdicts import Verdicts, complaints, counted

Address = TypeVar("Address")
"""The kind of address by which a suite finds a server."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that a gateway does otherwise."""

    why: str
    tests: tuple[str, ...]
    """Their names; `Put*` are all that begin so, of which some differ."""


@dataclass(frozen=True, slots=True)
class Suite(Generic[Address]):
    """A suite of others."""

    run: Callable[[Address, Path], Verdicts]
    on_purpose: tuple[Difference, ...]
    excused: frozenset[str] = frozenset()
    """Verdicts beside "passed" with which nothing need be done."""


Serve = Callable[[Path], contextlib.AbstractContextManager[Address]]


@dataclass(frozen=True, slots=True)
class Comparison(Generic[Address]):
    """Suites, and the two servers at which they run: ours, and the real thing."""

    program: str
    """The module that runs it."""
    suites: Mapping[str, Suite[Address]]
    ours: tuple[str, Serve[Address]]
    theirs: tuple[str, Serve[Address]]
    folder: Path
    """The folder of what they found, a file for each suite and server."""
    by_time: frozenset[str] = frozenset()
    """Tests that pass or fail at either server."""

    def run(self, build: Callable[[], None]) -> int:
        """Run the suites that the command line names, after `build`; return the exit code."""
        words = argparse.ArgumentParser(prog=f"python -m {self.program}")
        words.add_argument("suites", nargs="*", help=f"some of {', '.join(self.suites)}; else all")
        names = [self.ours[0], self.theirs[0]]
        words.add_argument(
            "--only", choices=names, default="", help="one server, and no comparison"
        )
        chosen = words.parse_args()
        if unknown := set(chosen.suites) - self.suites.keys():
            words.error(f"no suite is named {sorted(unknown)[0]!r}")
        self.folder.mkdir(parents=True, exist_ok=True)
        build()
        ends = [self._compared(name, chosen.only) for name in chosen.suites or self.suites]
        return 0 if all(ends) else 1

    def _compared(self, name: str, only: str) -> bool:
        """Run a suite at both servers; True if nothing differs that should not."""
        suite, verdicts = self.suites[name], {}
        for server, serve in (self.ours, self.theirs):
            if not only or server == only:
                verdicts[server] = self._at(name, server, serve)
        if only:
            return True
        on_purpose = [test for each in suite.on_purpose for test in each.tests]
        there = verdicts[self.theirs[0]]
        theirs = {test: end for test, end in there.items() if test not in self.by_time}
        found = list(complaints(verdicts[self.ours[0]], theirs, on_purpose, suite.excused))
        for complaint in found:
            _tell(complaint)
        return not found

    def _at(self, name: str, server: str, serve: Serve[Address]) -> Verdicts:
        with tempfile.TemporaryDirectory(prefix="paxosblock-") as scratch:
            folder, begun = Path(scratch), time.monotonic()
            with serve(folder) as address:
                verdicts = self.suites[name].run(address, folder)
            took = time.monotonic() - begun
        _tell(f"{name} at {server}: {counted(verdicts)}, in {took:.0f} s")
        lines = [f"{one.word}\t{test}\t{one.why}" for test, one in sorted(verdicts.items())]
        (self.folder / f"{name}-{server}.tsv").write_text("\n".join(lines) + "\n")
        return verdicts


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
