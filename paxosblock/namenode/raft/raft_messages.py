"""Messages between members, as structs: a frozen value each, told apart on the wire by a number.

The names of raftos' four messages and of their fields are raftos' own, because its roles read them;
the others are added. A message that does not fit its struct is refused before any role sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, ClassVar, Generic, Protocol, TypeVar

import msgspec

from paxosblock.base.checksum import Buffer
from paxosblock.base.encoding import msgpack_decoder
from paxosblock.errors import ProtocolError
from paxosblock.namenode.raft.entry import Entry

Number = Annotated[int, msgspec.Meta(ge=0)]


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part that all messages have: the term of the sender."""

    type: ClassVar[str]
    """The name by which raftos' roles tell messages apart."""

    term: Number


class RequestVote(Message, frozen=True, tag=0, gc=False):
    """A candidate asks for a vote."""

    type: ClassVar[str] = "request_vote"

    candidate_id: str
    last_log_index: Number
    last_log_term: Number


class RequestVoteResponse(Message, frozen=True, tag=1, gc=False):
    """The answer to `RequestVote`."""

    type: ClassVar[str] = "request_vote_response"

    vote_granted: bool


class AppendEntries(Message, frozen=True, tag=2, gc=False):
    """A leader sends entries, or shows that it lives."""

    type: ClassVar[str] = "append_entries"

    leader_id: str
    prev_log_index: Number
    prev_log_term: Number
    commit_index: Number
    entries: list[Entry]
    request_id: Number
    sequence: Number


class AppendEntriesResponse(Message, frozen=True, tag=3, gc=False):
    """The answer to `AppendEntries`.

    `last_log_index` is the last entry that is known to be the leader's and durable here; in a
    refusal, `hint` says where the leader should go on. `full`: this member's disk is. `damaged`:
    its table is, and stood after that entry.
    """

    type: ClassVar[str] = "append_entries_response"

    success: bool
    request_id: Number
    sequence: Number
    last_log_index: Number = 0
    hint: Number = 0
    full: bool = False
    damaged: Number | None = None


class PreVote(Message, frozen=True, tag=4, gc=False):
    """A follower asks whether an election has a chance; `full`: its disk is. `list_index` is the
    entry of the list that it goes by."""

    type: ClassVar[str] = "pre_vote"

    round: Number
    last_log_index: Number
    last_log_term: Number
    full: bool = False
    list_index: Number = 0


class PreVoteResponse(Message, frozen=True, tag=5, gc=False):
    """The answer to `PreVote`."""

    type: ClassVar[str] = "pre_vote_response"

    round: Number
    vote_granted: bool


class InstallSnapshot(Message, frozen=True, tag=6, gc=False):
    """A leader sends a piece of its table, as that was after entry `index` or a later one."""

    type: ClassVar[str] = "install_snapshot"

    leader_id: str
    number: Number
    index: Number
    size: Number
    offset: Number
    data: bytes


class InstallSnapshotResponse(Message, frozen=True, tag=7, gc=False):
    """The answer to `InstallSnapshot`: how many bytes are `stored`, or, when all are, the last
    entry that is durable (`match`)."""

    type: ClassVar[str] = "install_snapshot_response"

    number: Number
    stored: Number = 0
    match: Number | None = None


class TimeoutNow(Message, frozen=True, tag=8, gc=False):
    """A leader hands over."""

    type: ClassVar[str] = "timeout_now"


class Confirm(Message, frozen=True, tag=9, gc=False):
    """A leader asks whether a member is still in its term."""

    type: ClassVar[str] = "confirm"

    number: Number


class ConfirmResponse(Message, frozen=True, tag=10, gc=False):
    """The answer to `Confirm`."""

    type: ClassVar[str] = "confirm_response"

    number: Number


class ReadIndex(Message, frozen=True, tag=11, gc=False):
    """A follower asks after which entry it may look."""

    type: ClassVar[str] = "read_index"

    number: Number


class ReadIndexResponse(Message, frozen=True, tag=12, gc=False):
    """The answer to `ReadIndex`; without an `index` from a member that does not lead."""

    type: ClassVar[str] = "read_index_response"

    number: Number
    index: Number | None = None
    index_term: Number = 0


class Outdated(Message, frozen=True, tag=13, gc=False):
    """A message of an older term was refused; this member is in `term`."""

    type: ClassVar[str] = "outdated"


class Removed(Message, frozen=True, tag=14, gc=False):
    """The member that asked for a pre-vote is not in the list of entry `list_index`, which is
    committed, and later than its own."""

    type: ClassVar[str] = "removed"

    list_index: Number


AnyMessage = (
    RequestVote
    | RequestVoteResponse
    | AppendEntries
    | AppendEntriesResponse
    | PreVote
    | PreVoteResponse
    | InstallSnapshot
    | InstallSnapshotResponse
    | TimeoutNow
    | Confirm
    | ConfirmResponse
    | ReadIndex
    | ReadIndexResponse
    | Outdated
    | Removed
)

M_co = TypeVar("M_co", bound=Message, covariant=True)


@dataclass(frozen=True, slots=True)
class Received(Generic[M_co]):
    """A message that came, and the member that sent it."""

    sender: str
    message: M_co

    def __getitem__(self, name: str) -> object:
        """Return a field, for raftos' roles: they read messages as if they were dicts."""
        return self.sender if name == "sender" else getattr(self.message, name)

    def get(self, name: str) -> object:
        """Return a field, for raftos' roles."""
        return self[name]


@dataclass(frozen=True, slots=True)
class Send:
    """A message that a role lets go to `peer`, and its place in the order of things: it leaves once
    all entries up to `after` are durable here, and only if this member is still in its term."""

    peer: str
    message: Message
    after: int = 0


Deliver = Callable[[str, Message], None]
"""Called in the event loop with the address of the member that sent the message."""


class Transport(Protocol):
    """Messages between members: they may be lost, repeated or late, never forged."""

    def start(self, deliver: Deliver) -> None:
        """Begin to deliver the messages of the other members."""

    def know(self, members: Collection[str]) -> None:
        """Be connected to the members of these names, this one left out, and to no others that do
        not ask for it."""

    def send(self, peer: str, message: Message) -> None:
        """Send without waiting. A message that cannot be sent is lost; the engine repeats it."""

    async def close(self) -> None:
        """Deliver nothing more, and close the connections."""


_DECODER: msgspec.msgpack.Decoder[AnyMessage] = msgpack_decoder(AnyMessage)  # type: ignore[arg-type]  # a union is no type to mypy
_ENCODER = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """Return the message as bytes."""
    return _ENCODER.encode(message)


def decode(data: Buffer) -> Message:
    """Read a message that a peer sent.

    Raises:
        ProtocolError: the type is unknown, or a field is missing, wrong or below 0.
    """
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"not a message between NameNodes of this version: {error}") from error
