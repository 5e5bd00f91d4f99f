"""The table of the product: a RocksDB database, so that memory does not bound it.

    key      value
    b""      Meta, in msgpack: the entry that the map is after, and the number of keys
    k        revision u64 big-endian, value

It is in the folder `db`, or, if another member sent it, in `db-<the entry that it was after>`; the
last of these counts.

RocksDB's own log is off, because the journal serves as one. One entry, or several, are one batch,
which also changes `Meta`. So whatever part of the table has reached the disk, by our flush or by
one of RocksDB's own, is the map after some entry, and names that entry.

All calls of the binding hold the interpreter but `flush`, which may take as long as the disk does.
"""

from __future__ import annotations

import logging
import signal
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Final
from weakref import WeakSet

import msgspec
from rocksdict import (
    AccessType,
    Rdict,
    RdictIter,
    ReadOptions,
    Snapshot,
    WriteBatch,
    WriteOptions,
)

from paxosblock.base.checksum import Buffer
from paxosblock.base.encoding import msgpack_decoder
from paxosblock.base.formats import FROM_A_COPY, refuse_later
from paxosblock.base.units import KIB
from paxosblock.errors import (
    ConfigError,
    CorruptionError,
    NoSpaceError,
    PaxosBlockError,
    StorageError,
    UnavailableError,
)
from paxosblock.host.disk import Disk
from paxosblock.namenode.kv.empty_ranges import EmptyRanges
from paxosblock.namenode.kv.files import numbered, numbers
from paxosblock.namenode.kv.interface import ABSENT, Item, Versioned
from paxosblock.namenode.kv.journal import check_formats
from paxosblock.namenode.kv.rocks_files import (
    FileCheckpoint,
    FileReceiver,
    copy_files,
    remove_database,
)
from paxosblock.namenode.kv.rocks_options import database_options, translated
from paxosblock.namenode.kv.table import (
    SLICE_KEYS,
    Changes,
    CheckpointCopy,
    Flush,
    OnDamage,
    Tables,
    as_it_is,
)

NAME: Final = "db"
_DRAFT: Final = "db.new"
_SENT: Final = "db.sent-"
_COPIES: Final = count()
_META: Final = b""
_FORMAT: Final = 1
_REVISION = struct.Struct(">Q")
_FIRST_KEY: Final = b"\0"
_NO_KEY: Final = "key not found"
"""The text of the error with which a snapshot of the binding says that a key is not there."""

_CHECK: Final = "paxosblock.namenode.kv.rocks_check"
"""The program that reads all of a database; it imports this module, so this starts it by name."""
_KINDS: Final = {
    kind.__name__: kind for kind in (ConfigError, CorruptionError, NoSpaceError, StorageError)
}

CACHED_KEYS: Final = 32_768
"""Keys in each half of the cache of values."""

CACHED_VALUE_BYTES: Final = KIB
"""Longer values are not cached, so that the cache takes some 20 MiB, and at most 80."""

_log = logging.getLogger(__name__)


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """The record in each batch: the map is after entry `revision` of `term`, and `keys` counts its
    keys by their first byte."""

    format: int = 1
    revision: int = 0
    keys: dict[int, int] = {}
    term: int = 0


_ENCODER = msgspec.msgpack.Encoder()
_META_DECODER = msgpack_decoder(Meta)


class ValueCache(dict[bytes, Versioned]):
    """Values by their keys; one that is not here is found where the table has it.

    It is a dictionary, whose `__getitem__` costs no call of Python for a key that is here: a small
    change looks at ten keys. What is read of an earlier half by the time that this one is full
    stays; the rest of that half goes.
    """

    def __init__(self, find: Callable[[bytes], Versioned]) -> None:
        """`find` returns the value of a key that is not here; `ABSENT` if there is none."""
        self._find = find
        self.earlier: dict[bytes, Versioned] = {}

    def __missing__(self, key: bytes) -> Versioned:
        """Find a value, and keep it."""
        found = self.earlier.get(key)
        if found is None:
            found = self._find(key)
        if len(self) >= CACHED_KEYS:
            self.earlier = self.copy()
            self.clear()
        if len(found.value) <= CACHED_VALUE_BYTES:
            self[key] = found
        return found

    def forget(self, keys: Iterable[bytes]) -> None:
        """Keep the values of these keys no longer, as they are others now."""
        for cached in (self, self.earlier):
            for key in keys & cached.keys():
                del cached[key]


