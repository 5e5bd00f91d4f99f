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
    """The part of the product that is made wrong; `NODE` is what all nodes share."""

    PROTOCOL = "protocol"
    RAFT = "raft"
    STORE = "store"
    RECOVERY = "recovery"
    NODE = "node"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Patch:
    """Another text for one place of a file of the source."""

    file: str
    before: str
    after: str

    def plant(self, checkout: Path) -> None:
        """Change the file below `checkout`. Raises what `changed` raises."""
        (checkout / self.file).write_text(self.changed(checkout))

    def changed(self, checkout: Path) -> str:
        """Return the file's source with the fault.

        Raises:
            ValueError: The place is not the only one: a patch of a place that has changed must be
                made anew, not fall silent.
            SyntaxError: The source is none any more. Such a fault would be noticed by any test,
                and say nothing of this suite.
        """
        source = (checkout / self.file).read_text()
        count = source.count(self.before)
        if count != 1:
            raise ValueError(f"{self.file}: {count} places have {self.before!r}, not one")
        changed = source.replace(self.before, self.after)
        compile(changed, self.file, "exec")
        return changed


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
    return Mutant(Area.STORE, name, suite, Patch(f"paxosblock/{file}", before, after))


def _recovery(name: str, file: str, before: str, after: str, *suite: str) -> Mutant:
    return Mutant(Area.RECOVERY, name, suite, Patch(f"paxosblock/namenode/{file}", before, after))


def _rule(name: str, file: str, before: str, after: str, *suite: str) -> Mutant:
    return Mutant(Area.PROTOCOL, name, suite, Patch(f"paxosblock/protocol/{file}", before, after))


def _node(name: str, file: str, before: str, after: str, *suite: str) -> Mutant:
    return Mutant(Area.NODE, name, suite, Patch(f"paxosblock/{file}", before, after))


def _client(name: str, file: str, before: str, after: str, *suite: str) -> Mutant:
    return Mutant(Area.CLIENT, name, suite, Patch(f"paxosblock/client/{file}", before, after))


TABLES = "tests/namenode/test_kv_tables.py"
REGISTERING = "tests/namenode/test_registering.py"
TRAILS = "tests/namenode/test_trails.py"
MONITOR = "tests/namenode/test_monitor.py"
COPIES = "tests/datanode/test_copies.py"
CRASH_STATES = "tests/format/test_crash_states.py"
HOSTILE_FILES = "tests/format/test_hostile_files.py"
DAMAGED_LOGS = "tests/datanode/test_damaged_logs.py"
SMALL_MARK = "tests/format/test_small_mark.py"
FIRST_READS = "tests/datanode/test_first_reads.py"
ACCEPTOR = "tests/datanode/test_acceptor.py"
REBUILDER = "tests/namenode/test_rebuilder.py"
BLOCK_WRITER = "tests/client/test_block_writer.py"
FILE_WRITER = "tests/client/test_file_writer.py"
FILE_READER = "tests/client/test_file_reader.py"
RANDOM_WRITES = "tests/client/test_random_writes.py"
GARBAGE = "tests/namenode/test_garbage.py"
JOURNAL_CRASH_STATES = "tests/namenode/test_journal_crash_states.py"
RECORD_LOG = "tests/journal/test_record_log.py"
FULL_STORE = "tests/namenode/test_kv_full_disk.py"
FULL_MEMBER = "tests/raft/test_full_disk.py"
DAMAGED_MEMBER = "tests/raft/test_damaged_table.py"
CALL_SERVER = "tests/net/test_call_server.py"
FLOODS = "tests/net/test_floods.py"
LOST_DATANODES = "tests/client/test_lost_datanodes.py"
WATCHED = "tests/client/test_watched.py"
TRUNCATE = "tests/namenode/test_truncate.py"
TRUNCATE_PROCESSES = "tests/services/test_truncate.py"
UNREADABLE = "tests/datanode/test_unreadable.py"
REOPENING = "tests/namenode/test_reopening.py"
APPENDING = "tests/client/test_appending.py"

