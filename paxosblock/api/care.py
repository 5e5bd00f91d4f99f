"""Calls of people who look after blocks: how many replicas each should have, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from paxosblock.api.methods import Method, Once
from paxosblock.api.namenode import FileStatus

REPLICATION_MAX: Final = 32
"""Replicas that a file may ask for."""


@dataclass(frozen=True, slots=True)
class SetReplication:
    """Ask for so many replicas of each block of a file, of those it has and those to come."""

    path: str
    replication: int
    once: Once | None = None


SET_REPLICATION = Method("set_replication", SetReplication, FileStatus)
