"""Answers for a page, without a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from paxosblock.api.care import LEAVING, Leaving
from paxosblock.api.insight import (
    LIST_UNWHOLE,
    LIST_WRITERS,
    SHOW_SETTINGS,
    SHOW_WORK,
    NodeSettings,
    UnwholeBlocks,
    Work,
    Writers,
)
from paxosblock.api.methods import Method
from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.reports import StorageReport
from paxosblock.api.status import (
    CLUSTER_STATUS,
    NAMENODE_STATUS,
    ClusterStatus,
    NameNodeStatus,
    NodeStatus,
)
from paxosblock.errors import PaxosBlockError, UnavailableError
from paxosblock.protocol.types import Durability, StorageId

Q = TypeVar("Q")
A = TypeVar("A")
GIB = 1 << 30


def datanode(name: str, state: str = "live", *, failed: str = "") -> NodeStatus:
    """A DataNode with one volume, a quarter of it ours."""
    volume = StorageReport(StorageId(f"s-{name}"), 100 * GIB, 50 * GIB, 25 * GIB, failed)
    return NodeStatus(name, f"{name}:9871", state, 1.5, (volume,), 1, 7)


def namenode(name: str = "nn", *, serves: bool = True, **others: Any) -> NameNodeStatus:
    """A NameNode that is well."""
    given: dict[str, Any] = {
        "node": name,
        "role": "leader" if serves else "follower",
        "serves": serves,
        "leader": "",
        "term": 3,
        "commit_index": 47,
        "applied_index": 47,
        "lag": {},
        "members": (),
        "datanodes": (),
    }
    return NameNodeStatus(**given | others)


def cluster(*datanodes: NodeStatus, **others: Any) -> ClusterStatus:
    """A cluster of these DataNodes that is well."""
    given: dict[str, Any] = {
        "namenode": "nn",
        "role": "leader",
        "files": 3,
        "blocks": 5,
        "open_files": 1,
        "recoveries": 0,
        "datanodes": datanodes,
    }
    return ClusterStatus(**given | others)


def file(path: str, kind: Kind = Kind.FILE) -> FileStatus:
    """An entry of a directory."""
    return FileStatus(
        path=path,
        kind=kind,
        file_id=17,
        size=1234,
        replication=3,
        block_size=1 << 27,
        durability=Durability.DISK,
        open=False,
        modified_s=0.0,
        created_s=0.0,
        owner="me",
        group="us",
        permission=0o644,
    )


@dataclass
class Answers:
    """Answers calls with what a test gives; an error is raised, what is not given is refused."""

    given: Mapping[str, object]
    others: Mapping[str, object] = field(default_factory=dict)
    """The answers of other nodes, by address."""
    asked: list[tuple[str, object]] = field(default_factory=list)

    async def call(self, method: Method[Q, A], request: Q) -> A:
        """Answer a call of the node."""
        self.asked.append((method.name, request))
        return _answered(method, self.given.get(method.name))

    async def ask(self, address: str, method: Method[Q, A], request: Q) -> A:
        """Answer a call of another node."""
        return _answered(method, self.others.get(address))


def _answered(method: Method[Q, A], found: object) -> A:
    if isinstance(found, PaxosBlockError):
        raise found
    if found is None:
        raise UnavailableError(f"no {method.name} is known")
    assert isinstance(found, method.answer)
    return found


def of_a_cluster(*datanodes: NodeStatus, **others: object) -> dict[str, object]:
    """The answers of a NameNode that leads."""
    return {
        NAMENODE_STATUS.name: namenode(),
        CLUSTER_STATUS.name: cluster(*datanodes),
        LEAVING.name: Leaving(()),
        LIST_UNWHOLE.name: UnwholeBlocks((), 0),
        LIST_WRITERS.name: Writers((), 0),
        SHOW_WORK.name: Work((), 0, 0, 0),
        SHOW_SETTINGS.name: NodeSettings("namenode", ()),
    } | others
