"""The acceptor's messages and replicas as logs show them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Final

from paxosblock.api.datanode import Control
from paxosblock.protocol.messages import Reply
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import Registers


def log_texts(**subjects: Control | Reply | Replica | None) -> dict[str, str]:
    """Return each message or replica as a log shows it: its name and the numbers that matter."""
    return {key: _text(subject) for key, subject in subjects.items()}


def _text(subject: Control | Reply | Replica | None) -> str:
    if subject is None:
        return "nothing"
    template, numbers = _text_of(type(subject))
    return template % numbers(subject)


@functools.cache
def _text_of(kind: type) -> tuple[str, Callable[[object], object]]:
    """Return what logs show of the messages or replicas of this type: a template, and a function
    that finds its numbers. Otherwise a step would look for all of them four times.
    """
    places: list[tuple[type, str]] = [(kind, "")]
    if hasattr(kind, "registers"):
        places.append((Registers, "registers."))
    fields = {
        prefix + name: word
        for name, word in _TOLD_OF.items()
        for place, prefix in places
        if hasattr(place, name.removesuffix(".value"))
    }
    template = " ".join([kind.__name__, *(f"{word}=%s" for word in fields.values())])
    return template, attrgetter(*fields) if fields else lambda _: ()


_TOLD_OF: Final = {
    "state.value": "state",
    "reason.value": "reason",
    "generation": "generation",
    "base": "base",
    "max_generation": "promised",
    "accepted_generation": "accepted",
    "epoch": "epoch",
    "finalized_generation": "finalized",
    "up_to_generation": "up_to",
    "length": "length",
    "weak": "weak",
}
