"""Calls about attributes: named values that a file or directory carries, HDFS's XAttrs."""

from __future__ import annotations

from typing import Final

import msgspec

from paxosblock.api.methods import Method, Once
from paxosblock.api.namenode import FileStatus
from paxosblock.base.units import KIB

VALUE_BYTES_MAX: Final = 16 * KIB
"""Most bytes of an attribute, name and value together, as HDFS has it."""
ATTRIBUTES_MAX: Final = 32
"""Most attributes of a file or directory, as HDFS has it."""
ATTRIBUTES_BYTES_MAX: Final = 64 * KIB
"""Most bytes of all attributes of a file or directory, names and values together."""
ATTRIBUTE_NAME_BYTES_MAX: Final = 255

Attributes = dict[str, bytes]
"""Values by their names, which begin with `user.` or `trusted.`."""


class SetPathAttributes(msgspec.Struct, frozen=True):
    """Give a file or directory these attributes, beside those that it has; None removes one.

    With `exist` it is done only if each of them is there already (True), or none is (False).
    """

    path: str
    attributes: dict[str, bytes | None]
    once: Once | None = None
    exist: bool | None = None


class GetAttributes(msgspec.Struct, frozen=True):
    """Show the attributes of a file or directory: those of these `names`, or all."""

    path: str
    names: tuple[str, ...] = ()


class PathAttributes(msgspec.Struct, frozen=True):
    """A file or directory and its attributes, of one moment, without those that only a superuser
    sees.
    """

    status: FileStatus
    attributes: Attributes


SET_ATTRIBUTES = Method("set_attributes", SetPathAttributes, FileStatus)
GET_ATTRIBUTES = Method("get_attributes", GetAttributes, PathAttributes, any_namenode=True)
