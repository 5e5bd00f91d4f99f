"""The options with which RocksDB opens a database, and its errors in our words."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options

from paxosblock.base.units import MIB
from paxosblock.errors import CorruptionError, NoSpaceError, PaxosBlockError, StorageError

BLOCKS_BYTES: Final = 64 * MIB
"""Blocks of the database's files that are kept in memory; the system keeps more."""

MEMTABLE_BYTES: Final = 128 * MIB
"""Changes that RocksDB keeps in memory; the store flushes earlier, unless the disk refuses."""

MEMTABLES_MAX: Final = 64
"""RocksDB would hold a write, and the interpreter with it, when so many wait for a flush."""

NEVER: Final = 1 << 30
"""Files of the first level at which RocksDB would slow down or hold writes: more than it gets."""

OPEN_FILES: Final = 4096
"""Files that the database keeps open. If there were no bound, an open would read the index and the
filter of each file, and hold the interpreter meanwhile; so it does for 16 of them."""


def database_options(new: bool) -> Options:
    """Return the options of every database; a `new` one must not be there yet."""
    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(BLOCKS_BYTES))
    blocks.set_bloom_filter(10, False)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.create_if_missing(new)
    options.set_error_if_exists(new)
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(MEMTABLE_BYTES)
    options.set_arena_block_size(MIB)
    options.set_max_write_buffer_number(MEMTABLES_MAX)
    options.set_level_zero_slowdown_writes_trigger(NEVER)
    options.set_level_zero_stop_writes_trigger(NEVER)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    options.set_max_open_files(OPEN_FILES)
    options.set_bytes_per_sync(MIB)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(MIB)
    options.set_stats_dump_period_sec(0)
    return options


def translated(path: Path, error: Exception) -> PaxosBlockError:
    """Return an error of RocksDB, which has only its text, as one of our errors, in one line."""
    if isinstance(error, PaxosBlockError):
        return error
    words = " ".join(str(error).split())
    if "No space left" in words or "Disk quota" in words:
        return NoSpaceError(f"{path}: {words}")
    if words.startswith(("Corruption", "Invalid argument")) or "No such file" in words:
        return CorruptionError(f"{path}: damaged: {words}")
    return StorageError(f"{path}: {words}")
