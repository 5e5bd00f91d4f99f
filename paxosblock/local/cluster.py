"""A cluster on this machine: real node processes, for demos, tests and programs that embed one.

::

    with LocalCluster(datanodes=3) as cluster, Client(cluster.url) as fs:
        ...
        cluster.datanodes[0].kill()
        cluster.datanodes[0].start()
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from paxosblock.api.status import (
    CLUSTER_STATUS,
    NAMENODE_STATUS,
    ClusterStatus,
    ClusterStatusRequest,
    NameNodeStatus,
    NameNodeStatusRequest,
)
from paxosblock.base.jitter import JITTER
from paxosblock.config import ClientConfig, NameNodeConfig, load_config
from paxosblock.errors import (
    ConfigError,
    DeadlineError,
    ExistsError,
    NotFoundError,
    OutcomeUnknownError,
    StorageError,
    UnavailableError,
)
from paxosblock.local.cluster_folder import (
    S3_PORT,
    ClusterFolder,
    Membership,
    NodeEntry,
    NodeKind,
    Settings,
)
from paxosblock.local.node_process import START_TIMEOUT_S, Node, wait_until
from paxosblock.namenode.raft.list_change import grow_folder
from paxosblock.net.calls import control
from paxosblock.net.port.access import Access

if TYPE_CHECKING:
    from paxosblock.net.port.tls import Tls

HOST: Final = "127.0.0.1"
STANDING_TIMEOUT_S: Final = 1.0
_LAST_PORT: Final = (1 << 16) - 1
_NO_ANSWER: Final = (UnavailableError, DeadlineError, OutcomeUnknownError, StorageError)

_FREE: Final = (15_000, 32_000)
"""Ports to try for a free one, below the range from which the system chooses for port 0."""


class LocalCluster:
    """One, three or five NameNodes, some DataNodes, and gateways where wanted, as processes of this
    machine, on loopback."""

    def __init__(
        self,
        datanodes: int = 3,
        namenodes: int = 1,
        path: str | os.PathLike[str] | None = None,
        *,
        base_port: int = 0,
        volumes: int = 1,
        racks: int = 1,
        settings: Settings | None = None,
        secure: bool = False,
        die_with_parent: bool = True,
        gateways: int | None = None,
    ) -> None:
        """Nothing is started yet: use `with`, or `start` and `close`.

        Args:
            namenodes: an odd number; three go on when one of them is lost, five when two are.
            path: the cluster's folder. If it already holds a cluster, the numbers of nodes must
                agree with it. None: a temporary folder, removed at the end.
            base_port: the first NameNode's port; those of other nodes follow. 0: any free ports.
            volumes: folders per DataNode, each a storage of its own.
            racks: the DataNodes are in `/rack-0`, `/rack-1` and so on in turn, with 1 in none.
            settings: by section and name, as in the configuration file.
            secure: the nodes speak TLS, and serve those only who have a certificate of this
                cluster: `client_config` has one. DataNodes serve what a NameNode signed
                (`block_tokens`), unless `settings` say otherwise. A folder whose cluster is secure
                stays so.
            die_with_parent: nodes are killed with this process, even when that is by SIGKILL.
            gateways: they keep nothing, so a folder's cluster may have another number of them at
                its next start. None: as many as it had, none at first. They speak WebHDFS, and S3
                where there are keys of it (`speaks_s3`).

        Raises:
            ConfigError: the numbers make no sense, or the folder holds another cluster, or one that
                runs without certificates and is wanted secure.
        """
        _check_counts(datanodes, namenodes, volumes, base_port, gateways or 0)
        if not 1 <= racks <= datanodes:
            raise ConfigError(f"racks = {racks}: from 1 to the number of DataNodes, {datanodes}")
        self._temporary = path is None
        self._die_with_parent = die_with_parent
        self.path = Path(
            tempfile.mkdtemp(prefix="paxosblock-") if path is None else path
        ).absolute()
        self._folder = ClusterFolder(self.path)
        self._membership = self._folder.read() or Membership(
            _members(datanodes, namenodes, base_port, volumes, racks),
            {section: dict(values) for section, values in (settings or {}).items()},
        )
        self._check_same(NodeKind.NAMENODE, "NameNodes", namenodes)
        self._check_same(NodeKind.DATANODE, "DataNodes", datanodes)
        if gateways is not None:
            self._have_gateways(gateways, base_port)
        self._ports = HeldPorts()
        self.nodes = tuple(map(self._node, self._membership.members))
        self._tell_waiting: Callable[[str], None] | None = None
        self._tls: Tls | None = None
        if secure:
            self._secure()

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Self:
        """Return the cluster that lives in a folder, running or not.

        Raises:
            NotFoundError: there is none.
        """
        membership = ClusterFolder(Path(path)).read()
        if membership is None:
            raise NotFoundError(f"'{path}': no cluster lives in this folder", path=str(path))
        datanodes, namenodes = map(membership.count, (NodeKind.DATANODE, NodeKind.NAMENODE))
        return cls(datanodes, namenodes, path, die_with_parent=False)

    @staticmethod
    def grow(path: str | os.PathLike[str], namenodes: int = 3) -> None:
        """Let the cluster of one NameNode in a folder have more of them at its next start; it must
        be down. Files and DataNodes stay. If it has so many already, nothing changes.

        Raises:
            NotFoundError: no cluster lives there.
            ConfigError: it has another number of NameNodes, or it runs, or `namenodes` is even.
        """
        cluster = LocalCluster.at(path)
        _check_counts(len(cluster.datanodes), namenodes, 1, 0, 0)
        found = len(cluster.namenodes)
        if found == namenodes:
            return
        if found > 1 or cluster.alive:
            why = f"has {found} NameNodes" if found > 1 else "runs: `paxosblock cluster down` first"
            raise ConfigError(f"{cluster.path}: its cluster {why}")
        cluster._folder.mark_growing()
        cluster._folder.write(cluster._membership.with_namenodes(namenodes))

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
        """Return the NameNodes, in the order of their numbers."""
        return self._nodes(NodeKind.NAMENODE)

    @property
    def namenode(self) -> Node:
        """Return the first NameNode."""
        return self.namenodes[0]

    @property
    def leader(self) -> Node | None:
        """Return the NameNode that serves, None while there is none."""
        standing = ((node, self.namenode_status(node)) for node in self.namenodes if node.alive)
        serving = [(seen.term, node) for node, seen in standing if seen is not None and seen.serves]
        # A NameNode that hung for a while still believes that it leads an older term.
        return max(serving, key=lambda each: each[0], default=(0, None))[1]

    @property
    def datanodes(self) -> tuple[Node, ...]:
        """Return the DataNodes, in the order of their numbers."""
        return self._nodes(NodeKind.DATANODE)

    @property
    def gateways(self) -> tuple[Node, ...]:
        """Return the gateways, in the order of their numbers."""
        return self._nodes(NodeKind.GATEWAY)

    @property
    def speaks_s3(self) -> bool:
        """True if gateways answer programs of S3: they believe names, or have an access secret by
        which keys are made."""
        return self.believes_names or bool(self._of_gateways.access_file)

    @property
    def believes_names(self) -> bool:
        """True if gateways believe each caller the name of its user."""
        return not self._folder.is_secure and not self._of_gateways.shows_proof

    @property
    def _of_gateways(self) -> ClientConfig:
        """The settings by which gateways call the cluster."""
        return load_config(ClientConfig, self._folder.config)

    @property
    def addresses(self) -> tuple[str, ...]:
        """host:port of every NameNode."""
        return tuple(node.address for node in self.namenodes)

    @property
    def url(self) -> str:
        """Return the URL that `Client` takes."""
        return "paxosblock://" + ",".join(self.addresses)

    @property
    def client_config(self) -> ClientConfig:
        """Return the usual configuration of a client, with its certificate if the cluster is
        secure."""
        config = load_config(ClientConfig)
        if self._folder.is_secure:
            cert, authority = self._folder.user_certificate, self._folder.authority
            config = replace(config, tls_cert=str(cert), tls_ca=str(authority), tls_key="")
        return config

    @property
    def _access(self) -> Access:
        """The secrets that are in their file now, which nodes read when they start, and the
        certificate that is shown to nodes."""
        config = load_config(NameNodeConfig, self._folder.config)
        if self._tls is None:
            secure = self._folder.is_secure
            ours = Access.of_client(self.client_config) if secure else None
            self._tls = (ours or Access.of_node(config, serves=False)).tls
        return replace(Access.of(config.access_file), tls=self._tls)

    def _answers(self, address: str) -> bool:
        return control.healthy(address, access=self._access)

    @property
    def alive(self) -> bool:
        """True if any of its nodes runs."""
        return any(node.alive for node in self.nodes)

    def while_waiting(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with what is missing whenever a start has waited for it for two seconds."""
        self._tell_waiting = tell
        for node in self.nodes:
            node.tell_waiting = tell

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start all nodes; return when every NameNode has heard of every DataNode.

        If a node fails, stop those that were started.

        Raises:
            ExistsError: the cluster in this folder runs already.
            UnavailableError: a node ended; the message quotes its last line.
            DeadlineError: a node was not ready in time.
        """
        if self.alive:
            raise ExistsError(f"'{self.path}': its cluster is running already", path=str(self.path))
        try:
            self.start_missing(timeout_s)
        except BaseException:
            self.close()
            raise

    def start_missing(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the nodes that do not run, and leave alone those that do; return as `start`.

        Raises:
            UnavailableError, DeadlineError: as `start`; the nodes that were started stay.
        """
        self._hold_ports()
        self._folder.prepare(self._membership)
        if self._folder.is_growing and len(self.namenodes) > 1:
            grow_folder(self.namenode.volumes[0], self.addresses)
        self._start_together(self.namenodes, timeout_s)
        self._folder.mark_started()
        self._start_together(self.datanodes, timeout_s)
        self.wait_registered(timeout_s=timeout_s)
        self._start_together(self.gateways, timeout_s)
        if not self._die_with_parent:
            self._ports.release()

    def close(self) -> bool:
        """Stop all nodes and remove a temporary folder; return False if one had to be killed."""
        others = (*self.namenodes, *self.datanodes)
        clean: list[bool] = []
        for nodes in (self.gateways, others):  # a gateway tells the NameNodes what it leaves
            for node in nodes:
                node.ask_to_stop()
            clean += [node.wait_stopped() for node in nodes]
        self._ports.release()
        if self._temporary:
            shutil.rmtree(self.path, ignore_errors=True)
        return all(clean)

    def status(self, retry_for_s: float = 30.0) -> ClusterStatus:
        """Return the cluster as the leading NameNode sees it.

        Raises:
            UnavailableError: none answered for `retry_for_s` seconds; with 0 each is asked once.
        """
        asking = control.BlockingNameNodes(self.addresses, 5.0, retry_for_s, self._access)
        return asking.call(CLUSTER_STATUS, ClusterStatusRequest())

    def namenode_status(self, node: Node) -> NameNodeStatus | None:
        """Return the state of one of the NameNodes; None if it does not answer."""
        with contextlib.suppress(*_NO_ANSWER):
            return control.call(
                node.address,
                NAMENODE_STATUS,
                NameNodeStatusRequest(),
                STANDING_TIMEOUT_S,
                self._access,
            )
        return None

    def wait_leader(self, timeout_s: float = START_TIMEOUT_S) -> Node:
        """Wait until one of the NameNodes serves, and return it.

        Raises:
            DeadlineError: none does.
            UnavailableError: all of them have ended; the message quotes the first one's last line.
        """
        found: list[Node] = []

        def serves() -> bool:
            if not any(node.alive for node in self.namenodes):
                said = self.namenode.log_tail().splitlines() or ["it said nothing"]
                raise UnavailableError(f"no NameNode runs any more: {said[-1]}")
            found[:] = [leader] if (leader := self.leader) is not None else []
            return bool(found)

        wait_until(serves, timeout_s, "no NameNode leads", self._tell_waiting)
        return found[0]

    def wait_registered(
        self, nodes: Iterable[Node] | None = None, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """Wait until one NameNode leads and each one that runs counts these DataNodes (default: all
        that run) as live.

        Raises:
            DeadlineError: it does not.
        """
        chosen = self.datanodes if nodes is None else nodes
        wanted = {node.address for node in chosen if node.alive}
        self.wait_leader(timeout_s)
        wait_until(
            lambda: all(wanted <= self._live_at(node) for node in self.namenodes if node.alive),
            timeout_s,
            f"the NameNodes do not know all of {', '.join(sorted(wanted))}",
            self._tell_waiting,
        )

    def command(self, member: NodeEntry) -> list[str]:
        """Return the command line that runs a member of this cluster."""
        command = [sys.executable, "-m", "paxosblock", member.role.value]
        if member.role is not NodeKind.GATEWAY:
            command += ["--id", member.name]
        command += ["--listen", member.listen]
        command += ["--config", str(self._folder.config)]
        command += ["--log-file", str(self._folder.log(member.name))]
        if (
            self._folder.is_secure and member.role is not NodeKind.GATEWAY
        ):  # options, as a shell may have the user's in its environment
            command += ["--tls-cert", str(self._folder.certificate(member))]
            command += ["--tls-ca", str(self._folder.authority), "--tls-key", ""]
        for volume in self._folder.volumes(member):
            command += ["--path", str(volume)]
        if member.role is not NodeKind.NAMENODE:
            command += ["--namenodes", ",".join(self.addresses)]
            if member.rack:
                command += ["--rack", member.rack]
        elif len(self.namenodes) > 1:
            command += ["--peers", ",".join(self.addresses)]
            command += ["--secret-file", str(self._folder.secret)]
            if self._folder.joins(member):
                command += ["--join"]
            elif self._folder.is_first_start(member):
                command += ["--new-cluster"]
        if member.s3_listen and self.speaks_s3:
            command += ["--s3-listen", member.s3_listen]
        if self._die_with_parent:
            command += ["--die-with", str(os.getpid())]
        return command

    def _have_gateways(self, count: int, base_port: int) -> None:
        """Have this many. Raises ConfigError if one that is too many runs."""
        before = self._membership
        self._membership = before.with_gateways(count, base_port)
        for member in {*before.members} - {*self._membership.members}:
            if self._folder.read_process(member.name) is not None:
                raise ConfigError(
                    f"{self.path}: {member.name} runs: `paxosblock cluster down` first"
                )

    def _secure(self) -> None:
        """Be secure from the next start on. Raises ConfigError as the constructor."""
        runs = self.alive
        if not self._folder.is_secure:
            if runs:
                raise ConfigError(f"{self.path}: its cluster runs: `paxosblock cluster down` first")
            self._folder.secure(self._membership)
        if not runs:
            self._membership = self._membership.with_block_tokens()

    def _node(self, member: NodeEntry) -> Node:
        # The port of a gateway has no TLS, whatever those of the others have.
        answers = control.healthy if member.role is NodeKind.GATEWAY else self._answers
        return Node(self._folder, member, self.command, answers)

    def _nodes(self, role: NodeKind) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.member.role is role)

    def _hold_ports(self) -> None:
        """Choose the ports that are not chosen yet, and hold those of nodes that were killed, so
        that they find them free when they come back.
        """
        for node in self.nodes:
            listen, s3_listen = self._ports.hold(node.address), node.member.s3_listen
            if s3_listen:
                s3_listen = self._ports.hold(s3_listen)
            node.member = replace(node.member, listen=listen, s3_listen=s3_listen)
            self._membership = self._membership.replacing(node.member)

    def _start_together(self, nodes: tuple[Node, ...], timeout_s: float) -> None:
        """Start those of them that do not run."""
        down = [node for node in nodes if not node.alive]
        for node in down:
            node.launch()
        for node in down:
            node.wait_ready(timeout_s)
            self._membership = self._membership.replacing(node.member)
        self._folder.write(self._membership)

    def _check_same(self, role: NodeKind, what: str, wanted: int) -> None:
        found = self._membership.count(role)
        if found != wanted:
            how = ""
            if role is NodeKind.NAMENODE and found == 1:
                how = f": `paxosblock cluster up --namenodes {wanted} --grow` makes them so many"
            raise ConfigError(f"{self.path} holds a cluster of {found} {what}, not {wanted}{how}")

    def _live_at(self, namenode: Node) -> set[str]:
        seen = self.namenode_status(namenode)
        return {node.address for node in seen.datanodes if node.state == "live"} if seen else set()


