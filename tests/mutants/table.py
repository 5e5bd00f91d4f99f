"""The table of planted faults: what is wrong, where, and which suite notices.

Faults of the protocol and of the replicated log replace a function and have tables of their own
(`tests/protocol/faults.py`, `tests/raft/planted_faults.py`); a test plants each and expects to be
told. The others are patches of one place in the source: `before` stands exactly once in the file.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from tests.protocol.faults import FAULTS as PROTOCOL_FAULTS
from tests.raft.test_planted_faults import SEEN_BY_A_SEED, SEEN_BY_A_TEST


class Area(enum.Enum):
    """The part of the product that is made wrong."""

    PROTOCOL = "protocol"
    RAFT = "raft"
    STORE = "store"
    RECOVERY = "recovery"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Patch:
    """Another text for one place of a file of the source."""

    file: str
    before: str
    after: str

    def plant(self, checkout: Path) -> None:
        """Change the file below `checkout`. Raises ValueError where the place is not the only one.

        A patch of a place that has changed must be made anew, not fall silent.
        """
        path = checkout / self.file
        source = path.read_text()
        count = source.count(self.before)
        if count != 1:
            raise ValueError(f"{self.file}: {count} places have {self.before!r}, not one")
        path.write_text(source.replace(self.before, self.after))


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault. Its suite fails with the `patch`, or, without one, plants the fault itself."""

    area: Area
    name: str
    suite: tuple[str, ...]
    patch: Patch | None = None


def all_mutants() -> tuple[Mutant, ...]:
    """Return every fault, in the order of a chunk's way."""
    return (*_protocol(), *_raft(), *SOURCE)


def _protocol() -> tuple[Mutant, ...]:
    test = "tests/protocol/test_planted_faults.py::test_a_planted_fault_is_found_and_told"
    return tuple(Mutant(Area.PROTOCOL, name, (f"{test}[{name}]",)) for name in PROTOCOL_FAULTS)


def _raft() -> tuple[Mutant, ...]:
    suite = "tests/raft/test_planted_faults.py"
    witnesses = {plant.__name__: "test_the_simulation_notices" for plant in SEEN_BY_A_SEED}
    witnesses |= {plant.__name__: "test_a_directed_test_notices" for plant in SEEN_BY_A_TEST}
    return tuple(
        Mutant(Area.RAFT, name.replace("_", " "), (f"{suite}::{test}[{name}]",))
        for name, test in witnesses.items()
    )


def _store(name: str, file: str, before: str, after: str, *suite: str) -> Mutant:
    return Mutant(Area.STORE, name, suite, Patch(f"datanode/{file}", before, after))


def _recovery(name: str, file: str, before: str, after: str, *suite: str) -> Mutant:
    return Mutant(Area.RECOVERY, name, suite, Patch(f"namenode/{file}", before, after))


def _client(name: str, file: str, before: str, after: str, *suite: str) -> Mutant:
    return Mutant(Area.CLIENT, name, suite, Patch(f"client/{file}", before, after))


CRASH_STATES = "tests/format/test_crash_states.py"
HOSTILE_FILES = "tests/format/test_hostile_files.py"
REGISTERS = "tests/datanode/test_registers.py"
FILE_WRITER = "tests/client/test_file_writer.py"
FILE_READER = "tests/client/test_file_reader.py"
RANDOM_WRITES = "tests/client/test_random_writes.py"
GARBAGE = "tests/namenode/test_garbage.py"

