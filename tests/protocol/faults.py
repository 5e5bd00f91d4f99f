"""Faults to plant: each replaces one function of the protocol by a plausible wrong one.

The run names in brackets are those of the design's model, where the same fault was found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from paxosblock.api.reports import Register
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.catalog.records import ProcessRecord
from paxosblock.protocol import finalize, read, recovery, register, write
from paxosblock.protocol.effects import DropReplica
from paxosblock.protocol.finalize import BlockRecord, Refused, Why
from paxosblock.protocol.messages import Deleted, Finalize, ReadReply, RecoveryWrite, Vote
from paxosblock.protocol.quorum import recovery_quorum
from paxosblock.protocol.read import QuorumRead, ReadProgress, Version
from paxosblock.protocol.recovery import Choice, Proposer
from paxosblock.protocol.register import Replica, Transition
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    NO_GENERATION,
    BlockState,
    Durability,
    Generation,
    ReplicaState,
    StorageId,
)
from paxosblock.protocol.write import Writer, WriterState
from tests.protocol.world import Budget, Config

MEMORY = Durability.MEMORY


@dataclass(frozen=True, slots=True)
class Fault:
    """A replacement, where it shows, and what the checks say then."""

    owner: ModuleType | type
    name: str
    wrong: Callable[..., Any] | property
    config: Config
    says: str


def _choice(replies: list[Any]) -> Choice:
    best = replies[0]
    return Choice(
        best.registers.accepted_generation,
        best.length,
        best.size_bytes,
        best.tail,
        tuple(r.storage for r in replies if r.length == best.length),
    )


def longest_log_first(proposer: Proposer) -> Choice:
    """P2 the other way round: the highest chunk wins over the highest generation."""
    return _choice(
        sorted(
            proposer.replies,
            key=lambda r: (r.length, r.registers.accepted_generation),
            reverse=True,
        )
    )


def shortest_log(proposer: Proposer) -> Choice:
    """HDFS's rule: the shortest log of all wins."""
    highest = max(r.registers.accepted_generation for r in proposer.replies)
    voters = [r for r in proposer.replies if r.registers.accepted_generation == highest]
    return _choice(sorted(voters, key=lambda r: r.length))


def any_quorum_is_acceptable(proposer: Proposer) -> bool:
    """Weak answers are believed when they say that nothing was there."""
    return len(proposer.replies) >= 2


def promise_one_more(storage: Any, replica: Any, request: Any) -> Transition:
    """I9: a DataNode that is asked again promises a generation that no NameNode allocated."""
    if replica is None or replica.registers.max_generation != request.generation:
        return _next_gs(storage, replica, request)
    return _next_gs(storage, replica, replace(request, generation=request.generation + 1))


def finalize_what_a_recovery_wrote(
    storage: Any, replica: Any, request: Any, supplied: Any
) -> Transition:
    """I6: a DataNode takes a proposal for a decision."""
    step = _recovery_write(storage, replica, request, supplied)
    if step.replica is None or step.effect is None:
        return step
    decided = step.replica.having(
        state=ReplicaState.FINALIZED,
        finalized_generation=request.generation,
        finalized_length=request.length,
    )
    return replace(step, replica=decided)


def heal_whatever_was_promised(dead: Any, request: Any, epoch: Any) -> bool:
    """D9 without the promise: a late copy of an old version heals, too."""
    del dead, epoch
    return isinstance(request, Finalize | RecoveryWrite)


def heal_whatever_the_epoch(dead: Any, request: Any, epoch: Any) -> bool:
    """D9 beside K4 without the epoch: a late Finalize heals a replica that voted since."""
    del epoch
    return _heals(dead, request)


def delete_whatever_was_promised(storage: Any, replica: Any, request: Any) -> Transition:
    """D7 without MaxGS <= up_to."""
    del replica
    return Transition(None, Deleted(request.block, storage), DropReplica())


_recovery_write = register._recovery_write
_finalize = register._finalize
_heals = register.heals
_next_gs = register._next_gs
_read = register._read
_concluded = read._concluded
_holds = read.holds
_remove_replica = finalize.remove_replica
_truncate = finalize.truncate
_finalize_message = finalize.finalize_message
_granted = finalize.granted
_finalize_by_writer = finalize.finalize_by_writer
_learned = recovery._learned
_on_vote = write.on_vote
_restarted = register.restarted
_before = DataNodes.before


