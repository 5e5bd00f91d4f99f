"""The engine's one odd requirement: raftos 0.2.6, whose own requirements pip cannot resolve."""

from __future__ import annotations

import importlib.metadata

from paxosblock.errors import ConfigError

VERSION = "0.2.6"
"""The engine overrides methods of raftos and relies on the others: no other version will do."""

HOW = f"run: pip install --no-deps raftos=={VERSION} && pip install msgpack"


def check_raftos() -> None:
    """Return if raftos is there in the version that the engine is built on.

    Raises:
        ConfigError: it is missing or has another version; says in one line how to get it.
    """
    try:
        found = importlib.metadata.version("raftos")
        importlib.metadata.version("msgpack")
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError(
            f"a replicated NameNode needs raftos {VERSION}, whose own requirements cannot be "
            f"installed; {HOW}"
        ) from error
    if found != VERSION:
        raise ConfigError(f"a replicated NameNode needs raftos {VERSION}, not {found}; {HOW}")