class RocksTable:
    """A table in the folder of a RocksDB database."""

    def __init__(
        self, disk: Disk, path: Path, *, new: bool = False, read_only: bool = False
    ) -> None:
        """Open the database at `path`, or make a `new` one there; `open_rocks` calls this.

        A `read_only` one takes no changes, and its files stay as they are.
        """
        self._disk = disk
        self._path = path
        self._read_only = read_only
        self.on_damage: OnDamage = as_it_is
        access = AccessType.read_only(False) if read_only else AccessType.read_write()
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True  # type: ignore[assignment, method-assign]  # its stubs err
        options = database_options(new)
        # Else the options would be those in the file that the last open left, its cache a default.
        families = {"default": options}
        try:
            self._db = Rdict(str(path), options, column_families=families, access_type=access)
        except Exception as error:
            raise translated(path, error) from error
        try:
            stored = self._stored(_META)
            meta = Meta() if stored is None else _decode_meta(path, stored)
        except BaseException:
            self._db.close()
            raise
        self.revision, self.term = self._settled = meta.revision, meta.term
        self._keys = Counter(meta.keys)
        self._pending: Changes = {}
        """Changes of the entries since the last batch, which go into the next one."""
        self._miscounted = False
        """A change met damage in the middle, so `_keys` may not be what the entries have made."""
        self._gaps = EmptyRanges()
        self._kept: WeakSet[RocksValues] = WeakSet()
        self._values = ValueCache(self._find)
        self.get = self._values.__getitem__

    def __len__(self) -> int:
        return self._keys.total()

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[Item]:
        start = max(start, _FIRST_KEY)
        if (end and end <= start) or self._gaps.is_empty(start, end):
            return
        self._settle()
        options = ReadOptions()  # no lower bound: the binding would set it as an upper one
        if end:
            options.set_iterate_upper_bound(end)
        try:
            found = self._db.iter(options)
            if reverse:
                self._learn_last(start[0])
                found.seek_to_last()
                step = found.prev
                if not found.valid():
                    found.status()
                if not found.valid() or found.key() < start:
                    self._gaps.note_empty(start, end)
            else:
                found.seek(self._gaps.behind(start))
                step = found.next
                if not found.valid():
                    found.status()  # a damaged block ends the scan, too, and is no gap
                    self._gaps.note_empty(start, end)
                self._gaps.note(start, found.key() if found.valid() else end)
            while found.valid():
                key: bytes = found.key()
                if reverse and key < start:
                    return
                yield key, _decode(found.value())
                step()
            found.status()
        except Exception as error:
            raise self._told(error) from error

    def read_some(self, start: bytes, keys: int) -> bytes | None:
        options = ReadOptions()
        options.fill_cache(False)  # type: ignore[call-arg]  # its stubs err
        try:
            found = self._db.iter(options)
            found.seek(max(start, _FIRST_KEY))
            for _ in range(keys):
                if not found.valid():
                    break
                found.value()
                found.next()
            if found.valid():
                behind: bytes = found.key()
                return behind
            found.status()
        except Exception as error:
            raise self._told(error) from error
        return None

    def moment(self) -> RocksMoment:
        self._settle()
        moment = RocksMoment(self._db, self.revision, self._told)
        self._kept.add(moment)
        return moment

    def values(self) -> RocksValues:
        self._settle()
        values = RocksValues(self._db, self.revision, self._told)
        self._kept.add(values)
        return values

    def _learn_last(self, byte: int) -> None:
        """Find out the last key that begins with this byte, unless that is known. New keys of this
        byte must not be pending."""
        if byte == 255 or byte in self._gaps.last:
            return
        options = ReadOptions()
        options.set_iterate_upper_bound(bytes((byte + 1,)))
        with suppress(Exception):  # the call that needs the keys there says what is wrong
            found = self._db.iter(options)
            found.seek_to_last()
            if not found.valid():
                found.status()  # as in `scan`
            self._gaps.last[byte] = found.key() if found.valid() else b""

    def count(self, first: bytes) -> int:
        return self._keys[ord(first)]

    def write(self, index: int, changes: Changes, term: int = 0) -> None:
        assert index >= self.revision, "a table never goes back"
        keys, values, gaps = self._keys, self._values, self._gaps
        try:
            for key, found in changes.items():
                before = values[key]
                if found.revision and not before.revision:
                    if key[0] not in gaps.last:
                        self._learn_last(key[0])
                    keys[key[0]] += 1
                    gaps.fill(key)
                elif before.revision and not found.revision:
                    keys[key[0]] -= 1
                if len(found.value) <= CACHED_VALUE_BYTES:
                    values[key] = found
                else:
                    values.forget({key})
        except PaxosBlockError:
            self._miscounted = True
            raise
        self._pending |= changes
        self.revision, self.term = index, term
        if len(self._pending) >= SLICE_KEYS:
            self._settle()

    def write_in_slices(self, index: int, changes: Changes, term: int = 0) -> Iterator[None]:
        self._settle()
        before, keys, batch = self.revision, self._keys.copy(), WriteBatch(raw_mode=True)
        greatest: dict[int, bytes] = {}
        for number, key in enumerate(sorted(changes), 1):  # as in `_settle`
            found = changes[key]
            keys[key[0]] += found.exists - self.get(key).exists
            _add(batch, key, found)
            if found.exists:
                greatest[key[0]] = key
            if number % SLICE_KEYS == 0:
                yield
        assert self.revision == before < index, "entries are applied one after the other"
        self._keys, self.revision, self.term = keys, index, term
        self._write(batch)
        # Dropping them is quicker than remembering each, and all of this is one turn.
        self._values.forget(changes.keys())
        self._gaps.fill_some(greatest.values())

    def flush(self) -> Flush:
        self._settle()
        return Flush(self.revision, self._flush)

    def checkpoint(self) -> CheckpointCopy:
        self._settle()
        return CheckpointCopy(self.revision, self._copy)

    def close(self) -> int:
        for values in self._kept:
            values.release()  # the folder stays locked as long as the database has a snapshot
        # The journal has whatever cannot be flushed.
        steps = (
            (self._db.close,) if self._read_only else (self._settle, self._db.flush, self._db.close)
        )
        durable = self.revision
        for step in steps:
            try:
                step()
            except Exception as error:
                durable = 0
                _log.warning("%s", translated(self._path, error))
        return durable

    def discard(self) -> None:
        self.close()
        remove_database(self._disk, self._path)
        self._disk.sync_folder(self._path.parent)

    def begin(self) -> None:
        """Make the new table durably that before the first entry."""
        self._write(WriteBatch(raw_mode=True))
        self._flush()

    def check(self) -> None:
        """Read everything; blocks for long, and holds the interpreter nearly all the time.

        Raises:
            CorruptionError: the table is damaged, or not whole.
        """
        found = Counter(key[0] for key, _ in self.scan(b"", b""))
        if found != self._keys:
            keys = f"{found.total()} keys of {len(self)}"
            raise CorruptionError(f"{self._path}: damaged: {keys}")

    def _copy(self) -> FileCheckpoint:
        """Flush, and give the files second names in a folder beside this one."""
        self._flush()
        target = self._path.with_name(f"{_SENT}{next(_COPIES)}")
        try:
            copy_files(self._disk, self._path, target)
            return FileCheckpoint(self._disk, target)
        except BaseException:
            remove_database(self._disk, target)
            raise

    def _flush(self) -> None:
        """Write what is in memory to a file, durably."""
        needed = 2 * (self._db.property_int_value("rocksdb.cur-size-all-mem-tables") or 0)
        if self._disk.room(self._path).free_bytes < needed:
            # RocksDB takes no more writes after a failed flush, so none is tried.
            raise NoSpaceError(f"{self._path}: less than {needed} bytes are free for a flush")
        try:
            self._db.flush()
        except Exception as error:
            raise translated(self._path, error) from error

    def _settle(self) -> None:
        """Write the pending changes, so that scans and flushes have them."""
        if self._miscounted:
            raise StorageError(f"{self._path}: a change met damage: nothing more is written here")
        if self._pending or (self.revision, self.term) != self._settled:
            batch = WriteBatch(raw_mode=True)
            for key in sorted(self._pending):  # RocksDB takes half the time then
                _add(batch, key, self._pending[key])
            self._write(batch)
            self._pending.clear()

    def _write(self, batch: WriteBatch) -> None:
        """Write a batch that makes the database the map after entry `revision`."""
        meta = Meta(_FORMAT, self.revision, self._keys, self.term)
        batch.put(_META, _ENCODER.encode(meta))
        try:
            self._db.write(batch, self._unlogged)
        except Exception as error:
            told = self._told(error)  # damage that a compaction met stops all changes
            if isinstance(told, NoSpaceError | CorruptionError):
                # For lack of room, too: the log has the entry, so the table must have it.
                told = StorageError(str(told))
            raise told from error
        self._settled = self.revision, self.term

    def _find(self, key: bytes) -> Versioned:
        """Return the value of a key that is not cached."""
        found = self._pending.get(key)
        if found is not None:
            return found
        stored = None if not key or self._gaps.is_behind(key) else self._stored(key)
        return ABSENT if stored is None else _decode(stored)

    def _stored(self, key: bytes) -> bytes | None:
        try:
            stored: bytes | None = self._db.get(key)
        except Exception as error:
            raise self._told(error) from error
        return stored

    def _told(self, error: Exception) -> PaxosBlockError:
        """Return an error of RocksDB as one of ours; damage becomes what `on_damage` makes of
        it."""
        ours = translated(self._path, error)
        return self.on_damage(ours) if isinstance(ours, CorruptionError) else ours