def _check_counts(
    datanodes: int, namenodes: int, volumes: int, base_port: int, gateways: int
) -> None:
    if namenodes < 1 or namenodes % 2 == 0:
        raise ConfigError(f"namenodes = {namenodes}: an odd number, one, three or five")
    if datanodes < 1:
        raise ConfigError(f"datanodes = {datanodes}: a cluster has at least one DataNode")
    if volumes < 1:
        raise ConfigError(f"volumes = {volumes}: a DataNode has at least one volume")
    if gateways < 0:
        raise ConfigError(f"gateways = {gateways}: none, or some")
    ports = namenodes + datanodes + gateways
    if gateways:
        ports = max(S3_PORT, ports) + gateways
    if not 0 <= base_port <= _LAST_PORT + 1 - ports:
        raise ConfigError(f"base_port = {base_port}: ports end at {_LAST_PORT}")


def _members(
    datanodes: int, namenodes: int, base_port: int, volumes: int, racks: int
) -> tuple[NodeEntry, ...]:
    count = namenodes + datanodes
    ports = range(base_port, base_port + count) if base_port else [0] * count
    listen = [f"{HOST}:{port}" for port in ports]
    return (
        *(
            NodeEntry(NodeKind.NAMENODE, f"namenode-{number}", address)
            for number, address in enumerate(listen[:namenodes])
        ),
        *(
            NodeEntry(
                NodeKind.DATANODE,
                f"datanode-{number}",
                address,
                volumes,
                f"/rack-{number % racks}" if racks > 1 else "",
            )
            for number, address in enumerate(listen[namenodes:])
        ),
    )


