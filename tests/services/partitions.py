"""A cluster whose nodes can be cut off: every byte to and from them passes through a proxy.

    python -m tests.services.partitions PRIVATE SOURCE paxosblock datanode --id ...

    with PartitionedCluster(datanodes=4) as cluster:
        with cluster.cut(cluster.datanodes[0]):            # nothing comes, nothing goes
            ...
        with cluster.cut(cluster.datanodes[0], Way.IN):    # it speaks, but hears nothing
            ...

What is cut off is held back, not dropped, and comes when the cut is over, as with TCP. A node
listens at a port that it writes to the file PRIVATE and tells everybody its proxy's. A node opens
connections from an address of its own on loopback, SOURCE: so a proxy knows who did, and what a
node sends on these is held back, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import runpy
import socket
import sys
import threading
from collections.abc import Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import uvloop

from paxosblock import LocalCluster
from paxosblock.datanode import datanode_server
from paxosblock.local.cluster_folder import NodeEntry
from paxosblock.local.node_process import Node
from paxosblock.namenode import namenode_server
from paxosblock.net import serving
from tests.waiting import until_one_ends

T = TypeVar("T")

READ_BYTES: Final = 256 * 1024


class Way(enum.Enum):
    """The direction of bytes, as seen from a node."""

    IN = "in"
    OUT = "out"


BOTH: Final = (Way.IN, Way.OUT)


@dataclass(frozen=True)
class Link:
    """A connection to the node `name`, opened by another one, or by a client ("")."""

    name: str
    opener: str

    def crosses(self, cuts: Collection[tuple[str, Way]], way: Way) -> bool:
        """True if bytes that go this way, as seen from `name`, pass a cut."""
        back = Way.OUT if way is Way.IN else Way.IN
        return (self.name, way) in cuts or (self.opener, back) in cuts


class Proxies:
    """The proxies of all nodes, on a loop and a thread of their own."""

    def __init__(self, openers: Mapping[str, str]) -> None:
        """`openers` tells the node that opens connections from an address."""
        self._openers = openers
        self._cuts: set[tuple[str, Way]] = set()
        self._changed = asyncio.Event()
        self._servers: dict[str, asyncio.Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = uvloop.new_event_loop()
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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, name: str, address: str, private: Path) -> None:
        if name in self._servers:
            return
        host, _, port = address.rpartition(":")

        async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
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
        link = Link(name, self._openers.get(writer.get_extra_info("peername")[0], ""))
        writers = [writer]
        try:
            host, _, port = private.read_text().rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(
                host, int(port), limit=READ_BYTES
            )
            writers.append(far_writer)
            await until_one_ends(
                self._pump(reader, far_writer, link, Way.IN),
                self._pump(far_reader, writer, link, Way.OUT),
            )
        except OSError:
            pass  # the node does not run
        finally:
            for each in writers:
                each.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link, way: Way
    ) -> None:
        """Carry bytes this way, and then the end of them, while it is not cut."""
        with contextlib.suppress(OSError):
            while True:
                data = await reader.read(READ_BYTES)
                while link.crosses(self._cuts, way):
                    await self._changed.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()


class PartitionedCluster(LocalCluster):
    """A `LocalCluster` whose nodes can be cut off while it runs."""

    def __init__(self, datanodes: int = 3, namenodes: int = 1, **options: Any) -> None:
        super().__init__(datanodes, namenodes, **options)
        self._sources = {
            node.name: f"127.1.0.{number}" for number, node in enumerate(self.nodes, start=1)
        }
        self._proxies = Proxies({source: name for name, source in self._sources.items()})

    def close(self) -> bool:
        clean = super().close()
        self._proxies.close()
        return clean

    def command(self, member: NodeEntry) -> list[str]:
        command = super().command(member)
        private = self._private(member.name)
        self._proxies.serve(member.name, member.listen, private)
        module = command.index("paxosblock")
        launcher = ["tests.services.partitions", str(private), self._sources[member.name]]
        return [*command[:module], *launcher, *command[module:]]

    def private_address(self, node: Node) -> str:
        """host:port of the node itself, for those who need no proxy."""
        return self._private(node.name).read_text()

    @contextlib.contextmanager
    def cut(self, node: Node, *ways: Way) -> Iterator[None]:
        """Nothing comes to the node and nothing from it (or only one of these) in the `with`."""
        self._proxies.set_cut(node.name, ways or BOTH, cut=True)
        try:
            yield
        finally:
            self._proxies.set_cut(node.name, ways or BOTH, cut=False)

    def _private(self, name: str) -> Path:
        return self.path / f"{name}.private"


def listen_in_private(private: Path) -> None:
    """Make this process's node listen at a port of its own and say that it is behind a proxy."""
    listen: Any = serving.listen

    async def elsewhere(stack: Any, app: Any, calls: Any, address: str, *rest: Any) -> str:
        host = address.rpartition(":")[0]
        draft = private.with_suffix(".draft")
        draft.write_text(await listen(stack, app, calls, f"{host}:0", *rest))
        draft.rename(private)
        return address

    for server in (datanode_server, namenode_server):
        vars(server)["listen_at"] = elsewhere


def speak_from(source: str) -> None:
    """Make this process open all its connections from an address of its own."""
    create: Any = uvloop.Loop.create_connection
    connect: Any = uvloop.Loop.sock_connect

    async def create_connection(
        loop: Any, factory: Any, host: Any = None, *rest: Any, **options: Any
    ) -> Any:
        if host is not None:
            options["local_addr"] = (source, 0)
        return await create(loop, factory, host, *rest, **options)

    async def sock_connect(loop: Any, sock: socket.socket, address: Any) -> Any:
        sock.bind((source, 0))
        return await connect(loop, sock, address)

    loops: Any = uvloop.Loop
    loops.create_connection, loops.sock_connect = create_connection, sock_connect


if __name__ == "__main__":
    listen_in_private(Path(sys.argv.pop(1)))
    speak_from(sys.argv.pop(1))
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
