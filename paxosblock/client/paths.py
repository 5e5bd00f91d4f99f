"""Paths in a cluster, as text."""

from __future__ import annotations


def join(directory: str, name: str) -> str:
    """The path of an entry of a directory."""
    return f"{directory.rstrip('/')}/{name}"


def base_name(path: str) -> str:
    """The last part of a path; "" for the root."""
    return path.rstrip("/").rpartition("/")[2]
