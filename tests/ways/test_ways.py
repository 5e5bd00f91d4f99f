"""Pins the files and calls of each way. A change that makes one longer says in its commit why.

When a number changes, `python -m tests.ways` prints all of them, and `python -m tests.ways mkdirs`
which functions that way calls: write the new number below. They are those of Python 3.11, which
reports some calls that later ones do not, and of a system with `io_submit`.
"""

from __future__ import annotations

import sys
from typing import Final

import pytest
import uvloop

from paxosblock.host.kernel_syncs import KernelSyncs
from tests.ways.tracing import Way, listed
from tests.ways.ways import length, shortest

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="each Python counts calls its own way"
)

FILES_AND_CALLS: Final = {
    # The caller becomes a user in users.py; a new directory takes its group from the one above.
    "mkdirs": (38, 191),
    "stat": (18, 73),
    "chunk": (26, 287),
    "pread": (22, 144),
}
AT_MOST: Final = {"take_over": (89, 6000)}
"""In a recovery NameNode, DataNodes and their reports are at work at once, and who comes first
differs from run to run. The files are what is pinned: of the calls, 4,200 on a quiet machine, up
to 5,600 were counted on one where twenty processes waited for two cores, as beats fall within. Two
of the files ask who calls: users.py and node_roles.py; 87 were counted beside other tests."""


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Way]:
    async def found() -> dict[str, Way]:
        try:
            KernelSyncs().close()
        except OSError as error:
            pytest.skip(f"threads wait for the disk here, which is another way: {error}")
        return await shortest(tmp_path_factory.mktemp("ways"), FILES_AND_CALLS | AT_MOST)

    return uvloop.run(found())


@pytest.mark.parametrize("name", FILES_AND_CALLS)
def test_a_way_takes_these_files_and_calls(name: str, ways: dict[str, Way]) -> None:
    assert length(ways[name]) == FILES_AND_CALLS[name], f"\n{listed(ways[name])}"


@pytest.mark.parametrize("name", AT_MOST)
def test_a_way_takes_at_most_these_files_and_calls(name: str, ways: dict[str, Way]) -> None:
    files, calls = length(ways[name])
    most_files, most_calls = AT_MOST[name]
    assert files <= most_files, f"\n{listed(ways[name])}"
    assert calls <= most_calls, f"\n{listed(ways[name])}"
