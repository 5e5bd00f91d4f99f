"""A cluster whose nodes can be cut off: every byte to and from them passes through a proxy.

    python -m tests.services.partitions PRIVATE datanode --id ... (as `python -m paxosblock`)

    with PartitionedCluster(datanodes=4) as cluster:
        with cluster.cut(cluster.datanodes[0]):            # nothing comes, nothing goes
            ...
        with cluster.cut(cluster.datanodes[0], Way.IN):    # it speaks, but hears nothing
            ...

What is cut off is held back, not dropped, and comes when the cut is over, as with TCP. A node
listens at a port that it writes to the file PRIVATE and tells everybody its proxy's. A proxy knows
the node that opened a connection by its process, so that what a node sends on connections of its
own is held back, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from paxosblock import LocalCluster, serving
from paxosblock.cli.main import main
from paxosblock.cluster_folder import Member
from paxosblock.node_process import Node

T = TypeVar("T")

READ_BYTES: Final = 256 * 1024


class Way(enum.Enum):
    """Where bytes go, as seen from a node."""

    IN = "in"
    OUT = "out"


BOTH: Final = (Way.IN, Way.OUT)


class Proxies:
    """The proxies of all nodes, on a loop and a thread of their own."""

    def __init__(self, processes: Callable[[], Mapping[str, int]]) -> None:
        """`processes` tells the process of each node that runs, by its name; any thread asks."""
        self._processes = processes
        self._cuts: set[tuple[str, Way]] = set()
        self._changed = asyncio.Event()
        self._servers: dict[str, asyncio.Server] = {}
        self._links: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End them and what goes through them."""
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def serve(self, name: str, address: str, private: Path) -> None:
        """Take connections at `address` for the node that tells in `private` where it listens."""
        self._do(self._serve(name, address, private))

    def set_cut(self, name: str, ways: tuple[Way, ...], *, cut: bool) -> None:
        """Hold back what goes these ways, or let it go again; true when this returns."""
        self._do(self._set_cut({(name, way) for way in ways}, cut))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _close(self) -> None:
        for server in self._servers.values():
            server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _serve(self, name: str, address: str, private: Path) -> None:
        if name in self._servers:
            return
        host, _, port = address.rpartition(":")

        async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._links.add(task)
            task.add_done_callback(self._links.discard)
            await self._link(name, private, reader, writer)

        self._servers[name] = await asyncio.start_server(
            link, host, int(port), limit=READ_BYTES, reuse_address=True
        )

    async def _set_cut(self, cuts: set[tuple[str, Way]], cut: bool) -> None:
        self._cuts = self._cuts | cuts if cut else self._cuts - cuts
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _link(
        self,
        name: str,
        private: Path,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """One connection to the node `name`."""
        opener = owner_of(writer.get_extra_info("peername")[1], self._processes())
        toward, back = {(name, Way.IN), (opener, Way.OUT)}, {(name, Way.OUT), (opener, Way.IN)}
        writers = [writer]
        try:
            host, _, port = private.read_text().rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(
                host, int(port), limit=READ_BYTES
            )
            writers.append(far_writer)
            ends = [
                asyncio.ensure_future(self._pump(reader, far_writer, toward)),
                asyncio.ensure_future(self._pump(far_reader, writer, back)),
            ]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)
        except OSError:
            pass  # the node does not run
        finally:
            for each in writers:
                each.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ways: set[tuple[str, Way]]
    ) -> None:
        """Carry bytes, and then the end of them, while none of `ways` is cut."""
        with contextlib.suppress(OSError):
            while True:
                data = await reader.read(READ_BYTES)
                while ways & self._cuts:
                    await self._changed.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()


def owner_of(port: int, processes: Mapping[str, int]) -> str:
    """The node whose process has a connection from this port of this machine; "" for others."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    inodes = {row[9] for row in rows if int(row[1].rpartition(":")[2], 16) == port}
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for name, process in processes.items():
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(descriptor) in sockets:
                        return name
    return ""


class PartitionedCluster(LocalCluster):
    """A `LocalCluster` whose nodes can be cut off while it runs."""

    def __init__(self, datanodes: int = 3, namenodes: int = 1, **options: Any) -> None:
        super().__init__(datanodes, namenodes, **options)
        self._proxies = Proxies(
            lambda: {node.name: node.pid for node in self.nodes if node.pid is not None}
        )

    def close(self) -> bool:
        clean = super().close()
        self._proxies.close()
        return clean

    def command(self, member: Member) -> list[str]:
        command = super().command(member)
        private = self.path / f"{member.name}.private"
        self._proxies.serve(member.name, member.listen, private)
        start = command.index("paxosblock")
        launcher = ["tests.services.partitions", str(private)]
        return [*command[:start], *launcher, *command[start + 1 :]]

    @contextlib.contextmanager
    def cut(self, node: Node, *ways: Way) -> Iterator[None]:
        """Nothing comes to the node and nothing from it (or only one of these) in the `with`."""
        self._proxies.set_cut(node.name, ways or BOTH, cut=True)
        try:
            yield
        finally:
            self._proxies.set_cut(node.name, ways or BOTH, cut=False)


def listen_in_private(private: Path) -> None:
    """Make this process's node listen at a port of its own and say that it is behind a proxy."""
    listen: Any = serving.listen

    async def elsewhere(stack: Any, app: Any, calls: Any, address: str, *rest: Any) -> str:
        host = address.rpartition(":")[0]
        draft = private.with_suffix(".draft")
        draft.write_text(await listen(stack, app, calls, f"{host}:0", *rest))
        draft.rename(private)
        return address

    vars(serving)["listen"] = elsewhere


if __name__ == "__main__":
    listen_in_private(Path(sys.argv.pop(1)))
    main()
