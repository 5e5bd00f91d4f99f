"""Files as replicated blocks, by consensus.

::

    from paxosblock import Client, LocalCluster

    with LocalCluster(datanodes=3) as cluster, Client(cluster.url) as fs:
        with fs.create("/greeting") as out:
            out.write(b"hello")

The names below are imported when they are first used, so that `import paxosblock` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paxosblock.lazy import lazy_names

if TYPE_CHECKING:
    from paxosblock.client import AsyncClient, Client
    from paxosblock.errors import PaxosBlockError
    from paxosblock.local.cluster import LocalCluster

    __version__: str

__all__ = ["AsyncClient", "Client", "LocalCluster", "PaxosBlockError", "__version__"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AsyncClient": "paxosblock.client",
        "Client": "paxosblock.client",
        "LocalCluster": "paxosblock.local.cluster",
        "PaxosBlockError": "paxosblock.errors",
        "__version__": "paxosblock.version",
    },
)
