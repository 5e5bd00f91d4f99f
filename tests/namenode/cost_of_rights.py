"""Measures what permissions and the audit log cost of a `stat` and a `mkdirs`, in the NameNode's
part of a call: no socket, a log in memory. `python -m tests.namenode.cost_of_rights [ROUNDS]`

Rounds of all kinds alternate, and the least of each counts: other work on the machine only adds.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final

from paxosblock.api.namenode import MKDIRS, STAT, MakeDirectories, PathRequest
from paxosblock.base.units import MIB
from paxosblock.config import NameNodeConfig
from paxosblock.namenode.audit import AUDIT_LOG, keep_audit
from paxosblock.net.port.caller import CALLER, HERE, Caller
from tests.namenode.scene import Scene, new_scene

CALLS_OF_ROUND: Final = 100
DIRECTORY: Final = "/a/b/c/d"
VERBS: Final = ("stat", "mkdirs")


@dataclass
class Kind:
    """A way to ask the node of one scene."""

    scene: Scene
    caller: Caller
    audited: bool = False
    numbers: Iterator[int] = field(default_factory=itertools.count)
    least_s: dict[str, float] = field(default_factory=dict[str, float])

    async def measure(self) -> None:
        """Take one round of each verb."""
        AUDIT_LOG.setLevel(logging.INFO if self.audited else logging.CRITICAL)
        CALLER.set(self.caller)
        call, numbers = self.scene.service.call, itertools.islice(self.numbers, CALLS_OF_ROUND)
        stats = [PathRequest(DIRECTORY)] * CALLS_OF_ROUND
        made = [MakeDirectories(f"{DIRECTORY}/{number}") for number in numbers]
        await self._time("stat", lambda place: call(STAT, stats[place]))
        await self._time("mkdirs", lambda place: call(MKDIRS, made[place]))

    async def _time(self, verb: str, call: Callable[[int], Awaitable[object]]) -> None:
        begun_s = perf_counter()
        for place in range(CALLS_OF_ROUND):
            await call(place)
        took_s = (perf_counter() - begun_s) / CALLS_OF_ROUND
        self.least_s[verb] = min(took_s, self.least_s.get(verb, took_s))


async def new_kind(user: str, *, permissions: bool = True, audited: bool = False) -> Kind:
    """A node whose directories let everybody in, and a user of it; "" is the superuser."""
    groups = (("ann", ("dev",)),)
    scene = await new_scene(config=NameNodeConfig(permissions=permissions, groups=groups))
    CALLER.set(HERE)
    await scene.service.call(MKDIRS, MakeDirectories(DIRECTORY, owner="ann", permission=0o777))
    caller = Caller.claiming(user or scene.node.users.superuser, "127.0.0.1")
    return Kind(scene, caller, audited)


async def main(rounds: int) -> None:
    """Print a line for each kind."""
    kinds = {
        "without permissions": await new_kind("ann", permissions=False),
        "a superuser": await new_kind(""),
        "a user": await new_kind("ann"),
        "a user, with the audit log": await new_kind("ann", audited=True),
    }
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        keep_audit(stack, folder / "audit.log", 256 * MIB, 1)
        for _ in range(rounds):
            for kind in kinds.values():
                await kind.measure()
                gc.collect()
    first = next(iter(kinds.values()))
    for name, kind in kinds.items():
        shown = (
            f"{verb} {kind.least_s[verb] * 1e6:.1f} us"
            f" ({kind.least_s[verb] / first.least_s[verb] - 1:+.1%})"
            for verb in VERBS
        )
        sys.stdout.write(f"{name}: {', '.join(shown)}\n")
        await kind.scene.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
