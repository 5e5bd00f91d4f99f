"""Gateways of a cluster on one machine: they come up and go down with it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import boto3
import pytest

from paxosblock import Client, LocalCluster
from paxosblock.errors import ConfigError
from paxosblock.host.user import current_user
from paxosblock.net.calls.control import healthy
from tests.cli.conftest import Paxosblock
from tests.gateway.gateways import content, put


def url(gateway: str, path: str, op: str) -> str:
    return f"http://{gateway}/webhdfs/v1{path}?op={op}&user.name={current_user()}"


def write(gateway: str, path: str, data: bytes) -> None:
    created = url(gateway, path, "CREATE&data=true&overwrite=true")
    typed = {"Content-Type": "application/octet-stream"}
    with urlopen(Request(created, data, typed, method="PUT"), timeout=60) as answer:
        assert answer.status == 201


@pytest.mark.plain("a secure cluster wants tokens of those who come in by a gateway")
def test_a_cluster_comes_up_with_a_gateway_by_which_its_files_are_read_and_written(
    paxosblock: Paxosblock,
    home: Path,
) -> None:
    up = paxosblock("cluster", "up", "--path", home, "--base-port", "0", "--datanodes", "1")
    assert (up.code, up.err) == (0, "")
    *nodes, page, door, s3, _ = up.out.partition("export AWS_")[0].splitlines()
    assert [line.split()[0] for line in nodes] == ["namenode-0", "datanode-0", "gateway-0"]
    assert page.startswith("status page")
    name, address = door.split()
    assert name == "WebHDFS"
    local = LocalCluster.at(home)
    (gateway,) = local.gateways
    assert address == f"webhdfs://{gateway.address}/"
    assert s3.split() == ["S3", f"http://{gateway.member.s3_listen}"]

    with Client(local.url) as fs:
        put(fs, "/ours", b"by the client")
        with urlopen(url(gateway.address, "/ours", "OPEN"), timeout=60) as answer:
            assert answer.read() == b"by the client"
        for number in range(2):  # the second takes the place of the first
            write(gateway.address, "/theirs", b"by the door %d" % number)
        assert content(fs, "/theirs") == b"by the door 1"

    status = paxosblock("cluster", "status", "--path", home)
    assert status.code == 0
    words = f"serves WebHDFS, and S3 at http://{gateway.member.s3_listen}"
    assert status.out.splitlines()[2].endswith(words)
    gateway.kill()
    status = paxosblock("cluster", "status", "--path", home)
    assert status.code == 1
    assert status.out.splitlines()[2].startswith("gateway-0     down")

    again = paxosblock("cluster", "up", "--path", home)
    assert again.code == 0
    assert healthy(gateway.address), "at the port where it was"
    down = paxosblock("cluster", "down", "--path", home)
    assert (down.code, down.out) == (0, "3 nodes stopped\n")


@pytest.mark.plain("a secure cluster wants tokens of those who come in by a gateway")
def test_a_cluster_ends_in_order_and_a_gateway_whose_cluster_is_away_ends_soon(home: Path) -> None:
    with LocalCluster(datanodes=1, path=home, gateways=2) as cluster:
        for gateway in cluster.gateways:
            write(gateway.address, "/f", b"old")
            write(gateway.address, "/f", b"new")  # by a hidden name, in a directory of its own
        cluster.namenode.pause()
        assert cluster.gateways[0].stop(), "it did not wait for the NameNode"
        cluster.namenode.resume()
        assert cluster.close(), "the other one ended while the NameNode was there"


@pytest.mark.plain("a secure cluster wants tokens of those who come in by a gateway")
def test_a_cluster_that_runs_gets_gateways_and_one_that_stands_still_loses_them(
    home: Path,
) -> None:
    with LocalCluster(datanodes=1, path=home):
        more = LocalCluster(datanodes=1, path=home, gateways=2)
        more.start_missing()
        assert [healthy(node.address) for node in more.gateways] == [True, True]
        with pytest.raises(ConfigError, match="gateway-1 runs: `paxosblock cluster down` first"):
            LocalCluster(datanodes=1, path=home, gateways=1)
        more.close()
    assert len(LocalCluster(datanodes=1, path=home, gateways=0).gateways) == 0


def test_the_ports_of_gateways_come_behind_those_of_the_other_nodes(home: Path) -> None:
    cluster = LocalCluster(datanodes=2, path=home, base_port=9870, gateways=2)
    assert [node.address for node in cluster.gateways] == ["127.0.0.1:9873", "127.0.0.1:9874"]
    s3 = [node.member.s3_listen for node in cluster.gateways]
    assert s3 == ["127.0.0.1:9878", "127.0.0.1:9879"]
    many = LocalCluster(datanodes=9, path=home / "many", base_port=9870, gateways=1)
    (gateway,) = many.gateways
    assert (gateway.address, gateway.member.s3_listen) == ("127.0.0.1:9880", "127.0.0.1:9881")


@pytest.mark.plain("keys of S3 are names where nothing proves who calls")
def test_the_lines_of_up_are_all_that_a_program_of_s3_needs(
    paxosblock: Paxosblock, home: Path
) -> None:
    up = paxosblock("cluster", "up", "--path", home, "--base-port", "0", "--datanodes", "1")
    exports = [line.removeprefix("export ") for line in up.out.splitlines() if "AWS_" in line]
    told = dict(line.split("=", 1) for line in exports)
    client = boto3.client(
        "s3",
        endpoint_url=told["AWS_ENDPOINT_URL"],
        aws_access_key_id=told["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=told["AWS_SECRET_ACCESS_KEY"],
    )
    client.create_bucket(Bucket="data")
    client.put_object(Bucket="data", Key="f", Body=b"by S3")
    with Client(LocalCluster.at(home).url) as fs:
        assert content(fs, "/data/f") == b"by S3"
    assert paxosblock("cluster", "down", "--path", home).code == 0


@pytest.mark.plain("it makes a secure cluster by itself")
def test_a_secure_cluster_has_no_keys_of_s3_and_so_no_door_of_it(home: Path) -> None:
    cluster = LocalCluster(datanodes=1, path=home, gateways=1, secure=True)
    cluster.start()
    try:
        (gateway,) = cluster.gateways
        assert not cluster.speaks_s3
        assert "--s3-listen" not in cluster.command(gateway.member)
        assert healthy(gateway.address)
    finally:
        cluster.close()
    with pytest.raises(ConfigError, match="gateways = -1"):
        LocalCluster(path=home / "other", gateways=-1)


@pytest.mark.plain("the whole run is secure, and this cluster is by itself")
def test_the_gateway_of_a_secure_cluster_serves_those_who_bring_a_token(home: Path) -> None:
    with LocalCluster(datanodes=1, path=home, secure=True, gateways=1) as cluster:
        (gateway,) = cluster.gateways
        with Client(cluster.url, cluster.client_config) as fs:
            put(fs, "/f", b"secret")
            token = fs.issue_token(600).token
        refused = urlopen_status(url(gateway.address, "/f", "OPEN"), {})
        assert refused == (401, "AuthenticationException")
        brought = {"Authorization": f"Bearer {token}"}
        request = Request(url(gateway.address, "/f", "OPEN"), headers=brought)
        with urlopen(request, timeout=60) as answer:
            assert answer.read() == b"secret"


def urlopen_status(asked: str, headers: dict[str, str]) -> tuple[int, str]:
    """Return the status of a refusal, and the name of its class."""
    with pytest.raises(HTTPError) as caught:
        urlopen(Request(asked, headers=headers), timeout=60)
    with caught.value as answer:
        return answer.code, json.loads(answer.read())["RemoteException"]["exception"]
