"""Encryption zones: directories whose files clients encrypt (`base/chunk_cipher.py`)."""

from __future__ import annotations

from typing import Final

import msgspec

from paxosblock.api.methods import Method, Once

ZONES_MAX: Final = 1000
"""Zones that one cluster has at most: a roll of the master key wraps the keys of all of them."""


class DataKey(msgspec.Struct, frozen=True, array_like=True):
    """The key of one block's chunks."""

    key: bytes

    def __repr__(self) -> str:
        return "<DataKey>"  # errors and logs tell no secret


class EncryptDirectory(msgspec.Struct, frozen=True):
    """Make an empty directory an encryption zone, with a key of its own."""

    path: str
    once: Once | None = None


class EncryptionZone(msgspec.Struct, frozen=True):
    """A zone: a directory with its id, and the name of the master key that wraps the zone's key."""

    path: str
    directory: int
    master: str


class ZonesRequest(msgspec.Struct, frozen=True):
    """Ask for all zones."""


class EncryptionZones(msgspec.Struct, frozen=True):
    """All zones, and the `master` key that wraps a new one; `why` tells that this NameNode has
    none, or has one of before that it cannot read any more."""

    zones: tuple[EncryptionZone, ...]
    master: str = ""
    why: str = ""


class RollMasterKey(msgspec.Struct, frozen=True):
    """Wrap the keys of all zones with the master key that comes first by now."""

    once: Once | None = None


class RolledMasterKey(msgspec.Struct, frozen=True):
    """The `master` key that wraps the keys of all zones, and how many of them it did not before."""

    master: str
    wrapped: int


ENCRYPT_DIRECTORY = Method("encrypt_directory", EncryptDirectory, EncryptionZone)
ENCRYPTION_ZONES = Method("encryption_zones", ZonesRequest, EncryptionZones)
ROLL_MASTER_KEY = Method("roll_master_key", RollMasterKey, RolledMasterKey)