def keep_what_is_beyond(storage: Any, replica: Any, request: Any, supplied: Any) -> Transition:
    """D4 without the cut: accepting a shorter log leaves the longer one."""
    step = _recovery_write(storage, replica, request, supplied)
    if step.replica is None or step.effect is None or replica is None:
        return step
    if replica.length > request.length:
        return replace(step, replica=replace(step.replica, log=replica.log))
    return step


def promise_nothing(storage: Any, replica: Any, request: Any) -> Transition:
    """D3: LastVote leaves, but the promise is not kept."""
    step = _next_gs(storage, replica, request)
    return step if replica is None else Transition(replica, step.reply)


def make_without_a_promise(storage: Any, replica: Any, request: Any) -> Transition:
    """D3: an empty replica does not keep the promise with which it is made."""
    step = _next_gs(storage, replica, request)
    if replica is not None or step.replica is None:
        return step
    return replace(step, replica=step.replica.having(max_generation=FIRST_GENERATION))


def finalize_always(storage: Any, replica: Any, request: Any, supplied: Any) -> Transition:
    """D5 without fgs >= MaxGS."""
    if replica is not None and request.finalized_generation < replica.registers.max_generation:
        lowered = replica.having(
            max_generation=request.finalized_generation,
            accepted_generation=min(
                replica.registers.accepted_generation,
                Generation(request.finalized_generation - 1),
            ),
        )
        return _finalize(storage, lowered, request, supplied)
    return _finalize(storage, replica, request, supplied)


def read_without_sync(storage: Any, replica: Any, request: Any) -> Transition:
    """A quorum read counts what a power cut may still take."""
    return replace(_read(storage, replica, request), effect=None)


def write_through_a_promise(replica: Replica, generation: Generation) -> bool:
    """D2 without the fence: a promise does not stop the old writer."""
    return (
        replica.registers.accepted_generation == generation
        and replica.registers.state is ReplicaState.RBW
        and not replica.registers.weak
    )


def never_weak(replica: Replica, *, same_boot: bool) -> Replica:
    """A power cut is forgotten."""
    return _restarted(replica, same_boot=same_boot).having(weak=False)


def count_every_answer(reply: ReadReply, writer_generation: Generation) -> bool:
    """R2 by the length alone, whatever was promised or accepted since."""
    return reply.registers.accepted_generation >= writer_generation and not reply.registers.weak


def count_weak_answers(reply: ReadReply, writer_generation: Generation) -> bool:
    """A replica that may have lost votes is counted."""
    return (
        reply.registers.max_generation == reply.registers.accepted_generation == writer_generation
    )


def tell_no_weakness_after_a_restart(storage: Any, replica: Any, request: Any) -> Transition:
    """D6: a restarted replica is counted, be it weak."""
    step = _read(storage, replica, request)
    if isinstance(step.reply, ReadReply) and step.reply.restarted:
        strong = replace(step.reply.registers, weak=False)
        return replace(step, reply=replace(step.reply, registers=strong))
    return step


def tell_no_restart(storage: Any, replica: Any, request: Any) -> Transition:
    """D6: a reader waits for a replica that takes no Write any more."""
    step = _read(storage, replica, request)
    if isinstance(step.reply, ReadReply):
        return replace(step, reply=replace(step.reply, restarted=False))
    return step


def aim_at_the_shortest(reading: QuorumRead) -> QuorumRead:
    """R2: the goal is the shortest answer, which a quorum has by all means."""
    if len(reading.answers) < reading.quorum:
        return reading
    _, goal, goal_bytes = min(reading.answers, key=lambda answer: answer[1])
    return replace(reading, goal=goal, goal_bytes=goal_bytes)


def return_the_minimum(reading: QuorumRead) -> QuorumRead:
    """R1 as the seed has it, mixed with R2."""
    if reading.quorum == len(reading.members) == len(reading.answers):
        goal = min(length for _, length, _ in reading.answers)
        return replace(reading, goal=goal, progress=ReadProgress.DONE)
    return _concluded(reading)


def serve_what_was_decided_first_only(version: Version, reply: ReadReply) -> bool:
    """R-fin with the generation for the version: a reader that opened a block before a member
    left it finds no member that has it."""
    now = reply.registers
    return now.accepted_generation <= version.finalized_generation and _holds(version, reply)


