"""Entries of access control lists, as HDFS has them and as people write them: `user:ann:rwx`."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from paxosblock.errors import InvalidRequestError

_SHOWN = ("---", "--x", "-w-", "-wx", "r--", "r-x", "rw-", "rwx")


class AclType(enum.Enum):
    """The users that an entry is about."""

    USER = "user"
    """The user of that name; without a name, the owner."""
    GROUP = "group"
    """The members of the group of that name; without a name, of the group of the inode."""
    MASK = "mask"
    """The most that entries of named users and of groups can give."""
    OTHER = "other"
    """All others."""


_ORDER = {kind: place for place, kind in enumerate(AclType)}


class AclEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry: some users, and the sum of 4 (read), 2 (write) and 1 (execute) that they may do.

    A `default` entry of a directory is given to what is made in it. In a list of entries to remove
    the permission does not count.
    """

    type: AclType
    permission: int = 0
    name: str = ""
    default: bool = False

    @property
    def key(self) -> tuple[bool, int, str]:
        """All but the permission; a list has one entry of each key, and is in this order."""
        return self.default, _ORDER[self.type], self.name

    @property
    def of_group_class(self) -> bool:
        """True if the mask bounds what it gives."""
        return bool(self.name) or self.type is AclType.GROUP

    def __str__(self) -> str:
        scope = "default:" if self.default else ""
        return f"{scope}{self.type.value}:{self.name}:{shown_bits(self.permission)}"


Acl = tuple[AclEntry, ...]


def shown_bits(bits: int) -> str:
    """Such as "r-x"."""
    return _SHOWN[bits & 7]


def full_acl(permission: int, entries: Acl) -> Acl:
    """Return all entries of an inode, in order: those that its permission bits tell, too.

    `entries` are the others. Where some are no default entries, the group's bits are the mask.
    """
    access = tuple(entry for entry in entries if not entry.default)
    group = AclType.MASK if access else AclType.GROUP
    return (
        AclEntry(AclType.USER, permission >> 6 & 7),
        *access,
        AclEntry(group, permission >> 3 & 7),
        AclEntry(AclType.OTHER, permission & 7),
        *entries[len(access) :],
    )


def acl_of(written: str | Iterable[AclEntry]) -> Acl:
    """Return entries, or those that `written` spells: `user:ann:rwx,default:group:dev:r-x`.

    Raises:
        InvalidRequestError: it spells none.
    """
    return parse_acl(written) if isinstance(written, str) else tuple(written)


def parse_acl(written: str, *, permissions: bool = True) -> Acl:
    """Read a list of entries as HDFS's `setfacl` does; without `permissions` as its `-x` does.

    Raises:
        InvalidRequestError: it is none.
    """
    parts = (part.strip() for part in written.split(","))
    return tuple(_parsed(part, permissions) for part in parts if part)


def _parsed(written: str, permissions: bool) -> AclEntry:
    words = written.rstrip(":").split(":")
    default = words[0] == "default"
    words = words[default:]
    if not words or words == [""]:
        raise InvalidRequestError(f"Invalid <aclSpec> : {written}")
    try:
        kind = AclType(words[0].lower())
    except ValueError:
        raise InvalidRequestError(f"Invalid type of acl in <aclSpec> :{written}") from None
    name, rest, bits = "".join(words[1:2]), words[2:], 0
    if permissions and rest:
        if rest[0] not in _SHOWN:
            raise InvalidRequestError(f"Invalid permission in <aclSpec> : {written}")
        bits = _SHOWN.index(rest[0])
    if len(rest) != permissions:
        raise InvalidRequestError(f"Invalid <aclSpec> : {written}")
    return AclEntry(kind, bits, name, default)
