"""A NameNode with a planted fault, to show that the search of histories would notice it.

    python -m tests.services.planted_namenode namenode ...

It answers `stat` from what it has applied itself, without asking who leads: fast, and wrong.
"""

from __future__ import annotations

from paxosblock.api.namenode import STAT, FileStatus, PathRequest
from paxosblock.cli.main import main
from paxosblock.namenode.calls import CALLS
from paxosblock.namenode.catalog import tree
from paxosblock.namenode.catalog.permissions import ITSELF
from paxosblock.namenode.name_node import NameNode


async def stat_what_is_here(node: NameNode, request: PathRequest) -> FileStatus:
    return tree.stat(node.catalog._store.view(), request.path, ITSELF)


if __name__ == "__main__":
    (row,) = (call for call in CALLS if call.method is STAT)
    object.__setattr__(row, "answer", stat_what_is_here)
    main()
