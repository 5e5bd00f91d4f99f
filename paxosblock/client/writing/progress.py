"""A writer's memory of its blocks: those that did not come about, and members that are missing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from paxosblock.api.namenode import BlockView
from paxosblock.errors import NoSpaceError, Outcome, PaxosBlockError

_log = logging.getLogger(__name__)


class Unopened:
    """True while a block may be the file's last one that the NameNode was asked to add, and that
    has not been opened yet: the file's length is not known.
    """

    def __init__(self) -> None:
        self._maybe = False

    def __bool__(self) -> bool:
        return self._maybe

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Note that the NameNode is asked to add a block."""
        known, self._maybe = self._maybe, True
        try:
            yield
        except PaxosBlockError as error:
            # A NameNode that found no room for it at DataNodes knows that it is not there; one
            # that names its own full disk says nothing about a request before.
            no_room = isinstance(error, NoSpaceError) and not error.of_namenode
            self._maybe = not no_room and (known or error.outcome is Outcome.UNKNOWN)
            raise

    def opened(self) -> None:
        """Note that the block was opened, or failed and must be sealed like any other."""
        self._maybe = False


class Shortfall:
    """Counts the members of a file's blocks. `fewest` is `wanted` while there is no block; `why`
    tells why the block that has the fewest got no more, "" when none was short.
    """

    def __init__(self, path: str, wanted: int) -> None:
        self.fewest = wanted
        self.why = ""
        self._path = path
        self._wanted = wanted
        self._latest = wanted

    def note(self, view: BlockView) -> None:
        """Note a block that was opened. A loss is logged once: further ones like it are no news."""
        before, self._latest = self._latest, len(view.members)
        why = view.shortfall or "the answer that told why was lost"
        if self._latest < self.fewest:
            self.fewest, self.why = self._latest, why
        counts = self._path, self._latest, self._wanted
        if self._latest < before:
            _log.warning("'%s': a block gets only %d of %d replicas: %s", *counts, why)
        elif self._latest > before:
            _log.info("'%s': a block gets %d of %d replicas again", *counts)