def read_on_behind_a_cut(version: Version, record: BlockRecord) -> Version:
    """R-fin by the length alone: what an APPEND wrote behind a cut is taken for what was cut."""
    return read.finalized_version(record) if record.length >= version.length else version


def cut_without_a_mark(record: BlockRecord, length: int, size_bytes: int) -> BlockRecord | Refused:
    """K8 is forgotten with the next APPEND."""
    cut = _truncate(record, length, size_bytes)
    if isinstance(cut, Refused):
        return cut
    kept = {name: getattr(cut, name) for name in cut.__struct_fields__}
    return _Unchecked(**kept | {"cut_generation": record.cut_generation})


def cut_under_the_same_generation(
    record: BlockRecord, length: int, size_bytes: int
) -> BlockRecord | Refused:
    """K8 without a fresh finalized generation: two lengths under one name."""
    cut = _truncate(record, length, size_bytes)
    if isinstance(cut, Refused):
        return cut
    kept = {name: getattr(record, name) for name in record.__struct_fields__}
    return _Unchecked(**kept | {"length": length, "size_bytes": size_bytes})


def go_on_across_a_cut(
    record: BlockRecord,
    holders: tuple[StorageId, ...] = (),
    beginning: Generation = NO_GENERATION,
) -> Finalize:
    """P5 for a copy that calls a version from before a cut its beginning."""
    if beginning > NO_GENERATION:
        beginning = FIRST_GENERATION
    return _finalize_message(record, holders, beginning)


def bring_back_with_its_generation(record: BlockRecord) -> BlockRecord:
    """K14: generations that were given since the backup are given again."""
    return replace(record, restored=True)


def learn_what_anybody_has(proposer: Proposer) -> Proposer:
    """K14: all who answered keep what they have, as if their logs were one."""
    learned = _learned(proposer)
    everybody = tuple(sorted(reply.storage for reply in proposer.replies))
    base = Generation(0)
    return replace(learned, base=base, members=everybody, targets=everybody)


def learn_the_longest(proposer: Proposer) -> Proposer:
    """K14: the longest log, however old."""
    longest = max(proposer.replies, key=lambda reply: reply.length)
    same = longest.registers.accepted_generation
    replies = tuple(r for r in proposer.replies if r.registers.accepted_generation == same)
    return replace(_learned(replace(proposer, replies=replies)), replies=proposer.replies)


def close_a_restored_block(
    record: BlockRecord, writer: Any, generation: Any, length: int, size_bytes: int
) -> BlockRecord | Refused:
    """K14: a writer of the time of the backup ends a block that others have gone on with."""
    known = replace(record, restored=False)
    return _finalize_by_writer(known, writer, generation, length, size_bytes)


def return_the_first_maximum(reading: QuorumRead) -> QuorumRead:
    """R2 returns the longest answer at once, whatever members have it."""
    if len(reading.answers) < reading.quorum:
        return _concluded(reading)
    goal = max(length for _, length, _ in reading.answers)
    return replace(reading, goal=goal, progress=ReadProgress.DONE)


def seal_although_overtaken(
    record: BlockRecord, base: Generation, generation: Generation, length: int, size_bytes: int
) -> BlockRecord | Refused:
    """K5 without gs == g."""
    del generation
    if record.finalized or record.writer_generation != base:
        return Refused(Why.FINALIZED, record)
    return finalize._finalized(record, length, size_bytes)


def install_although_sealed(
    record: BlockRecord, base: Generation, generation: Generation, members: Any, length: int
) -> BlockRecord | Refused:
    """K7 without gs == g and without looking at the state."""
    if record.finalized or record.writer_generation != base:
        return Refused(Why.FINALIZED, record)
    return replace(record, writer_generation=generation, members=members, base_length=length)


def install_although_overtaken(
    record: BlockRecord, base: Generation, generation: Generation, members: Any, length: int
) -> BlockRecord | Refused:
    """K7 without gs == g: another REBUILD has begun, and its promises fence the config."""
    writing = record.state is BlockState.UNDER_CONSTRUCTION and not record.finalized
    if not writing or record.writer_generation != base:
        return Refused(Why.NEWER, record)
    return replace(record, writer_generation=generation, members=members, base_length=length)


_install_rebuild = finalize.install_rebuild


