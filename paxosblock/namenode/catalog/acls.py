"""HDFS's access control lists: what they let users do, how they change, what new inodes get.

An inode keeps the entries that its permission bits do not tell: those of named users and groups,
and the group's own; then the default entries of a directory, all of them. While it keeps any of
the first kind, the group's bits of its permission are the mask.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from paxosblock.api.transaction import AclChange
from paxosblock.base.acl_entries import Acl, AclEntry, AclType, full_acl
from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.catalog.records import DirectoryInode, Inode

ENTRIES_MAX: Final = 32
"""Entries that give access, and as many default ones."""
_MINIMAL: Final = 3
"""Entries of a list that tells no more than permission bits: the owner's, the group's, others'."""
_BASE: Final = (AclType.USER, AclType.GROUP, AclType.OTHER)


def entries_of(inode: Inode) -> Acl:
    """Return the entries that an inode keeps."""
    return () if isinstance(inode.acl, UnsetType) else inode.acl


def lets(inode: Inode, acl: Acl, action: int, user: str, groups: frozenset[str]) -> bool:
    """True if an inode that keeps `acl` lets a user do this: the first that fits decides, of the
    owner, a named user, one of the groups that are the user's, others.
    """
    mode = inode.permission
    if user == inode.owner:
        return mode >> 6 & action == action
    if not acl[0].default:
        mask, in_a_group = mode >> 3, False
        for entry in acl:
            if entry.default:
                break
            if entry.type is AclType.USER:
                if entry.name == user:
                    return entry.permission & mask & action == action
            elif (entry.name or inode.group) in groups:
                if entry.permission & mask & action == action:
                    return True
                in_a_group = True
        if in_a_group:
            return False
    elif inode.group in groups:
        mode >>= 3
    return mode & action == action


# --- what new inodes get --------------------------------------------------------------------------


class Bits(msgspec.Struct, frozen=True, gc=False):
    """The permission of what is made: `unmasked` counts where default entries decide, which it
    bounds: those of the owner, the mask (or the group, where there is none) and others.
    """

    masked: int
    unmasked: int


def inherited(above: Inode, bits: Bits, *, directory: bool) -> tuple[int, Acl | UnsetType]:
    """Return the permission and the entries of what is made in `above` with these bits."""
    default = tuple(entry for entry in entries_of(above) if entry.default)
    if not default:
        return bits.masked, UNSET
    permission = bits.unmasked
    minimal = len(default) == _MINIMAL
    bounds = {AclType.USER: permission >> 6, AclType.MASK: permission >> 3}
    bounds |= {AclType.GROUP: permission >> 3 if minimal else 7, AclType.OTHER: permission}
    access = tuple(
        AclEntry(
            entry.type,
            entry.permission if entry.name else entry.permission & bounds[entry.type],
            entry.name,
        )
        for entry in default
    )
    kept = (*_kept(access), *(default if directory else ()))
    return _bits(access, permission), kept or UNSET


# --- changes --------------------------------------------------------------------------------------


def changed(inode: Inode, change: AclChange, spec: Acl) -> Inode:
    """Return the inode with another list of entries.

    Raises:
        InvalidRequestError: the list would not be one that HDFS takes.
    """
    if change is AclChange.REMOVE:
        return _without(inode)
    _check_count(spec)
    before = {entry.key: entry for entry in full_acl(inode.permission, entries_of(inode))}
    named = {entry.key: entry for entry in spec}
    scopes = {entry.default for entry in spec}
    masked = {entry.default for entry in spec if entry.type is AclType.MASK}
    if change is AclChange.REMOVE_ENTRIES:
        gone = [entry for key, entry in before.items() if key in named]
        after = {key: entry for key, entry in before.items() if key not in named}
        scopes = {entry.default for entry in gone}
        masked = {entry.default for entry in gone if entry.type is AclType.MASK}
    elif change is AclChange.REMOVE_DEFAULT:
        scopes, masked = set(), set()
        after = {key: entry for key, entry in before.items() if not entry.default}
    else:
        _check_spec(spec, named)
        kept = before.values() if change is AclChange.MODIFY else _outside(scopes, before.values())
        after = {entry.key: entry for entry in kept} | named
    return _with(inode, _completed(list(after.values()), scopes, masked))


