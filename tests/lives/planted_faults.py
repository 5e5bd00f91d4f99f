"""Faults that the lives must find, each planted in the shipped code for the length of a `with`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from paxosblock.api.capability import BlockKey
from paxosblock.api.datanode import ReplicaSummary
from paxosblock.api.reports import Timeline
from paxosblock.api.watching import NameChange
from paxosblock.client.session.lease_keeper import Fence
from paxosblock.datanode.own_keys import OwnKeys
from paxosblock.errors import FencedError
from paxosblock.namenode.audiences import Audiences
from paxosblock.namenode.blocks import block_reports, replicas
from paxosblock.namenode.blocks.replicas import Judgement, Verdict
from paxosblock.namenode.blocks.replication import reducer
from paxosblock.namenode.blocks.replication.copies import Copies, Copy
from paxosblock.namenode.blocks.replication.needs import Need, StorageState, StorageView, assess
from paxosblock.namenode.blocks.replication.reducer import Fullness, Leaver, leaver
from paxosblock.namenode.catalog import blocks, kept_blocks, keys, quotas, snapshots, timelines
from paxosblock.namenode.catalog.draft import Draft, Reads
from paxosblock.namenode.catalog.records import FileInode
from paxosblock.namenode.kv.interface import Versioned
from paxosblock.namenode.raft import birth, folder_admission, member_folder
from paxosblock.namenode.raft.folder_admission import Born, Lineage, Newborn, Waits
from paxosblock.net.port.access import Challenge
from paxosblock.protocol import finalize, recovery
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.messages import Grant
from paxosblock.protocol.types import BlockState, Generation, StorageId, WriterId
from tests.lives.world import Changes, changed


def _deletes_at_members() -> Changes:
    """Some members that hold the decided version are told to drop it."""

    def judge(record: BlockRecord | None, ours: bool, summary: ReplicaSummary) -> Judgement:
        found = replicas.judge(record, ours, summary)
        if record is not None and found.verdict is Verdict.HOLDS and record.block % 5 == 0:
            return Judgement(Verdict.DELETE, "planted", record.finalized_generation)
        return found

    return ((block_reports, "judge", judge),)


def _copies_count_at_once() -> Changes:
    """K12 is applied when a copy is begun, and the target is taken for a holder."""
    make = Copies._make

    async def hasty(self: Copies, copy: Copy) -> None:
        await self.adopt(copy.record.block, copy.target, copy.record.finalized_generation)
        await make(self, copy)

    return ((Copies, "_make", hasty),)


def _leaves_unguarded() -> Changes:
    """K13 takes each member for a holder in service, whoever reported."""

    def blind(
        record: BlockRecord,
        need: Need,
        view: StorageView,
        _reported: Collection[StorageId],
        fullness: Fullness,
        *,
        preferred: StorageId | None = None,
    ) -> Leaver | None:
        places = {
            each: replace(view.place(each), state=StorageState.IN_SERVICE, live=True)
            for each in record.members
        }
        seen = StorageView(places, view.racks)
        everybody = assess(record, need.wanted, record.members, seen)
        return leaver(record, everybody, seen, record.members, fullness, preferred=preferred)

    return ((reducer, "leaver", blind),)


def _recovers_in_an_old_generation() -> Changes:
    """K2 allocates no generation while a recovery is under way: others go on in its."""
    allocate = finalize.allocate_seal

    def seal(record: BlockRecord, **more: Any) -> BlockRecord | Refused:
        if record.state is BlockState.UNDER_RECOVERY:
            return record
        return allocate(record, **more)

    return ((finalize, "allocate_seal", seal),)


def _grants_to_whoever_asks() -> Changes:
    """A NameNode that is asked for a Rebuild answers with the Grant that there is (P6)."""

    kept = finalize.granted

    def granted(record: BlockRecord, _: WriterId, generation: Generation) -> Grant | Refused:
        return kept(record, record.writer, generation)

    return ((finalize, "granted", granted),)


def _fences_once() -> Changes:
    """A writer that is fenced is told so once; it forgets that, asks again, and is obeyed."""
    told: set[tuple[int, WriterId]] = set()
    held = blocks.open_file

    def open_file(reads: Reads, number: int, writer: WriterId) -> FileInode:
        if (number, writer) in told:
            inode, _ = blocks.file_and_path(reads, number)
            return inode
        try:
            return held(reads, number, writer)
        except FencedError:
            told.add((number, writer))
            raise

    return ((blocks, "open_file", open_file), (Fence, "check", lambda _: None))


def _opens_to_strangers() -> Changes:
    """A node does not look at the proof of the secret."""
    return ((Challenge, "met_by", lambda _, _proof: True),)


def _believes_backups() -> Changes:
    """Of a block that was brought back a storage that comes first is believed, and asked alone."""

    learn = recovery.learn

    def learned(record: BlockRecord, witnesses: tuple[StorageId, ...]) -> recovery.Proposer:
        return learn(record, witnesses[:1])

    return ((recovery, "learn", learned),)


def _takes_rolled_back_storages() -> Changes:
    """A DataNode that has forgotten what it promised since its upgrade may come in."""

    def enter(draft: Draft, _node: str, entered: Sequence[Timeline]) -> None:
        for each in entered:
            draft.put(keys.timeline(each.storage), each.timeline.encode())

    return ((timelines, "enter", enter),)


def _lets_empty_folders_in() -> Changes:
    """A newborn takes the lineage that it hears, as if only the secret were needed."""
    begin = folder_admission.next_step

    def hasty(
        address: str,
        own: Newborn,
        members: tuple[str, ...],
        heard: Mapping[str, folder_admission.FolderStatus],
    ) -> Newborn | Born | Waits | folder_admission.AdmissionRefused:
        known = [said.lineage for said in heard.values() if said.lineage]
        step = begin(address, own, members, heard)
        return Born(Lineage(known[0], born=True)) if known else step

    return ((birth, "next_step", hasty),)


def _lets_copied_folders_in() -> Changes:
    """No process looks whose folder it is."""
    return ((member_folder, "check_owner", lambda _disk, _folder, _address: None),)


def _rights_are_no_precondition() -> Changes:
    """Rights that change while a change is committed are not looked at again."""

    get = Draft.get

    def read(draft: Draft, key: bytes) -> Versioned:
        return draft.peek(key) if key[:1] == b"i" else get(draft, key)

    return ((Draft, "get", read),)


def _forgets_keys() -> Changes:
    """A DataNode knows the newest key alone."""
    take = OwnKeys.take

    def forgetful(self: OwnKeys, keys: tuple[BlockKey, ...]) -> None:
        take(self, keys[-1:])

    return ((OwnKeys, "take", forgetful),)


def _shows_nothing() -> Changes:
    """No block is looked for in snapshots before it goes."""
    return ((kept_blocks.Shown, "by", lambda _shown, _block: None),)


def _looks_back_too_far() -> Changes:
    """The window shows what was there one revision before."""
    asked_for = snapshots._revision
    return ((snapshots, "_revision", lambda view, name: asked_for(view, name) - 1),)


def _answers_behind_the_change() -> Changes:
    """A change wakes watchers, and is not told to them."""
    concern = Audiences.concern

    def hasty(self: Audiences, change: NameChange) -> None:
        known = len(self.due)
        concern(self, change)
        for audience in tuple(self.due)[known:]:
            audience.after = change.revision

    return ((Audiences, "concern", hasty),)


def _moves_uncounted() -> Changes:
    """A rename across quotas leaves the counts as they are."""
    return ((quotas, "moved", lambda _draft, _before, after: after),)


FAULTS: Final = {
    "one storage is believed after a restore": _believes_backups,
    "a fenced writer is obeyed": _fences_once,
    "a generation has two proposers": _recovers_in_an_old_generation,
    "a Grant goes to another writer": _grants_to_whoever_asks,
    "a stranger comes in": _opens_to_strangers,
    "a lost folder comes in": _lets_empty_folders_in,
    "a copied folder comes in": _lets_copied_folders_in,
    "a copy counts before it is made": _copies_count_at_once,
    "a member leaves whoever reported": _leaves_unguarded,
    "a member is told to delete": _deletes_at_members,
    "a rolled back storage comes in": _takes_rolled_back_storages,
    "rights are no precondition": _rights_are_no_precondition,
    "a DataNode forgets keys": _forgets_keys,
    "a block goes that a snapshot shows": _shows_nothing,
    "the past is shown too early": _looks_back_too_far,
    "a watcher misses what wakes it": _answers_behind_the_change,
    "a rename is not counted": _moves_uncounted,
}
"""By name; each gives what to change."""


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant the fault of this name; None: none."""
    with changed(() if name is None else FAULTS[name]()):
        yield
