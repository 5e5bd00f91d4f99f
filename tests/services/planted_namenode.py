"""A NameNode with a planted fault, to show that the search of histories would notice it.

    python -m tests.services.planted_namenode namenode ...

It answers `stat` from what it has applied itself, whether or not it leads: fast, and wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from paxosblock.cli.main import main
from paxosblock.namenode import tree
from paxosblock.namenode.catalog import Catalog
from paxosblock.namenode.leadership import Leadership
from paxosblock.namenode_api import FileStatus

_call = Leadership.call


async def stat_what_is_here(catalog: Catalog, path: str) -> FileStatus:
    view = catalog._store.view()
    return tree.status(view, path, tree.find_inode(view, path))


@contextlib.contextmanager
def call_on_anybody(leadership: Leadership, *, several_steps: bool = False) -> Iterator[None]:
    """Lets a follower begin; its store still refuses what needs a leader."""
    if not leadership.serves:
        yield
        return
    with _call(leadership, several_steps=several_steps):
        yield


if __name__ == "__main__":
    Catalog.stat = stat_what_is_here  # type: ignore[assignment, method-assign]  # planted
    Leadership.call = call_on_anybody  # type: ignore[assignment, method-assign]  # planted
    main()