# -- ports kept for nodes, also while no process listens at them -----------------------------------


class HeldPorts:
    """Keeps other programs from getting the ports of killed nodes before the nodes are back.

    A socket that is bound to a port and does not listen holds it: the system refuses connections as
    if nothing were there. Linux lets a server bind the port as well, since both set SO_REUSEADDR.
    """

    def __init__(self) -> None:
        """Start without ports."""
        self._holders: list[socket.socket] = []

    def hold(self, address: str) -> str:
        """Hold the port of host:port until `release`, any free one for port 0; return the address.

        A port at which a program listens already is not held: the node says so when it starts.
        """
        host, _, port = address.rpartition(":")
        if port == "0":
            return f"{host}:{self._hold_any(host)}"
        with contextlib.suppress(OSError):
            self._bind(host, int(port), exclusive=False)
        return address

    def release(self) -> None:
        """Release all ports."""
        for holder in self._holders:
            holder.close()
        self._holders.clear()

    def _hold_any(self, host: str) -> int:
        while True:
            port = JITTER.randrange(*_FREE)
            with contextlib.suppress(OSError):
                self._bind(host, port, exclusive=True)
                return port

    def _bind(self, host: str, port: int, *, exclusive: bool) -> None:
        """Bind a port; `exclusive` refuses one that is held, otherwise only one with a listener is
        refused."""
        holder = socket.socket()
        try:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, not exclusive)
            holder.bind((host, port))
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
        except OSError:
            holder.close()
            raise
        self._holders.append(holder)