SOURCE: tuple[Mutant, ...] = (
    _store(
        "a file is replaced before its bytes are on the disk",
        "disk.py",
        "        disk.write(file, data, 0)\n        disk.sync(file)\n",
        "        disk.write(file, data, 0)\n",
        CRASH_STATES,
    ),
    _store(
        "a file is replaced, but its folder is not synced",
        "disk.py",
        "    disk.rename(draft, path)\n    disk.sync_folder(path.parent)",
        "    disk.rename(draft, path)",
        CRASH_STATES,
    ),
    _store(
        "a new replica's metadata is durable before the name of its block file",
        "store.py",
        "            self.disk.sync_folder(path.parent)\n            self._publish(replica, 0)\n",
        "            self._publish(replica, 0)\n",
        CRASH_STATES,
    ),
    _store(
        "a log is accepted before its chunks are on the disk",
        "store.py",
        "            file.sync()\n            self._publish(after, files.copy)",
        "            self._publish(after, files.copy)",
        CRASH_STATES,
    ),
    _store(
        "chunks beyond a log are cut before it is accepted",
        "store.py",
        "            file.sync()\n            self._publish(after, files.copy)",
        "            self.disk.truncate(file.handle, record_start(after.log, after.length))\n"
        "            file.sync()\n            self._publish(after, files.copy)",
        CRASH_STATES,
    ),
    _store(
        "a full copy's name is not durable when its metadata names it",
        "store.py",
        "        self.disk.sync_folder(path.parent)\n        try:\n",
        "        try:\n",
        CRASH_STATES,
    ),
    _store(
        "the folder that a finalized replica moves to is not synced",
        "store.py",
        "            self.disk.rename(files.path, path)\n"
        "            self.disk.sync_folder(path.parent)\n",
        "            self.disk.rename(files.path, path)\n",
        CRASH_STATES,
    ),
    _store(
        "a replica's block file is deleted before its metadata",
        "store.py",
        "        self.disk.remove(self._meta_path(replica))\n"
        "        self.disk.sync_folder(self._meta_path(replica).parent)\n"
        "        self.disk.remove(files.path)\n",
        "        self.disk.remove(files.path)\n"
        "        self.disk.sync_folder(files.path.parent)\n"
        "        self.disk.remove(self._meta_path(replica))\n",
        CRASH_STATES,
    ),
    _store(
        "a chunk that found no room leaves a part of itself",
        "store.py",
        "            self.disk.truncate(file.handle, position)\n            raise\n",
        "            raise\n",
        "tests/datanode/test_faults.py",
        "tests/services/test_full_disk.py",
    ),
    _store(
        "chunks are taken for synced without a sync",
        "steps.py",
        "            block.volume.store.sync(block.files)\n",
        "",
        "tests/datanode/test_faults.py",
    ),
    _store(
        "fetched chunks are not compared with their names",
        "draft.py",
        "        check_records(self.block, names, records)\n",
        "",
        "tests/datanode/test_draft.py",
    ),
    _store(
        "weakness is not on the disk before it is told",
        "load.py",
        "        store.store_metadata(files, replica)\n",
        "        pass\n",
        CRASH_STATES,
        "tests/datanode/test_restart.py",
    ),
    _store(
        "of two metadata files the older one rules",
        "load.py",
        "metadata, path = max(candidates",
        "metadata, path = min(candidates",
        CRASH_STATES,
    ),
    _store(
        "a finalized block file that is cut off is sound",
        "load.py",
        "    if size < record_start(log, len(log)):\n",
        "    if size < 0:\n",
        HOSTILE_FILES,
        "tests/datanode/test_restart.py",
    ),
    _store(
        "a chunk is not checked when it is loaded",
        "records.py",
        "            if crc32c(record[HEADER_BYTES:]) != header.payload_crc:\n",
        "            if not record:\n",
        HOSTILE_FILES,
        CRASH_STATES,
    ),
    _store(
        "chunks of an older generation count after a restart",
        "records.py",
        "and (in_base or header.generation == metadata.accepted_generation)",
        "and (in_base or header.generation >= 0)",
        CRASH_STATES,
        HOSTILE_FILES,
    ),
    _store(
        "a voted chunk that is damaged is taken for a torn write",
        "records.py",
        "    if fault is _Fault.BAD and (same_boot or scanner.was_voted_for()):\n",
        "    if fault is _Fault.BAD and same_boot:\n",
        HOSTILE_FILES,
    ),
    _store(
        "a chunk's checksum is not compared on arrival",
        "registers.py",
        "        if crc32c(frame[HEADER_BYTES:]) != header.payload_crc:\n",
        "        if not frame:\n",
        REGISTERS,
        "tests/datanode/test_session.py",
    ),
    _store(
        "a writer is not fenced while a control step is under way",
        "registers.py",
        "        if block.stepping:\n            return Reason.FENCED\n",
        "",
        REGISTERS,
        "tests/datanode/test_model.py",
    ),
    _store(
        "a vote does not wait for the disk",
        "registers.py",
        "    return asked and block.synced <= vote.index",
        "    return asked and block.synced < vote.index",
        "tests/datanode/test_faults.py",
    ),
    _store(
        "bytes that are in memory are served unchecked",
        "reads.py",
        "                    check_records(block.id, names, into)\n",
        "",
        "tests/datanode/test_reads.py",
    ),
    _store(
        "bytes from the disk are served unchecked",
        "reads.py",
        "            check_records(block.id, names, records)\n            return records\n",
        "            return records\n",
        "tests/datanode/test_reads.py",
    ),
    _recovery(
        "the record of a block is no precondition of its change",
        "blocks.py",
        "    found = reads.get(keys.block(block))\n    if not found.exists:\n"
        '        raise NotFoundError(f"block {block}: no such block", block=block)\n',
        "    found = reads.peek(keys.block(block)) if isinstance(reads, Draft) else "
        "reads.get(keys.block(block))\n    if not found.exists:\n"
        '        raise NotFoundError(f"block {block}: no such block", block=block)\n',
        "tests/namenode/test_catalog_blocks.py",
        "tests/namenode/test_recoverer.py",
        "tests/namenode/test_catalog_model.py",
    ),
    _recovery(
        "a repeated request adds another block",
        "blocks.py",
        "    if (present := already_added(draft, request)) is not None:\n",
        "    if (present := already_added(draft, request)) is not None and False:\n",
        "tests/namenode/test_adding_blocks.py",
        "tests/namenode/test_catalog_blocks.py",
    ),
    _recovery(
        "a block that is added while its file is closed stays behind",
        "blocks.py",
        "    draft.expect_empty(keys.places(inode.number, end))\n",
        "",
        "tests/namenode/test_closing_files.py",
        "tests/namenode/test_catalog_blocks.py",
    ),
    _recovery(
        "an empty block of a fenced writer is deleted",
        "blocks.py",
        "not entry.record.length and entry.record.writer == inode.writer for",
        "not entry.record.length for",
        "tests/namenode/test_closing_files.py",
        "tests/namenode/test_catalog_blocks.py",
    ),
    _recovery(
        "a file is closed before enough members hold its blocks",
        "closer.py",
        "            await self._wait_complete(holder)\n",
        "            pass\n",
        "tests/namenode/test_closing_files.py",
    ),
    _recovery(
        "a copy of a request is done again",
        "once.py",
        "    if before is not None and once.sequence <= before.sequence:\n",
        "    if before is not None and once.sequence < before.sequence:\n",
        "tests/namenode/test_once.py",
    ),
    _recovery(
        "a directory that got an entry is forgotten by the sweep",
        "garbage.py",
        "        draft.expect_empty(keys.entries(number))\n",
        "",
        GARBAGE,
    ),
    _recovery(
        "a file that got a block is forgotten by the sweep",
        "garbage.py",
        "        draft.expect_empty(keys.places(number))\n",
        "",
        GARBAGE,
    ),
    _recovery(
        "a block that another cluster made is deleted",
        "replicas.py",
        "        if not ours:\n            return Finding(Verdict.ALARM, ",
        "        if not ours:\n            return Finding(Verdict.DELETE, ",
        "tests/namenode/test_replicas.py",
    ),
    _recovery(
        "a storage that may be about to become a member loses its replica",
        "replicas.py",
        "    if state.max_generation >= current:\n",
        "    if state.max_generation > current:\n",
        "tests/namenode/test_replicas.py",
    ),
    _recovery(
        "two members on one node",
        "placement.py",
        "        best.setdefault(candidate.node, candidate.storage)\n",
        "        best.setdefault(candidate.storage, candidate.storage)\n",
        "tests/namenode/test_placement.py",
    ),
    _recovery(
        "ids are handed out twice",
        "ids.py",
        "                expect=(Expect(self._key, found.revision),),\n",
        "",
        "tests/namenode/test_catalog_restart.py",
        "tests/namenode/test_leadership.py",
        "tests/namenode/test_catalog_blocks.py",
    ),
    _recovery(
        "an entry of the journal is committed before it is durable",
        "kv/journal.py",
        "        self._disk.sync(self._file)\n        self._size += len(batch)\n",
        "        self._size += len(batch)\n",
        "tests/namenode/test_journal_crash_states.py",
    ),
    _client(
        "a sync is content with one member that finalized the block",
        "durable.py",
        "sum(answers) >= read_quorum(len(view.members))",
        "any(answers)",
        FILE_WRITER,
    ),
    _client(
        "a decided length may be below what was acknowledged",
        "block_writer.py",
        "writer.acknowledged <= record.length <= writer.sent",
        "record.length <= writer.sent",
        FILE_WRITER,
    ),
    _client(
        "a decided length may be above what was sent",
        "block_writer.py",
        "writer.acknowledged <= record.length <= writer.sent",
        "writer.acknowledged <= record.length",
        FILE_WRITER,
    ),
    _client(
        "a quorum read in memory mode does not ask for the disk",
        "length.py",
        "sync=record.durability is Durability.MEMORY",
        "sync=False",
        FILE_READER,
    ),
    _client(
        "chunks of a sealed block are sent again in the wrong order",
        "file_writer.py",
        "extendleft(reversed(sealed.rest))",
        "extendleft(sealed.rest)",
        FILE_WRITER,
        RANDOM_WRITES,
    ),
    _client(
        "a file that is closed too short is not noticed",
        "file_writer.py",
        "        if self.status.length != self.acknowledged:\n",
        "        if self.status.length > self.acknowledged:\n",
        FILE_WRITER,
    ),
    _client(
        "a chunk is read without its checksum",
        "block_reader.py",
        "        verify_payload(header, payload)\n        self._target.accept",
        "        self._target.accept",
        FILE_READER,
    ),
    _client(
        "a chunk is taken for another one",
        "block_reader.py",
        "header.index != self._index:\n",
        "header.index < 0:\n",
        FILE_READER,
    ),
    _client(
        "a reply that broke off is kept",
        "block_reader.py",
        "                sink.take_back()\n                raise\n",
        "                raise\n",
        FILE_READER,
    ),
    _client(
        "two requests of a session have one name",
        "namenode.py",
        "Once(latest.session, latest.sequence + 1)",
        "Once(latest.session, latest.sequence)",
        "tests/client/test_namenode_calls.py",
    ),
    _client(
        "a refusal hides that an earlier try may have been done",
        "namenode.py",
        "(before, now) if before.outcome is Outcome.UNKNOWN else (now, before)\n",
        "(now, before)\n",
        "tests/client/test_namenode_calls.py",
    ),
)
"""Patches of the source."""
