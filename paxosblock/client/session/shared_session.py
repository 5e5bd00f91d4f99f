"""The common parts of all files of one client: connections, NameNodes, leases, settings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paxosblock.api.namenode import ApplicationVersion, CloseFile, Transact
from paxosblock.api.transaction import Operation
from paxosblock.client.session.lease_keeper import LeaseKeeper
from paxosblock.client.session.lent_files import LentFiles
from paxosblock.client.session.namenodes import NameNodes
from paxosblock.client.session.retried_task import RunningTasks
from paxosblock.client.session.transport import DataConnections
from paxosblock.client.session.watched import WritingConnections
from paxosblock.config import ClientConfig
from paxosblock.errors import InvalidRequestError
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.access import Access
from paxosblock.protocol.types import Durability


@dataclass(slots=True)
class SharedSession:
    """`writing` and `reading` are separate connections: votes and beats must not wait behind bulk
    data."""

    config: ClientConfig
    namenodes: NameNodes
    writing: WritingConnections
    reading: DataConnections
    leases: LeaseKeeper
    tending: RunningTasks
    rpc: RpcClient
    lent: LentFiles

    @classmethod
    def to(cls, addresses: tuple[str, ...], config: ClientConfig) -> SharedSession:
        """Return those of a client of the cluster whose NameNodes have these addresses; nothing is
        connected yet.

        Raises ConfigError if a file with a secret or a certificate is not as it should be.
        """
        access = Access.of_client(config)
        rpc = RpcClient(access)
        namenodes = NameNodes(
            addresses, rpc, timeout_s=config.rpc_timeout_s, retry_for_s=config.retry_for_s
        )
        return cls(
            config,
            namenodes,
            WritingConnections(config, access.at_datanodes()),
            DataConnections(config.connect_timeout_s, access.at_datanodes()),
            LeaseKeeper(namenodes, config.lease_interval_s),
            RunningTasks(),
            rpc,
            LentFiles(wanted=config.short_circuit),
        )

    def within(self, seconds: float) -> SharedSession:
        """Return the same parts, for calls that try for so long."""
        config = replace(self.config, retry_for_s=seconds)
        return replace(self, config=config, namenodes=self.namenodes.within(seconds))

    def transaction(
        self,
        operations: Sequence[Operation],
        application: ApplicationVersion | None = None,
        close: CloseFile | None = None,
    ) -> Transact:
        """Return the request for operations; what they make is as the settings say."""
        config = self.config
        return Transact(
            tuple(operations),
            config.replication,
            config.block_size,
            config.durability,
            application=application,
            umask=config.umask,
            close=close,
        )

    async def close(self) -> None:
        """Close all connections, and end all background work."""
        self.namenodes.close()
        await self.leases.close()
        await self.tending.close()
        # Together, as nodes that hang hold up each: a program waits for two seconds.
        await asyncio.gather(self.writing.close(), self.reading.close(), self.rpc.close())
        await self.lent.close()


def durability_of(name: Durability | str) -> Durability:
    """Return the durability called `name`. Raises InvalidRequestError when there is none."""
    try:
        return Durability(name)
    except ValueError:
        raise InvalidRequestError(f"durability {name!r}: write 'disk' or 'memory'") from None
