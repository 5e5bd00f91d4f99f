"""A NameNode that lies about names: nothing is written outside the place that the user named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paxosblock import Client
from paxosblock.client.fsspec import PaxosBlockFileSystem
from tests.children import killed_at_the_end
from tests.cli.conftest import Paxosblock
from tests.waiting import wait_until

LIAR = """
import sys
from msgspec.structs import force_setattr
from paxosblock.namenode.catalog import tree

truth = tree.list_directory

def lie(view, request, limit, actor):
    page = truth(view, request, limit, actor)
    if request.path == "/d" and page.entries:
        force_setattr(page.entries[0], "path", path)
    return page

path = sys.argv.pop()
tree.list_directory = lie
from paxosblock.__main__ import main
main()
"""


@pytest.fixture(scope="module", params=["/d/../../escaped", "/d2/escaped", "/escaped", "/d/.."])
def liar(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a NameNode whose listing of /d shows one directory by another path. No test
    changes anything there."""
    home = tmp_path_factory.mktemp("liar") / "nn"
    words = ["namenode", "--path", str(home), "--listen", "127.0.0.1:0", request.param]
    process = subprocess.Popen([sys.executable, "-c", LIAR, *words], stderr=subprocess.DEVNULL)
    with killed_at_the_end(process):
        address = home / "address"
        wait_until(lambda: address.exists() and address.read_text(), what="its address")
        with Client(address.read_text().strip()) as client:
            client.mkdirs("/d/below")
        yield address.read_text().strip()


def test_get_of_a_directory_writes_nothing_outside_its_target(
    paxosblock: Paxosblock, liar: str, tmp_path: Path
) -> None:
    (target := tmp_path / "deep" / "target").mkdir(parents=True)
    result = paxosblock("--namenodes", liar, "fs", "get", "/d", target)
    assert (result.code, result.err.count("\n")) == (1, 1)
    made = {
        Path(folder) / name for folder, names, _ in os.walk(tmp_path / "deep") for name in names
    }
    assert made <= {target, target / "d"}
    assert not (tmp_path / "escaped").exists()


def test_nothing_that_lists_believes_it(liar: str) -> None:
    with Client(liar) as client, pytest.raises(Exception, match=r"no path|is not in '/d'"):
        client.ls("/d")
    with pytest.raises(Exception, match=r"no path|is not in '/d'"):
        PaxosBlockFileSystem(liar).ls("/d")
