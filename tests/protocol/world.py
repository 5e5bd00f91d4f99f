"""One state of a small cluster, made of the shipped protocol objects.

The network loses, repeats and reorders: a letter that was sent stays in the mail and may be
delivered any number of times, in any order, or never. All parts of a `World` are interned, so that
equal parts are one object and a world is compared by identity of its parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.finalize import BlockRecord, add_block
from paxosblock.protocol.messages import Create, Created, Grant, Reply, Request
from paxosblock.protocol.read import QuorumRead
from paxosblock.protocol.recovery import Proposer
from paxosblock.protocol.register import Replica, answer
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    Durability,
    Generation,
    StorageId,
    WriterId,
)
from paxosblock.protocol.write import Writer, create_message, on_created, open_writer

T = TypeVar("T")
BLOCK = BlockId(7)
WRITERS = (WriterId("w1"), WriterId("w2"), WriterId("w3"))
Content = tuple[int, ...]
"""The CRC of each chunk: in a world, this is what the chunk says."""


class Violation(AssertionError):
    """A property that must hold in every reachable state does not."""


class Cell(Generic[T]):
    """An interned value: two cells of one model are the same object iff their values are equal."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


class Disk(msgspec.Struct, frozen=True):
    """The content of a storage, and how many chunks would survive a power cut.

    Of a `dead` one the bytes are damaged: `replica` tells what it promised, None: unknown, but
    the `epoch` of its log. `copy` is what a copy of the volume has, which was made once.
    """

    replica: Replica | None
    synced: int = 0
    dead: bool = False
    epoch: Generation = FIRST_GENERATION
    copy: Replica | None = None

    @property
    def sound(self) -> Replica | None:
        """The replica, if its bytes can be read."""
        return None if self.dead else self.replica


class RebuildRequest(msgspec.Struct, frozen=True):
    """Writer -> NameNode: Rebuild(b, g) (W4)."""

    writer: int
    generation: Generation


class CloseRequest(msgspec.Struct, frozen=True):
    """Writer -> NameNode: FinalizeBlock(b, g, L) (W6)."""

    writer: int
    generation: Generation
    length: int


class Answer(msgspec.Struct, frozen=True):
    """NameNode -> writer: the record is FINALIZED with `length` chunks (W7)."""

    writer: int
    length: int
    ours: bool


Message = Request | Reply | Grant | RebuildRequest | CloseRequest | Answer


class Letter(msgspec.Struct, frozen=True):
    """A message and the storages it is for (for requests; a reply finds its own way)."""

    message: Message
    to: tuple[int, ...] = ()


class Reader(msgspec.Struct, frozen=True):
    """A read in progress. `floor` is what it must return at least (chunks).

    `record` is that of a finalized block as it was opened, `again` as it was looked at since.
    """

    mode: str
    phase: str = "idle"
    floor: int = 0
    quorum: QuorumRead | None = None
    record: BlockRecord | None = None
    again: BlockRecord | None = None


class History(msgspec.Struct, frozen=True):
    """The past, seen from outside: the checks compare the world with it.

    `must`: longest prefix that was acknowledged, returned by a read or finalized.
    `sent`: per writer epoch, all chunks its writer ever sent. `accepted`: per recovery generation,
    the log that its voters accepted; `votes`: its base, and how many members of the base config
    accepted it. `decided`: (fgs, epoch, chunks) of each finalization. `forced`: an operator gave
    members up; `lossy`: the others may have lost votes. `restored`: a backup was brought back;
    `rolled_back`: what became of the block since was learned from some storages only.
    """

    must: Content = ()
    sent: tuple[tuple[int, Content], ...] = ((0, ()),)
    accepted: tuple[tuple[int, Content], ...] = ()
    votes: tuple[tuple[int, int, int], ...] = ()
    decided: tuple[tuple[int, int, Content], ...] = ()
    forced: bool = False
    lossy: bool = False
    restored: bool = False
    rolled_back: bool = False


class Budget(msgspec.Struct, frozen=True):
    """The number of times that each costly event may still happen."""

    seals: int = 0
    rebuilds: int = 0
    appends: int = 0
    truncates: int = 0
    restarts: int = 0
    power_cuts: int = 0
    torn: int = 0
    damages: int = 0
    unreadable: int = 0
    forgets: int = 0
    copies: int = 0
    deletes: int = 0
    forces: int = 0
    leaves: int = 0
    restores: int = 0
    learns: int = 0
    volume_copies: int = 0


class Config(msgspec.Struct, frozen=True):
    """Bounds of one exploration. `targets` are the configs a REBUILD or APPEND may ask for.

    `wanted` is how many replicas must stay when a member leaves. `deaf`: after a restore any
    storages may be asked, not only all that have a replica. `continues`: a copy goes on from each
    version since the last cut.
    """

    meaning: str
    chunks: int
    window: int = 1
    budget: Budget = Budget()
    members: int = 3
    storages: int = 3
    wanted: int = 2
    targets: tuple[tuple[int, ...], ...] = ((0, 1, 2),)
    reads: tuple[str, ...] = ()
    durability: Durability = Durability.DISK
    close: bool = True
    hsync: bool = False
    created: bool = True
    write_with_create: bool = False
    nacks: bool = False
    deaf: bool = False
    continues: bool = False
    must_fire: tuple[str, ...] = ()