def install_from_nothing(
    record: BlockRecord, base: Generation, generation: Generation, members: Any, length: int
) -> BlockRecord | Refused:
    """K7 that forgets where the epoch begins: the writer is granted less than was chosen."""
    return _install_rebuild(record, base, generation, members, min(length, 0))


votes_of_a_quorum = property(
    lambda proposer: min(recovery_quorum(len(proposer.members)), len(proposer.targets))
)
"""P4 for a REBUILD or APPEND like that of a SEAL."""


def grant_whoever_asks(record: BlockRecord, writer: Any, generation: Generation) -> Any:
    """P6 without the writer: each client that asks gets the Grant of the one that writes."""
    del writer
    return _granted(record, record.writer, generation)


def close_for_any_epoch(
    record: BlockRecord, writer: Any, generation: Generation, length: int, size_bytes: int
) -> BlockRecord | Refused:
    """K6 without wgs == g: a late close of the old epoch counts."""
    del generation
    if record.finalized or record.writer != writer:
        return Refused(Why.FINALIZED, record)
    return finalize._finalized(record, length, size_bytes)


class _Unchecked(BlockRecord, frozen=True, gc=False):
    """A record that no node compares with the one before it: I8 would tell first."""

    def check_follows(self, before: BlockRecord) -> None:
        """Take whatever comes."""


def leave_under_the_same_generation(record: BlockRecord, leaving: Any, *guard: Any) -> Any:
    """K13 without a fresh finalized generation: a Delete on its way is about what stays."""
    left = _remove_replica(record, leaving, *guard)
    if isinstance(left, Refused):
        return left
    kept = {name: getattr(record, name) for name in record.__struct_fields__}
    return _Unchecked(**kept | {"members": left.members})


def close_after_a_force(record: BlockRecord, *close: Any) -> BlockRecord | Refused:
    """K6 without looking whether members were given up."""
    unguarded = record if record.finalized else replace(record, forced=False)
    return _finalize_by_writer(unguarded, *close)


def seal_with_the_same_generation(
    record: BlockRecord, *, forced: bool = False
) -> BlockRecord | Refused:
    """K2: a generation is handed out twice."""
    del forced
    if record.finalized:
        return Refused(Why.FINALIZED, record)
    taken = record.state is BlockState.UNDER_RECOVERY
    generation = record.generation if taken else finalize._next(record)
    return replace(record, generation=generation, state=BlockState.UNDER_RECOVERY)


def acknowledge_by_majority(writer: Writer, vote: Vote) -> Writer:
    """W3: a quorum of votes instead of all."""
    after = _on_vote(writer, vote)
    return replace(after, acknowledged=max(after.acknowledged, sorted(after.voted)[1]))


def recover_from_one(member_count: int) -> int:
    """A recovery quorum of 1 beside majority reads."""
    del member_count
    return 1


def let_anybody_in(*_: object) -> None:
    """D10: the process before is not waited for."""


def know_nobody_by_a_record(
    datanodes: DataNodes, request: Register, recorded: ProcessRecord | None = None
) -> tuple[ProcessRecord, ...]:
    """D10: a NameNode that has just started takes the first that comes."""
    return _before(datanodes, request)


closes_in_flight = property(lambda writer: writer.state is WriterState.OPEN)
"""W6 without acknowledged == sent."""


def _seals(count: int, *reads: str, chunks: int = 1) -> Config:
    return Config("", chunks=chunks, budget=Budget(seals=count), reads=reads)


