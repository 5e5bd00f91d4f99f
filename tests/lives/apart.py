"""Lives in processes of their own, several at once, which take nothing apart at their ends.

To cancel what runs, and to find what is garbage among a million objects that hold each other, takes
longer than a fork.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from multiprocessing.connection import wait
from typing import NoReturn

from tests.lives.life import Kind, Life, Outcome
from tests.lives.world import new_world


@dataclass(frozen=True, slots=True)
class _Apart:
    """A life that a process lives, and where it will tell its outcome."""

    seed: int
    kind: Kind
    process: int
    tells: BufferedReader

    def outcome(self) -> Outcome:
        """Wait for its end."""
        with self.tells:
            told = self.tells.read()
        status = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        if status != 0:
            raise RuntimeError(f"{self.kind.value} seed {self.seed}: its process ended: {status}")
        outcome = pickle.loads(told)
        assert isinstance(outcome, Outcome)
        return outcome


def live_apart(seeds: Sequence[int], kind: Kind, at_once: int = 1) -> Iterator[Outcome]:
    """Yield the outcomes of lives in the order of their seeds; `at_once` of them are lived at the
    same time.

    Raises:
        RuntimeError: a process ended without an outcome; its stderr says why.
    """
    under_way: dict[int, _Apart] = {}
    done: dict[int, Outcome] = {}
    left = iter(seeds)
    for seed in seeds:
        while seed not in done:
            while len(under_way) < at_once and (following := next(left, None)) is not None:
                begun = _begin(following, kind)
                under_way[begun.tells.fileno()] = begun
            for each in wait(under_way):
                assert isinstance(each, int)
                outcome = under_way.pop(each).outcome()
                done[outcome.seed] = outcome
        yield done.pop(seed)


def _begin(seed: int, kind: Kind) -> _Apart:
    reads, writes = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reads)
        _live_and_end(seed, kind, writes)
    os.close(writes)
    return _Apart(seed, kind, process, os.fdopen(reads, "rb"))


def _live_and_end(seed: int, kind: Kind, writes: int) -> NoReturn:
    try:
        with new_world(seed) as world, os.fdopen(writes, "wb") as pipe:
            outcome = world.loop.run_until_complete(Life(seed, world, kind).run())
            pickle.dump(outcome, pipe)
            pipe.flush()
            os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
