"""The moves of replicas that bring the storages of a cluster to about the same use: pure choices.

As in HDFS: the *use* of a storage is the share that its blocks take of the room there is for
blocks. A storage is over-full if its use is more than the mean by `threshold`, under-full if it is
as much less. Each move has an over-full source or an under-full target, and brings the two nearer
to each other, and none further from the mean than one of them was. So the sum of the squares of the
distances from the mean falls with each move: moving ends, and no replica goes to and fro.

After a move a block has as many members as before, still on different nodes and in two racks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from paxosblock.protocol.types import BlockId, StorageId

PAIRS_PER_STORAGE: Final = 4
"""Moves at a time from or to one storage, each with another one at the other end."""
_RACKS_PER_BLOCK: Final = 2


@dataclass(frozen=True, slots=True)
class BalancedStorage:
    """A storage that may give and take replicas; `free_bytes` is the room for more of them."""

    storage: StorageId
    node: str
    rack: str
    used_bytes: int
    free_bytes: int

    @property
    def total_bytes(self) -> int:
        """Return the room for blocks, taken or not."""
        return self.used_bytes + self.free_bytes

    @property
    def use(self) -> float:
        """Return the share of it that is taken."""
        return self.used_bytes / self.total_bytes

    def with_more(self, size_bytes: int) -> BalancedStorage:
        """Return the volume with this many bytes more (or fewer, below 0)."""
        size_bytes = max(-self.used_bytes, min(size_bytes, self.free_bytes))
        used, free = self.used_bytes + size_bytes, self.free_bytes - size_bytes
        return BalancedStorage(self.storage, self.node, self.rack, used, free)


@dataclass(frozen=True, slots=True)
class Replicated:
    """A block that may be moved: its bytes, and its members."""

    block: BlockId
    size_bytes: int
    members: tuple[StorageId, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A replica of a block is to go from a member to a storage that is not a member."""

    block: BlockId
    size_bytes: int
    source: StorageId
    target: StorageId

    @property
    def pair(self) -> tuple[StorageId, StorageId]:
        """Return the two storages, between which one block is moved at a time."""
        return self.source, self.target


class Evenness:
    """The volumes of a cluster at one moment, to be balanced to within `threshold` (a share)."""

    def __init__(self, volumes: Iterable[BalancedStorage], threshold: float) -> None:
        """Take all volumes that may give and take replicas; those without any room do neither."""
        assert threshold > 0, "there is no end if every use must be the mean"
        self.threshold = threshold
        self.volumes = {volume.storage: volume for volume in volumes if volume.total_bytes}
        total = sum(volume.total_bytes for volume in self.volumes.values())
        used = sum(volume.used_bytes for volume in self.volumes.values())
        self.mean = used / total if total else 0.0

    @property
    def furthest(self) -> float:
        """Return the largest distance of a volume's use from the mean."""
        return max((abs(each.use - self.mean) for each in self.volumes.values()), default=0.0)

    @property
    def balanced(self) -> bool:
        """True if no volume is over-full or under-full."""
        return not any(self._is_over(v) or self._is_under(v) for v in self.volumes.values())

    @property
    def left_bytes(self) -> int:
        """Return the least number of bytes that must be moved."""
        volumes = self.volumes.values()
        over = sum(max(0.0, v.use - self.mean - self.threshold) * v.total_bytes for v in volumes)
        under = sum(max(0.0, self.mean - self.threshold - v.use) * v.total_bytes for v in volumes)
        return round(max(over, under))

    def pairs(
        self, busy: Collection[tuple[StorageId, StorageId]] = ()
    ) -> Iterator[tuple[BalancedStorage, tuple[BalancedStorage, ...]]]:
        """Yield each volume that should give, the fullest first, with those that should take from
        it, the emptiest first and of equal ones those in its own rack.

        Args:
            busy: pairs between which a block is being moved.
        """
        ends = Counter(storage for pair in busy for storage in pair)
        free = [v for v in self.volumes.values() if ends[v.storage] < PAIRS_PER_STORAGE]
        for source in sorted(free, key=lambda v: (-v.use, v.storage)):
            targets = [
                target
                for target in free
                if source.use > target.use
                and (source.storage, target.storage) not in busy
                and (
                    (self._is_over(source) and target.use < self.mean)
                    or (source.use > self.mean and self._is_under(target))
                )
            ]
            targets.sort(key=lambda v: (v.use, v.rack != source.rack, v.storage))
            if targets:
                yield source, tuple(targets)

    def choose(
        self, block: Replicated, source: BalancedStorage, targets: Iterable[BalancedStorage]
    ) -> Move | None:
        """Return the move of a block to the first target that may have it; None if none may."""
        if not block.size_bytes or any(each not in self.volumes for each in block.members):
            return None
        others = [self.volumes[each] for each in block.members if each != source.storage]
        for target in targets:
            if self._helps(block.size_bytes, source, target) and _may_stand(others, source, target):
                return Move(block.block, block.size_bytes, source.storage, target.storage)
        return None

    def after(self, moves: Iterable[Move]) -> Evenness:
        """Return the balance once these moves are done."""
        more = Counter[StorageId]()
        for move in moves:
            more[move.source] -= move.size_bytes
            more[move.target] += move.size_bytes
        volumes = (volume.with_more(more[volume.storage]) for volume in self.volumes.values())
        return Evenness(volumes, self.threshold)

    def _helps(self, size_bytes: int, source: BalancedStorage, target: BalancedStorage) -> bool:
        """True if the target is still below the source when each has half of the block, and after
        the move neither is further from the mean than the further one was.
        """
        less, more = size_bytes / source.total_bytes, size_bytes / target.total_bytes
        if size_bytes > target.free_bytes or source.use - less / 2 <= target.use + more / 2:
            return False
        before = max(abs(use - self.mean) for use in (source.use, target.use))
        after = max(abs(use - self.mean) for use in (source.use - less, target.use + more))
        return after <= before

    def _is_over(self, volume: BalancedStorage) -> bool:
        return volume.use > self.mean + self.threshold

    def _is_under(self, volume: BalancedStorage) -> bool:
        return volume.use < self.mean - self.threshold


def _may_stand(
    others: list[BalancedStorage], source: BalancedStorage, target: BalancedStorage
) -> bool:
    """True if the members that stay and the target are on as many nodes as before, and in as many
    racks, up to two.
    """
    if any(other.node == target.node for other in others):
        return False
    before = {source.rack, *(other.rack for other in others)}
    after = {target.rack, *(other.rack for other in others)}
    return len(after) >= min(len(before), _RACKS_PER_BLOCK)
