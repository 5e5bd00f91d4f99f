"""The folder of a local cluster: what it remembers between two commands.

::

    cluster.json        members, ports, settings
    config.toml         the settings as the nodes read them
    tls/                of a secure cluster: its authority, and the certificates of the nodes and of
                        the user who made it
    secret              proves NameNodes to each other; only its owner may read it
    growing             says that the first NameNode was the only one, and the others join it
started             says that all NameNodes have been up: an empty folder is a lost one
    logs/NAME.log       the output of a node; before it came NAME.log.1, and so on
    run/NAME.json       the process of a node that was last started
    NAME/               a node's own files
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import msgspec

from paxosblock.base.encoding import json_decoder
from paxosblock.base.formats import FROM_A_COPY, refuse_later
from paxosblock.base.units import KIB
from paxosblock.errors import ConfigError, StorageError
from paxosblock.host.disk import OsDisk
from paxosblock.host.process import ProcessId
from paxosblock.host.user import current_user
from paxosblock.host.whole_file import replace_file
from paxosblock.net.port.access import make_secret
from paxosblock.net.port.certified import CertifiedKind, CertifiedName

OWN_HOSTS: Final = ("127.0.0.1", "localhost")
"""The addresses by which the nodes of a local cluster are called."""
S3_PORT: Final = 8
"""The port of S3 behind the first of the cluster, if so few nodes are there: 9878 behind 9870, as
that of Ozone's gateway."""
KNOWN_VERSION: Final = 1
"""The version of `cluster.json`."""

_LOGGED: Final = re.compile(
    r"(?P<time>\d{4}-\S+Z) (?P<level>debug|info|warning|error|critical) \S+ (?P<message>.*)"
)
"""A line of a node's log (host/logs.py)."""
_LOGGED_JSON: Final = re.compile(
    r'\{"time": "(?P<time>[^"]*)", "level": "(?P<level>[a-z]+)", "node": "[^"]*", '
    r'"message": "(?P<message>[^"]*)"'
)
"""The same with `log_format = "json"`."""

Settings = Mapping[str, Mapping[str, str | int]]
"""Settings by section and name as in the TOML file: `{"namenode": {"lease_soft_limit": "2s"}}`."""


class NodeKind(enum.Enum):
    """The task of a node; also the command that runs it."""

    NAMENODE = "namenode"
    DATANODE = "datanode"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A node of the cluster.

    `listen` is host:port, port 0 until the node was first started. `volumes` counts the folders a
    DataNode keeps replicas in, `rack` is its own, "" for one that names none. `s3_listen` is where
    a gateway answers programs of S3, "" for one that an earlier version made.
    """

    role: NodeKind
    name: str
    listen: str
    volumes: int = 1
    rack: str = ""
    s3_listen: str = ""

    @property
    def folders(self) -> tuple[str, ...]:
        """Names of the node's folders; its address file is in the first."""
        if self.role is not NodeKind.DATANODE:
            return (self.name,)
        return tuple(f"{self.name}/volume-{number}" for number in range(self.volumes))


@dataclass(frozen=True, slots=True)
class _Versioned:
    """The part of `cluster.json` that every version of it has."""

    version: int = 1


