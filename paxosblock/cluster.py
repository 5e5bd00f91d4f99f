"""A cluster on this machine: real node processes, for demos, tests and programs that embed one.

::

    with LocalCluster(datanodes=3) as cluster, Client(cluster.url) as fs:
        ...
        cluster.datanodes[0].kill()
        cluster.datanodes[0].start()
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from paxosblock import control
from paxosblock.cluster_folder import ClusterFolder, Member, Membership, Role, Settings
from paxosblock.errors import ConfigError, ExistsError, NotFoundError, UnavailableError
from paxosblock.namenode_api import CLUSTER_STATUS, ClusterStatus, ClusterStatusRequest
from paxosblock.node_process import START_TIMEOUT_S, Node, wait_until

HOST: Final = "127.0.0.1"
_LAST_PORT: Final = (1 << 16) - 1


class LocalCluster:
    """One NameNode and some DataNodes as processes of this machine, on loopback."""

    def __init__(
        self,
        datanodes: int = 3,
        namenodes: int = 1,
        path: str | os.PathLike[str] | None = None,
        *,
        base_port: int = 0,
        volumes: int = 1,
        settings: Settings | None = None,
        die_with_parent: bool = True,
    ) -> None:
        """Nothing is started yet: use `with`, or `start` and `close`.

        Args:
            path: the cluster's folder. One that holds a cluster already is used as it is, and
                `datanodes` must agree. None: a temporary one, removed at the end.
            base_port: the NameNode's port, the DataNodes' follow; 0 lets the system choose.
            volumes: folders per DataNode, each a storage of its own.
            settings: by section and name, as in the configuration file.
            die_with_parent: nodes are killed with this process, even when that is by SIGKILL.

        Raises:
            ConfigError: the numbers make no sense, or the folder holds another cluster.
        """
        _check_counts(datanodes, namenodes, volumes, base_port)
        self._temporary = path is None
        self._die_with_parent = die_with_parent
        self.path = Path(
            tempfile.mkdtemp(prefix="paxosblock-") if path is None else path
        ).absolute()
        self._folder = ClusterFolder(self.path)
        self._membership = self._folder.read() or Membership(
            _members(datanodes, base_port, volumes),
            {section: dict(values) for section, values in (settings or {}).items()},
        )
        found = self._membership.count(Role.DATANODE)
        if found != datanodes:
            raise ConfigError(f"{self.path} holds a cluster of {found} DataNodes, not {datanodes}")
        self.nodes = tuple(
            Node(self._folder, member, self.command) for member in self._membership.members
        )

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Self:
        """The cluster that lives in a folder, running or not.

        Raises:
            NotFoundError: there is none.
        """
        membership = ClusterFolder(Path(path)).read()
        if membership is None:
            raise NotFoundError(f"'{path}': no cluster lives in this folder", path=str(path))
        return cls(membership.count(Role.DATANODE), path=path, die_with_parent=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def namenodes(self) -> tuple[Node, ...]:
        """The NameNodes, in the order of their numbers."""
        return self._nodes(Role.NAMENODE)

    @property
    def namenode(self) -> Node:
        """The first NameNode."""
        return self.namenodes[0]

    @property
    def datanodes(self) -> tuple[Node, ...]:
        """The DataNodes, in the order of their numbers."""
        return self._nodes(Role.DATANODE)

    @property
    def addresses(self) -> tuple[str, ...]:
        """host:port of every NameNode."""
        return tuple(node.address for node in self.namenodes)

    @property
    def url(self) -> str:
        """What `Client` takes."""
        return "paxosblock://" + ",".join(self.addresses)

    @property
    def alive(self) -> bool:
        """Whether any of its nodes runs."""
        return any(node.alive for node in self.nodes)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start all nodes; returns when the NameNode has heard of every DataNode.

        When one of them fails, those that were started are ended again.

        Raises:
            ExistsError: the cluster in this folder runs already.
            UnavailableError: a node ended; the message quotes its last line.
            DeadlineError: a node was not ready in time.
        """
        if self.alive:
            raise ExistsError(f"'{self.path}': its cluster is running already", path=str(self.path))
        try:
            self._folder.prepare(self._membership)
            self._start_together(self.namenodes, timeout_s)
            self._start_together(self.datanodes, timeout_s)
            self.wait_registered(timeout_s=timeout_s)
        except BaseException:
            self.close()
            raise

    def close(self) -> bool:
        """Stop all nodes and remove a temporary folder; False when one had to be killed."""
        for node in self.nodes:
            node.ask_to_stop()
        clean = [node.wait_stopped() for node in self.nodes]
        if self._temporary:
            shutil.rmtree(self.path, ignore_errors=True)
        return all(clean)

    def status(self) -> ClusterStatus:
        """The cluster as its NameNode sees it."""
        return control.call_any(self.addresses, CLUSTER_STATUS, ClusterStatusRequest(), 5.0)

    def wait_registered(
        self, nodes: Iterable[Node] | None = None, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """Wait until the NameNode counts these DataNodes (default: all that run) as live.

        Raises:
            DeadlineError: it does not.
        """
        chosen = self.datanodes if nodes is None else nodes
        wanted = {node.address for node in chosen if node.alive}
        wait_until(
            lambda: wanted <= self._live_addresses(),
            timeout_s,
            f"the NameNode does not know all of {', '.join(sorted(wanted))}",
        )

    def command(self, member: Member) -> list[str]:
        """The command line that runs a member of this cluster."""
        command = [sys.executable, "-m", "paxosblock", member.role.value]
        command += ["--id", member.name, "--listen", member.listen]
        command += ["--config", str(self._folder.config)]
        for volume in self._folder.volumes(member):
            command += ["--path", str(volume)]
        if member.role is Role.DATANODE:
            command += ["--namenodes", ",".join(self.addresses)]
        if self._die_with_parent:
            command += ["--die-with", str(os.getpid())]
        return command

    def _nodes(self, role: Role) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.member.role is role)

    def _start_together(self, nodes: tuple[Node, ...], timeout_s: float) -> None:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_ready(timeout_s)
            self._membership = self._membership.replacing(node.member)
        self._folder.write(self._membership)

    def _live_addresses(self) -> set[str]:
        try:
            status = self.status()
        except UnavailableError:
            return set()
        return {node.address for node in status.datanodes if node.state == "live"}


def _check_counts(datanodes: int, namenodes: int, volumes: int, base_port: int) -> None:
    if namenodes != 1:
        raise ConfigError(f"namenodes = {namenodes}: this version runs exactly one NameNode")
    if datanodes < 1:
        raise ConfigError(f"datanodes = {datanodes}: a cluster has at least one DataNode")
    if volumes < 1:
        raise ConfigError(f"volumes = {volumes}: a DataNode has at least one volume")
    if not 0 <= base_port <= _LAST_PORT - datanodes:
        raise ConfigError(f"base_port = {base_port}: ports end at {_LAST_PORT}")


def _members(datanodes: int, base_port: int, volumes: int) -> tuple[Member, ...]:
    def listen(offset: int) -> str:
        return f"{HOST}:{base_port + offset if base_port else 0}"

    namenode = Member(Role.NAMENODE, "namenode-0", listen(0))
    return namenode, *(
        Member(Role.DATANODE, f"datanode-{number}", listen(1 + number), volumes)
        for number in range(datanodes)
    )
