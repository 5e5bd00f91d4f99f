"""The replicated state machine: the map of `kv.state`, and the requests already applied.

A client that lost the answer to a request asks again with the same `RequestId`. The machine
remembers each client's latest request and its result, so the second one changes nothing and gets
the first one's answer, on whichever member. All of it is part of the snapshot.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec

from paxosblock.namenode.kv.codec import decode_transaction
from paxosblock.namenode.kv.interface import Committed, Conflict, Transaction
from paxosblock.namenode.kv.state import NOTHING, Snapshot, StateMachine
from paxosblock.namenode.raft.entry import Entry, EntryKind

CLIENTS_MAX = 10_000
"""So many clients' latest requests are remembered; the one that was quiet longest goes first."""

CLIENT_BYTES_MAX = 255

_REQUEST = struct.Struct(">BQ")
_NOTHING = Transaction()


@dataclass(frozen=True, slots=True)
class RequestId:
    """A request that must be applied once however often it is asked.

    `client` is up to 255 bytes that nobody else uses; `sequence` grows with each request of that
    client, which has one request under way at a time.
    """

    client: bytes
    sequence: int


@dataclass(frozen=True, slots=True)
class Superseded:
    """Nothing was changed: the same client has made request `latest` since."""

    latest: int


class Remembered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A client's latest request: committed as entry `index`, or not because of `conflict`."""

    client: bytes
    sequence: int
    index: int
    conflict: tuple[bytes, int, int] | None

    @property
    def result(self) -> Committed | Conflict:
        return Committed(self.index) if self.conflict is None else Conflict(*self.conflict)


@dataclass(frozen=True, slots=True)
class MachineSnapshot:
    """Map and remembered requests after entry `index` of `term`."""

    term: int
    requests: list[Remembered]
    state: Snapshot

    @property
    def index(self) -> int:
        return self.state.revision


EMPTY = MachineSnapshot(0, [], NOTHING)


def encode_request(request: RequestId, transaction: bytes) -> bytes:
    """Return the payload of an entry of kind ONCE."""
    head = _REQUEST.pack(len(request.client), request.sequence)
    return b"".join((head, request.client, transaction))


def _decode_request(payload: bytes) -> tuple[RequestId, memoryview]:
    length, sequence = _REQUEST.unpack_from(payload)
    begin = _REQUEST.size + length
    return RequestId(payload[_REQUEST.size : begin], sequence), memoryview(payload)[begin:]


class ReplicatedMachine(StateMachine):
    """The map of one member. It stays the same object, so a `View` of it never goes stale."""

    def __init__(self, snapshot: MachineSnapshot = EMPTY) -> None:
        """Start empty, or from a `snapshot`."""
        super().__init__(snapshot.state)
        self._requests = {each.client: each for each in snapshot.requests}

    def apply_entry(self, index: int, entry: Entry) -> Committed | Conflict | Superseded:
        """Apply the entry at `index`, the one after those applied before."""
        assert index == self.revision + 1, "the log is applied without gaps"
        match entry.kind:
            case EntryKind.NOOP:
                return self.apply(index, _NOTHING)
            case EntryKind.TRANSACTION:
                return self.apply(index, decode_transaction(entry.payload))
            case EntryKind.ONCE:
                return self._apply_once(index, *_decode_request(entry.payload))

    def snapshot_after(self, term: int) -> MachineSnapshot:
        """Return the machine as it is now; `term` is that of the entry applied last."""
        return MachineSnapshot(term, list(self._requests.values()), self.snapshot())

    def adopt(self, other: ReplicatedMachine) -> None:
        """Change places with `other`, the later state."""
        assert other.revision > self.revision, "a member never goes back"
        self._revision, other._revision = other._revision, self._revision
        self._items, other._items = other._items, self._items
        self._requests, other._requests = other._requests, self._requests

    def _apply_once(
        self, index: int, request: RequestId, transaction: memoryview
    ) -> Committed | Conflict | Superseded:
        before = self._requests.get(request.client)
        if before is not None and request.sequence <= before.sequence:
            self.apply(index, _NOTHING)
            same = request.sequence == before.sequence
            return before.result if same else Superseded(before.sequence)
        result = self.apply(index, decode_transaction(transaction))
        self._remember(request, index, result)
        return result

    def _remember(self, request: RequestId, index: int, result: Committed | Conflict) -> None:
        conflict = None
        if isinstance(result, Conflict):
            conflict = (result.key, result.expected, result.found)
        self._requests.pop(request.client, None)  # the latest is last, on every member
        self._requests[request.client] = Remembered(
            request.client, request.sequence, index, conflict
        )
        if len(self._requests) > CLIENTS_MAX:
            del self._requests[next(iter(self._requests))]
