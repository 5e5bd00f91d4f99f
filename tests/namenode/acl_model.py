"""Access control lists as HDFS's Permissions Guide and the manual of its shell describe them, in
the words of `getfacl`: `user:ann` to 7, `default:mask:` to 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from paxosblock.api.namenode import Kind
from paxosblock.base.acl_entries import AclEntry
from paxosblock.namenode.catalog.permissions import Actor

Texts = dict[str, int]
"""All entries of a list."""


class Owned(Protocol):
    """A file or directory, by those whose it is."""

    @property
    def owner(self) -> str: ...
    @property
    def group(self) -> str: ...


class Shown(Owned, Protocol):
    """A file or directory as it is shown."""

    @property
    def kind(self) -> Kind: ...
    @property
    def permission(self) -> int: ...
    @property
    def has_acl(self) -> bool:
        """True if there are entries that the permission does not tell."""


BASE = ("user:", "group:", "other:")
DEFAULT = "default:"


def texts(entries: Iterable[AclEntry]) -> Texts:
    """Entries as `getfacl` shows them, and their bits."""
    found: Texts = {}
    for entry in entries:
        words, _, bits = str(entry).rpartition(":")
        found[words] = sum(
            bit for bit, letter in zip((4, 2, 1), bits, strict=True) if letter != "-"
        )
    return found


def minimal(mode: int) -> Texts:
    """The list that a mode is."""
    return dict(zip(BASE, (mode >> 6 & 7, mode >> 3 & 7, mode & 7), strict=True))


def mode_of(acl: Texts) -> int:
    """The mode that is shown: the mask is the group's bits, if there is one."""
    return acl["user:"] << 6 | acl.get("mask:", acl["group:"]) << 3 | acl["other:"]


def chmod(acl: Texts, mode: int) -> Texts:
    """The mode changes the mask, if there is one, and not the group."""
    group = "mask:" if "mask:" in acl else "group:"
    return acl | {"user:": mode >> 6 & 7, group: mode >> 3 & 7, "other:": mode & 7}


def may(acl: Texts, at: Owned, actor: Actor, bits: int) -> bool:
    """The order in which the guide has entries looked at."""

    def gives(words: str) -> bool:
        mask = 7 if words in ("user:", "other:") else acl.get("mask:", 7)
        return acl[words] & mask & bits == bits

    if actor.user == at.owner:
        return gives("user:")
    if f"user:{actor.user}" in acl:
        return gives(f"user:{actor.user}")
    fitting = [words for each in actor.groups if (words := f"group:{each}") in acl]
    fitting += ["group:"] if at.group in actor.groups else []
    return any(map(gives, fitting)) if fitting else gives("other:")


def scope(words: str) -> str:
    return DEFAULT if words.startswith(DEFAULT) else ""


def of(acl: Texts, which: str) -> Texts:
    """The entries of one scope."""
    return {words: bits for words, bits in acl.items() if scope(words) == which}


def named(words: str) -> bool:
    return not words.endswith(":")


def changed(acl: Texts, change: str, spec: Texts, *, directory: bool) -> Texts | None:
    """The list after a change; None if it is refused."""
    if change == "removeAcl":
        return {words: acl[words] for words in BASE}
    if change == "removeDefaultAcl":
        return of(acl, "")
    if change == "removeAclEntries":
        gone = {words for words in spec if words in acl}
        after = {words: bits for words, bits in acl.items() if words not in gone}
        masks, touched = dict.fromkeys(gone), {scope(words) for words in gone}
    else:
        if any(named(each) and "user:" not in each and "group:" not in each for each in spec):
            return None
        masks, touched = dict.fromkeys(spec), {scope(words) for words in spec}
        kept = {words: bits for words, bits in acl.items() if scope(words) not in touched}
        after = (acl if change == "modifyAclEntries" else kept) | spec
    if any(words != "default:mask:" for words in of(after, DEFAULT)):
        for words in BASE:
            if words in after:
                after.setdefault(DEFAULT + words, after[words])
    for which in ("", DEFAULT):
        if not masked(after, which, touched=which in touched, told=f"{which}mask:" in masks):
            return None
    if not all(whole(of(after, which), which) for which in ("", DEFAULT)):
        return None
    return None if of(after, DEFAULT) and not directory else after


def masked(after: Texts, which: str, *, touched: bool, told: bool) -> bool:
    """Give one scope the mask that it must have; `told` if the change named the mask. False if it
    took away one that is needed.
    """
    mask, here = f"{which}mask:", of(after, which)
    bounded = [words for words in here if named(words) or words == f"{which}group:"]
    if here.keys() <= {mask}:
        after.pop(mask, None)
        return True
    needed = any(map(named, bounded))
    if told:
        return mask in here or not needed
    if (mask in here and touched) or (mask not in here and needed):
        after[mask] = 0
        for words in bounded:
            after[mask] |= after[words]
    return True


def whole(here: Texts, which: str) -> bool:
    """True if a scope has all base entries and not too many; there need not be default ones."""
    return not (here or not which) or (len(here) <= 32 and all(which + w in here for w in BASE))


def inherited(above: Texts, mode: int, *, directory: bool) -> Texts:
    """The list of a file or directory that is made in a directory, with a mode."""
    default = of(above, DEFAULT)
    if not default:
        return minimal(mode)
    made = {words.removeprefix(DEFAULT): bits for words, bits in default.items()}
    made["user:"] &= mode >> 6
    made["other:"] &= mode
    made["mask:" if "mask:" in made else "group:"] &= mode >> 3
    return made | (default if directory else {})
