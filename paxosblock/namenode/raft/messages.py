"""Messages between members: one table of message types and their fields.

The names of raftos' four messages and of their fields are raftos' own, because its roles read
them; `pre_vote`, `install_snapshot`, `timeout_now`, `confirm` and `read_index` are added. In a
process a message is a dict, as raftos expects; what a role receives has the type of its row. On the
wire it is a byte for the type and msgpack, and a message that does not fit the table is refused
before any role sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NotRequired, Protocol, TypedDict

import msgspec

from paxosblock.base.decoders import msgpack_decoder
from paxosblock.errors import ProtocolError
from paxosblock.namenode.raft.entry import Entry

Message = dict[str, Any]
"""A message with its `type`, on its way between a role and the transport."""

Deliver = Callable[[str, Message], None]
"""Called in the event loop with the address of the member that sent the message."""


class Transport(Protocol):
    """Messages between members: they may be lost, repeated or late, never forged."""

    def start(self, deliver: Deliver) -> None:
        """Begin to deliver the messages of the other members."""

    def send(self, peer: str, message: Message) -> None:
        """Send without waiting. A message that cannot be sent is lost; the engine repeats it."""

    async def close(self) -> None:
        """Deliver nothing more, and close the connections."""


class _RequestVote(TypedDict):
    term: int
    candidate_id: str
    last_log_index: int
    last_log_term: int


class _RequestVoteResponse(TypedDict):
    term: int
    vote_granted: NotRequired[bool]
    success: NotRequired[bool]


class _PreVoteResponse(TypedDict):
    term: int
    round: int
    vote_granted: bool


class _PreVote(TypedDict):
    term: int
    round: int
    last_log_index: int
    last_log_term: int
    full: NotRequired[bool]


class _AppendEntries(TypedDict):
    term: int
    leader_id: str
    prev_log_index: int
    prev_log_term: int
    commit_index: int
    entries: list[Entry]
    request_id: int
    sequence: int


class _AppendEntriesResponse(TypedDict):
    term: int
    success: bool
    request_id: NotRequired[int]
    sequence: NotRequired[int]
    last_log_index: NotRequired[int]
    hint: NotRequired[int]
    full: NotRequired[bool]
    damaged: NotRequired[int]


class _InstallSnapshot(TypedDict):
    term: int
    leader_id: str
    number: int
    index: int
    size: int
    offset: int
    data: bytes
    request_id: int


class _InstallSnapshotResponse(TypedDict):
    term: int
    success: NotRequired[bool]
    number: NotRequired[int]
    offset: NotRequired[int]
    match: NotRequired[int]
    request_id: NotRequired[int]


class _TimeoutNow(TypedDict):
    term: int


class _Confirm(TypedDict):
    term: int
    number: int


class _ConfirmResponse(TypedDict):
    term: int
    success: NotRequired[bool]
    number: NotRequired[int]


class _ReadIndex(TypedDict):
    term: int
    number: int


class _ReadIndexResponse(TypedDict):
    term: int
    success: NotRequired[bool]
    number: NotRequired[int]
    index: NotRequired[int]
    index_term: NotRequired[int]


class Received(TypedDict):
    """The fields that the receiving end adds: `sender` is a member's host and port."""

    type: str
    sender: tuple[str, int]


class RequestVote(_RequestVote, Received):
    """A candidate asks for a vote."""


class RequestVoteResponse(_RequestVoteResponse, Received):
    """A vote, or raftos' refusal of an old term, as all responses without more than that."""


class PreVote(_PreVote, Received):
    """A follower asks whether an election has a chance."""


class PreVoteResponse(_PreVoteResponse, Received):
    """The answer to `PreVote`."""


class AppendEntries(_AppendEntries, Received):
    """A leader sends entries, or shows that it lives."""


class AppendEntriesResponse(_AppendEntriesResponse, Received):
    """The answer to `AppendEntries`; `hint` says where a leader that was refused should go on, and
    `damaged` that this member's table is, after which entry it stood."""


class InstallSnapshot(_InstallSnapshot, Received):
    """A leader sends a piece of its table."""


class InstallSnapshotResponse(_InstallSnapshotResponse, Received):
    """The answer to `InstallSnapshot`: the next `offset`, or the last entry that is durable."""


class TimeoutNow(_TimeoutNow, Received):
    """A leader hands over."""


class Confirm(_Confirm, Received):
    """A leader asks whether a member is still in its term."""


class ConfirmResponse(_ConfirmResponse, Received):
    """The answer to `Confirm`."""


class ReadIndex(_ReadIndex, Received):
    """A follower asks after which entry it may look."""


class ReadIndexResponse(_ReadIndexResponse, Received):
    """The answer to `ReadIndex`; without an `index` from a member that does not lead."""


FIELDS: Mapping[str, Any] = {
    "request_vote": _RequestVote,
    "request_vote_response": _RequestVoteResponse,
    "append_entries": _AppendEntries,
    "append_entries_response": _AppendEntriesResponse,
    "pre_vote": _PreVote,
    "pre_vote_response": _PreVoteResponse,
    "install_snapshot": _InstallSnapshot,
    "install_snapshot_response": _InstallSnapshotResponse,
    "timeout_now": _TimeoutNow,
    "confirm": _Confirm,
    "confirm_response": _ConfirmResponse,
    "read_index": _ReadIndex,
    "read_index_response": _ReadIndexResponse,
}

_TYPES = tuple(FIELDS)
_CODES = {name: bytes((code,)) for code, name in enumerate(_TYPES)}
_DECODERS: list[msgspec.msgpack.Decoder[Message]] = [
    msgpack_decoder(FIELDS[name]) for name in _TYPES
]
_ENCODER = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """Return the message as bytes."""
    body = {name: value for name, value in message.items() if name != "type"}
    return _CODES[message["type"]] + _ENCODER.encode(body)


def decode(data: bytes | memoryview) -> Message:
    """Read a message that a peer sent.

    Raises:
        ProtocolError: the type is unknown, or a field is missing or has a wrong type.
    """
    if not data or data[0] >= len(_TYPES):
        raise ProtocolError("not a message between NameNodes of this version")
    try:
        message: Message = _DECODERS[data[0]].decode(data[1:])
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"not a message between NameNodes: {error}") from error
    _check_numbers(message)
    message["type"] = _TYPES[data[0]]
    return message


def _check_numbers(message: Message) -> None:
    for name, value in message.items():
        if isinstance(value, int) and value < 0:
            raise ProtocolError(f"not a message between NameNodes: {name} is {value}")