SOURCE: tuple[Mutant, ...] = (
    _rule(
        "a Write is taken without accepted == generation",
        "register.py",
        "        and registers.accepted_generation == generation\n",
        "",
        "tests/protocol/test_register_rules.py",
    ),
    _rule(
        "a recovery vote of any generation counts",
        "recovery.py",
        "    ours = vote.block == proposer.block and vote.generation == proposer.generation\n",
        "    ours = vote.block == proposer.block\n",
        "tests/protocol/test_recovery_rules.py",
    ),
    _rule(
        "a rebuild is granted without asking who the writer is",
        "finalize.py",
        "    if record.writer != writer or record.writer_generation <= generation:\n",
        "    if record.writer_generation <= generation:\n",
        REBUILDER,
    ),
    _recovery(
        "nobody goes on with a recovery that gave up",
        "blocks/recoverer.py",
        "        due = [block for block, stuck in self._stuck.items() if stuck.due_s <= now_s]\n",
        "        due: list[BlockId] = []\n",
        "tests/namenode/test_recoverer.py",
    ),
    _recovery(
        "a process takes the place of one that says that it lives",
        "blocks/registrar.py",
        "        if found != before.incarnation:\n",
        "        if before.incarnation:\n",
        REGISTERING,
    ),
    _recovery(
        "a NameNode that does not go by the records yet refuses for good",
        "blocks/registrar.py",
        "        if not (self._knows_all and is_before):\n",
        "        if not is_before:\n",
        REGISTERING,
    ),
    _recovery(
        "a copy of a volume has its timeline written down",
        "blocks/registrar.py",
        "        datanodes.check_place(request, self._clock_s(), ended, recorded)\n",
        "",
        REGISTERING,
    ),
    _recovery(
        "a leader that begins leaves the APPENDs of the one before as they are",
        "blocks/leftovers.py",
        "                    begun.append(last.entry.record)\n",
        "                    pass\n",
        REOPENING,
    ),
    _client(
        "a writer takes the Grant of another one",
        "writing/block_writer.py",
        "        self._check_ours(view.record)\n        granted, before",
        "        granted, before",
        BLOCK_WRITER,
    ),
    _client(
        "a fenced writer calls a block that was cut corrupt",
        "writing/block_writer.py",
        "        if other or record.cut_generation > self.generation:\n",
        "        if other:\n",
        BLOCK_WRITER,
    ),
    _store(
        "a file is replaced before its bytes are on the disk",
        "host/disk.py",
        "        disk.sync(file)\n        disk.rename(draft, path)\n",
        "        disk.rename(draft, path)\n",
        CRASH_STATES,
        JOURNAL_CRASH_STATES,
    ),
    _store(
        "a file is replaced, but its folder is not synced",
        "host/disk.py",
        "            disk.rename(*moves)\n        disk.sync_folder(path.parent)\n",
        "            disk.rename(*moves)\n",
        CRASH_STATES,
        JOURNAL_CRASH_STATES,
    ),
    _store(
        "names that a killed process has not synced are believed",
        "datanode/store/load.py",
        "        disk.sync_folder(folder / part)\n",
        "        pass\n",
        f"{CRASH_STATES}::test_a_power_cut_takes_nothing_that_a_restarted_process_told"
        "[disk_votes-a fourth]",
    ),
    _store(
        "an error that nobody foresaw in one volume ends the node",
        "datanode/volumes/volume.py",
        "        except Exception as error:\n",
        "        except PaxosBlockError as error:\n",
        DAMAGED_LOGS,
    ),
    _store(
        "a damaged chunk of an open small replica is an error of its volume",
        "datanode/store/load.py",
        "    except CorruptionError as error:  # a chunk of an earlier",
        "    except ConfigError as error:  # a chunk of an earlier",
        DAMAGED_LOGS,
    ),
    _store(
        "a segment with a damaged header is anybody's",
        "journal/segment.py",
        "        return SegmentHeader(0, salt, None, None)\n",
        "        raise damaged(name, 0)\n",
        DAMAGED_LOGS,
    ),
    _store(
        "a record whose head lost a bit is read at the start only",
        "journal/segment.py",
        "    found = _head(data, 0, salt) or _mended(data, 0, salt)\n",
        "    found = _head(data, 0, salt)\n",
        DAMAGED_LOGS,
    ),
    _store(
        "a log of small replicas that ends before its mark is taken for a torn one",
        "journal/segment.py",
        "    if bad < bounds.durable:\n        return True\n",
        "",
        SMALL_MARK,
    ),
    _store(
        "a log of small replicas without its last segments is taken as it is",
        "journal/record_log.py",
        "        if self.durable is not None and self.durable.segment > number:\n",
        "        if False:\n",
        SMALL_MARK,
    ),
    _store(
        "the mark of small replicas says that records are durable before they are",
        "journal/record_log.py",
        "            # The segments before were synced",
        "            self._note_synced(segment, to)\n            # The segments before were synced",
        RECORD_LOG,
    ),
    _store(
        "what a storage may have forgotten it says that it never had",
        "datanode/acceptor.py",
        "            if forgot is not None and block <= forgot.up_to:\n",
        "            if False:\n",
        SMALL_MARK,
    ),
    _store(
        "a small replica that may have lost its vote says that it has none",
        "datanode/store/small_replicas.py",
        "        if not doubted < through < following:\n",
        "        if True:\n",
        SMALL_MARK,
    ),
    _store(
        "the next process does not know what was forgotten",
        "datanode/store/load.py",
        "        forget(disk, folder, identity, forgot)\n",
        "",
        SMALL_MARK,
    ),
    _store(
        "who enters a cluster forgets what was forgotten",
        "datanode/volumes/volume.py",
        "        self.identity = replace(self.identity, forgot=found.forgot)\n",
        "",
        SMALL_MARK,
    ),
    _store(
        "a rollback leaves the mark of the time since",
        "datanode/volumes/volume_snapshot.py",
        "        disk.remove(folder / SMALL / MARK_NAME)  # it",
        "        pass  # it",
        "tests/format/test_small_log.py",
    ),
    _store(
        "a file is written again while a power cut may bring its name back",
        "datanode/store/drafts.py",
        "kept.gone.append(name)",
        "kept.free.append(name)",
        CRASH_STATES,
    ),
    _store(
        "a meta file that a snapshot has, too, is written again",
        "datanode/store/drafts.py",
        "self._disk.link_count(file) == 1",
        "self._disk.link_count(file) >= 1",
        "tests/datanode/test_drafts.py",
    ),
    _store(
        "a file that was not replaced is written again",
        "datanode/store/drafts.py",
        "                self._disk.remove(replaced)\n",
        "                kept.free.append(replaced)\n",
        "tests/datanode/test_drafts.py",
    ),
    _store(
        "a new replica's metadata is durable before the name of its block file",
        "datanode/store/file_store.py",
        "            self.disk.sync_folder(path.parent)\n            self._publish(replica, 0)\n",
        "            self._publish(replica, 0)\n",
        CRASH_STATES,
    ),
    _store(
        "a log is accepted before its chunks are on the disk",
        "datanode/store/file_store.py",
        "                file.sync()\n            self._publish(after, files.copy,",
        "                pass\n            self._publish(after, files.copy,",
        CRASH_STATES,
    ),
    _store(
        "chunks beyond a log are cut before it is accepted",
        "datanode/store/file_store.py",
        "                file.sync()\n            self._publish(after, files.copy,",
        "                self.disk.truncate(file.handle, record_start(after.log, after.length))\n"
        "                file.sync()\n            self._publish(after, files.copy,",
        CRASH_STATES,
    ),
    _store(
        "a full copy's name is not durable when its metadata names it",
        "datanode/store/file_store.py",
        "        self.disk.sync_folder(path.parent)\n        try:\n",
        "        try:\n",
        CRASH_STATES,
    ),
    _store(
        "what a replica left in the other folder comes back when it is deleted",
        "datanode/store/file_store.py",
        "        self._settle(self._meta_path(replica).parent)\n",
        "        self.disk.sync_folder(self._meta_path(replica).parent)\n",
        CRASH_STATES,
    ),
    _store(
        "what a dead replica left in the other folder comes back when it is deleted",
        "datanode/store/file_store.py",
        "        self._settle()\n",
        "",
        CRASH_STATES,
    ),
    _store(
        "a replica's block file is deleted before its metadata",
        "datanode/store/file_store.py",
        "        self._remove(self._meta_path(replica))\n"
        "        self._settle(self._meta_path(replica).parent)\n"
        "        self.removals.take(path, self.size_bytes(replica.log))\n",
        "        self.removals.take(path, self.size_bytes(replica.log))\n"
        "        self.disk.sync_folder(path.parent)\n"
        "        self._remove(self._meta_path(replica))\n"
        "        self._settle(self._meta_path(replica).parent)\n",
        CRASH_STATES,
    ),
    _store(
        "a chunk that found no room leaves a part of itself",
        "datanode/store/file_store.py",
        "            self.disk.truncate(file.handle, position)\n            raise\n",
        "            raise\n",
        "tests/datanode/test_faults.py",
        "tests/services/test_full_disk.py",
    ),
    _store(
        "chunks are taken for synced without a sync",
        "datanode/block.py",
        "            self.volume.store.sync(self.files)\n",
        "",
        "tests/datanode/test_faults.py",
    ),
    _store(
        "fetched chunks are not compared with their names",
        "datanode/store/fetched.py",
        "        check_records(self.block, names, records)\n",
        "",
        "tests/datanode/test_fetched.py",
    ),
    _store(
        "weakness is not on the disk before it is told",
        "datanode/store/load.py",
        "        store.store_metadata(files, replica)\n",
        "        pass\n",
        CRASH_STATES,
        "tests/datanode/test_restart.py",
    ),
    _store(
        "of two metadata files the older one rules",
        "datanode/store/load.py",
        "newest = max(candidates",
        "newest = min(candidates",
        CRASH_STATES,
    ),
    _store(
        "a file that a snapshot has, too, is changed in place",
        "host/disk.py",
        "if disk.link_count(shared) == 1:",
        "if disk.link_count(shared) >= 1:",
        "tests/datanode/test_model.py",
    ),
    _store(
        "a rollback is done before all of it is durable",
        "datanode/volumes/volume_snapshot.py",
        "folder / part / path.name)\n        disk.sync_folder(folder / part)\n",
        "folder / part / path.name)\n",
        "tests/format/test_snapshot_crash_states.py",
    ),
    _store(
        "a storage that was rolled back is taken in by whoever knows it",
        "namenode/catalog/timelines.py",
        "        if known not in each.before:\n",
        "        if not known:\n",
        "tests/namenode/test_timelines.py",
    ),
    _store(
        "a volume that was rolled back answers before it is taken in",
        "datanode/acceptor.py",
        "        return next((each for each in self._volumes.values() if each.outside), None)\n",
        "        return next((each for each in self._volumes.values() if each.failed), None)\n",
        "tests/datanode/test_timelines.py",
    ),
    _store(
        "a finalized block file that is cut off is sound",
        "datanode/store/load.py",
        "    if size < record_start(log, len(log)):\n",
        "    if size < 0:\n",
        HOSTILE_FILES,
        "tests/datanode/test_restart.py",
    ),
    _store(
        "a chunk is not checked when it is loaded",
        "datanode/store/chunk_records.py",
        "            if crc32c(record[HEADER_BYTES:]) != header.payload_crc:\n",
        "            if not record:\n",
        HOSTILE_FILES,
        CRASH_STATES,
    ),
    _store(
        "a damaged chunk counts as torn though the writer knew that it was on disk",
        "datanode/store/chunk_records.py",
        "acknowledged_before(self._last_index(), window) > len(self.log)\n",
        "acknowledged_before(self._last_index(), window) > len(self.log) + 1\n",
        HOSTILE_FILES,
    ),
    _store(
        "chunks of an older generation count after a restart",
        "datanode/store/chunk_records.py",
        "and (in_base or header.generation == registers.accepted_generation)",
        "and (in_base or header.generation >= 0)",
        CRASH_STATES,
        HOSTILE_FILES,
    ),
    _store(
        "a voted chunk that is damaged is taken for a torn write",
        "datanode/store/chunk_records.py",
        "    if fault is _Fault.BAD and (same_boot or scanner.was_voted_for()):\n",
        "    if fault is _Fault.BAD and same_boot:\n",
        HOSTILE_FILES,
    ),
    _store(
        "a step of a small replica is told before its record is durable",
        "datanode/control_requests.py",
        "        block.volume.when_committed(begun.file, durable)\n",
        "        durable(None)\n",
        "tests/datanode/test_small_steps.py",
    ),
    _store(
        "a chunk that comes with Create is taken without its checksum",
        "datanode/block.py",
        "            if not isinstance(voted.effect, AppendChunk) or self._refuses_chunk(*sent):\n",
        "            if not isinstance(voted.effect, AppendChunk):\n",
        "tests/datanode/test_small_steps.py",
    ),
    _store(
        "a second record step is begun beside one under way",
        "datanode/block.py",
        "        if self._lock.locked() or self.stepping or self.corrupt or long:\n",
        "        if self._lock.locked() or self.corrupt or long:\n",
        "tests/datanode/test_small_steps.py",
    ),
    _store(
        "a sync of the small replicas' log counts what was appended meanwhile",
        "journal/record_log.py",
        "            segment.synced = max(segment.synced, to.offset)\n",
        "            segment.synced, to = segment.end, to._replace(offset=segment.end)\n",
        f"{CRASH_STATES}::test_a_power_cut_takes_nothing_that_was_told_and_adds_nothing"
        "[small_deleted_beside_a_sync-a fourth]",
    ),
    _store(
        "a Finalize that fetched chunks is taken for a record of the log",
        "datanode/store/small_replicas.py",
        "not row.finalized and finalized and not effect.append\n",
        "not row.finalized and finalized\n",
        f"{CRASH_STATES}::test_a_power_cut_takes_nothing_that_was_told_and_adds_nothing",
    ),
    _store(
        "a chunk's checksum is not compared on arrival",
        "datanode/block.py",
        "        if crc32c(frame[HEADER_BYTES:]) != header.payload_crc:\n",
        "        if not frame:\n",
        ACCEPTOR,
        "tests/datanode/test_served_stream.py",
    ),
    _store(
        "a writer is not fenced while a control step is under way",
        "datanode/block.py",
        "        if self.stepping:\n            return Reason.FENCED\n",
        "",
        ACCEPTOR,
        "tests/datanode/test_model.py",
    ),
    _store(
        "a vote does not wait for the disk",
        "datanode/block.py",
        "    return asked and self.synced <= vote.index",
        "    return asked and self.synced < vote.index",
        "tests/datanode/test_faults.py",
    ),
    _store(
        "bytes are served unchecked",
        "datanode/store/chunk_records.py",
        "        if crc32c(record) ^ mark != crc:\n",
        "        if not length:\n",
        "tests/datanode/test_reads.py",
        HOSTILE_FILES,
    ),
    _store(
        "of chunks that are looked at together only the first ones are checked",
        "base/even_run.py",
        "            if crc32c(data[first * stride : stop * stride]) != joined:\n",
        "            if not first and crc32c(data[: stop * stride]) != joined:\n",
        "tests/base/test_even_run.py",
    ),
    _store(
        "chunks of two lengths are looked at as if they were equally long",
        "base/even_run.py",
        "                == (*range(offset + size, offset + count * size + 1, size),)\n",
        "                != ()\n",
        "tests/base/test_even_run.py",
    ),
    _store(
        "a part of a chunk that was checked before is served unchecked",
        "datanode/replica_reads.py",
        "        if not is_read or not pieces.are_good(into):\n",
        "        if not is_read:\n",
        "tests/datanode/test_reads.py",
    ),
    _store(
        "a part of a chunk that was checked before is served of any version",
        "datanode/replica_reads.py",
        "if pieces is None or state is None or not holds(request.version, state):\n",
        "if pieces is None or state is None:\n",
        "tests/datanode/test_reads.py",
    ),
    _store(
        "what was found damaged is taken for sound after a restart",
        "datanode/store/load.py",
        "    if damaged.get(loaded.block) != copy_of(files):\n",
        "    if loaded.replica is not None:\n",
        "tests/datanode/test_restart.py",
        "tests/format/test_healing.py",
    ),
    _store(
        "a replica at rest is as it was before it promised",
        "datanode/store/file_store.py",
        "        self.finalized.note(replica, copy)\n",
        "",
        FIRST_READS,
    ),
    _store(
        "a replica that was found damaged is left unread as a sound one",
        "datanode/store/load.py",
        "    _join(found, (*found, *damaged), alone, folder / CURRENT)\n",
        "    _join(found, tuple(found), alone, folder / CURRENT)\n",
        "tests/datanode/test_restart.py",
    ),
    _store(
        "a replica that has files in rbw, too, is left unread",
        "datanode/store/load.py",
        "    _join(found, (*found, *damaged), alone, folder / CURRENT)\n",
        "    _join(found, tuple(damaged), alone, folder / CURRENT)\n",
        CRASH_STATES,
    ),
    _store(
        "a volume is reported before all of it was read",
        "datanode/reporter.py",
        "        storage = next(filter(self._holdings.has_read, self._unreported), None)\n",
        "        storage = next(iter(self._unreported), None)\n",
        FIRST_READS,
    ),
    _store(
        "a replica is dead for lack of a file descriptor",
        "datanode/store/load.py",
        "        if is_shortage(error):\n            raise\n",
        "",
        FIRST_READS,
    ),
    _store(
        "a replica that changes while it is read is taken for damaged",
        "datanode/damage.py",
        "    if block.files != files or now is None or now.registers != replica.registers:\n",
        "    if now is None:\n",
        "tests/datanode/test_scrubber.py",
        "tests/datanode/test_reads.py",
    ),
    _store(
        "metadata is not scrubbed",
        "datanode/scrubber.py",
        "        await volume.run_read_quietly(store.check_metadata, files, replica)\n",
        "",
        "tests/datanode/test_scrubber.py",
    ),
    _store(
        "a heartbeat waits for a volume that hangs",
        "datanode/volumes/disk_probe.py",
        "        await asyncio.wait((look,), timeout=max(left_s, 0))\n",
        "        await asyncio.wait((look,))\n",
        "tests/datanode/test_look.py",
    ),
    _recovery(
        "the record of a block is no precondition of its change",
        "catalog/draft.py",
        "    found = reads.get(keys.block(block))\n",
        "    found = reads.peek(keys.block(block)) if isinstance(reads, Draft) else "
        "reads.get(keys.block(block))\n",
        "tests/namenode/test_catalog_blocks.py",
        "tests/namenode/test_recoverer.py",
        "tests/namenode/test_catalog_model.py",
    ),
    _recovery(
        "a repeated request adds another block",
        "catalog/blocks.py",
        "    if (present := already_added(draft, request)) is not None:\n",
        "    if (present := already_added(draft, request)) is not None and False:\n",
        "tests/namenode/test_adding_blocks.py",
        "tests/namenode/test_catalog_blocks.py",
    ),
    _recovery(
        "a block that is added while its file is closed stays behind",
        "catalog/blocks.py",
        "    draft.expect_empty(keys.places(number, last.entry.sequence + 1 if last else 0))\n",
        "",
        "tests/namenode/test_closing_files.py",
        "tests/namenode/test_catalog_blocks.py",
    ),
    _recovery(
        "a block made ahead stays when its file is closed",
        "catalog/blocks.py",
        "    dropped += reserving.drop(draft, inode)\n",
        "",
        "tests/namenode/test_reserving.py",
    ),
    _recovery(
        "a block made ahead stays when its file is deleted",
        "catalog/garbage.py",
        "Swept(reserving.drop(draft, inode))",
        "Swept(())",
        "tests/namenode/test_reserving.py",
    ),
    _recovery(
        "a fenced writer goes on in a block made ahead",
        "catalog/blocks.py",
        "        inode = open_file(draft, done.file, request.writer)\n",
        "        inode, _ = file_and_path(draft, done.file)\n",
        "tests/namenode/test_reserving.py",
    ),
    _recovery(
        "any block may be said to follow",
        "catalog/reserving.py",
        "    if entry is None or entry.record.block != block or before is None or not is_last:\n",
        "    if entry is None or before is None or not is_last:\n",
        "tests/namenode/test_reserving.py",
    ),
    _recovery(
        "an empty block of a fenced writer is deleted",
        "catalog/blocks.py",
        "record.finalized and not record.length and record.writer == inode.writer\n",
        "record.finalized and not record.length\n",
        "tests/namenode/test_closing_files.py",
        "tests/namenode/test_catalog_blocks.py",
    ),
    _recovery(
        "a file is closed before enough members hold its blocks",
        "closer.py",
        "        await self._wait_complete(ended)\n",
        "        pass\n",
        "tests/namenode/test_closing_files.py",
    ),
    _recovery(
        "a force joins an attempt whose record says nothing of it",
        "blocks/recoverer.py",
        "            if run.given_up != given_up:\n"
        "                continue  "
        "# a forced recovery came meanwhile, and this record does not show it\n",
        "            given_up = run.given_up\n",
        "tests/namenode/test_recoverer.py",
    ),
    _recovery(
        "a copy of a rebuild request is refused",
        "blocks/rebuilder.py",
        "            if entry.record.writer_generation > request.generation:\n",
        "            if entry.record.writer_generation < request.generation:\n",
        REBUILDER,
    ),
    _recovery(
        "a member that cannot fetch what it lacks is left out",
        "blocks/rebuilder.py",
        "attempt.refused - _lacking(proposer)",
        "attempt.refused",
        REBUILDER,
    ),
    _recovery(
        "a target that is silent holds up a rebuild",
        "blocks/runner.py",
        "self.proposer.kind is not RecoveryKind.SEAL",
        "self.proposer.kind is RecoveryKind.SEAL",
        "tests/namenode/test_runner.py",
    ),
    _recovery(
        "the bytes that a report names count only where the holder is news",
        "blocks/replicas.py",
        "crc = held.last_crc if crc is None else crc",
        "crc = held.last_crc if crc is None or storage in held.storages else crc",
        "tests/namenode/test_replicas.py",
    ),
    _recovery(
        "a member counts as staying before it has answered",
        "blocks/replication/reducer.py",
        "        if member in reported and view.place(member).state",
        "        if view.place(member).state",
        "tests/namenode/test_reducer.py",
    ),
    _recovery(
        "the last member in the second rack is one too many",
        "blocks/replication/reducer.py",
        "len(left) >= min(wanted, len(had), view.racks)",
        "len(left) >= 1",
        "tests/namenode/test_reducer.py",
    ),
    _recovery(
        "who left is told again what the others are told",
        "blocks/finalizer.py",
        "        self._stop_telling(block, storage)\n        self._replicas.forget",
        "        self._replicas.forget",
        "tests/namenode/test_reducer.py",
    ),
    _recovery(
        "a member leaves whatever its file asks for",
        "catalog/members.py",
        "        wanted=wanted,\n",
        "        wanted=1,\n",
        "tests/namenode/test_catalog_blocks.py",
        "tests/namenode/test_reducer.py",
    ),
    _recovery(
        "what was finalized before a block was opened again counts as whole",
        "blocks/replicas.py",
        "            if version.generation >= record.writer_generation\n",
        "",
        "tests/namenode/test_replicas.py",
    ),
    _recovery(
        "those who stay are not whole until they have answered",
        "blocks/replicas.py",
        "            if version.generation >= record.writer_generation\n",
        "            if version.generation >= record.finalized_generation\n",
        "tests/namenode/test_replicas.py",
    ),
    _recovery(
        "what cannot be ended is tried again while the try before is under way",
        "housekeeper.py",
        "            self._expiring[what] = math.inf\n",
        "            self._expiring[what] = now_s + RETRY_S\n",
        "tests/namenode/test_closing_files.py",
    ),
    _recovery(
        "a copy of a request is done again",
        "catalog/changes.py",
        "    if before is not None and once.sequence <= before.sequence:\n",
        "    if before is not None and once.sequence < before.sequence:\n",
        "tests/namenode/test_repeats.py",
    ),
    _recovery(
        "a directory that got an entry is forgotten by the sweep",
        "catalog/garbage.py",
        "        draft.expect_empty(keys.entries(number))\n",
        "",
        GARBAGE,
    ),
    _recovery(
        "a file that got a block is forgotten by the sweep",
        "catalog/garbage.py",
        "    draft.expect_empty(keys.places(number, kept.swept_to if kept else 0))\n",
        "",
        GARBAGE,
    ),
    _recovery(
        "a file that got a block is deleted as if it had none",
        "catalog/namespace.py",
        "    draft.expect_empty(span)\n",
        "",
        GARBAGE,
    ),
    _recovery(
        "a new directory that got an entry is deleted as if it had none",
        "catalog/namespace.py",
        "return draft.get(touched).exists",
        "return False",
        GARBAGE,
    ),
    _recovery(
        "a block that another cluster made is deleted",
        "blocks/replicas.py",
        "    if not ours:\n        return Judgement(Verdict.ALARM, ",
        "    if not ours:\n        return Judgement(Verdict.DELETE, ",
        "tests/namenode/test_replicas.py",
    ),
    _recovery(
        "a storage that may be about to become a member loses its replica",
        "blocks/replicas.py",
        "    if promised > up_to:\n",
        "    if promised > up_to + 1:\n",
        "tests/namenode/test_replicas.py",
    ),
    _recovery(
        "a finished copy that its NameNode did not live to hear of is left as it is",
        "blocks/replicas.py",
        "Verdict.COPIED if stranger else Verdict.HOLDS",
        "Verdict.FINE if stranger else Verdict.HOLDS",
        MONITOR,
    ),
    _recovery(
        "what a dead DataNode held is made again at once",
        "blocks/replication/storage_states.py",
        "        if dead_s >= patience.replicate_after_s:\n",
        "        if dead_s >= 0:\n",
        MONITOR,
    ),
    _recovery(
        "what DataNodes have not reported yet counts as lost",
        "blocks/replication/storage_states.py",
        "not (live and complete):\n",
        "not live:\n",
        MONITOR,
    ),
    _recovery(
        "blocks with the most replicas are copied first",
        "blocks/replication/waiting.py",
        "sorted(self._ranks)",
        "sorted(self._ranks, reverse=True)",
        MONITOR,
    ),
    _recovery(
        "a DataNode sends copies without a limit",
        "blocks/replication/copies.py",
        "self._at_source[source] >= self._limits.per_source",
        "self._at_source[source] >= 1000",
        MONITOR,
    ),
    _recovery(
        "a copy waits for a process in whose place another one is",
        "blocks/replication/copies.py",
        "            if self._incarnation(each.copy.target) != each.incarnation:\n",
        "            if not each.incarnation:\n",
        MONITOR,
    ),
    _recovery(
        "a copy waits for a DataNode that is dead",
        "blocks/replication/copies.py",
        "            if not view.place(each.copy.target).live:\n",
        "            if not each.incarnation:\n",
        MONITOR,
    ),
    _recovery(
        "a finished copy is no member",
        "blocks/replication/copies.py",
        "current = await self._join(record.block, copy.target, generation)",
        "current = None",
        MONITOR,
    ),
    _recovery(
        "a copy that met a cut and another epoch is gone on with",
        "blocks/replication/copies.py",
        "if not goes_on(record, current):",
        "if not current.finalized:",
        MONITOR,
    ),
    _recovery(
        "a block of the leader before waits for the next walk",
        "blocks/replication/monitor.py",
        "if len(whole) < len(record.members) and len(self._unheard) < UNHEARD_MAX:",
        "if False:",
        MONITOR,
    ),
    _recovery(
        "what a first report lacks waits for the next walk",
        "blocks/replication/monitor.py",
        "if changed or told or given_up:",
        "if changed or given_up:",
        MONITOR,
    ),
    _recovery(
        "copies are begun in safe mode",
        "blocks/replication/monitor.py",
        "        if not self._holds():\n            if self._held:",
        "        if True:\n            if self._held:",
        MONITOR,
    ),
    _recovery(
        "two members on one node",
        "blocks/placement.py",
        "        best.setdefault(candidate.node, candidate)\n",
        "        best.setdefault(candidate.storage, candidate)\n",
        "tests/namenode/test_placement.py",
    ),
    _recovery(
        "two replicas stay in one rack although there is another",
        "blocks/placement.py",
        "(each for each in equals if each.rack not in racks)",
        "(each for each in equals if each.rack in racks)",
        "tests/namenode/test_placement.py",
    ),
    _recovery(
        "a copy goes to the node of another replica",
        "blocks/placement.py",
        "    if candidate.node in taken:\n",
        "    if candidate.storage in taken:\n",
        "tests/namenode/test_placement.py",
    ),
    _recovery(
        "who asks is told the distance of somebody else",
        "blocks/block_views.py",
        "        asker = self._datanodes.locate(host)\n",
        "        asker = None\n",
        "tests/namenode/test_adding_blocks.py",
    ),
    _recovery(
        "a move takes a block out of its second rack",
        "blocks/replication/balance.py",
        "    return len(after) >= min(len(before), _RACKS_PER_BLOCK)\n",
        "    return len(after) >= 1\n",
        "tests/namenode/test_balance.py",
    ),
    _recovery(
        "a block goes to the node of another replica of it",
        "blocks/replication/balance.py",
        "    if any(other.node == target.node for other in others):\n",
        "    if any(other.storage == target.storage for other in others):\n",
        "tests/namenode/test_balance.py",
    ),
    _recovery(
        "full and empty are turned around by a move",
        "blocks/replication/balance.py",
        "source.use - less / 2 <= target.use + more / 2:\n",
        "source.use <= target.use:\n",
        "tests/namenode/test_balance.py",
    ),
    _recovery(
        "another member than the one of the move leaves",
        "blocks/replication/balancer.py",
        "        self._reducer.prefer(move.block, move.source)\n",
        "",
        "tests/namenode/test_balancer.py",
    ),
    _recovery(
        "a replica of a file that is written is moved",
        "catalog/members.py",
        "        if inode is None or inode.open:\n",
        "        if inode is None:\n",
        "tests/namenode/test_balancer.py",
    ),
    _recovery(
        "a node that is to leave counts as a place to stay",
        "blocks/replication/leaving_nodes.py",
        "        return self.view.place(storage).state is StorageState.IN_SERVICE\n",
        "        return self.view.place(storage).state is not StorageState.LOST\n",
        "tests/namenode/test_leaving_nodes.py",
    ),
    _recovery(
        "a block that is written holds nobody up",
        "blocks/replication/leaving_nodes.py",
        "            enough = not for_good and elsewhere >= least\n",
        "            enough = True\n",
        "tests/namenode/test_leaving_nodes.py",
    ),
    _recovery(
        "a node may go when one replica is elsewhere",
        "blocks/replication/leaving_nodes.py",
        "            enough = elsewhere >= least\n",
        "            enough = elsewhere > 0\n",
        "tests/namenode/test_leaving_nodes.py",
    ),
    _recovery(
        "what was seen before a change is told after it",
        "blocks/replication/leaving_nodes.py",
        "        if not self._changed.is_set():",
        "        if True:",
        "tests/namenode/test_leaving_nodes.py",
    ),
    _recovery(
        "fsck does not go on within a file",
        "blocks/replication/fsck.py",
        "    return None if blocks.next_place is None else FsckCursor(path, blocks.next_place)\n",
        "    return None\n",
        "tests/namenode/test_fsck.py",
    ),
    _recovery(
        "a name that is gone hides from fsck what comes behind it",
        "catalog/subtree_walk.py",
        "        if child is None:\n            break\n",
        "        if child is None:\n            return\n",
        "tests/namenode/test_fsck.py",
    ),
    _recovery(
        "a sum is of several moments",
        "subtrees.py",
        "        after = go_on(moment, after)\n",
        "        after = go_on(await node.catalog.view(), after)\n",
        "tests/namenode/test_subtrees.py",
    ),
    _recovery(
        "fsck calls a block missing that is damaged",
        "blocks/replication/fsck.py",
        "        yield Condition.CORRUPT if need.damaged else Condition.MISSING\n",
        "        yield Condition.MISSING\n",
        "tests/namenode/test_fsck.py",
    ),
    _recovery(
        "a damaged copy that may be a member by now is deleted",
        "blocks/replicas.py",
        '        return Judgement(Verdict.FINALIZE, "is a damaged copy")\n',
        '        return Judgement(Verdict.DELETE, "", promised)\n',
        "tests/namenode/test_dead_replicas.py",
    ),
    _recovery(
        "who gave up waiting for its turn is committed all the same",
        "catalog/member_batches.py",
        "            with suppress(ValueError):\n                self._waiting.remove(mine)\n",
        "            pass\n",
        "tests/namenode/test_together.py",
    ),
    _recovery(
        "whom somebody else was committing waits for ever",
        "catalog/member_batches.py",
        "            self._waiting[:0] = [each for each in some if each is not mine]\n",
        "",
        "tests/namenode/test_together.py",
    ),
    _recovery(
        "ids are handed out twice",
        "catalog/ids.py",
        "                expect=(Expect(self._key, found.revision),),\n",
        "",
        "tests/namenode/test_catalog_restart.py",
        "tests/namenode/test_leadership.py",
        "tests/namenode/test_catalog_blocks.py",
    ),
    _recovery(
        "an entry of the journal is committed before it is durable",
        "kv/journal.py",
        "        self.log.sync()\n        self.next_index += count\n",
        "        self.next_index += count\n",
        JOURNAL_CRASH_STATES,
    ),
    _recovery(
        "a batch of the journal counts before the kernel has synced it",
        "kv/journal.py",
        "        if journal.log.begin_sync(kernel, done):\n",
        "        done(None)\n        if journal.log.begin_sync(kernel, lambda _: None):\n",
        "tests/namenode/test_kv_appending.py",
    ),
    _store(
        "what a refused batch left in the journal is not cut off",
        "journal/record_log.py",
        "                self._disk.truncate(segment.handle, segment.end)\n",
        "                pass\n",
        RECORD_LOG,
    ),
    _store(
        "a segment is removed before those that are older are gone for good",
        "journal/record_log.py",
        "        self._disk.sync_folder(self._names.folder)\n",
        "",
        "tests/raft/test_crash_states.py",
    ),
    _store(
        "a segment that found no room has changed the one before",
        "journal/record_log.py",
        "            encoded = header.encode(self._form.magic)\n",
        "            encoded = header.encode(self._form.magic)\n"
        "            self.taking = self.taking and LogSegment(0, header, same_boot=True)\n",
        FULL_STORE,
    ),
    _store(
        "the mark says that a batch is durable before it is",
        "journal/record_log.py",
        "            segment.end = offset + len(record)\n",
        "            segment.end = offset + len(record)\n"
        "            self._mark.move(DurableTo(self.last, segment.end, max(self.highest, key)))\n",
        JOURNAL_CRASH_STATES,
    ),
    _store(
        "a journal that ends before its mark is taken for a torn one",
        "journal/record_log.py",
        "            self.durable = mark\n",
        "            self.durable = None\n",
        "tests/journal/test_catalog_mark.py",
    ),
    _recovery(
        "the database says of itself that it is the map after an earlier entry",
        "kv/rocks_table.py",
        "        meta = Meta(_FORMAT, self.revision, self._keys, self.term)\n",
        "        meta = Meta(_FORMAT, self._settled[0], self._keys, self._term)\n",
        TABLES,
    ),
    _recovery(
        "the journal forgets what came during a flush",
        "raft/raft_node.py",
        "            await self._compact(flush.revision)\n",
        "            await self._compact(self.machine.revision)\n",
        "tests/raft/test_store.py",
    ),
    _recovery(
        "a key that was put into a gap is not found",
        "kv/empty_ranges.py",
        "            self._first[key[0]] = (first, key)\n",
        "            pass\n",
        TABLES,
    ),
    _recovery(
        "a key that was put into an empty range is not found",
        "kv/empty_ranges.py",
        "        self._empty.pop(key[:OWNER_BYTES], None)\n",
        "",
        TABLES,
    ),
    _recovery(
        "a key behind the last one of its kind is not found",
        "kv/empty_ranges.py",
        "            self.last[key[0]] = key\n",
        "            pass\n",
        TABLES,
    ),
    _recovery(
        "a key that came with many is not found behind the last one of its kind",
        "kv/rocks_table.py",
        "        self._gaps.fill_some(greatest.values())\n",
        "        self._gaps.fill_some(())\n",
        TABLES,
    ),
    _recovery(
        "a damaged block of the database looks like the end of a range",
        "kv/rocks_table.py",
        "                    found.status()  # a damaged block ends the scan, too, and is no gap\n",
        "                    pass\n",
        TABLES,
    ),
    _recovery(
        "a long value leaves the one before it in the cache",
        "kv/rocks_table.py",
        "                    values.forget({key})\n",
        "                    pass\n",
        TABLES,
    ),
    _recovery(
        "a flush is begun on a full disk",
        "kv/rocks_table.py",
        "        if self._disk.room(self._path).free_bytes < needed:\n",
        "        if False:\n",
        TABLES,
    ),
    _recovery(
        "what found no room on a full disk stays in the log of a member that is alone",
        "raft/log.py",
        "        self._tail.cut_from(self.durable_index + 1)\n        self._queue.clear()\n",
        "        self._queue.clear()\n",
        FULL_STORE,
    ),
    _recovery(
        "a vote finds no room that was kept for it",
        "raft/vote_file.py",
        "                if not self.spare.give():\n                    raise\n",
        "                raise\n",
        FULL_MEMBER,
    ),
    _recovery(
        "a vote for which there was no room is given all the same",
        "raft/vote_file.py",
        "                if not self.spare.give():\n                    raise\n",
        "                if not self.spare.give():\n                    break\n",
        FULL_MEMBER,
    ),
    _recovery(
        "a member whose disk is full is handed the lead",
        "raft/raft_node.py",
        "        return self.full is None and self.damage is None\n",
        "        return self.damage is None\n",
        FULL_MEMBER,
    ),
    _recovery(
        "nobody leads while a majority of disks is full",
        "raft/roles.py",
        "        if server.damage is not None or not self.state.may_stand:\n",
        "        if not (server.may_lead and self.state.may_stand):\n",
        FULL_MEMBER,
    ),
    _recovery(
        "a term begins with no room on a full disk",
        "raft/log.py",
        "            if not (self._begins_term and await self._run(self._lend, sum(map(len, "
        "batch)))):\n",
        "            if True:\n",
        FULL_MEMBER,
    ),
    _recovery(
        "changes take the room that is kept for votes",
        "raft/log.py",
        "        return self._began_at > self._durable_position\n",
        "        return True\n",
        FULL_MEMBER,
    ),
    _recovery(
        "the beginnings of terms take all the room that is kept for votes",
        "raft/vote_file.py",
        "leave_bytes=FOR_VOTES_BYTES)",
        "leave_bytes=0)",
        FULL_MEMBER,
    ),
    _recovery(
        "a member with room lets a full one lead",
        "raft/roles.py",
        "        return alike and asked.full and self.state.server.may_lead\n",
        "        return False\n",
        FULL_MEMBER,
    ),
    _recovery(
        "a follower keeps to itself that its disk is full",
        "raft/roles.py",
        "        full = server.full is not None\n        damaged",
        "        full = False\n        damaged",
        FULL_MEMBER,
    ),
    _recovery(
        "a leader with a full disk does not look for one with room",
        "raft/leader.py",
        "        return peer in self._full, -self.log.match_index.get(peer, 0)\n",
        "        return False, -self.log.match_index.get(peer, 0)\n",
        FULL_MEMBER,
    ),
    _recovery(
        "a member whose map is damaged stands for election",
        "raft/raft_node.py",
        "        return self.full is None and self.damage is None\n",
        "        return self.full is None\n",
        DAMAGED_MEMBER,
    ),
    _recovery(
        "a member applies entries to a damaged map",
        "raft/raft_node.py",
        "        if self._installing or self.damage is not None:\n",
        "        if self._installing:\n",
        DAMAGED_MEMBER,
    ),
    _recovery(
        "a leader sends its map to no member whose own is damaged",
        "raft/leader.py",
        "        if said.damaged is not None and said.sequence > progress.outdated:\n",
        "        if False:\n",
        DAMAGED_MEMBER,
    ),
    _recovery(
        "a backup that nobody reads holds up all others",
        "backup_route.py",
        "            async with asyncio.timeout(stall_s):\n",
        "            async with asyncio.timeout(None):\n",
        "tests/services/test_stalled_backup.py",
    ),
    _recovery(
        "nobody hears that a member reads damage in its map",
        "kv/rocks_table.py",
        "        return self.on_damage(ours) if isinstance(ours, CorruptionError) else ours\n",
        "        return ours\n",
        TABLES,
    ),
    _recovery(
        "the first steps of a call are forgotten when the disk is full at a later one",
        "leadership.py",
        "            case NoSpaceError() | StorageError() if several_steps:\n",
        "            case NoSpaceError() | StorageError() if not several_steps:\n",
        "tests/namenode/test_leadership.py",
    ),
    _node(
        "the bodies of all requests may take any memory",
        "net/port/request_bodies.py",
        "        if growth > 0 and self.held_bytes + growth > self.limits.memory_bytes:\n",
        "        if growth > 0 and growth > self.limits.memory_bytes:\n",
        FLOODS,
    ),
    _node(
        "a body that ended keeps its part of the memory",
        "net/port/request_bodies.py",
        '            self.count(0, counted(len(body)), "")\n',
        "            pass\n",
        FLOODS,
    ),
    _node(
        "descriptors in reserve are given to nobody",
        "host/descriptors.py",
        "            if RESERVE.give():\n                continue\n",
        "",
        "tests/host/test_descriptors.py",
    ),
    _node(
        "a descriptor that was given is not taken back",
        "host/descriptors.py",
        "    os.close(file)\n    RESERVE.refill()\n",
        "    os.close(file)\n",
        "tests/host/test_descriptors.py",
    ),
    _node(
        "a body may come as slowly as it likes",
        "net/port/request_bodies.py",
        "                if len(body) >= goal:\n",
        "                if body:\n",
        FLOODS,
    ),
    _node(
        "a head that never comes is waited for",
        "net/port/http_server.py",
        "        super().connection_made(transport)\n        self._heads.begin(self)\n",
        "        super().connection_made(transport)\n",
        FLOODS,
    ),
    _node(
        "a connection beyond the cap stays for a second request",
        "net/port/access_server.py",
        "        if slot.spare:\n",
        "        if False:\n",
        FLOODS,
    ),
    _node(
        "a caller that reads no answers is answered on and on",
        "net/calls/call_server.py",
        "            self._writable\n            and not self._leaving",
        "            not self._leaving",
        CALL_SERVER,
    ),
    _node(
        "the calls of one connection leave others no turn",
        "net/calls/call_server.py",
        "                if begun == CALLS_TOGETHER:\n",
        "                if begun < 0:\n",
        CALL_SERVER,
    ),
    _node(
        "a connection may have any number of calls under way",
        "net/calls/call_server.py",
        "            and len(self._under_way) < UNDER_WAY_MAX\n",
        "",
        CALL_SERVER,
    ),
    _node(
        "a connection that answers nothing is used for the next call",
        "net/calls/rpc.py",
        "        if self._heard_s <= pending.sent_s:",
        "        if self._heard_s < 0:",
        CALL_SERVER,
    ),
    _node(
        "a stream beyond the cap stays",
        "net/port/admission.py",
        "        elif not stays and self._spare_count < SPARE_COUNT:\n",
        "        elif self._spare_count < SPARE_COUNT:\n",
        FLOODS,
    ),
    _node(
        "one address has as many connections as it likes",
        "net/port/admission.py",
        "(address, ())) >= self._caps.address:\n",
        "(address, ())) > self._caps.node:\n",
        "tests/net/test_admission.py",
    ),
    _node(
        "each connection of a flood searches for an idle one",
        "net/port/admission.py",
        "self._clock_s() < before_s + SEARCH_AGAIN_S",
        "self._clock_s() < before_s",
        "tests/net/test_admission.py",
    ),
    _node(
        "a connection in use gives way",
        "net/port/admission.py",
        "if holder is not None and holder.idle]",
        "if holder is not None]",
        "tests/net/test_admission.py",
    ),
    _recovery(
        "a DataNode that failed a writer is left out though it was heard of since",
        "blocks/datanodes.py",
        "blame = Blame.PAST if heard_again else Blame.FRESH\n",
        "blame = Blame.FRESH\n",
        "tests/namenode/test_adding_blocks.py",
        LOST_DATANODES,
    ),
    _recovery(
        "a DataNode that failed a writer is blamed for what it did before it registered again",
        "blocks/datanodes.py",
        "            if home is None or home.registered_s > failed_s:\n",
        "            if home is None:\n",
        "tests/namenode/test_adding_blocks.py",
    ),
    Mutant(
        Area.STORE,
        "a DataNode does not beat while it does not read",
        ("tests/datanode/test_served_stream.py",),
        Patch(
            "paxosblock/net/streams/beats.py",
            "        if connection.writable:  #",
            "        if connection.writable and not connection._reading_paused:  #",
        ),
    ),
    Mutant(
        Area.STORE,
        "a beat does not tell what has arrived",
        ("tests/datanode/test_served_stream.py",),
        Patch(
            "paxosblock/net/streams/beats.py",
            "acknowledged=connection.received_bytes & _BYTES_MASK",
            "acknowledged=0",
        ),
    ),
    Mutant(
        Area.STORE,
        "a beat does not tell of a disk that hangs",
        ("tests/datanode/test_hung_disk.py",),
        Patch(
            "paxosblock/net/streams/beats.py",
            "request=round(self._stands_s() * 1000)",
            "request=0",
        ),
    ),
    _store(
        "a disk that is slow counts as one that hangs",
        "datanode/volumes/hung_disk.py",
        "            self._asking = True\n            self._ask()\n",
        "            self._asking = True\n",
        "tests/datanode/test_hung_disk.py",
    ),
    _client(
        "a writer waits for a disk that hangs as for one that is slow",
        "session/watched.py",
        "if connection is not None and connection.disk_stands_s >= stands_s",
        "if connection is None",
        "tests/client/test_hung_nodes.py",
    ),
    _client(
        "a writer leaves disks that hang though too few others have voted",
        "session/watched.py",
        "if waited_s < patient_s or answered_count < recovery_quorum(member_count):",
        "if waited_s < patient_s:",
        "tests/client/test_hung_nodes.py",
    ),
    _client(
        "a DataNode is suspected because a member left its block",
        "reading/block_reader.py",
        "                self._gone.add(member.storage)\n",
        "                self._session.reading.suspect(member.address)\n",
        "tests/client/test_members_that_leave.py",
    ),
    _client(
        "a beat is a sign of life though nothing arrives at the DataNode",
        "session/watched.py",
        "        if reads or header.index:\n",
        "        if reads or True:\n",
        WATCHED,
    ),
    _client(
        "a DataNode that has stopped to read is taken for one that hangs",
        "session/watched.py",
        "        if reads or header.index:\n",
        "        if reads:\n",
        WATCHED,
    ),
    _client(
        "a client that stood still blames the others",
        "session/patience.py",
        "        self.now_s += min(elapsed_s, self.tick_s)\n",
        "        self.now_s += elapsed_s\n",
        WATCHED,
    ),
    _client(
        "a client that is always busy never notices a DataNode that hangs",
        "session/patience.py",
        "        if stood_still_before or not self._stood_still:\n",
        "        if not self._stood_still:\n",
        WATCHED,
    ),
    _client(
        "a block that failed is ended by the next call only",
        "writing/file_writer.py",
        "        self._exclusions.add(failed)\n        self._tender.wake()\n",
        "        self._exclusions.add(failed)\n",
        LOST_DATANODES,
    ),
    _client(
        "a short block is ended by the next call only",
        "writing/file_writer.py",
        "            self._rolling = block\n            self._tender.wake()\n",
        "            self._rolling = block\n",
        LOST_DATANODES,
    ),
    _client(
        "a DataNode that works again is not forgiven",
        "writing/file_writer.py",
        "            self._exclusions.forgive(block.members)\n",
        "",
        LOST_DATANODES,
    ),
    _client(
        "a call that was cancelled leaves a block that listens",
        "writing/block_writer.py",
        "            self.release()  # a cancelled call forgets us, the connections would not\n",
        "",
        "tests/client/test_hung_nodes.py",
    ),
    _client(
        "a sync is content with one member that finalized the block",
        "writing/durable.py",
        "enough = read_quorum(len(view.members))",
        "enough = 1",
        FILE_WRITER,
    ),
    _client(
        "a decided length may be below what was acknowledged",
        "writing/block_writer.py",
        "if not acknowledged <= length <= sent:",
        "if not length <= sent:",
        FILE_WRITER,
    ),
    _client(
        "a decided length may be above what was sent",
        "writing/block_writer.py",
        "if not acknowledged <= length <= sent:",
        "if not acknowledged <= length:",
        FILE_WRITER,
    ),
    _node(
        "a DataNode is replaced at two replicas",
        "base/replacement.py",
        "return r >= 3 and",
        "return r >= 2 and",
        "tests/base/test_replacement.py",
    ),
    _client(
        "what is not acknowledged is not sent again after a Grant",
        "writing/block_writer.py",
        "self._in_flight = deque(again)",
        "del again",
        BLOCK_WRITER,
    ),
    _client(
        "a refusal of the generation before a Grant ends the one after it",
        "writing/block_writer.py",
        "        if nack.generation != self.generation:\n",
        "        if nack.generation > self.generation:\n",
        BLOCK_WRITER,
    ),
    _client(
        "a quorum read in memory mode does not ask for the disk",
        "reading/length.py",
        "sync=record.durability is Durability.MEMORY",
        "sync=False",
        FILE_READER,
    ),
    _client(
        "chunks of a sealed block are sent again in the wrong order",
        "writing/file_writer.py",
        "extendleft(reversed(sealed.rest))",
        "extendleft(sealed.rest)",
        FILE_WRITER,
        RANDOM_WRITES,
    ),
    _client(
        "a file that is closed too short is not noticed",
        "writing/file_writer.py",
        "        if status.size != self.acknowledged:\n",
        "        if status.size > self.acknowledged:\n",
        FILE_WRITER,
    ),
    _client(
        "a chunk is read without its checksum",
        "reading/block_reader.py",
        "            if crc32c(payload[begin:stop]) != crc:\n",
        "            if stop < begin:\n",
        FILE_READER,
    ),
    _client(
        "equally long chunks are read without their checksums",
        "reading/block_reader.py",
        "        if even.chunks and not even.is_good(payload):",
        "        if even.chunks and not even.names:",
        FILE_READER,
    ),
    _client(
        "what the next block got is acknowledged before the end of the one before",
        "writing/file_writer.py",
        "        block = self._left.block if self._left else self._block\n",
        "        block = self._block\n",
        "tests/client/test_look_ahead.py",
    ),
    _client(
        "a flush does not wait for the end of the block before",
        "writing/file_writer.py",
        "            await self._push()\n            await self._recorded()\n",
        "            await self._push()\n",
        "tests/client/test_look_ahead.py",
    ),
    _client(
        "a chunk is taken for another one",
        "reading/block_reader.py",
        "self._run.first, self._size_bytes):\n",
        "header.index, self._size_bytes):\n",
        FILE_READER,
    ),
    _client(
        "the furthest replica is read first",
        "reading/block_reader.py",
        "                at.distance,\n",
        "                -at.distance,\n",
        FILE_READER,
    ),
    _recovery(
        "what changes names does not expect that safe mode stays off",
        "catalog/namespace.py",
        "    return draft.get(keys.SAFE_MODE).exists\n",
        "    return draft.peek(keys.SAFE_MODE).exists\n",
        "tests/namenode/test_safe_mode_by_hand.py",
    ),
    _recovery(
        "safe mode ends when enough was reported once",
        "blocks/replication/safe_mode.py",
        "            self._met_s = None\n        elif self._met_s is None:\n",
        "            pass\n        elif self._met_s is None:\n",
        "tests/namenode/test_safe_mode.py",
    ),
    _recovery(
        "a replica of an earlier version counts as reported",
        "blocks/replicas.py",
        "        self.complete += self._has_enough(held) - "
        "self._has_enough(self._held.get(block))\n",
        "        before = self._held.get(block)\n"
        "        self.complete += self._has_enough(held) and not self._has_enough(before)\n",
        "tests/namenode/test_safe_mode.py",
    ),
    _recovery(
        "a folder gets the longer list before its map has all that was answered",
        "raft/list_change.py",
        "        machine.flush().write()\n",
        "",
        "tests/raft/test_growing.py",
    ),
    _recovery(
        "the log of one of several counts as committed when it is started alone",
        "raft/member_folder.py",
        "        if alone and (others := known_members(disk, folder)):\n",
        "        if not alone and (others := known_members(disk, folder)) == ['alone']:\n",
        "tests/raft/test_growing.py",
    ),
    _recovery(
        "a folder that lost its vote begins as that of a new cluster of one",
        "raft/member_folder.py",
        "        if _has_entries(names):\n            raise",
        "        if not names:\n            raise",
        "tests/raft/test_growing.py",
    ),
    _recovery(
        "a folder that was lost since may be let in again",
        "raft/folder_admission.py",
        "if lineage.born or admissions.tokens.get(caller, said.token) != said.token:",
        "if lineage.born:",
        "tests/raft/test_seed.py",
    ),
    _recovery(
        "a member that had not the catalog first lets others in",
        "raft/folder_admission.py",
        "    if admissions.first != address:\n",
        "    if admissions.first == address == caller:\n",
        "tests/raft/test_seed.py",
    ),
    _recovery(
        "one is let in while another has not asked, which may have an earlier log",
        "raft/folder_admission.py",
        '    if missing:\n        return Waits(\n            f"{address} waits',
        '    if missing and not missing:\n        return Waits(\n            f"{address} waits',
        "tests/raft/test_seed.py",
    ),
    _recovery(
        "one that goes by another list of members is let in",
        "raft/folder_admission.py",
        "    said = asking[caller]\n    if said.members != members:\n",
        "    said = asking[caller]\n    if said.members == members[:1]:\n",
        "tests/raft/test_seed.py",
    ),
    _recovery(
        "a newborn takes no notice of a cluster that exists",
        "raft/folder_admission.py",
        "        if said.lineage and said.lineage != own.chosen:\n",
        "        if said.lineage and said.lineage == own.token:\n",
        "tests/raft/test_admissions.py",
    ),
    _recovery(
        "a proof for one NameNode is good at another",
        "raft/http_transport.py",
        '    return f" {caller} {called}"\n',
        '    return ""\n',
        "tests/raft/test_http_transport.py",
    ),
    _recovery(
        "members of all lineages know each other",
        "raft/http_transport.py",
        "_LINEAGE_PURPOSE + lineage.encode()",
        "_LINEAGE_PURPOSE",
        "tests/raft/test_seed.py",
    ),
    _recovery(
        "a member may have no lineage",
        "raft/member_folder.py",
        "        if not read_lineage(disk, folder).name:\n",
        "        if not read_lineage(disk, folder):\n",
        "tests/raft/test_first_start.py",
    ),
    _node(
        "a recovery waits behind copies",
        "datanode/transfer.py",
        "async with self._repairs:",
        "async with self._copies:",
        COPIES,
    ),
    _node(
        "an unfinished copy is begun anew",
        "datanode/transfer.py",
        "if kept.volume is volume and kept.is_beginning_of(request):",
        "if False:",
        COPIES,
    ),
    _node(
        "an unfinished copy is gone on with behind a cut",
        "datanode/transfer.py",
        "NO_GENERATION < request.beginning <= self.generation",
        "True",
        COPIES,
    ),
    _node(
        "a copy goes into the reserve",
        "datanode/transfer.py",
        "await self._check_room(volume, len(records))",
        "pass",
        COPIES,
    ),
    _node(
        "a holder sends copies as fast as it can",
        "datanode/replica_reads.py",
        "                    await self._copies.take(",
        "                    self._copies.take(",
        COPIES,
    ),
    _recovery(
        "what a holder tells of another version is believed",
        "blocks/cutter.py",
        "    return inside and found.size_bytes == record.size_bytes\n",
        "    return inside\n",
        TRUNCATE,
    ),
    _recovery(
        "members are not told that a block was cut",
        "blocks/cutter.py",
        "            self._finalizer.spread(record)\n",
        "            pass\n",
        TRUNCATE,
    ),
    _recovery(
        "a boundary counts for whatever version there is by now",
        "catalog/truncate.py",
        "cut = Cut(record.block, record.finalized_generation, kept, entry.added_bytes)",
        "cut = Cut(record.block, record.writer_generation, kept, entry.added_bytes)",
        TRUNCATE,
    ),
    _recovery(
        "an empty block of a fenced writer goes with what is cut off",
        "catalog/truncate.py",
        "        elif not entry.record.length:\n",
        "        elif not entry.record.finalized:\n",
        TRUNCATE,
    ),
    _recovery(
        "a file that was truncated is told from none that was not",
        "catalog/truncate.py",
        "truncations=inode.truncations + 1",
        "truncations=inode.truncations",
        TRUNCATE,
    ),
    _recovery(
        "a file that was truncated passes for the one that was looked at",
        "catalog/transactions.py",
        "if wanted.truncations not in (None, inode.truncations):",
        "if wanted.truncations not in (None, wanted.truncations):",
        TRUNCATE,
    ),
    _node(
        "a page of a file that was truncated is taken for one of what it was",
        "client/reading/block_reader.py",
        "    if now.truncations != before.truncations:\n",
        "    if now.truncations < before.truncations:\n",
        TRUNCATE_PROCESSES,
    ),
    _node(
        "bytes that were read before somebody changed a file are appended to it",
        "client/names/truncating.py",
        "AssertFile(path, status.file_id, status.size, status.truncations)",
        "AssertFile(path)",
        TRUNCATE_PROCESSES,
    ),
    _node(
        "nobody looks for the epoch of an unreadable replica",
        "datanode/store/load.py",
        "max((data.epoch for data in found.datas), default=UNKNOWN_EPOCH)",
        "Generation(0)",
        UNREADABLE,
    ),
    _node(
        "an unreadable replica without a block file is healed by anything",
        "datanode/store/load.py",
        "default=UNKNOWN_EPOCH)",
        "default=Generation(0))",
        UNREADABLE,
    ),
    _node(
        "the name of a block file does not tell its epoch",
        "datanode/store/layout.py",
        'f"blk_{block}_{epoch}" if epoch else f"blk_{block}"',
        'f"blk_{block}"',
        UNREADABLE,
    ),
    _node(
        "an earlier program takes a block that was opened again for its own",
        "datanode/store/meta.py",
        "MAGIC if self.registers.epoch else OF_THE_FIRST_EPOCH",
        "OF_THE_FIRST_EPOCH",
        UNREADABLE,
    ),
    _recovery(
        "a recovery does not go above what members have promised to nobody",
        "blocks/recoverer.py",
        "above=run.promised",
        "above=NO_GENERATION",
        "tests/namenode/test_stray_promises.py",
    ),
    _recovery(
        "a member whose promise is far behind is not brought near",
        "blocks/runner.py",
        "step = recovery.step_towards(question, answer)",
        "step = None",
        "tests/namenode/test_stray_promises.py",
    ),
    _recovery(
        "a block that was begun to be opened again stays so though nobody asks for it",
        "blocks/reopener.py",
        "        loop.call_later(self.set_up_s, self._end_unasked, key)\n",
        "",
        REOPENING,
    ),
    _recovery(
        "a copy of the request that opens a file begins another APPEND",
        "catalog/reopening.py",
        "is_copy = not draft.changes ",
        "is_copy = False ",
        REOPENING,
    ),
    _recovery(
        "a block is opened again at any one of its members",
        "blocks/reopener.py",
        "max(self.min_replication, count // 2 + 1)",
        "self.min_replication",
        REOPENING,
    ),
    _recovery(
        "an APPEND that nobody took is not given up",
        "blocks/reopener.py",
        "        if record.reopening:\n            await self.give_up(record)\n",
        "",
        REOPENING,
    ),
    _recovery(
        "a close leaves a block on its way to be opened again",
        "catalog/blocks.py",
        "    given_up = give_up_append(draft, last.entry) if last and not dropped else None\n",
        "    given_up = None\n",
        REOPENING,
    ),
    _recovery(
        "a block is opened again for a writer that does not hold the file",
        "catalog/reopening.py",
        "    _, inode = requested(draft, request)\n",
        "    inode, _ = blocks.file_and_path(draft, request.file_id)\n",
        REOPENING,
    ),
    _recovery(
        "a block that lost a member is opened again though a new one would get more",
        "blocks/reopener.py",
        "        if len(targets) < wish.replication:\n",
        "        if False:\n",
        REOPENING,
    ),
    _recovery(
        "a move no longer counts as soon as its source is no member any more",
        "blocks/replication/balancer.py",
        "moving.move.source, max(moving.gone_s, moving.ended_s))",
        "moving.move.source, moving.ended_s)",
        "tests/namenode/test_balancer.py",
    ),
    _recovery(
        "a block with too few members waits for the walk over all blocks",
        "name_node.py",
        "told=lambda block: self.monitor.look_if_short(block),",
        "told=lambda block: None,",
        "tests/namenode/test_monitor.py",
    ),
    _recovery(
        "a member that never reported a block is lost, and nobody looks at the block",
        "blocks/replication/monitor.py",
        "            await self._look_at_all(tuple(self._unheard))\n",
        "            pass\n",
        "tests/namenode/test_monitor.py",
    ),
    _recovery(
        "nobody waits for the block that was opened again",
        "catalog/reopening.py",
        "msgspec.structs.replace(inode, appended_from=installed.sequence)",
        "inode",
        REOPENING,
    ),
    _recovery(
        "members are told to finalize while their block is opened again",
        "blocks/finalizer.py",
        "        if record.reopening or record.restored:\n",
        "        if record.restored:\n",
        REOPENING,
    ),
    _client(
        "what a block had before counts twice",
        "writing/file_writer.py",
        "        self._finished_bytes -= block.acknowledged_bytes\n",
        "",
        APPENDING,
    ),
    _client(
        "a block that was opened again but not reached is asked for as a new one",
        "writing/next_block.py",
        "            if reopened.view is not None:\n                return",
        "            if reopened.view is not None:\n                self._reopens = False\n"
        "                return",
        APPENDING,
    ),
    _node(
        "a timer of uvloop is asked for its time, which it does not always know",
        "net/pending_calls.py",
        "due_s < self._due_s:",
        "due_s < self._timer.when():",
        "tests/net/test_rpc.py",
        "tests/net/test_calls.py",
    ),
    _node(
        "a NameNode that stood still calls those dead that it did not hear meanwhile",
        "host/stall.py",
        "            self._still_s += now_s - self._seen_s\n",
        "            pass\n",
        "tests/host/test_stall.py",
    ),
    _client(
        "a node on a busy machine must answer as soon as on an idle one",
        "session/watched.py",
        " + self._clock.allowance_s:",
        ":",
        "tests/client/test_watched.py",
    ),
    _client(
        "a try to connect is given up for the time in which we stood still",
        "session/patience.py",
        "        self.now_s += min(elapsed_s, self.tick_s)\n",
        "        self.now_s += elapsed_s\n",
        "tests/client/test_watched.py",
    ),
    _node(
        "calls are given up before what came while the loop stood still is read",
        "net/pending_calls.py",
        "        if self._stood_still:\n",
        "        if False:\n",
        "tests/net/test_pending_calls.py",
    ),
    _node(
        "two requests of a session have one name",
        "net/calls/leader_search.py",
        "Once(latest.session, latest.sequence + 1)",
        "Once(latest.session, latest.sequence)",
        "tests/client/test_namenode_calls.py",
    ),
    _node(
        "a full disk hides that an earlier try may have been done",
        "net/calls/leader_search.py",
        "        return error.of_namenode\n",
        "        return False\n",
        "tests/client/test_namenode_calls.py",
    ),
    _node(
        "a proof for one node is good at another one",
        "net/port/own_names.py",
        "        return name in self._addresses\n",
        "        return True\n",
        "tests/net/test_access.py",
    ),
    _node(
        "fsck passes by a block of a backup that was open",
        "namenode/blocks/replication/fsck.py",
        "        if located.entry.record.finalized or located.entry.record.restored:\n",
        "        if located.entry.record.finalized:\n",
        "tests/namenode/test_learner.py",
    ),
    _node(
        "fsck is silent about a block of a backup while its DataNodes are away",
        "namenode/blocks/replication/needs.py",
        "        elsewhere=() if need.sound else may_have,\n",
        "        elsewhere=may_have if need.missing else (),\n",
        "tests/namenode/test_learner.py",
    ),
    _node(
        "a page in a browser may call over HTTP",
        "net/port/access_server.py",
        '    if "Origin" in headers and headers["Origin"] not in pages:\n',
        '    if "Origin " in headers and headers["Origin"] not in pages:\n',
        "tests/net/test_rpc.py",
    ),
    _node(
        "a page in a browser may call under a name of its own",
        "net/port/own_names.py",
        "        return is_address or host in self._hosts\n",
        "        return True\n",
        "tests/net/test_rpc.py",
    ),
    _node(
        "a phrase in the access file is a secret",
        "net/port/access.py",
        "        if secret is None:\n",
        "        if number is None:\n",
        "tests/net/test_access.py",
    ),
    _node(
        "a way stays open though a directory on it was closed",
        "namenode/catalog/draft.py",
        "    return all(map(is_, map(get, read), read.values()))\n",
        "    return True\n",
        TRAILS,
    ),
    _node(
        "what was decided on a trail does not expect that it stays open",
        "namenode/catalog/draft.py",
        "            expect.setdefault(key, found)\n",
        "            pass\n",
        TRAILS,
    ),
    _node(
        "a draft follows a trail through what it has changed itself",
        "namenode/catalog/draft.py",
        "if not self._changes.keys().isdisjoint(read) or not are_still(self._read, read):",
        "if not are_still(self._read, read):",
        TRAILS,
    ),
    _node(
        "a body that drips keeps its place",
        "net/port/http_server.py",
        "        return self.reads_body or not (self._request_in_progress or self._messages)\n",
        "        return not (self._request_in_progress or self._messages)\n",
        "tests/net/test_stuck_peers.py",
    ),
    _node(
        "a stream without a frame keeps its place",
        "net/streams/stream_server.py",
        "        return self._connection.received_bytes == 0\n",
        "        return False\n",
        "tests/net/test_stuck_peers.py",
    ),
    _node(
        "an answer that nobody reads keeps its place",
        "net/port/unread.py",
        "call_later(self._stall_s, self._check_progress, transport",
        "call_later(1e6, self._check_progress, transport",
        "tests/net/test_stuck_peers.py",
    ),
    _node(
        "a head that is no HTTP stays in memory",
        "net/port/http_server.py",
        "            self._forget_what_was_refused()\n",
        "",
        "tests/services/test_node_floods.py",
    ),
    _node(
        "an answer that is read slowly is not read to its end",
        "net/port/unread.py",
        ">= PROGRESS_BYTES:",
        ">= 1 << 60:",
        "tests/net/test_stuck_peers.py",
    ),
    _node(
        "one that proved nothing keeps its place",
        "net/port/admission.py",
        "        if self._unproven.count >= self._caps.unproven and not self._close_unproven():\n",
        "        if self._unproven.count >= self._caps.unproven:\n",
        "tests/net/test_admission.py",
    ),
    _node(
        "what is no text gets no answer",
        "base/encoding.py",
        "(msgspec.DecodeError, UnicodeDecodeError, RecursionError)",
        "(msgspec.DecodeError,)",
        "tests/net/test_stuck_peers.py",
    ),
    _node(
        "a refusal hides that an earlier try may have been done",
        "net/calls/leader_search.py",
        "(before, now) if before.outcome is Outcome.UNKNOWN else (now, before)\n",
        "(now, before)\n",
        "tests/client/test_namenode_calls.py",
    ),
)
"""Patches of the source."""
