"""The NameNode's interface to its key-value store.

The store is a log of edits and the map that comes out when they are applied in order. An edit names
what it expects to find, and that is checked when its log entry is *applied*, never from memory when
it is submitted (PROTOCOL.md 3, K). So a compare-and-set holds even if the member that submitted it
has been deposed meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

import msgspec

from paxosblock.base.units import MIB
from paxosblock.errors import PaxosBlockError, StorageError

ABSENT_REVISION = 0
"""The revision of a key that is not there. Log entries count from 1."""

COUNTERS = b"U"
"""The byte that keys of counters begin with: only `Edit.counts` writes them."""

EDIT_BYTES_MAX = 8 * MIB
"""Longest encoded edit, in bytes; `commit` refuses a longer one."""


class Versioned(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value and the index of the log entry that last wrote it (0: the key is absent)."""

    value: bytes
    revision: int

    @property
    def exists(self) -> bool:
        return self.revision != ABSENT_REVISION


ABSENT = Versioned(b"", ABSENT_REVISION)

Item = tuple[bytes, Versioned]


class Expect(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=0):
    """Precondition: `key` was last written by entry `revision`; 0: `key` is absent."""

    key: bytes
    revision: int


class ExpectEmpty(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Precondition: no key lies in [start, end), for instance an empty directory.

    An `end` of `b""` means no upper bound, here and in `View.scan`.
    """

    start: bytes
    end: bytes


class BeginCounter(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=0):
    """Let the counter `key` begin at zero."""

    key: bytes


class Count(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Add to the counter `key`: `amount`, and for each of `of`, a counter and a factor, what that
    one was before the edit, so many times. Nothing is added to a counter that is not there.

    If that makes it greater than it was, and greater than `most`, the whole edit conflicts; -1: it
    may have any value. Edits that add to one counter do not conflict otherwise.
    """

    key: bytes
    amount: int
    most: int = -1
    of: tuple[tuple[bytes, int], ...] = ()


class EndCounter(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """Remove the counter `key`; one that is not there is no error."""

    key: bytes


CounterChange = BeginCounter | Count | EndCounter


class Edit(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Changes of keys that happen together, or not at all if one precondition does not hold.

    Preconditions look at the state before the edit. Then `deletes` are removed (an absent key is no
    error) and `puts` written, in this order: a key that is put stays, and of two puts of one key
    the later stays. Every key put gets the index of this edit's log entry as its revision. At last
    come the `counts`, one after the other; each counter is a key of its own.
    """

    expect: tuple[Expect | ExpectEmpty, ...] = ()
    puts: tuple[tuple[bytes, bytes], ...] = ()
    deletes: tuple[bytes, ...] = ()
    counts: tuple[CounterChange, ...] = ()


class Committed(msgspec.Struct, frozen=True, gc=False):
    """The edit took effect as log entry `revision`, which no other edit has."""

    revision: int


class Conflict(msgspec.Struct, frozen=True, gc=False):
    """Nothing was changed: `key` has revision `found` where the edit expected `expected`.

    This is about the first precondition that does not hold. For `ExpectEmpty`, `key` is the first
    key in the range and `expected` is 0; for a counter that would be more than it may, `expected`
    is its revision, too.
    """

    key: bytes
    expected: int
    found: int


def prefix_range(prefix: bytes) -> tuple[bytes, bytes]:
    """Return `(start, end)` of the range of all keys that begin with `prefix`."""
    stem = prefix.rstrip(b"\xff")
    return prefix, stem[:-1] + bytes((stem[-1] + 1,)) if stem else b""


_COUNTED = struct.Struct(">q")


def pack_counter(total: int) -> bytes:
    """Encode the value of a counter."""
    return _COUNTED.pack(total)


def counter_total(found: Versioned) -> int:
    """Return what a counter that was just read has counted; 0 if it is not there."""
    return _COUNTED.unpack(found.value)[0] if found.exists else 0


class Values(Protocol):
    """The values of the map as they were after the entry `revision`, whatever is applied later;
    they may be read between awaits. What they show takes room until they are released.
    """

    @property
    def revision(self) -> int:
        """Return the index of the last log entry that they show."""

    def get(self, key: bytes) -> Versioned:
        """Return as `View.get`.

        Raises:
            UnavailableError: they were released, or the store was closed.
        """

    def release(self) -> None:
        """Give back the room. It may be called twice."""


class Moment(Values, Protocol):
    """The map as it was at one moment, with its ranges: it takes more room than its values."""

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        """Yield as `View.scan`. Raises as `get`."""


class Recent(Protocol):
    """The entries that were applied last, and values of the map before them."""

    @property
    def oldest(self) -> int:
        """Return the entry after which all are here."""

    @property
    def latest(self) -> int:
        """Return the last entry that was applied."""

    def before(self, index: int) -> Values:
        """Return the values after the last entry up to `index` for which they are here; `index` is
        at least `oldest`."""

    def payload(self, index: int) -> bytes:
        """Return the payload of an entry that is here, as the codec encodes an edit; b"" if it
        changed nothing."""

    def values(self) -> Values:
        """Return the values as they are now."""


class View(Protocol):
    """The applied state, to be read *without awaiting* between obtaining and using it.

    A view is a window, not a snapshot: after an `await` it shows what was applied meanwhile, and
    an iterator of `scan` taken before the `await` is invalid.
    """

    @property
    def revision(self) -> int:
        """Return the index of the last log entry applied."""

    @property
    def has_counters(self) -> bool:
        """True if there is a counter; False is certain."""

    def get(self, key: bytes) -> Versioned:
        """Return the value and revision of `key`; `ABSENT` when it is not there."""

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        """Yield the keys in [start, end) with their values, in byte order or from the end.

        `end` of `b""`: no upper bound. At most `limit` keys when it is given.
        """

    def count(self, first: bytes) -> int:
        """Return how many keys begin with the byte `first`, without visiting them."""

    def read_some(self, start: bytes, keys: int) -> bytes | None:
        """Read this many keys from `start` on, so that damage is found; cache nothing of them.

        Returns:
            The key to go on from; None after the last one.
        """

    def moment(self) -> Moment:
        """Keep the state of this moment; it costs no more for a large map.

        Raises:
            UnavailableError: the store is not open.
        """


class KeyValueStore(Protocol):
    """A store that keeps what it has acknowledged. All methods belong to one event loop."""

    async def start(self) -> None:
        """Open the store and make what it held before visible.

        Raises:
            ConfigError: the folder is in use by another process.
            CorruptionError: a file is damaged where it had been durable.
            StorageError: the operating system refuses to read or write the folder.
        """

    async def close(self) -> None:
        """Finish what was submitted, then release the folder. May be called twice."""

    async def commit(self, edit: Edit) -> Committed | Conflict:
        """Put the edit in the log; return once it is durable and applied.

        Cancelling the caller does not take the edit back.

        Raises:
            InvalidRequestError: longer than `EDIT_BYTES_MAX`; nothing was done.
            NoSpaceError: the disk is full, and no other member can lead; nothing was done.
            OutcomeUnknownError: the edit was under way when the store failed, or the leader
                changed; read through `barrier` of a working store to learn whether it happened.
            StorageError: the store has failed before; nothing was done.
            UnavailableError: this member does not lead; nothing was done.
        """

    async def barrier(self) -> View:
        """Return a linearizable view: it shows all that was committed before the call, anywhere.

        Raises:
            StorageError: the store has failed.
            UnavailableError: this member does not lead, or cannot reach a majority.
        """

    async def read_barrier(self) -> View:
        """Return a linearizable view as `barrier`, also from a member that follows.

        Raises:
            StorageError: the store has failed.
            UnavailableError: no leader is known, or it does not answer, or this member is behind.
        """

    def view(self) -> View:
        """Return this member's applied state, which may lag; for loops that check again later."""

    @property
    def recent(self) -> Recent:
        """Return the entries that were applied here last.

        Raises:
            StorageError: the store has failed.
            UnavailableError: it is not open, or its map is damaged.
        """

    async def wait_entry(self, index: int) -> None:
        """Return once this entry is applied here.

        Raises:
            StorageError: the store has failed before.
            UnavailableError: it was closed, or has failed; or its map is damaged.
        """

    def is_leader(self) -> bool:
        """True if this member believes that it leads; only an entry's outcome is proof."""

    def leader(self) -> str | None:
        """Return the address of the member believed to lead; None if no leader is known."""

    async def wait_leadership(self) -> None:
        """Return once this member leads and has applied everything committed before its term."""

    async def wait_deposed(self) -> None:
        """Return once this member no longer leads the term that it leads now.

        It may lead a later term by then. Returns at once if it does not lead.

        Raises:
            UnavailableError: the store was closed, or has failed.
        """

    def failure(self) -> StorageError | None:
        """Return why the store stopped working, None while it works; only a restart mends it."""

    def impaired(self) -> PaxosBlockError | None:
        """Return what this member cannot do for now: its disk is full, or its map is damaged. None
        while it is well, and after a `failure`."""

    async def wait_failure(self) -> StorageError:
        """Return why the store stopped working, once it does."""
