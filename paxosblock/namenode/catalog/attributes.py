"""Attributes of files and directories: named values that programs keep beside the bytes.

Each is a key of its own, so that an inode stays small; the inode counts them, and one without any
costs nothing more. Every change of an attribute writes the inode, too, so that the inode is a
precondition for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from paxosblock.api.namenode import FileStatus
from paxosblock.api.path_attributes import (
    ATTRIBUTES_BYTES_MAX,
    ATTRIBUTES_MAX,
    Attributes,
    GetAttributes,
    PathAttributes,
    SetPathAttributes,
)
from paxosblock.api.transaction import SetAttributes
from paxosblock.base import paths
from paxosblock.errors import ExistsError, InvalidRequestError, NotFoundError
from paxosblock.namenode.catalog import keys, permissions, snapshots, tree
from paxosblock.namenode.catalog.draft import Draft, Reads
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import Action, Actor
from paxosblock.namenode.catalog.records import Inode, asked_for
from paxosblock.namenode.kv.interface import View

TRUSTED = "trusted."
"""Only a superuser sees and changes what is called so."""


def change_attributes(draft: Draft, request: SetPathAttributes, context: Context) -> FileStatus:
    """Decide the call; raises as `set_attributes`."""
    return tree.status(draft, request.path, set_attributes(draft, request, context.actor))


def set_attributes(draft: Draft, wanted: SetPathAttributes | SetAttributes, actor: Actor) -> Inode:
    """Change attributes of what is at a path; return it as it is then.

    To remove what is not there changes nothing.

    Raises:
        NotFoundError: nothing is there, or an attribute is not that was to `exist`.
        ExistsError: an attribute is there that was not to `exist`.
        InvalidRequestError: it would have too many of them, or too many bytes.
        PermissionDeniedError: the actor may not write it; or a name is for superusers.
    """
    inode = tree.find_inode(draft, wanted.path, actor, Action.WRITE)
    _check_names(wanted.attributes, actor)
    before = _all_of(draft, inode)
    if isinstance(wanted, SetPathAttributes):
        _check_exist(wanted, before)
    changed = {
        name: value for name, value in wanted.attributes.items() if before.get(name) != value
    }
    if not changed:
        return inode
    after = {name: value for name, value in (before | changed).items() if value is not None}
    _check_room(wanted.path, after)
    for name, value in changed.items():
        draft.put(keys.attribute(inode.number, name), value)
    inode = asked_for(msgspec.structs.replace(inode, attributes=len(after)))
    draft.put_inode(inode)
    return inode


def _check_exist(wanted: SetPathAttributes, before: Attributes) -> None:
    for name in wanted.attributes:
        if wanted.exist is True and name not in before:
            words = f"'{wanted.path}' has no attribute '{name}'"
            raise NotFoundError(words, path=wanted.path, attribute=name)
        if wanted.exist is False and name in before:
            words = f"'{wanted.path}' has an attribute '{name}' already"
            raise ExistsError(words, path=wanted.path, attribute=name)


def show(view: View, request: GetAttributes, actor: Actor) -> PathAttributes:
    """Return the attributes of what is at a path.

    Raises:
        NotFoundError: nothing is there.
        PermissionDeniedError: the actor may not read it; or a name is for superusers.
    """
    reads = snapshots.at(view, request.path, actor)
    inode = tree.find_inode(reads, request.path, actor, Action.READ)
    _check_names(dict.fromkeys(request.names), actor)
    held = _all_of(reads, inode)
    names = request.names or [
        name for name in held if actor.superuser or not name.startswith(TRUSTED)
    ]
    shown = {name: held[name] for name in names if name in held}
    return PathAttributes(tree.status(reads, request.path, inode), shown)


def _all_of(reads: Reads, inode: Inode) -> Attributes:
    if not inode.attributes:
        return {}
    found = reads.scan(*keys.attributes(inode.number))
    held = {keys.name_in(key): each.value for key, each in found}
    assert len(held) == inode.attributes, "an inode counts its attributes"
    return held


def _check_names(names: Mapping[str, object], actor: Actor) -> None:
    for name in names:
        if name.startswith(TRUSTED):
            permissions.check_superuser(actor)


def _check_room(path: str, after: Mapping[str, bytes]) -> None:
    if len(after) > ATTRIBUTES_MAX:
        raise InvalidRequestError(
            f"{paths.shown(path)}: cannot add additional XAttr, would exceed limit of"
            f" {ATTRIBUTES_MAX}",
            path=path,
        )
    size_bytes = sum(len(name.encode()) + len(value) for name, value in after.items())
    if size_bytes > ATTRIBUTES_BYTES_MAX:
        raise InvalidRequestError(
            f"{paths.shown(path)}: {size_bytes} bytes of attributes: at most"
            f" {ATTRIBUTES_BYTES_MAX}",
            path=path,
        )
