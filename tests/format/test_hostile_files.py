"""Whatever is in the files of a volume: a clean error or a dead replica, never wrong bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paxosblock.datanode.store.chunk_records import checked
from paxosblock.datanode.store.disk_format import Loaded
from paxosblock.datanode.store.file_store import FileStore
from paxosblock.datanode.store.identity import Identity, decode_identity
from paxosblock.datanode.store.meta import decode_metadata, describe
from paxosblock.errors import ConfigError, CorruptionError
from paxosblock.net.wire import HEADER_BYTES, record_start
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import Durability, Generation, Registers, ReplicaState, StorageId
from tests.datanode.node import BLOCK, WINDOW, chunk, frame, name
from tests.disks.simulated import SimulatedDisk
from tests.format.loading import load_all

FOLDER = Path("/volume")
CHUNKS = 6
BOOT = "boot-1"
RECORDS = b"".join(frame(index, chunk(index))[1] for index in range(CHUNKS))
NAMES = tuple(name(index) for index in range(CHUNKS))


def rbw(base: int = 2, durability: Durability = Durability.DISK) -> Replica:
    """A replica that is being written; `base` chunks were accepted with its log."""
    registers = Registers(
        max_generation=Generation(0),
        accepted_generation=Generation(0),
        epoch=Generation(0),
        base_length=base,
        state=ReplicaState.RBW,
        window=WINDOW,
        durability=durability,
    )
    return Replica(BLOCK, registers, ChunkLog(NAMES[: max(base, 1)]))


def finalized() -> Replica:
    """The same block, finalized."""
    registers = Registers(
        max_generation=Generation(1),
        accepted_generation=Generation(1),
        epoch=Generation(0),
        base_length=CHUNKS,
        state=ReplicaState.FINALIZED,
        window=WINDOW,
        durability=Durability.DISK,
        finalized_generation=Generation(1),
        finalized_length=CHUNKS,
    )
    return Replica(BLOCK, registers, ChunkLog(NAMES))


def load_one(part: str, data: bytes, meta: bytes, boot: str = BOOT) -> Loaded:
    """Load a volume with this one replica."""
    files = {FOLDER / part / f"blk_{BLOCK}": data, FOLDER / part / f"blk_{BLOCK}.meta": meta}
    (loaded,) = load_all(FileStore(SimulatedDisk(files), FOLDER, boot))
    return loaded


def length_of(loaded: Loaded) -> int:
    """Number of chunks of a replica that must not be dead."""
    assert loaded.corrupt == ""
    assert loaded.replica is not None
    return loaded.replica.length


META = describe(rbw(), BOOT, 0).encode()
FINALIZED_META = describe(finalized(), BOOT, 0).encode()


def flipped(data: bytes, bit: int) -> bytes:
    """`data` with one bit changed."""
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@given(st.binary(max_size=400))
def test_any_bytes_as_a_meta_file_make_a_dead_replica(meta: bytes) -> None:
    loaded = load_one("rbw", RECORDS, meta)
    assert loaded.corrupt
    assert loaded.replica is None


@given(st.integers(0, len(META) * 8 - 1))
def test_a_flipped_bit_in_a_meta_file_is_never_believed(bit: int) -> None:
    with pytest.raises(CorruptionError):
        decode_metadata(flipped(META, bit), BLOCK)


@given(st.binary(max_size=2000))
def test_any_bytes_as_a_block_file_are_a_dead_replica_or_an_empty_one(data: bytes) -> None:
    meta = describe(rbw(base=0), BOOT, 0).encode()
    loaded = load_one("rbw", data, meta)
    assert loaded.corrupt or length_of(loaded) == 0


@given(st.integers(0, len(RECORDS) * 8 - 1))
def test_a_flipped_bit_in_the_boot_it_was_written_in_is_corruption(bit: int) -> None:
    assert load_one("rbw", flipped(RECORDS, bit), META).corrupt


@given(st.integers(0, len(RECORDS) * 8 - 1), st.sampled_from(Durability))
@settings(max_examples=200)
def test_a_flipped_bit_after_a_power_cut_is_never_part_of_the_log(
    bit: int, durability: Durability
) -> None:
    meta = describe(rbw(durability=durability), BOOT, 0).encode()
    loaded = load_one("rbw", flipped(RECORDS, bit), meta, boot="boot-2")
    hit = next(i for i in range(CHUNKS) if bit // 8 < (i + 1) * (len(RECORDS) // CHUNKS))
    assert loaded.corrupt or length_of(loaded) == hit
    if durability is Durability.MEMORY and not loaded.corrupt:
        assert loaded.replica is not None
        assert loaded.replica.registers.weak


def test_a_chunk_that_was_on_disk_everywhere_cannot_be_a_torn_write() -> None:
    """Chunk 1 is bad, chunk 5 is there; that was sent when all had chunk 1 on disk."""
    meta = describe(rbw(base=0), BOOT, 0).encode()
    damaged = flipped(RECORDS, (len(frame(0)[1]) + HEADER_BYTES + 3) * 8)
    assert load_one("rbw", damaged, meta, boot="boot-2").corrupt
    without_the_proof = damaged[: len(frame(0)[1]) * (1 + WINDOW)]
    assert length_of(load_one("rbw", without_the_proof, meta, boot="boot-2")) == 1


@given(st.integers(0, len(RECORDS)))
def test_a_process_that_was_killed_in_mid_write_leaves_a_shorter_log(size: int) -> None:
    record = len(RECORDS) // CHUNKS
    loaded = load_one("rbw", RECORDS[:size], META)
    if size < 2 * record:
        assert loaded.corrupt, "chunks that were on stable storage are missing"
    else:
        assert length_of(loaded) == size // record


@given(st.integers(0, len(RECORDS) * 8 - 1))
def test_a_flipped_bit_of_a_finalized_block_is_never_served(bit: int) -> None:
    damaged = flipped(RECORDS, bit)
    loaded = load_one("current", damaged, FINALIZED_META)
    assert loaded.replica is not None
    log = loaded.replica.log
    assert record_start(log, len(log)) == len(damaged)
    with pytest.raises(CorruptionError):
        checked(BLOCK, log, range(CHUNKS), damaged)


@given(st.integers(0, len(RECORDS) - 1))
def test_a_finalized_block_that_is_cut_off_is_dead(size: int) -> None:
    assert load_one("current", RECORDS[:size], FINALIZED_META).corrupt


def test_metadata_in_the_wrong_folder_is_not_believed() -> None:
    assert load_one("current", RECORDS, META).corrupt


def test_metadata_that_contradicts_itself_is_not_believed() -> None:
    impossible = describe(rbw().having(accepted_generation=Generation(9)), BOOT, 0)
    assert "I1" in load_one("rbw", RECORDS, impossible.encode()).corrupt


def test_foreign_files_are_left_alone() -> None:
    names = ["notes.txt", "blk_", "blk_-1", "blk_007", "blk_99999999999999999999", "blk_7.meta.bak"]
    files = {FOLDER / "rbw" / name: b"x" for name in names}
    disk = SimulatedDisk(files)
    assert load_all(FileStore(disk, FOLDER, BOOT)) == []
    assert disk.files() == files


@given(st.binary(max_size=300))
def test_any_bytes_as_an_identity_file_are_refused_in_one_line(data: bytes) -> None:
    with pytest.raises((CorruptionError, ConfigError)) as caught:
        decode_identity(data, Path("VERSION"))
    assert "\n" not in str(caught.value)


@given(st.data())
def test_a_flipped_bit_in_an_identity_file_is_refused(data: st.DataObject) -> None:
    cluster = data.draw(st.sampled_from(["", "cluster-1"]))
    good = Identity(StorageId("storage-1"), "node-1", cluster).encode()
    bit = data.draw(st.integers(0, len(good) * 8 - 1))
    with pytest.raises((CorruptionError, ConfigError)):
        decode_identity(flipped(good, bit), Path("VERSION"))