_VOLUME_COPY = Config(
    "", chunks=1, members=2, storages=2, targets=((0, 1),), budget=Budget(seals=1, volume_copies=1)
)
_POWER_2 = Config("", chunks=1, durability=MEMORY, budget=Budget(seals=1, power_cuts=2))
_POWER_READ = Config(
    "", chunks=1, durability=MEMORY, budget=Budget(seals=1, power_cuts=1), reads=("R2",)
)
_POWER_1 = replace(_POWER_2, budget=Budget(seals=1, power_cuts=1))
_POWER_2_READ = replace(_POWER_READ, budget=Budget(power_cuts=2))
_RESTART_READ = Config(
    "",
    chunks=1,
    members=2,
    storages=2,
    targets=((0, 1),),
    budget=Budget(restarts=1),
    reads=("R2",),
)
_TWO_OF_TWO = Config("", chunks=2, members=2, storages=2, targets=((0, 1),), budget=Budget(seals=2))
_REBUILD = Config(
    "", chunks=2, storages=4, targets=((0, 1, 3),), budget=Budget(seals=1, rebuilds=1)
)
_REBUILD_TWICE = Config(
    "", chunks=1, members=2, storages=3, targets=((0, 2),), budget=Budget(rebuilds=2)
)
_FORCE = replace(
    _TWO_OF_TWO, chunks=1, durability=MEMORY, budget=Budget(seals=1, forces=1, power_cuts=1)
)
_APPEND_REBUILD = Config(
    "append-rebuild",
    chunks=1,
    members=2,
    storages=2,
    targets=((0, 1),),
    budget=Budget(appends=1, rebuilds=1),
)
_REBUILD_ONLY = replace(_REBUILD, budget=Budget(rebuilds=1))
_DELETE = Config(
    "", chunks=1, storages=4, targets=((0, 1, 3),), budget=Budget(rebuilds=1, copies=1, deletes=1)
)
_LEAVE = Config("", chunks=1, budget=Budget(leaves=1, copies=1, deletes=1))
_RESTORE_APPEND = Config("", chunks=1, budget=Budget(appends=1, restores=1, learns=1))
_RESTORE_CUT = replace(
    _RESTORE_APPEND,
    targets=((1, 2),),
    budget=Budget(appends=1, truncates=1, restores=1, learns=1),
)
_RESTORE_NOTHING = Config("", chunks=1, created=False, budget=Budget(restores=1, learns=1))
_RESTORE_SEAL = Config("", chunks=1, budget=Budget(seals=1, restores=1, learns=1))
_DAMAGED = Config("", chunks=1, budget=Budget(seals=1, appends=1, damages=1))
_UNREADABLE = Config(
    "", chunks=1, targets=((0, 1),), budget=Budget(appends=1, deletes=1, unreadable=1)
)
_CUT = Config("", chunks=2, budget=Budget(seals=1, appends=1, truncates=1))
_CUT_READ = Config("", chunks=1, budget=Budget(appends=1, truncates=1), reads=("R-fin",))
_CUT_COPY = Config("", chunks=1, storages=4, budget=Budget(truncates=1, copies=1))
_CUT_GOES_ON = Config(
    "",
    chunks=1,
    members=2,
    targets=((0, 1),),
    budget=Budget(appends=1, truncates=1, copies=2),
    continues=True,
)

LOST = "loses acknowledged or read chunks"
LESS = "a read returned less than was visible before"
TWO_LOGS = "has two logs"

