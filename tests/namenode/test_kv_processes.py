"""The store in real processes: killed in mid-commit, on a full disk, and twice on one folder."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paxosblock.namenode.kv.interface import Versioned
from paxosblock.namenode.raft.member_folder import Limits
from tests.fork_server import Program
from tests.journal.records import payloads
from tests.raft.alone import opened

# Eight clients commit for ever; each line is one acknowledged put: key, value, index.
COMMIT_FOR_EVER = """
import asyncio, resource, sys
from pathlib import Path
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.kv.interface import Edit
from paxosblock.namenode.raft.member_folder import Limits
from tests.raft.alone import opened

async def client(store, name):
    number = 0
    while True:
        number += 1
        key = b"%d/%d" % (name, number % 10)
        result = await store.commit(Edit(puts=((key, b"%d" % number),)))
        print(key.decode(), number, result.revision, flush=True)

async def main(folder, file_bytes_max):
    if file_bytes_max:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))
    try:
        async with opened(Path(folder), limits=Limits(20_000, 60_000)) as store:
            await asyncio.gather(*(client(store, name) for name in range(8)))
    except PaxosBlockError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        sys.exit(1)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@contextmanager
def committer(folder: Path, file_bytes_max: int = 0) -> Iterator[subprocess.Popen[str]]:
    """Run the program above; a test that ends early does not wait for it."""
    process = Program(
        [sys.executable, "-c", COMMIT_FOR_EVER, str(folder), str(file_bytes_max)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def acknowledged_by(lines: list[str]) -> dict[bytes, Versioned]:
    """The last acknowledged value of each key; a line cut by the kill does not count."""
    found = {}
    for line in lines:
        if line.endswith("\n"):
            key, number, index = line.split()
            found[key.encode()] = Versioned(number.encode(), int(index))
    return found


async def check_everything_is_there(folder: Path, acknowledged: dict[bytes, Versioned]) -> int:
    """Open the folder; each key has its acknowledged value or that of a commit under way."""
    async with opened(folder, limits=Limits(20_000, 60_000)) as store:
        view = store.view()
        for key, versioned in acknowledged.items():
            found = view.get(key)
            assert found == versioned or found.revision > versioned.revision
        return view.revision


async def test_killing_the_process_again_and_again_loses_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    acknowledged: dict[bytes, Versioned] = {}
    for _ in range(6):
        lines = []
        with committer(tmp_path) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(200, 4000)):
                lines.append(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
        assert process.returncode == -signal.SIGKILL
        acknowledged |= acknowledged_by(lines)
        revision = await check_everything_is_there(tmp_path, acknowledged)
        assert revision >= max(versioned.revision for versioned in acknowledged.values())
    assert revision > 1200
    assert not (tmp_path / "journal-00000000000000000001").exists(), "there were flushes"


async def test_processes_that_are_killed_early_do_not_let_the_journal_grow_for_ever(
    tmp_path: Path,
) -> None:
    """None of them writes the 60,000 bytes after which a flush is due."""
    for _ in range(8):
        with committer(tmp_path) as process:
            assert process.stdout is not None
            for _ in range(350):
                assert process.stdout.readline()
        journal = [file.stat().st_size for file in tmp_path.glob("journal-*")]
        assert sum(journal) < 150_000


async def test_a_full_disk_stops_the_store_with_one_line_and_loses_nothing(tmp_path: Path) -> None:
    with committer(tmp_path, file_bytes_max=10_000) as process:
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith("OutcomeUnknownError: ")
    assert "File too large" in errors
    assert "Traceback" not in errors
    acknowledged = acknowledged_by(output.splitlines(keepends=True))
    assert len(acknowledged) > 50
    await check_everything_is_there(tmp_path, acknowledged)


def test_a_second_process_on_the_folder_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with committer(tmp_path) as first:
        assert first.stdout is not None
        first.stdout.readline()
        with committer(tmp_path) as second:
            _, errors = second.communicate(timeout=60)
        assert second.returncode == 1
        assert errors == f"ConfigError: {tmp_path} is in use by another process\n"
        assert first.stdout.readline()


def test_a_process_refuses_a_damaged_folder_in_one_line(tmp_path: Path) -> None:
    with committer(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
    victim = max(tmp_path.glob("journal-*[0-9]"))
    data = bytearray(victim.read_bytes())
    data[payloads(bytes(data))[0].start] ^= 0x10
    victim.write_bytes(data)
    with committer(tmp_path) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.startswith(f"CorruptionError: {victim} is damaged at offset ")
    assert len(errors.splitlines()) == 1