@dataclass(frozen=True, slots=True)
class Membership:
    """The content of `cluster.json`."""

    members: tuple[NodeEntry, ...]
    settings: dict[str, dict[str, str | int]]
    version: int = KNOWN_VERSION

    def count(self, role: NodeKind) -> int:
        """Return how many members have this role."""
        return sum(member.role is role for member in self.members)

    def with_namenodes(self, count: int) -> Membership:
        """Return the same with this many NameNodes, the new ones at any free ports."""
        known = self.count(NodeKind.NAMENODE)
        host = self.members[0].listen.rpartition(":")[0]
        added = (
            NodeEntry(NodeKind.NAMENODE, f"namenode-{number}", f"{host}:0")
            for number in range(known, count)
        )
        members = (*self.members[:known], *added, *self.members[known:])
        return replace(self, members=members)

    def with_gateways(self, count: int, base_port: int) -> Membership:
        """Return the same with this many gateways: new ones at the ports behind those of the other
        nodes, which begin with `base_port`, and for S3 from `S3_PORT` behind it on; 0: at any free
        ports."""
        gateways = [each for each in self.members if each.role is NodeKind.GATEWAY][:count]
        others = [each for each in self.members if each.role is not NodeKind.GATEWAY]
        host = others[0].listen.rpartition(":")[0]
        for number in range(len(gateways), count):
            port = base_port + len(others) + number if base_port else 0
            gateways.append(NodeEntry(NodeKind.GATEWAY, f"gateway-{number}", f"{host}:{port}"))
        first = base_port + max(S3_PORT, len(others) + count) if base_port else 0
        for number, gateway in enumerate(gateways):
            if not gateway.s3_listen:
                port = first + number if first else 0
                gateways[number] = replace(gateway, s3_listen=f"{host}:{port}")
        return replace(self, members=(*others, *gateways))

    def with_block_tokens(self) -> Membership:
        """Return the same with nodes that sign, and want signed, what callers do with blocks, where
        the settings do not say."""
        added = {
            kind.value: {"block_tokens": "true", **self.settings.get(kind.value, {})}
            for kind in (NodeKind.NAMENODE, NodeKind.DATANODE)
        }
        return replace(self, settings=self.settings | added)

    def with_authority(self, authority: Path) -> Membership:
        """Return the same with gateways that reach a secure cluster; their callers bring tokens."""
        client = {"tls_ca": str(authority), **self.settings.get("client", {})}
        return replace(self, settings=self.settings | {"client": client})

    def replacing(self, member: NodeEntry) -> Membership:
        """Return the same with `member` in the place of the one of its name."""
        members = tuple(member if old.name == member.name else old for old in self.members)
        return replace(self, members=members)


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """Reads and writes the files of a cluster's folder."""

    path: Path

    @property
    def config(self) -> Path:
        """Return the configuration file of the nodes."""
        return self.path / "config.toml"

    @property
    def _tls(self) -> Path:
        return self.path / "tls"

    @property
    def authority(self) -> Path:
        """Return the file with the authority of a secure cluster."""
        return self._tls / "ca.pem"

    @property
    def is_secure(self) -> bool:
        """True if its nodes have certificates."""
        return self.authority.exists()

    @property
    def user_certificate(self) -> Path:
        """Return the certificate of the user of a secure cluster."""
        return self._tls / "user.pem"

    def certificate(self, member: NodeEntry) -> Path:
        """Return the certificate of one node of a secure cluster."""
        return self._tls / f"{member.name}.pem"

    @property
    def secret(self) -> Path:
        """Return the secret of the NameNodes."""
        return self.path / "secret"

    @property
    def _started(self) -> Path:
        return self.path / "started"

    def log(self, name: str) -> Path:
        """Return the file for the output of the node `name`."""
        return self.path / "logs" / f"{name}.log"

    def volumes(self, member: NodeEntry) -> tuple[Path, ...]:
        """Return the folders of a member."""
        return tuple(self.path / folder for folder in member.folders)

    def prepare(self, membership: Membership) -> None:
        """Make the folders and files that nodes need to start.

        Raises:
            StorageError: the operating system refuses.
        """
        try:
            for member in membership.members:
                for volume in self.volumes(member):
                    OsDisk().make_folder(volume)
            for name in ("logs", "run"):
                (self.path / name).mkdir(0o700, exist_ok=True)
            told = membership.with_authority(self.authority) if self.is_secure else membership
            replace_file(self.config, _toml(told.settings).encode())
            self.write(membership)
            if membership.count(NodeKind.NAMENODE) > 1:
                with contextlib.suppress(FileExistsError):
                    make_secret(self.secret)
            if self.is_secure:
                self.secure(membership)
        except OSError as error:
            why = error if isinstance(error, StorageError) else error.strerror or error
            raise StorageError(f"cannot make a cluster in {self.path}: {why}") from error

    def secure(self, membership: Membership) -> None:
        """Give each node, and the user, a certificate that is good from now on, in the place of one
        that was there.

        Raises:
            ConfigError: certificates cannot be made here.
            StorageError: the operating system refuses.
        """
        from paxosblock.net.port.certificates import NODE_S, Authority  # noqa: PLC0415 - an extra

        cluster = "local"
        authority = Authority.made(self._tls, cluster)
        user = CertifiedName(cluster, CertifiedKind.USER, current_user())
        authority.certify(self.user_certificate, user, (), NODE_S)
        for member in membership.members:
            if member.role is NodeKind.GATEWAY:
                continue  # it has no right of its own
            if member.role is NodeKind.NAMENODE:
                name = CertifiedName(cluster, CertifiedKind.NAMENODE)
            else:
                name = CertifiedName(cluster, CertifiedKind.DATANODE, member.name)
            authority.certify(self.certificate(member), name, OWN_HOSTS, NODE_S)

    @property
    def _growing(self) -> Path:
        return self.path / "growing"

    @property
    def is_growing(self) -> bool:
        """True from `mark_growing` until the NameNodes have all been up."""
        return self._growing.exists()

    def mark_growing(self) -> None:
        """Note that the cluster of one NameNode will have more.

        Raises:
            StorageError: the operating system refuses.
        """
        try:
            self._growing.touch()
        except OSError as error:
            raise StorageError.of(self._growing, error) from error

    def joins(self, namenode: NodeEntry) -> bool:
        """True if a NameNode is added to a cluster of one, and was never there before."""
        vote = self.volumes(namenode)[0] / "raft" / "vote"
        return self.is_growing and not vote.exists()

    def is_first_start(self, namenode: NodeEntry) -> bool:
        """True if a NameNode's folder is empty because the cluster never ran as a whole."""
        vote = self.volumes(namenode)[0] / "raft" / "vote"
        return not self._started.exists() and not vote.exists()

    def mark_started(self) -> None:
        """Note that the NameNodes have all been up: from now on an empty folder is a lost one.

        Raises:
            StorageError: the operating system refuses.
        """
        try:
            self._started.touch()
            self._growing.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError.of(self._started, error) from error

    def read(self) -> Membership | None:
        """Return the cluster that lives here; None if there is none.

        Raises:
            ConfigError: `cluster.json` is not one, or a later version wrote it.
        """
        file = self.path / "cluster.json"
        try:
            data = file.read_bytes()
            refuse_later(
                file, json_decoder(_Versioned).decode(data).version, KNOWN_VERSION, FROM_A_COPY
            )
            return json_decoder(Membership).decode(data)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"{file} does not describe a cluster: {error}") from error

    def write(self, membership: Membership) -> None:
        """Remember the cluster."""
        encoded = msgspec.json.format(msgspec.json.encode(membership), indent=2)
        replace_file(self.path / "cluster.json", encoded + b"\n")

    def read_process(self, name: str) -> ProcessId | None:
        """Return the process of the node `name`; None if it has ended since."""
        try:
            process = json_decoder(ProcessId).decode(self._process_file(name).read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return process if process.alive else None

    def write_process(self, name: str, process: ProcessId) -> None:
        """Remember the process of a node that was started."""
        replace_file(self._process_file(name), msgspec.json.encode(process))

    def forget_process(self, name: str) -> None:
        """Note that the node was stopped."""
        self._process_file(name).unlink(missing_ok=True)

    def _process_file(self, name: str) -> Path:
        return self.path / "run" / f"{name}.json"


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A place in a log, whose file may become an older one meanwhile."""

    inode: int
    length: int

    @classmethod
    def end_of(cls, log: Path) -> Self:
        """Return the end of a log as it is now."""
        with contextlib.suppress(FileNotFoundError):
            found = log.stat()
            return cls(found.st_ino, found.st_size)
        return cls(0, 0)


ITS_BEGINNING: Final = LogPlace(0, 0)


def last_words(log: Path, since: LogPlace = ITS_BEGINNING) -> str:
    """Return the end of a log, of what came `since` a place: 4 KiB at most."""
    with contextlib.suppress(FileNotFoundError), open(log, "rb") as file:
        start = since.length if os.fstat(file.fileno()).st_ino == since.inode else 0
        file.seek(max(start, file.seek(0, os.SEEK_END) - 4 * KIB))
        return file.read().decode(errors="replace").strip()
    return ""


def why_ended(last_line: str) -> str:
    """Return why a node has ended whose log ends with this line; "" if it wrote none."""
    without_a_word = "ended without a word, as by SIGKILL or for want of memory"
    if not last_line:
        return without_a_word
    logged = _LOGGED.match(last_line) or _LOGGED_JSON.match(last_line)
    if logged is None:  # nodes say the reason for their end on standard error, as commands do
        return last_line
    if logged["message"].endswith(" closes"):
        return "was stopped"
    if logged["level"] == "error":
        return last_line
    return f"{without_a_word}, after {logged['time']}"


def _toml(settings: Settings) -> str:
    lines = []
    for section, values in settings.items():
        lines.append(f"[{section}]")
        # A text or whole number is the same in JSON and in TOML.
        lines += [
            f"{name} = {msgspec.json.encode(value).decode()}" for name, value in values.items()
        ]
    return "".join(f"{line}\n" for line in lines)
