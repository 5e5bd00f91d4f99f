"""One cluster for all tests in this folder; each test works in a directory of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import fsspec
import pytest
from pyarrow.conftest import groups

from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.local.cluster import LocalCluster
from tests.master_keys import write_masters


def pytest_configure(config: pytest.Config) -> None:
    """Know the marks in the modules of tests that pyarrow brings."""
    for group in groups:
        config.addinivalue_line("markers", f"{group}: a group of pyarrow's own tests")


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four DataNodes, so that one may be missing; a test that kills one starts it again."""
    write_masters(master := tmp_path_factory.mktemp("master") / "key", 1)
    namenode = {
        "lease_soft_limit": "2s",
        "lease_hard_limit": "3s",
        "master_key_file": str(master),
    }
    path = tmp_path_factory.mktemp("cluster")
    with LocalCluster(datanodes=4, path=path, settings={"namenode": namenode}) as cluster:
        yield cluster
        PaxosBlockFileSystem.clear_instance_cache()  # those that fsspec keeps are closed in time


@pytest.fixture(scope="package")
def fs(cluster: LocalCluster) -> Iterator[PaxosBlockFileSystem]:
    """The file system as fsspec itself makes it from a URL."""
    fs, _ = fsspec.url_to_fs(cluster.url, durability="memory")
    yield fs
    fs.close()


@pytest.fixture
def home(fs: PaxosBlockFileSystem) -> Iterator[str]:
    """A directory that only this test uses."""
    path = f"/{uuid.uuid4().hex}"
    fs.makedirs(path)
    yield path
    fs.rm(path, recursive=True)
