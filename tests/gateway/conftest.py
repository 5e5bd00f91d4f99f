"""One cluster and one gateway for all tests of a file, and a directory for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from paxosblock import Client, LocalCluster
from tests.gateway.gateways import S3, RunningGateway, quiet_gateway_of
from tests.gateway.s3_clients import s3_client
from tests.master_keys import write_masters


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One NameNode and three DataNodes, where leases end soon, and zones may be made."""
    master = tmp_path_factory.mktemp("master") / "key"
    write_masters(master, 1)
    names = {
        "lease_soft_limit": "2s", "lease_hard_limit": "3s", "master_key_file": str(master)
    }  # fmt: skip
    path = tmp_path_factory.mktemp("cluster")
    with LocalCluster(path=path, settings={"namenode": names}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def gateway(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A gateway of it."""
    with quiet_gateway_of(cluster, tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def gateways(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningGateway, RunningGateway]]:
    """Two gateways of it, with the door of S3."""
    folders = [tmp_path_factory.mktemp("s3") for _ in range(2)]
    with (
        quiet_gateway_of(cluster, folders[0], *S3) as one,
        quiet_gateway_of(cluster, folders[1], *S3) as other,
    ):
        yield one, other


@pytest.fixture(scope="module")
def fs(cluster: LocalCluster) -> Iterator[Client]:
    """The cluster as our own client sees it."""
    with Client(cluster.url) as fs:
        yield fs


@pytest.fixture
def home(fs: Client) -> str:
    """A directory that only this test uses."""
    path = f"/{uuid.uuid4().hex}"
    fs.mkdirs(path)
    return path


@pytest.fixture(scope="module")
def other(gateways: tuple[RunningGateway, RunningGateway]) -> Any:
    """A program of S3 at a gateway that goes on."""
    return s3_client(gateways[0].s3_url)


@pytest.fixture
def bucket(other: Any) -> str:
    """A bucket that only this test uses."""
    name = f"b-{uuid.uuid4().hex}"
    other.create_bucket(Bucket=name)
    return name
