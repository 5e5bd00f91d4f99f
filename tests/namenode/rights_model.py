"""HDFS's Permissions Guide as a model: its table of operations, for a tree as it is shown."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping

from paxosblock.api.namenode import Kind
from paxosblock.namenode.catalog.permissions import Actor
from tests.namenode import acl_model
from tests.namenode.acl_model import Shown, Texts

R, W, X = 4, 2, 1


class HdfsModel:
    """The rules of HDFS, for a tree as it is shown."""

    def __init__(self, shown: Mapping[str, Shown], acls: Mapping[str, Texts], actor: Actor) -> None:
        self.shown, self.acls, self.actor = shown, acls, actor

    def may(self, path: str, bits: int) -> bool:
        """The class of the user at a path decides: owner, else group, else others; or the list of
        entries, where there is one."""
        at, actor = self.shown.get(path), self.actor
        if at is None or actor.superuser:
            return True
        if at.has_acl:
            return acl_model.may(self.acls[path], at, actor, bits)
        by_class = (
            at.permission >> 6
            if at.owner == actor.user
            else at.permission >> 3
            if at.group in actor.groups
            else at.permission
        )
        return by_class & bits == bits

    def traversed(self, path: str) -> bool:
        """EXECUTE on each directory before the last part of a path."""
        return all(self.may(each, X) for each in above(path) if self.is_directory(each))

    def ancestor(self, path: str) -> bool:
        """WRITE on the last directory above a path that is there."""
        return all(self.may(each, W) for each in self.last_there(path))

    def last_there(self, path: str) -> list[str]:
        """The last directory above a path that is there; none for the root."""
        return [each for each in above(path) if each in self.shown][-1:]

    def parent(self, path: str) -> bool:
        """WRITE on the directory of a path."""
        return all(self.may(each, W) for each in above(path)[-1:])

    def sticks(self, path: str) -> bool:
        """The sticky bit keeps an entry that is neither the user's nor in their directory."""
        if path == "/" or path not in self.shown or self.actor.superuser:
            return False
        parent, victim = self.shown[above(path)[-1]], self.shown[path]
        mine = self.actor.user in (parent.owner, victim.owner)
        return bool(parent.permission & stat.S_ISVTX) and not mine

    def taken_away(self, path: str) -> bool:
        """WRITE on the parent, and the sticky bit."""
        return self.traversed(path) and self.parent(path) and not self.sticks(path)

    def subtree(self, path: str) -> bool:
        """Everything on each directory that has entries; their sticky bits."""
        for each in self.shown:
            if not (each == path or each.startswith(f"{path}/")) or not self.is_directory(each):
                continue
            below = [name for name in self.shown if name != "/" and above(name)[-1] == each]
            if below and not self.may(each, R | W | X):
                return False
            if any(self.sticks(name) for name in below):
                return False
        return True

    def is_directory(self, path: str) -> bool:
        return path in self.shown and self.shown[path].kind is Kind.DIRECTORY


def above(path: str) -> list[str]:
    """The directories above a path, from the root on."""
    if path == "/":
        return []
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:depth]) for depth in range(len(parts))]


def creates(path: str, overwrite: bool) -> Callable[[HdfsModel], bool]:
    def allows(model: HdfsModel) -> bool:
        fresh = model.traversed(path) and model.ancestor(path)
        replaces = overwrite and path in model.shown
        return fresh and (not replaces or (model.may(path, W) and not model.sticks(path)))

    return allows


def moves(source: str, to: str, overwrite: bool) -> Callable[[HdfsModel], bool]:
    def allows(model: HdfsModel) -> bool:
        fresh = model.taken_away(source) and model.traversed(to) and model.parent(to)
        return fresh and not (overwrite and model.sticks(to))

    return allows


def publishes(source: str, to: str, overwrite: bool) -> Callable[[HdfsModel], bool]:
    moved = moves(source, to, overwrite)
    return lambda model: (
        moved(model)
        and (
            source == to
            or source not in model.shown
            or model.is_directory(source)
            or model.actor.superuser
            or model.shown[source].owner == model.actor.user
        )
    )


def deletes(path: str, recursive: bool) -> Callable[[HdfsModel], bool]:
    return lambda model: model.taken_away(path) and (not recursive or model.subtree(path))


def joins(to: str, source: str) -> Callable[[HdfsModel], bool]:
    def allows(model: HdfsModel) -> bool:
        target = model.traversed(to) and model.may(to, W)
        return target and model.may(source, R) and model.taken_away(source)

    return allows
