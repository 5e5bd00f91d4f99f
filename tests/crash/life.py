"""One DataNode on one simulated disk through many processes: asked, killed, cut off and damaged."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from paxosblock.api.datanode import CreateAndWrite, Envelope, FetchChunks
from paxosblock.base.checksum import crc32c
from paxosblock.datanode.acceptor import Acceptor
from paxosblock.datanode.data_node import open_volumes
from paxosblock.datanode.replica_reads import Reader
from paxosblock.datanode.store.chunk_records import check_records
from paxosblock.datanode.store.disk_format import SmallLimits
from paxosblock.datanode.volumes.first_reads import read_all
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.errors import PaxosBlockError
from paxosblock.net.streams.stream_calls import Bulk
from paxosblock.protocol import register
from paxosblock.protocol.messages import (
    Create,
    Created,
    Delete,
    Deleted,
    Finalize,
    Finalized,
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
    Write,
)
from paxosblock.protocol.register import Replica, Transition
from paxosblock.protocol.types import (
    BlockId,
    ChunkIndex,
    Durability,
    Generation,
    ReplicaState,
)
from tests.crash.damage import Damage, How, Part, damage_one
from tests.crash.told import Told, refuses
from tests.datanode.any_request import HOLDS, AnyRequest, DecidedHolder, sent
from tests.datanode.node import WINDOW, Node, Notes, chunk, finalization, frame, name
from tests.disks.simulated import Burns, SimulatedDisk
from tests.lives.cluster import DATANODE_CONFIG
from tests.lives.world import World, new_world
from tests.raft.virtual_time import Host

FOLDERS: Final = Path("/crash/v0"), Path("/crash/v1")
LIMITS: Final = SmallLimits(segment_bytes=600, worth_bytes=1, moved_bytes=500)
PROCESSES: Final = 24
BLOCKS: Final = 12
CONVERSATIONS: Final = 6
STEPS: Final = 10
"""Of each conversation in the life of a process."""
LONGEST_FUSE: Final = 160
PATIENCE_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one seed."""

    mistakes: tuple[str, ...]
    counts: Counter[str]
    trace: tuple[str, ...]


def live(seed: int) -> Outcome:
    """Return what happened in the life of one seed."""
    with new_world(seed) as world:
        life = Life(seed, world)
        world.loop.run_until_complete(life.run())
        return Outcome(tuple(world.mistakes), life.counts, tuple(world.trace))


