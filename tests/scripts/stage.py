"""One block on a stage: a script says what happens, the stage says what everybody answers.

Each command drives the shipped state machines; nothing is decided here. `lost` at the end of a
delivery loses the reply. Commands: see the methods that begin with `do_`.
"""

from __future__ import annotations

from msgspec.structs import replace

from paxosblock.protocol import finalize, read, recovery, register, write
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.messages import (
    Created,
    Finalize,
    LastVote,
    Nack,
    NextGS,
    Read,
    ReadReply,
    RecoveryVote,
    RecoveryWrite,
    Reply,
    Request,
    Vote,
)
from paxosblock.protocol.recovery import Phase, Proposer, RecoveryKind
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import (
    BlockId,
    ChunkName,
    Durability,
    Generation,
    ReplicaState,
    StorageId,
    WriterId,
)
from paxosblock.protocol.write import Writer

BLOCK = BlockId(7)
W1, W2 = WriterId("w1"), WriterId("w2")


class Stage:
    """The block, its replicas, its writer, the proposers and one reader."""

    def __init__(self) -> None:
        self.record: BlockRecord
        self.writer: Writer
        self.replicas: dict[StorageId, Replica | None] = {}
        self.proposers: dict[int, Proposer] = {}
        self.reading: read.QuorumRead | None = None

    def play(self, line: str) -> str:
        """One command; returns what is seen of it."""
        verb, *words = line.split()
        said: str = getattr(self, f"do_{verb}")(*words)
        return said

    def do_block(self, *words: str) -> str:
        """block A B C [memory] [window=N]: AddBlock and Create have been answered by all."""
        members = tuple(StorageId(word) for word in words if len(word) == 1)
        memory = Durability.MEMORY if "memory" in words else Durability.DISK
        window = next((int(w.split("=")[1]) for w in words if w.startswith("window")), 1)
        self.record = finalize.add_block(BLOCK, members, W1, window, memory)
        self.writer = write.open_writer(BLOCK, members, window)
        for member in members:
            step = register.answer(member, None, write.create_message(self.writer, memory))
            self.replicas[member] = step.replica
            assert isinstance(step.reply, Created)
            self.writer = write.on_created(self.writer, step.reply)
        return self._told_writer()

    def do_send(self) -> str:
        """send: the writer proposes its next chunk to all (W2)."""
        index = self.writer.sent
        self.writer, message = write.send(self.writer, index + 1, self._crc(index))
        return f"Write g{message.generation} #{index} acknowledged {message.acknowledged_count}"

    def _crc(self, index: int) -> int:
        return 100 * (self.writer.generation + 1) + index

    def do_write(self, node: str, index: str, *lost: str) -> str:
        """write A 0: chunk 0 of the writer's generation arrives at A (D2, W3)."""
        message = write.write_message(
            self.writer, int(index), int(index) + 1, self._crc(int(index))
        )
        reply = self._deliver(node, message)
        if isinstance(reply, Vote) and not lost:
            self.writer = write.on_vote(self.writer, reply)
        return f"{tell(reply)}; acknowledged {self.writer.acknowledged}"

    def do_fail(self) -> str:
        """fail: the writer gives its generation up (W4)."""
        self.writer = write.on_failure(self.writer)
        return self._told_writer()

    def do_close(self, length: str = "", generation: str = "") -> str:
        """close [L G]: the writer closes (W6), or its old request arrives (K6)."""
        if not length:
            self.writer = write.close(self.writer)
        count = int(length or self.writer.sent)
        asked = Generation(int(generation or self.writer.generation))
        size = sum(range(1, count + 1))
        return self._recorded(finalize.finalize_by_writer(self.record, W1, asked, count, size))

    def do_seal(self) -> str:
        """seal: K2 and a proposer."""
        return self._proposes(finalize.allocate_seal(self.record), RecoveryKind.SEAL, ())

    def do_rebuild(self, *targets: str) -> str:
        """rebuild A B D: K3 and a proposer for these members."""
        allocated = finalize.allocate_rebuild(self.record, W1, self.writer.generation)
        return self._proposes(allocated, RecoveryKind.REBUILD, targets)

    def do_append(self, *targets: str) -> str:
        """append A B C: K4 and a proposer for these members."""
        return self._proposes(finalize.allocate_append(self.record), RecoveryKind.APPEND, targets)

    def _proposes(
        self, allocated: BlockRecord | Refused, kind: RecoveryKind, targets: tuple[str, ...]
    ) -> str:
        if isinstance(allocated, Refused):
            return f"refused: {allocated.why.value}"
        self.record = allocated
        names = tuple(StorageId(target) for target in targets)
        starts = {
            RecoveryKind.SEAL: lambda: recovery.seal(allocated),
            RecoveryKind.REBUILD: lambda: recovery.rebuild(allocated, names),
            RecoveryKind.APPEND: lambda: recovery.append(allocated, names),
        }
        self.proposers[allocated.generation] = starts[kind]()
        return f"{kind.value} g{allocated.generation} of base g{allocated.writer_generation}"

    def do_promise(self, generation: str, node: str, *lost: str) -> str:
        """promise 1 A: NextGS(1) arrives at A; its LastVote reaches the proposer (D3, P2)."""
        proposer = self.proposers[int(generation)]
        message = NextGS(
            BLOCK, proposer.generation, proposer.base, proposer.window, proposer.durability
        )
        reply = self._deliver(node, message)
        if lost:
            return f"{tell(reply)}; lost"
        if isinstance(reply, LastVote):
            proposer = recovery.on_last_vote(proposer, reply)
        elif isinstance(reply, Nack):
            proposer = recovery.on_nack(proposer, reply)
        return f"{tell(reply)}; {self._told(proposer)}"

    def do_accept(self, generation: str, node: str, *lost: str) -> str:
        """accept 1 A: the RecoveryWrite of g1 arrives at A (D4, P4)."""
        proposer = self.proposers[int(generation)]
        if proposer.choice is None:
            return "nothing is chosen yet"
        reply = self._deliver(node, recovery.recovery_write(proposer))
        if lost:
            return f"{tell(reply)}; lost"
        if isinstance(reply, RecoveryVote):
            proposer = recovery.on_recovery_vote(proposer, reply)
        elif isinstance(reply, Nack):
            proposer = recovery.on_nack(proposer, reply)
        return f"{tell(reply)}; {self._told(proposer)}"

    def _told(self, proposer: Proposer) -> str:
        self.proposers[proposer.generation] = proposer
        chosen = ""
        if proposer.choice is not None:
            chosen = f" length {proposer.choice.length} of g{proposer.choice.accepted_generation}"
        return f"g{proposer.generation} {proposer.phase.value}{chosen}"

    def do_decide(self, generation: str) -> str:
        """decide 1: the proposer's compare-and-set (K5, K7)."""
        proposer = self.proposers[int(generation)]
        choice = proposer.choice
        if proposer.phase is not Phase.DECIDED or choice is None:
            return f"g{generation} is {proposer.phase.value}"
        base, own = proposer.base, proposer.generation
        if proposer.kind is RecoveryKind.SEAL:
            outcome = finalize.finalize_by_recovery(
                self.record, base, own, choice.length, choice.size_bytes
            )
        elif proposer.kind is RecoveryKind.REBUILD:
            outcome = finalize.install_rebuild(
                self.record, base, own, proposer.targets, choice.length
            )
        else:
            outcome = finalize.install_append(self.record, base, own, proposer.targets, W2)
        return self._recorded(outcome)

    def _recorded(self, outcome: BlockRecord | Refused) -> str:
        if isinstance(outcome, Refused):
            return f"refused: {outcome.why.value}"
        outcome.check_follows(self.record)
        self.record = outcome
        return self.do_record()

    def do_record(self) -> str:
        """record: what the KV says."""
        record = self.record
        said = f"{record.state.value} gs {record.generation} wgs {record.writer_generation}"
        if record.finalized:
            said += f" fgs {record.finalized_generation} length {record.length}"
        return f"{said} members {' '.join(record.members)}"

    def do_truncate(self, length: str) -> str:
        """truncate 1: K8."""
        count = int(length)
        return self._recorded(finalize.truncate(self.record, count, sum(range(1, count + 1))))

    def do_finalize(self, node: str) -> str:
        """finalize A: Finalize of the record arrives at A (D5)."""
        return tell(self._deliver(node, finalize.finalize_message(self.record)))

    def do_grant(self) -> str:
        """grant: the Grant of the record reaches the writer (W5)."""
        self.writer = write.on_grant(self.writer, finalize.grant(self.record))
        return self._told_writer()

    def _told_writer(self) -> str:
        writer = self.writer
        state = f"writer {writer.state.value} g{writer.generation}"
        return f"{state} sent {writer.sent} acknowledged {writer.acknowledged}"

    def do_read(self, mode: str = "R2") -> str:
        """read [R1]: a reader gets the record (K10)."""
        start = read.all_replica_read if mode == "R1" else read.quorum_read
        self.reading = start(self.record)
        return f"{mode} of wgs {self.record.writer_generation}"

    def do_ask(self, node: str) -> str:
        """ask A: the reader asks A (D6, R1, R2)."""
        assert self.reading is not None
        reply = self._deliver(node, Read(BLOCK, sync=True))
        if isinstance(reply, ReadReply):
            self.reading = read.on_read_reply(self.reading, reply)
        returned = f" {self.reading.goal} chunks" if self.reading.goal >= 0 else ""
        return f"{tell(reply)}; {self.reading.progress.value}{returned}"

    def do_restart(self, node: str) -> str:
        """restart A: its process starts again."""
        return self._reloaded(node, same_boot=True)

    def do_power(self, node: str, kept: str) -> str:
        """power A 1: its machine loses power, 1 chunk is left."""
        name = StorageId(node)
        before = self.replicas[name]
        assert before is not None
        self.replicas[name] = replace(before, log=before.log.truncate(int(kept)))
        return self._reloaded(node, same_boot=False)

    def _reloaded(self, node: str, *, same_boot: bool) -> str:
        before = self.replicas[StorageId(node)]
        assert before is not None
        self.replicas[StorageId(node)] = register.restarted(before, same_boot=same_boot)
        return self.do_show(node)

    def do_show(self, *nodes: str) -> str:
        """show [A]: the registers of these replicas, or of all."""
        names = tuple(StorageId(node) for node in nodes) or tuple(self.replicas)
        return "\n".join(f"{name}: {tell_replica(self.replicas.get(name))}" for name in names)

    def _deliver(self, node: str, request: Request) -> Reply:
        name = StorageId(node)
        before = self.replicas.get(name)
        supplied: tuple[ChunkName, ...] = ()
        if isinstance(request, RecoveryWrite | Finalize):
            supplied = self._fetched(request, register.wanted(name, before, request))
        step = register.answer(name, before, request, supplied)
        if before is not None and step.replica is not None:
            step.replica.check_follows(before)
        self.replicas[name] = step.replica
        return step.reply

    def _fetched(self, request: RecoveryWrite | Finalize, missing: range) -> tuple[ChunkName, ...]:
        for name, replica in self.replicas.items():
            if not missing or replica is None or replica.length < missing.stop:
                continue
            now = replica.registers
            if isinstance(request, Finalize):
                serves = now.state is ReplicaState.FINALIZED and (
                    now.accepted_generation == request.finalized_generation
                )
            else:
                accepted = (request.chosen_generation, request.generation)
                serves = name in request.holders and now.accepted_generation in accepted
            if serves:
                return replica.log.slice(missing.start, missing.stop)
        return ()