class RocksValues:
    """The values of the database as they were when this was made; see `Values`.

    They come from a snapshot of RocksDB, which keeps what later batches replace.
    """

    def __init__(self, db: Rdict, revision: int, told: Callable[[Exception], PaxosBlockError]):
        """`told` makes an error of ours of one of RocksDB."""
        self._snapshot: Snapshot | None = db.snapshot()
        self.revision = revision
        self._told = told

    def get(self, key: bytes) -> Versioned:
        if self._snapshot is None:
            raise _given_up()
        try:
            return _decode(self._snapshot[key])
        except Exception as error:
            if str(error) == _NO_KEY:  # the binding has no other sign
                return ABSENT
            raise self._told(error) from error

    def release(self) -> None:
        self._snapshot = None


class RocksMoment(RocksValues):
    """The database as it was when this was made; see `Moment`.

    Scans share one iterator, as old as the snapshot: an iterator that the binding makes of a
    snapshot later shows the database of that time. It keeps the files and memory of that time.
    """

    def __init__(self, db: Rdict, revision: int, told: Callable[[Exception], PaxosBlockError]):
        super().__init__(db, revision, told)
        self._iterator: RdictIter | None = db.iter(ReadOptions())
        self._scans = 0
        self._gap: tuple[bytes, bytes | None] = b"", b""
        """A range in which the last scan found no key (None: up to the end): another scan need not
        pass each key that was removed there."""

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[Item]:
        start = max(start, _FIRST_KEY)
        if end and end <= start:
            return iter(())
        return islice(self._last(start, end) if reverse else self._first(start, end), limit)

    def _first(self, start: bytes, end: bytes) -> Iterator[Item]:
        found = self._scanned()
        while True:
            first, behind = self._gap
            if first <= start and (behind is None or start < behind):
                if behind is None:
                    return
                start = behind
            if end and start >= end:
                return
            ours = self._seek(partial(found.seek, start))
            while self._is_valid(found) and (not end or found.key() < end):
                key: bytes = found.key()
                yield key, _decode(found.value())
                start = key + b"\0"
                self._scanned()
                if ours != self._scans:
                    break  # another scan has moved the iterator
                found.next()
            else:
                self._gap = start, found.key() if found.valid() else None
                return

    def _last(self, start: bytes, end: bytes) -> Iterator[Item]:
        found = self._scanned()
        while True:
            seek = partial(found.seek_for_prev, end) if end else found.seek_to_last
            ours = self._seek(seek)
            if end and self._is_valid(found) and found.key() == end:
                found.prev()
            while self._is_valid(found) and found.key() >= start:
                end = found.key()
                yield end, _decode(found.value())
                self._scanned()
                if ours != self._scans:
                    break
                found.prev()
            else:
                return

    def _seek(self, seek: Callable[[], None]) -> int:
        self._scans += 1
        seek()
        return self._scans

    def _is_valid(self, found: RdictIter) -> bool:
        if found.valid():
            return True
        try:
            found.status()  # a damaged block ends a scan, too
        except Exception as error:
            raise self._told(error) from error
        return False

    def _scanned(self) -> RdictIter:
        if self._iterator is None:
            raise _given_up()
        return self._iterator

    def release(self) -> None:
        super().release()
        self._iterator = None


