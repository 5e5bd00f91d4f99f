"""The acceptor's messages: the envelopes they travel in (`Ask`, `Told`), and how logs tell them."""

from __future__ import annotations

import enum
from typing import Final

from paxosblock.api.datanode import Ask
from paxosblock.errors import InvalidRequestError
from paxosblock.protocol.messages import (
    Create,
    Delete,
    Finalize,
    NextGS,
    Read,
    RecoveryWrite,
    Reply,
)
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import FIRST_GENERATION, NO_GENERATION, Generation

Control = Create | NextGS | RecoveryWrite | Finalize | Delete
"""What an `Ask` may bring that changes a replica."""


def request_of(ask: Ask) -> Control | Read:
    """The one message in the envelope; InvalidRequestError when there is not exactly one."""
    messages = [
        message
        for message in (
            ask.create,
            ask.next_gs,
            ask.recovery_write,
            ask.finalize,
            ask.read,
            ask.delete,
        )
        if message is not None
    ]
    if len(messages) != 1:
        raise InvalidRequestError(f"a request has one message, not {len(messages)}")
    return messages[0]


def generation_of(request: Control | Read) -> Generation:
    """The generation a refusal of `request` names."""
    match request:
        case NextGS() | RecoveryWrite():
            return request.generation
        case Finalize():
            return request.finalized_generation
        case Delete():
            return request.up_to_generation
        case Create():
            return FIRST_GENERATION
        case Read():
            return NO_GENERATION


def brief(subject: Control | Reply | Replica | None) -> str:
    """A message or replica as a log tells it: its name and the numbers that matter."""
    if subject is None:
        return "nothing"
    numbers = [
        f"{word}={_shown(getattr(subject, name))}"
        for name, word in _TOLD_OF.items()
        if hasattr(subject, name)
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