def tell_log(log: ChunkLog) -> str:
    """The chunks by their CRCs: 100 is chunk 0 of generation 0, 201 chunk 1 of generation 1."""
    return "[" + " ".join(str(name.crc) for name in log) + "]"


def tell_replica(replica: Replica | None) -> str:
    """The registers in one line."""
    if replica is None:
        return "none"
    now = replica.registers
    generations = f"max {now.max_generation} accepted {now.accepted_generation} epoch {now.epoch}"
    return f"{now.state.value} {generations} {tell_log(replica.log)}" + tell_flags(replica)


def tell_flags(told: Replica | ReadReply) -> str:
    """Return what keeps it from taking Writes, or from being counted."""
    weak = " weak" if told.registers.weak else ""
    return weak + (" restarted" if told.restarted else "")


def tell(reply: Reply) -> str:
    """A reply in a few words."""
    match reply:
        case LastVote():
            weak = " weak" if reply.registers.weak else ""
            accepted = reply.registers.accepted_generation
            return f"LastVote accepted {accepted} length {reply.length}{weak}"
        case RecoveryVote():
            return f"RecoveryVote g{reply.generation} length {reply.length}"
        case Vote():
            return f"Vote g{reply.generation} #{reply.index}"
        case ReadReply():
            now = reply.registers
            generations = f"max {now.max_generation} accepted {now.accepted_generation}"
            return f"{generations} length {reply.length}" + tell_flags(reply)
        case Nack():
            return f"Nack {reply.reason.value} max {reply.max_generation} length {reply.length}"
        case _:
            return type(reply).__name__ + f" length {getattr(reply, 'length', 0)}"
