"""Whole files of a cluster in one call, for tests."""

from __future__ import annotations

from paxosblock import Client


def write(fs: Client, path: str, data: bytes) -> bytes:
    """Make a file of `data`; return that."""
    with fs.create(path) as out:
        out.write(data)
    return data


def read(fs: Client, path: str) -> bytes:
    """Return all bytes of a file."""
    with fs.open(path) as file:
        return bytes(file.read())