def _outside(scopes: set[bool], entries: Iterable[AclEntry]) -> list[AclEntry]:
    return [entry for entry in entries if entry.default not in scopes]


def _without(inode: Inode) -> Inode:
    """Remove all that an inode keeps; the group gets its own entry back, which was not the mask."""
    permission = inode.permission
    for entry in entries_of(inode):
        if entry.type is AclType.GROUP and not (entry.name or entry.default):
            permission = permission & ~0o070 | entry.permission << 3
    after: Inode = msgspec.structs.replace(inode, permission=permission, acl=UNSET)
    return after


def _completed(entries: list[AclEntry], scopes: set[bool], masked: set[bool]) -> Acl:
    """Return a list in order with what it lacks: base entries of the default ones, and masks.

    `scopes` tell whether access entries, default entries or both changed, `masked` the same of
    their masks. A mask that was not named is worked out again where entries changed.
    """
    masks = {entry.default: entry for entry in entries if entry.type is AclType.MASK}
    found = {entry.key: entry for entry in entries if entry.type is not AclType.MASK}
    if any(entry.default for entry in found.values()):
        for kind in _BASE:
            base = found.get(AclEntry(kind).key)
            if base is not None:
                copy = AclEntry(kind, base.permission, default=True)
                found.setdefault(copy.key, copy)
    for scope in {entry.default for entry in found.values()}:
        bounded = [each for each in found.values() if each.default == scope and each.of_group_class]
        needed, mask = any(entry.name for entry in bounded), masks.get(scope)
        if mask is None and needed and scope in masked:
            raise InvalidRequestError("Invalid ACL: mask is required and cannot be deleted.")
        if mask is None or (scope in scopes and scope not in masked):
            if mask is None and not needed:
                continue
            union = 0
            for entry in bounded:
                union |= entry.permission
            mask = AclEntry(AclType.MASK, union, default=scope)
        found[mask.key] = mask
    return _checked(tuple(found[key] for key in sorted(found)))


def _check_spec(spec: Acl, named: dict[tuple[bool, int, str], AclEntry]) -> None:
    if len(named) != len(spec):
        raise InvalidRequestError("Invalid ACL: multiple entries with same scope, type and name.")
    for entry in spec:
        if entry.name and entry.type in (AclType.MASK, AclType.OTHER):
            raise InvalidRequestError(
                f"Invalid ACL: this entry type must not have a name: {entry}."
            )


def _check_count(acl: Acl) -> None:
    defaults = sum(entry.default for entry in acl)
    for count, kind in ((len(acl) - defaults, "access"), (defaults, "default")):
        if count > ENTRIES_MAX:
            raise InvalidRequestError(
                f"Invalid ACL: ACL has {count} {kind} entries, "
                f"which exceeds maximum of {ENTRIES_MAX}."
            )


def _checked(acl: Acl) -> Acl:
    _check_count(acl)
    keys, defaults = {entry.key for entry in acl}, any(entry.default for entry in acl)
    for default, kind in ((False, "ACL"), (True, "default ACL")):
        if default <= defaults and not keys.issuperset(
            AclEntry(base, default=default).key for base in _BASE
        ):
            raise InvalidRequestError(
                f"Invalid {kind}: the user, group and other entries are required."
            )
    return acl


def _with(inode: Inode, acl: Acl) -> Inode:
    access = tuple(entry for entry in acl if not entry.default)
    default = acl[len(access) :]
    if default and not isinstance(inode, DirectoryInode):
        raise InvalidRequestError("Invalid ACL: only directories may have a default ACL.")
    kept = (*_kept(access), *default)
    permission = _bits(access, inode.permission)
    after: Inode = msgspec.structs.replace(inode, permission=permission, acl=kept or UNSET)
    return after


def _kept(access: Acl) -> Acl:
    """Return the access entries that permission bits do not tell."""
    return access[1:-2] if len(access) > _MINIMAL else ()


def _bits(access: Acl, before: int) -> int:
    """Return the permission that access entries tell: the owner's, the mask's (or the group's,
    where there is none) and others'. The sticky bit stays.
    """
    owner, group, others = access[0], access[-2], access[-1]
    bits = owner.permission << 6 | group.permission << 3 | others.permission
    return before & stat.S_ISVTX | bits