def _given_up() -> UnavailableError:
    return UnavailableError("this view of the catalog was given up")


class RocksReceiver:
    """Takes a checkpoint of a database; see `Receiver`."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """Begin a draft, in place of a draft that was there."""
        self._disk = disk
        self._folder = folder
        self._revision = 0
        self._files = FileReceiver(disk, folder / _DRAFT)

    def write(self, data: Buffer) -> None:
        self._files.write(data)

    def check(self) -> int:
        self._files.finish()
        self._revision = check_apart(self._files.folder)
        return self._revision

    def install(self) -> RocksTable:
        assert self._revision > 0, "the draft was checked, and is after an entry"
        path = numbered(self._folder, NAME, self._revision)
        self._disk.rename(self._files.folder, path)
        self._disk.sync_folder(self._folder)
        return RocksTable(self._disk, path)

    def discard(self) -> None:
        self._files.discard()


def check_apart(path: Path) -> int:
    """Read every key of the database at `path`, which no process has open, and change nothing of
    it; return the entry that it is after. Blocks for long.

    Raises:
        ConfigError: a later version wrote it.
        CorruptionError: it is damaged, or not whole.
        NoSpaceError: there is no memory, or no descriptor, for another process.
        StorageError: the disk refuses.
        UnavailableError: the process ended before it had an answer, so nothing is known of the
            database. It may be read again.
    """
    command = (sys.executable, "-m", _CHECK, str(path))
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise NoSpaceError(f"{path}: cannot start a process that reads it: {error}") from error
    kind, _, words = done.stdout.strip().partition(" ")
    if kind in _KINDS:
        raise _KINDS[kind](words)
    if done.returncode != 0:
        raise UnavailableError(
            f"{path}: the process that reads it {_end(done)}; nothing is known of what it read"
        )
    return int(kind)


def _end(done: subprocess.CompletedProcess[str]) -> str:
    """Return how a process ended that could not say it."""
    if done.returncode < 0:
        return f"was ended by signal {-done.returncode} ({signal.strsignal(-done.returncode)})"
    last = "".join(done.stderr.splitlines()[-1:])
    return f"ended with code {done.returncode} {last}".rstrip()


def open_rocks(disk: Disk, folder: Path) -> RocksTable:
    """Open the database in `folder`; see `OpenTable`.

    If there is none, an empty one is made under another name, and renamed when it is durable.
    """
    for name in disk.names(folder):
        if name == _DRAFT or name.startswith(_SENT):
            remove_database(disk, folder / name)
    found = databases(disk.names(folder))
    if not found:
        check_formats(disk, folder)  # nothing was changed until now
        table = RocksTable(disk, folder / _DRAFT, new=True)
        try:
            table.begin()
        finally:
            table.close()
        disk.sync_folder(folder / _DRAFT)
        disk.rename(folder / _DRAFT, folder / NAME)
        disk.sync_folder(folder)
        found = [NAME]
    table = RocksTable(disk, folder / found[-1])
    try:
        # The crash came before these were removed.
        for name in found[:-1]:
            remove_database(disk, folder / name)
    except BaseException:
        table.close()
        raise
    return table


ROCKS = Tables(open_rocks, RocksReceiver)


def databases(names: Iterable[str]) -> list[str]:
    """Return those of `names` that are databases, the one that counts last."""
    known = list(names)
    own = [NAME] if NAME in known else []
    return [*own, *(numbered(Path(), NAME, index).name for index in numbers(known, NAME))]


def _add(batch: WriteBatch, key: bytes, found: Versioned) -> None:
    if found.revision:
        batch.put(key, _REVISION.pack(found.revision) + found.value)
    else:
        batch.delete(key)


def _decode(stored: bytes) -> Versioned:
    return Versioned(stored[8:], int.from_bytes(stored[:8]))


def _decode_meta(path: Path, stored: bytes) -> Meta:
    with suppress(msgspec.MsgspecError):
        meta = _META_DECODER.decode(stored)
        refuse_later(path, meta.format, _FORMAT, FROM_A_COPY)
        return meta
    raise CorruptionError(f"{path}: damaged: it does not say which entry it is of")
