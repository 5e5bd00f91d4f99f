"""What all files of one client share: connections, NameNodes, leases, settings."""

from __future__ import annotations

from dataclasses import dataclass

from paxosblock.client.leases import LeaseKeeper
from paxosblock.client.namenode import NameNodes
from paxosblock.client.tender import Tending
from paxosblock.client.transport import DataConnections
from paxosblock.client.watched import WritingConnections
from paxosblock.config import ClientConfig


@dataclass(frozen=True, slots=True)
class Session:
    """`writing` and `reading` are separate connections: votes and beats must not wait behind bulk
    data."""

    config: ClientConfig
    namenodes: NameNodes
    writing: WritingConnections
    reading: DataConnections
    leases: LeaseKeeper
    tending: Tending
