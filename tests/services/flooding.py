"""Connections that only take up room, and nodes that have little of it."""

from __future__ import annotations

import resource
import runpy
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from paxosblock import LocalCluster
from paxosblock.host.descriptors import raise_limit
from paxosblock.local.cluster_folder import NodeEntry
from paxosblock.net.port.upgrade import split_address

DESCRIPTORS: Final = 1024
HALF: Final = b"POST /rpc/"
"""The beginning of a request whose rest never comes."""


class Restricted(LocalCluster):
    """The system grants its nodes few descriptors, and says so from the start."""

    def command(self, member: NodeEntry) -> list[str]:
        command = super().command(member)
        module = command.index("paxosblock")
        return [*command[:module], "tests.services.flooding", *command[module:]]


@contextmanager
def connections(address: str, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections to host:port, with `sent` on each of them."""
    raise_limit()
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            place = split_address(address)
            found.append(stack.enter_context(socket.create_connection(place, timeout=20)))
            with suppress(ConnectionError):  # it was closed already
                found[-1].sendall(sent)
        yield found


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
