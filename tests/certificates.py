"""Authorities and certificates for tests: files as `paxosblock setup tls` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paxosblock.net.port.access import Access
from paxosblock.net.port.certificates import Authority
from paxosblock.net.port.certified import CertifiedKind, CertifiedName
from paxosblock.net.port.tls import Tls

HOSTS = ("127.0.0.1", "localhost")
DAY_S = 24 * 3600.0


@dataclass(frozen=True)
class Certificates:
    """The files of one authority."""

    folder: Path
    cluster: str = "cluster"

    @property
    def authority(self) -> Authority:
        return Authority.made(self.folder, self.cluster)

    @property
    def ca(self) -> str:
        return str(self.authority.folder / "ca.pem")

    def node(
        self,
        name: str = "namenode",
        hosts: tuple[str, ...] = HOSTS,
        for_s: float = DAY_S,
        now_s: float | None = None,
    ) -> str:
        """Write the certificate of a NameNode, or of the DataNode of another name."""
        kind = CertifiedKind.NAMENODE if name == "namenode" else CertifiedKind.DATANODE
        holder = CertifiedName(self.cluster, kind, "" if name == "namenode" else name)
        return self._written(name, holder, hosts, for_s, now_s)

    def user(
        self,
        name: str = "me",
        groups: tuple[str, ...] = (),
        for_s: float = DAY_S,
        now_s: float | None = None,
    ) -> str:
        """Write the certificate of a user."""
        holder = CertifiedName(self.cluster, CertifiedKind.USER, name, groups)
        return self._written(f"user-{name}", holder, (), for_s, now_s)

    def gateway(self, for_s: float = DAY_S, now_s: float | None = None) -> str:
        """Write the certificate that a gateway shows to programs."""
        return self._written("gateway", None, HOSTS, for_s, now_s)

    def _written(
        self,
        name: str,
        holder: CertifiedName | None,
        hosts: tuple[str, ...],
        for_s: float,
        now_s: float | None,
    ) -> str:
        file = self.folder / f"{name}.pem"
        self.authority.certify(file, holder, hosts, for_s, now_s)
        return str(file)

    def of_node(self, *, required: bool = True, secrets: tuple[bytes, ...] = ()) -> Access:
        """Return the access of a node with a certificate of this authority."""
        tls = Tls(self.node(), self.ca, required=required, serves=CertifiedKind.NAMENODE)
        return Access(secrets, tls=tls)

    def of_user(self, *, required: bool = True, secrets: tuple[bytes, ...] = ()) -> Access:
        """Return the access of a client with a certificate of this authority."""
        return Access(secrets, tls=Tls(self.user(), self.ca, required=required))

    def of_stranger(self, secrets: tuple[bytes, ...] = ()) -> Access:
        """Return the access of a client that has no certificate and believes this authority."""
        return Access(secrets, tls=Tls("", self.ca))