FAULTS: dict[str, Fault] = {
    "longest log first": Fault(recovery, "choose", longest_log_first, _seals(2), "disagree"),
    "shortest log": Fault(recovery, "choose", shortest_log, _seals(1, "R2"), LOST),
    "weak answers suffice": Fault(recovery, "acceptable", any_quorum_is_acceptable, _POWER_2, LOST),
    "recovery quorum of 1": Fault(
        recovery, "recovery_quorum", recover_from_one, _seals(1, "R2"), LOST
    ),
    "keep what is beyond": Fault(
        register, "_recovery_write", keep_what_is_beyond, _seals(1), TWO_LOGS
    ),
    "promise nothing": Fault(register, "_next_gs", promise_nothing, _seals(1, "R2"), LOST),
    "finalize always": Fault(register, "_finalize", finalize_always, _CUT, "I1"),
    "read without sync": Fault(register, "_read", read_without_sync, _POWER_READ, LOST),
    "write through a promise": Fault(
        register, "_takes_writes", write_through_a_promise, _seals(1, "R2"), LOST
    ),
    "never weak": Fault(register, "restarted", never_weak, _POWER_2, LOST),
    "a copy of a volume answers for it": Fault(
        DataNodes, "check_place", let_anybody_in, _VOLUME_COPY, LOST
    ),
    "a NameNode that has just started takes a copy in": Fault(
        DataNodes, "before", know_nobody_by_a_record, _VOLUME_COPY, LOST
    ),
    "count every answer": Fault(read, "is_good", count_every_answer, _seals(2, "R2"), LOST),
    "count weak answers": Fault(read, "is_good", count_weak_answers, _POWER_2_READ, LESS),
    "count a weak restarted replica": Fault(
        register, "_read", tell_no_weakness_after_a_restart, _POWER_2_READ, LESS
    ),
    "wait for a restarted replica": Fault(
        register, "_read", tell_no_restart, _RESTART_READ, "takes no Write"
    ),
    "aim at the shortest": Fault(
        read, "_with_goal", aim_at_the_shortest, _seals(0, "R2", "R2"), LESS
    ),
    "return the minimum": Fault(
        read, "_concluded", return_the_minimum, _seals(0, "R2", "R1"), LESS
    ),
    "return the first maximum": Fault(
        read, "_concluded", return_the_first_maximum, _seals(1, "R2"), LOST
    ),
    "serve what was decided first only": Fault(
        read,
        "holds",
        serve_what_was_decided_first_only,
        replace(_LEAVE, reads=("R2",)),
        "refuses who opened the block before",
    ),
    "read on behind a cut": Fault(
        read, "version_now", read_on_behind_a_cut, _CUT_READ, "a finalized read is wrong"
    ),
    "cut without a mark": Fault(
        finalize, "truncate", cut_without_a_mark, _CUT_READ, "a finalized read is wrong"
    ),
    "cut under the same generation": Fault(
        finalize, "truncate", cut_under_the_same_generation, _CUT_COPY, "I7"
    ),
    "a copy goes on across a cut": Fault(
        finalize, "finalize_message", go_on_across_a_cut, _CUT_GOES_ON, "mixes the logs"
    ),
    "seal although overtaken": Fault(
        finalize, "finalize_by_recovery", seal_although_overtaken, _TWO_OF_TWO, "too few members"
    ),
    "install although sealed": Fault(
        finalize, "install_rebuild", install_although_sealed, _REBUILD, "K11"
    ),
    "install although overtaken": Fault(
        finalize, "install_rebuild", install_although_overtaken, _REBUILD_TWICE, "K11"
    ),
    "install from nothing": Fault(
        finalize, "install_rebuild", install_from_nothing, _REBUILD_TWICE, "installed length"
    ),
    "install with a quorum": Fault(
        Proposer, "votes_needed", votes_of_a_quorum, _REBUILD_TWICE, "stuck"
    ),
    "grant whoever asks": Fault(
        finalize, "granted", grant_whoever_asks, _APPEND_REBUILD, "I5 unsound vote"
    ),
    "close for any epoch": Fault(
        finalize, "finalize_by_writer", close_for_any_epoch, _REBUILD_ONLY, "lacks acknowledged"
    ),
    "leave under the same generation": Fault(
        finalize,
        "remove_replica",
        leave_under_the_same_generation,
        _LEAVE,
        "D7 a member lost its replica",
    ),
    "close after a force": Fault(
        finalize, "finalize_by_writer", close_after_a_force, _FORCE, "too few members hold"
    ),
    "promise one more": Fault(register, "_next_gs", promise_one_more, _seals(1), "I9"),
    "finalize what a recovery wrote": Fault(
        register, "_recovery_write", finalize_what_a_recovery_wrote, _seals(1), "I6"
    ),
    "delete whatever was promised": Fault(
        register, "_delete", delete_whatever_was_promised, _DELETE, "D7 a member lost its replica"
    ),
    "heal whatever was promised": Fault(
        register, "heals", heal_whatever_was_promised, _DAMAGED, "too few members"
    ),
    "heal whatever the epoch": Fault(
        register, "heals", heal_whatever_the_epoch, _UNREADABLE, "a fresh recovery loses"
    ),
    "no generation is skipped": Fault(
        finalize, "bring_back", bring_back_with_its_generation, _RESTORE_APPEND, ""
    ),
    "an empty replica without its promise": Fault(
        register, "_next_gs", make_without_a_promise, _RESTORE_NOTHING, ""
    ),
    "learn what anybody has": Fault(recovery, "_learned", learn_what_anybody_has, _RESTORE_CUT, ""),
    "learn the longest": Fault(recovery, "_learned", learn_the_longest, _RESTORE_CUT, ""),
    "close a restored block": Fault(
        finalize, "finalize_by_writer", close_a_restored_block, _RESTORE_SEAL, ""
    ),
    "same generation twice": Fault(
        finalize, "allocate_seal", seal_with_the_same_generation, _seals(2), TWO_LOGS
    ),
    "acknowledge by majority": Fault(write, "on_vote", acknowledge_by_majority, _POWER_1, LOST),
    "close in flight": Fault(
        Writer, "can_close", closes_in_flight, _seals(0, "R2"), "too few members"
    ),
}
"""By name."""