class Life:
    """The processes of one seed, one after the other."""

    def __init__(self, seed: int, world: World) -> None:
        self.world = world
        self.rng = random.Random(f"{seed} crash")
        self.disk = SimulatedDisk()
        self.counts: Counter[str] = Counter()
        self.told: dict[BlockId, Told] = {}
        self.damage: Damage | None = None
        """It was done since a process has lived to its end, and may not be seen yet."""
        self._may_fail: set[Path] = set()
        self._lossy: set[Path] = set()
        """Volumes whose logs may have lost records."""
        self._in_doubt: list[Told] = []
        """The replicas that the last damage to a log may have cost, and no other damage."""
        self._harmed: set[Path] = set()
        """Segments that were damaged before."""
        self._short = False
        """This process only looks at what is there, and then the power goes."""
        self._boots = 0
        self._host: Host | None = None
        self._node: Node | None = None
        self._refusal: PaxosBlockError | None = None
        self._up, self._ended = asyncio.Event(), asyncio.Event()
        self._busy: set[BlockId] = set()
        self._lost: set[Path] = set()
        """Volumes that this process has lost to damage."""
        self._last_block = 0

    async def run(self) -> None:
        """Live through all processes, until something is wrong."""
        for number in range(PROCESSES):
            async with asyncio.timeout(PATIENCE_S):
                await self._live_one(last=number == PROCESSES - 1)
            if self.world.mistakes:
                return

    # -- processes --------------------------------------------------------------------------------

    async def _live_one(self, *, last: bool) -> None:
        self._node, self._refusal, self._busy, self._lost = None, None, set(), set()
        self._up, self._ended = asyncio.Event(), asyncio.Event()
        burns = not last and not self._short and self.rng.random() < 0.7
        if burns:
            fuse = self.rng.randint(1, self.rng.choice((20, LONGEST_FUSE)))
            self.disk.light(fuse, self.rng.choice(tuple(Burns)), self._burn)
        self._host = host = self.world.new_host()
        self._happens("started")
        self.world.begin(host, self._serve())
        await self._first_of(self._up.wait())
        if not self._ended.is_set():
            self._check_start()
        if not self._ended.is_set() and self._node is not None:
            await self._work(host)
        lived = not self._ended.is_set()
        if lived:
            self._check_volumes()
            if self.damage is not None:
                self._check_cost(self.damage)
                self.damage = None
        self._end(lived=lived)

    async def _serve(self) -> None:
        try:
            boot = f"boot-{self._boots}"
            opened, _ = open_volumes(
                self.disk, FOLDERS, "dn0", DATANODE_CONFIG, boot, limits=LIMITS
            )
            notes, holder = Notes(), DecidedHolder()
            acceptor = Acceptor(opened, holder, notes)
            await acceptor.load(30.0)
            reader = Reader(acceptor, max_read_bytes=1 << 20)
            self._node = Node(opened, acceptor, reader, notes, holder)
        except PaxosBlockError as error:
            self._refusal = error
        if not self._ended.is_set():
            self._up.set()

    async def _first_of(self, work: Coroutine[Any, Any, object]) -> None:
        """Wait for some work, or for the end of the process."""
        tasks = [asyncio.ensure_future(each) for each in (work, self._ended.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    async def _work(self, host: Host) -> None:
        assert self._node is not None
        looking = host.run(self._look())
        if self.rng.random() < 0.5:
            for volume in self._node.volumes:
                host.run(read_all(volume))
        await self._first_of(asyncio.wait([looking]))
        if self._ended.is_set():
            return
        self._expect_end(looking)
        if self._short:
            return
        talks = [host.run(self._talk()) for _ in range(CONVERSATIONS)]
        talks += [host.run(self._beat(volume)) for volume in self._usable()]
        await self._first_of(asyncio.wait(talks))
        if not self._ended.is_set():
            for talk in talks:
                self._expect_end(talk)

    def _expect_end(self, task: asyncio.Task[None]) -> None:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            self.world.mistake(f"an answer is {error!r}")

    def _burn(self) -> None:
        """The process is over, in the middle of what it does to its disk."""
        assert self._host is not None
        self.disk.die()
        self._host.pause()
        self._ended.set()

    def _end(self, *, lived: bool) -> None:
        """End the process, and do to its disk what may happen then."""
        assert self._host is not None
        self._host.pause()
        for folder in sorted(self._lost):
            self._replace(folder)
        where = "" if lived else "in a start" if not self._up.is_set() else "at work"
        # What an earlier process left between two steps is lost, if ever, while no process works.
        cut = self.damage is None and self.rng.random() < (0.9 if self._short else 0.5)
        self._short = not lived and not cut and self.rng.random() < 0.7
        if cut:
            self._happens("power cut", where)
            self.disk = self.disk.power_cut(self.rng)
            self._boots += 1
            for told in self.told.values():
                told.cut = True
            return
        self._happens("killed", where)
        if self.disk.dead:
            self.disk = SimulatedDisk.when_killed_at(self.disk.moment(), records=False)
        else:
            self.disk = self.disk.next_process()
        if lived:
            self._damage(self.rng.choice(FOLDERS))

    def _damage(self, folder: Path) -> None:
        damage = damage_one(self.disk, folder, self.rng)
        if damage is None:
            return
        self.damage = damage
        part, how = damage.part, damage.how
        self._happens(f"{part.value}: {how.value}", str(damage.path))
        if damage.may_fail:
            self._may_fail.add(folder)
        if damage.block in self.told:
            self.told[damage.block].hurt |= self.told[damage.block].folder == folder
        if part is not Part.SEGMENT:
            return
        if how is not How.BIT or damage.path in self._harmed:
            self._lossy.add(folder)
        self._harmed.add(damage.path)
        self._in_doubt = []
        for told in tuple(self.told.values()):
            if told.folder == folder and told.in_log:
                if not told.hurt:
                    self._in_doubt.append(told)
                told.hurt = True
                if None in told.maybe:  # what was deleted may be there again
                    del self.told[told.block]

    # -- what a start must have -------------------------------------------------------------------

    def _usable(self) -> list[Volume]:
        return (
            [] if self._node is None else [each for each in self._node.volumes if not each.failed]
        )

    def _check_start(self) -> None:
        if self._refusal is not None and not self._may_fail.issuperset(FOLDERS):
            self.world.mistake(f"the node does not start: {self._refusal!r}")
        self._check_volumes()
        for volume in self._usable():
            if volume.identity.forgot is not None and volume.folder not in self._lossy:
                self.world.mistake(f"{volume} has forgotten something, and nothing was lost")

    def _check_volumes(self) -> None:
        """Note which volumes are lost, and that they may be."""
        usable = {each.folder for each in self._usable()}
        for folder in FOLDERS:
            if folder in usable or folder in self._lost:
                continue
            if folder not in self._may_fail:
                reasons = [each.failed for each in self._node.volumes] if self._node else []
                self.world.mistake(f"{folder} cannot be used: {reasons}")
            self._lost.add(folder)
            left = {block: told for block, told in self.told.items() if told.folder != folder}
            self.told = left

    def _replace(self, folder: Path) -> None:
        """Empty a volume that was lost; the next process finds a new one."""
        self._happens("volume replaced", str(folder))
        for names in (self.disk.names_now, self.disk.names_durable):
            for path in [each for each in names if each.is_relative_to(folder)]:
                del names[path]
        self.disk.pending.drop(folder)
        self._may_fail.discard(folder)
        self._lossy.discard(folder)
        self._harmed = {path for path in self._harmed if not path.is_relative_to(folder)}

    def _check_cost(self, damage: Damage) -> None:
        """One bit that flipped in a log costs one replica, if any."""
        self.counts["damage seen"] += 1
        if damage.part is Part.SEGMENT and damage.folder not in self._lossy:
            dead = [told.block for told in self._in_doubt if told.dead]
            self.counts["replicas that a bit cost"] += len(dead)
            if len(dead) > 1:
                self.world.mistake(f"one bit cost the blocks {dead}")

    async def _look(self) -> None:
        """Hold each replica against what was told of it."""
        assert self._node is not None
        for told in tuple(self.told.values()):
            if told.folder not in {each.folder for each in self._usable()}:
                continue
            reply = await self._answer(told, Read(told.block))
            found = self._node.acceptor.find(told.block, told.storage)
            if isinstance(reply, PaxosBlockError):
                self._wrong(told, f"cannot be read: {reply!r}")
            elif self._is_forgotten(told) and found is None:
                if not told.hurt and None not in told.maybe:
                    self._wrong(told, "was lost with records of the log, where it was not")
                told.hurt = told.dead = True
            else:
                dead = found is not None and found.corrupt != ""
                replica = None if found is None else found.replica
                if problem := told.look(replica, dead=dead):
                    self._wrong(told, problem)
                self.counts["replicas looked at"] += 1
                self.counts["dead replicas"] += dead

    def _is_forgotten(self, told: Told) -> bool:
        """Return if its volume says that it may have lost it (D11)."""
        volume = next(each for each in self._usable() if each.folder == told.folder)
        forgot = volume.identity.forgot
        return forgot is not None and told.block <= forgot.up_to

    # -- conversations ----------------------------------------------------------------------------

    async def _talk(self) -> None:
        for _ in range(self.rng.randint(1, STEPS)):
            await self.world.loop.pass_time(
                self.rng.choice((0, 0, 0.001, 0.02)) * self.rng.random()
            )
            told = self._one_at_rest()
            if told is None or self.world.mistakes:
                continue
            self._busy.add(told.block)
            if told.replica is None and self._is_forgotten(told):
                told.hurt = told.dead = True
            await (self._ask_dead(told) if told.dead else self._ask(told))
            self._busy.discard(told.block)

    async def _beat(self, volume: Volume) -> None:
        """Do what comes with heartbeats."""
        for number in range(self.rng.randint(0, 8)):
            await self.world.loop.pass_time(self.rng.uniform(0, 0.1))
            if number == 0:
                await volume.enter("cluster-1")
            await volume.run_read(volume.report, 0)

    def _one_at_rest(self) -> Told | None:
        """Return a block that no caller talks about, or a new one."""
        usable = self._usable()
        free = [
            told
            for told in self.told.values()
            if told.block not in self._busy and any(told.folder == one.folder for one in usable)
        ]
        if usable and (len(self.told) < BLOCKS or self.rng.random() < 0.1):
            volume = self.rng.choice(usable)
            self._last_block += 1
            block = BlockId(self._last_block)
            told = self.told[block] = Told(block, volume.folder, volume.storage)
            return told
        return self.rng.choice(free) if free else None

    async def _answer(self, told: Told, request: Request) -> Reply | PaxosBlockError:
        assert self._node is not None
        assert not isinstance(request, Write)
        try:
            reply = await self._node.acceptor.take(Envelope(told.storage, request))
        except PaxosBlockError as error:
            return error
        return reply

    def _wrong(self, told: Told, problem: str) -> None:
        if not self._ended.is_set():
            self.world.mistake(f"block {told.block} at {told.folder.name} {problem}")

    def _happens(self, what: str, more: str = "") -> None:
        self.counts[f"{what} {more}".strip() if what in ("killed", "power cut") else what] += 1
        self.world.note(f"{what} {more}")

    async def _ask(self, told: Told) -> None:
        """Ask for something, more often than not as a writer and its NameNode do."""
        chance = self.rng.random()
        if chance < 0.1:
            await self._read_bytes(told)
        elif chance < 0.4:
            request, payload = AnyRequest(self.rng, told.block, told.storage).about(told.replica)
            if isinstance(request, Write):
                await self._write(told, [(request, payload)])
            else:
                await self._control(told, request)
        elif told.replica is None:
            await self._create(told)
        elif _takes_writes(told.replica) and chance < 0.8:
            await self._write_on(told, told.replica)
        else:
            await self._control(told, self._next_of(told, told.replica))

    async def _create(self, told: Told) -> None:
        durability = self.rng.choice(tuple(Durability))
        create = Create(told.block, WINDOW, durability, small=self.rng.random() < 0.6)
        told.in_log |= create.small
        if not create.small or self.rng.random() < 0.5:
            await self._control(told, create)
            return
        assert self._node is not None
        header, data = frame(0, block=told.block)
        write = Write(told.block, Generation(0), ChunkIndex(0), 100, header.payload_crc)
        before = told.replica
        made = told.send(create)
        voted = told.send(write)
        acceptor, both = self._node.acceptor, CreateAndWrite(told.storage, create, data)
        try:
            begun = acceptor.begin_whole(both)
            reply = await (acceptor.create_then_write(both) if begun is None else begun)
        except PaxosBlockError as error:
            self._wrong(told, f"cannot be made: {error!r}")
            return
        assert before is None
        assert isinstance(made.reply, Created)
        self._heard(told, voted, reply)

    def _next_of(self, told: Told, replica: Replica) -> RecoveryWrite | Finalize | NextGS | Delete:
        """Return what may come next for a replica that is there, decided as it should be."""
        now, names = replica.registers, [*replica.log]
        generation = now.max_generation + 1
        choice = self.rng.random()
        if now.state is ReplicaState.FINALIZED and choice < 0.3:
            return Delete(told.block, now.max_generation)
        if choice < 0.4:
            return NextGS(told.block, Generation(generation), Generation(0), WINDOW, now.durability)
        if choice < 0.65:
            return finalization(generation, names, now.epoch, told.block)
        opened = now.state is ReplicaState.FINALIZED
        return RecoveryWrite(
            block=told.block,
            generation=Generation(generation),
            base=now.epoch,
            epoch=Generation(generation) if opened else now.epoch,
            length=len(names),
            size_bytes=replica.log.size_bytes,
            tail=replica.log.tail(WINDOW),
            chosen_generation=now.accepted_generation,
            members=(told.storage,),
            holders=(),
            window=WINDOW,
            durability=self.rng.choice(tuple(Durability)),
            finalized_generation=now.finalized_generation,
        )

    async def _control(self, told: Told, request: Request) -> None:
        told.top = max(told.top, register.generation_of(request))
        step = told.send(request)
        self._heard(told, step, await self._answer(told, request))

    async def _write_on(self, told: Told, replica: Replica) -> None:
        """Write up to a window of chunks at once."""
        writes = []
        small = told.in_log and replica.registers.accepted_generation == 0
        for index in range(replica.length, replica.length + self.rng.randint(1, WINDOW)):
            payload = chunk(index, self.rng.choice((100, 100, 300)))
            accepted, crc = replica.registers.accepted_generation, crc32c(payload)
            sync, acknowledged = self.rng.random() < 0.2, replica.acknowledged_count
            about = (told.block, accepted, ChunkIndex(index), len(payload), crc)
            writes.append((Write(*about, acknowledged, sync), payload))
        await self._write(told, writes[: 1 if small else WINDOW])

    async def _write(self, told: Told, writes: list[tuple[Write, bytes]]) -> None:
        """Hand over some chunks, and wait for what is said to each."""
        assert self._node is not None
        left = asyncio.Event()
        waiting = len(writes)

        def heard(write: Write, step: Transition, reply: Vote | Nack) -> None:
            nonlocal waiting
            self._heard(told, step, reply, write)
            waiting -= 1
            if not waiting:
                left.set()

        for write, payload in writes:
            small = told.in_log and write.generation == 0
            if small and told.replica is not None and told.replica.length:
                waiting -= 1  # more than was announced
                continue
            header, data = frame(
                write.index,
                payload,
                generation=write.generation,
                sync=write.sync,
                block=told.block,
                acknowledged=write.acknowledged_count,
            )
            told.top = max(told.top, write.generation)
            step = told.send(write)
            self._node.acceptor.write(header, memoryview(data), partial(heard, write, step))
        if waiting:
            await left.wait()

    def _heard(
        self,
        told: Told,
        step: Transition,
        reply: Reply | PaxosBlockError,
        request: Write | None = None,
    ) -> None:
        """Hold an answer against what was to be answered."""
        if self._ended.is_set():
            return
        if problem := told.hear(step, reply):
            self._wrong(told, problem)
            return
        self.counts[f"{type(reply).__name__}"] += 1
        disk = Durability.DISK
        match reply:
            case Vote(synced=True) if request is not None:
                told.tell_durable(request.index + 1)
            case RecoveryVote() | Finalized():
                told.tell_durable()
            case LastVote(registers=now) | ReadReply(registers=now) if now.durability is disk:
                told.tell_durable()
            case _:
                pass

    # -- bytes, and the dead ----------------------------------------------------------------------

    async def _read_bytes(self, told: Told) -> None:
        """Let all chunks be sent: they are the right ones, or none."""
        replica = told.replica
        if self._node is None or replica is None or not replica.length:
            return
        accepted = (replica.registers.accepted_generation,)
        asked = FetchChunks(told.block, told.storage, accepted, 0, replica.length)
        bulk: Nack | Bulk | PaxosBlockError
        try:
            bulk = await self._node.reader.fetch_chunks(asked)
        except PaxosBlockError as error:
            bulk = error
        if isinstance(bulk, Bulk):
            names = replica.log.slice(0, bulk.count)
            try:
                check_records(told.block, names, b"".join(map(bytes, bulk.frames)))
            except PaxosBlockError as error:
                self._wrong(told, f"served what is not its own: {error}")
            self.counts["replicas served"] += 1
        elif not told.hurt:
            self._wrong(told, f"is not served: {bulk!r}")
        else:
            told.dead = True

    async def _ask_dead(self, told: Told) -> None:
        """A dead replica refuses all but a full copy of what was decided, and its end."""
        generation = Generation(told.top + 1)
        choice = self.rng.random()
        if choice < 0.5:
            request: Request = self.rng.choice(
                (
                    Read(told.block),
                    Create(told.block, WINDOW, Durability.DISK, small=True),
                    NextGS(told.block, generation, Generation(0), WINDOW, Durability.DISK),
                )
            )
            told.top += 1
            reply = await self._answer(told, request)
            self.counts["dead ones asked"] += 1
            if not refuses(reply) and not self._ended.is_set():
                self._wrong(told, f"is dead, and answered {reply}")
        elif choice < 0.6:
            del self.told[told.block]
            reply = await self._answer(told, Delete(told.block, generation))
            self.counts["dead ones deleted"] += isinstance(reply, Deleted)
        else:
            told.top += 2
            names = [name(index) for index in range(self.rng.randint(1, HOLDS))]
            request = finalization(told.top, names, told.top - 1, told.block)
            copy = sent(request, range(len(names)))
            told.healing = register.answer(told.storage, None, request, copy).replica
            reply = await self._answer(told, request)
            if self._ended.is_set():
                return
            if not isinstance(reply, Finalized) or told.healing is None:
                self._wrong(told, f"is not healed: {reply}")
                return
            told.heal(told.healing)
            self.counts["dead ones healed"] += 1


def _takes_writes(replica: Replica) -> bool:
    now = replica.registers
    open_ = now.state is ReplicaState.RBW and not replica.restarted and not now.weak
    return open_ and now.max_generation == now.accepted_generation
