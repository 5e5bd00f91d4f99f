"""Between the acceptor's messages and the envelopes they travel in (`Ask`, `Told`)."""

from __future__ import annotations

from typing import assert_never

from paxosblock.datanode_api import Ask, Told
from paxosblock.errors import InvalidRequestError
from paxosblock.protocol.messages import (
    Create,
    Created,
    Delete,
    Deleted,
    Finalize,
    Finalized,
    LastVote,
    Nack,
    NextGS,
    Read,
    ReadReply,
    RecoveryVote,
    RecoveryWrite,
    Reply,
    Short,
    Vote,
)
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


def told(reply: Reply) -> Told:
    """The envelope for `reply`."""
    match reply:
        case Created():
            return Told(created=reply)
        case LastVote():
            return Told(last_vote=reply)
        case RecoveryVote():
            return Told(recovery_vote=reply)
        case Finalized():
            return Told(finalized=reply)
        case Short():
            return Told(short=reply)
        case ReadReply():
            return Told(read_reply=reply)
        case Deleted():
            return Told(deleted=reply)
        case Nack():
            return Told(nack=reply)
        case Vote():
            raise AssertionError("a vote travels as a frame")
        case _ as never:
            assert_never(never)


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
