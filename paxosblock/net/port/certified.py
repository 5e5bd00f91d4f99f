"""The name in a certificate: the node or user that its holder is, and the cluster. No I/O.

It is a URI among the certificate's other names, so that an authority of one's own can write it::

    paxosblock://CLUSTER/namenode
    paxosblock://CLUSTER/datanode/ID
    paxosblock://CLUSTER/user/NAME?groups=ops,dev
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

SCHEME: Final = "paxosblock"


class CertifiedKind(enum.Enum):
    """The kind of holder that a certificate names."""

    NAMENODE = "namenode"
    DATANODE = "datanode"
    USER = "user"


@dataclass(frozen=True, slots=True)
class CertifiedName:
    """The holder of a certificate: a NameNode, the DataNode of this id, or a user."""

    cluster: str
    kind: CertifiedKind
    name: str = ""
    groups: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{SCHEME}://{quote(self.cluster)}/{self._path}{self._query}"

    @property
    def _path(self) -> str:
        return "/".join(quote(part, safe="") for part in (self.kind.value, self.name) if part)

    @property
    def _query(self) -> str:
        groups = ",".join(quote(each, safe="") for each in self.groups)
        return f"?groups={groups}" if groups else ""

    @property
    def is_node(self) -> bool:
        """True if a node may show it to its callers."""
        return self.kind is not CertifiedKind.USER

    @classmethod
    def of(cls, uri: str) -> CertifiedName | None:
        """Return the name that a URI says; None if it is not of this kind."""
        try:
            parts = urlsplit(uri)
            kind, _, name = parts.path.removeprefix("/").partition("/")
            found = CertifiedKind(kind)
        except ValueError:
            return None
        is_named = bool(name) and "/" not in name
        if (
            parts.scheme != SCHEME
            or not parts.netloc
            or is_named == (found is CertifiedKind.NAMENODE)
        ):
            return None
        words = parts.query.removeprefix("groups=").split(",")
        groups = tuple(unquote(word) for word in words if word)
        return cls(unquote(parts.netloc), found, unquote(name), groups)


def names_in(certificate: Mapping[str, Any] | None) -> tuple[CertifiedName, ...]:
    """Return the names in a certificate, as `getpeercert` gives it."""
    other: Iterable[tuple[str, str]] = (certificate or {}).get("subjectAltName", ())
    found = (CertifiedName.of(text) for kind, text in other if kind == "URI")
    return tuple(each for each in found if each is not None)
