"""The version of the installed distribution, as pyproject.toml states it."""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("paxosblock")
