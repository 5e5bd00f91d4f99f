"""The call by which an operator changes the list of NameNodes while the cluster runs."""

from __future__ import annotations

import enum

import msgspec

from paxosblock.api.methods import Method


class ChangeNameNodes(msgspec.Struct, frozen=True):
    """Add the NameNode at one address, or remove that at another one; neither only shows the list.

    A change takes several calls: each does what can be done now, and says how far it is. It may
    arrive twice, at another leader, too.
    """

    add: str = ""
    remove: str = ""


class ChangeStep(enum.Enum):
    """The point that a change has reached."""

    DONE = "done"
    """The list is as it was asked for, and committed."""
    ABSENT = "absent"
    """No NameNode waits at the address of the new one."""
    LEARNING = "learning"
    """It fetches the catalog, or the rest of the log."""


class NameNodesChange(msgspec.Struct, frozen=True):
    """The list of NameNodes by address, those that the leader does not hear, and how far the change
    is. `lacks` counts entries that the new one has still to store, None before it has the catalog.
    `waiting` are those that could be added now.
    """

    members: tuple[str, ...]
    leader: str
    silent: tuple[str, ...] = ()
    step: ChangeStep = ChangeStep.DONE
    lacks: int | None = None
    waiting: tuple[str, ...] = ()


CHANGE_NAMENODES = Method("change_namenodes", ChangeNameNodes, NameNodesChange)
