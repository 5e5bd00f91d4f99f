"""A NameNode with a planted fault, to show that the search of histories would notice it.

    python -m tests.services.planted_namenode namenode ...

It answers `stat` from what it has applied itself, whether or not it leads: fast, and wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from paxosblock.api.namenode import STAT, FileStatus, PathRequest
from paxosblock.cli.main import main
from paxosblock.namenode.calls import CALLS
from paxosblock.namenode.catalog import tree
from paxosblock.namenode.leadership import Leadership
from paxosblock.namenode.node import NameNode

Q = TypeVar("Q")
A = TypeVar("A")

_answer = Leadership.answer


async def stat_what_is_here(node: NameNode, request: PathRequest) -> FileStatus:
    return tree.stat(node.catalog._store.view(), request.path)


async def answer_on_anybody(
    leadership: Leadership,
    handler: Callable[[Q], Awaitable[A]],
    request: Q,
    *,
    several_steps: bool = False,
) -> A:
    """Lets a follower begin; its store still refuses what needs a leader."""
    if not leadership.serves:
        return await handler(request)
    return await _answer(leadership, handler, request, several_steps=several_steps)


if __name__ == "__main__":
    (row,) = (call for call in CALLS if call.method is STAT)
    object.__setattr__(row, "answer", stat_what_is_here)
    Leadership.answer = answer_on_anybody  # type: ignore[assignment, method-assign]  # planted
    main()
