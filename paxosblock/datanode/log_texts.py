"""The acceptor's messages and replicas as logs tell them."""

from __future__ import annotations

import enum
from typing import Final

from paxosblock.api.datanode import Control
from paxosblock.protocol.messages import Reply
from paxosblock.protocol.register import Replica


def log_texts(**subjects: Control | Reply | Replica | None) -> dict[str, str]:
    """Return each message or replica as a log tells it: its name and the numbers that matter."""
    return {key: _text(subject) for key, subject in subjects.items()}


def _text(subject: Control | Reply | Replica | None) -> str:
    if subject is None:
        return "nothing"
    places = (subject, getattr(subject, "registers", None))
    numbers = [
        f"{word}={_shown(getattr(place, name))}"
        for name, word in _TOLD_OF.items()
        for place in places
        if hasattr(place, name)
    ]
    return " ".join([type(subject).__name__, *numbers])


_TOLD_OF: Final = {
    "state": "state",
    "reason": "reason",
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


def _shown(value: object) -> object:
    return value.value if isinstance(value, enum.Enum) else value