class World(NamedTuple):
    """One state. `mail` has a bit for each letter of the model that was sent; `backup` is the
    record as a backup has it, if one was made."""

    record: Cell[BlockRecord]
    disks: tuple[Cell[Disk], ...]
    writers: tuple[Cell[Writer], ...]
    proposers: tuple[Cell[Proposer], ...]
    readers: tuple[Cell[Reader], ...]
    mail: int
    history: Cell[History]
    budget: Cell[Budget]
    backup: Cell[BlockRecord | None]


class Move(NamedTuple):
    """One thing that can happen: the rule it exercises, told in words, and the world after."""

    rule: str
    words: tuple[object, ...]
    world: World


class Model:
    """Interns parts and letters, and remembers the outcome of every pure step."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.storages = tuple(StorageId(chr(ord("A") + i)) for i in range(config.storages))
        self.letters: list[Letter] = []
        self.fired: Counter[str] = Counter()
        self.doing: tuple[object, ...] = ()
        """The move that is being tried, for the trace when it breaks an invariant."""
        self._bits: dict[Letter, int] = {}
        self._masks: dict[tuple[type, ...], int] = {}
        self._cells: dict[object, Any] = {}
        self._memo: dict[object, Any] = {}

    def cell(self, value: T) -> Cell[T]:
        """The one cell of `value`."""
        found: Cell[T] | None = self._cells.get(value)
        if found is None:
            found = self._cells[value] = Cell(value)
        return found

    def post(self, message: Message, to: tuple[int, ...] = ()) -> int:
        """The mail bit of a letter."""
        letter = Letter(message, to)
        bit = self._bits.get(letter)
        if bit is None:
            bit = self._bits[letter] = 1 << len(self.letters)
            self.letters.append(letter)
            for kinds in self._masks:
                if isinstance(message, kinds):
                    self._masks[kinds] |= bit
        return bit

    def bits_of(self, kinds: tuple[type, ...]) -> int:
        """The bits of all letters of these kinds that were ever posted."""
        found = self._masks.get(kinds)
        if found is None:
            posted = [bit for each, bit in self._bits.items() if isinstance(each.message, kinds)]
            found = self._masks[kinds] = sum(posted)
        return found

    def letter(self, bit: int) -> Letter:
        """The letter of a mail bit."""
        return self.letters[bit.bit_length() - 1]

    def mail_of(self, world: World) -> Iterator[tuple[int, Letter]]:
        """The letters in the mail with their bits, oldest kind first."""
        return self.letters_of(world.mail)

    def letters_of(self, rest: int) -> Iterator[tuple[int, Letter]]:
        """The letters of these bits."""
        while rest:
            bit = rest & -rest
            rest ^= bit
            yield bit, self.letters[bit.bit_length() - 1]

    def once(self, step: Callable[..., T], *key: object) -> T:
        """`step(*key)`, computed the first time only; the arguments are cells and small values."""
        whole = (step, *key)
        if whole in self._memo:
            found: T = self._memo[whole]
            return found
        result = self._memo[whole] = step(*key)
        return result

    def index(self, storage: StorageId) -> int:
        """Place of a storage in `World.disks`."""
        return self.storages.index(storage)

    def start(self) -> World:
        """The first world: AddBlock has answered; with `created`, Create has too."""
        config = self.config
        members = self.storages[: config.members]
        record = add_block(BLOCK, members, WRITERS[0], config.window, config.durability)
        self.fired["K1"] += 1
        writer = open_writer(BLOCK, members, config.window)
        create = create_message(writer, config.durability)
        disks: list[Disk] = [Disk(None)] * config.storages
        mail = 0 if config.created else self.post(create, tuple(range(config.members)))
        if config.created:
            writer, disks[: config.members] = self._create(writer, create)
        return World(
            record=self.cell(record),
            disks=tuple(self.cell(disk) for disk in disks),
            writers=(self.cell(writer),),
            proposers=(),
            readers=tuple(self.cell(Reader(mode)) for mode in config.reads),
            mail=mail,
            history=self.cell(History()),
            budget=self.cell(config.budget),
            backup=self.cell(None),
        )

    def _create(self, writer: Writer, create: Create) -> tuple[Writer, list[Disk]]:
        disks = []
        for storage in writer.members:
            step = answer(storage, None, create)
            disks.append(Disk(step.replica))
            assert isinstance(step.reply, Created)
            writer = on_created(writer, step.reply)
        return writer, disks


def content(log: ChunkLog) -> Content:
    """Return the content of a log."""
    return tuple(name.crc for name in log)


def chunk_crc(generation: int, index: int) -> int:
    """The chunk that the writer of `generation` sends as number `index`: no two are equal."""
    return 100 * (generation + 1) + index


def chunk_size(crc: int) -> int:
    """Chunks of different places have different sizes, so that a wrong sum shows."""
    return crc % 100 + 1


def size_of(chunks: Content) -> int:
    """Bytes of a content."""
    return sum(chunk_size(crc) for crc in chunks)


def member_indexes(model: Model, record: BlockRecord) -> tuple[int, ...]:
    """Places of the record's members in `World.disks`."""
    return tuple(model.index(member) for member in record.members)


def recovery_quorum(count: int) -> int:
    """n - q2 + 1 with q2 = n // 2 + 1, written again here: the checks share no arithmetic."""
    return count - (count // 2 + 1) + 1
