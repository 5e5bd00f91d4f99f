"""Access keys of S3 where there is an access secret: each may what its id says, until its end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.user_tokens import TokenRight
from paxosblock.cli.main import run
from paxosblock.config import ClientConfig
from paxosblock.gateway.s3.access_keys import KeyMaker
from paxosblock.gateway.s3.s3_door import REVOKED_S
from paxosblock.host.user import current_user
from tests.gateway.gateways import S3, RunningGateway, gateway_of
from tests.gateway.s3_clients import error_code, refused, s3_client, send
from tests.services.test_secrets_are_not_told import found_in
from tests.waiting import wait_until

SECRET = b"the access secret of the cluster"


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with it."""
    file = tmp_path_factory.mktemp("secret") / "access"
    file.write_text(f"{SECRET.hex()}\n")
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def cluster(secret: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster whose nodes serve those only who know it."""
    file = {"access_file": str(secret)}
    path = tmp_path_factory.mktemp("cluster")
    with LocalCluster(path=path, settings={"namenode": file, "datanode": file}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def fs(cluster: LocalCluster, secret: Path) -> Iterator[Client]:
    """The superuser's client."""
    with Client(cluster.url, ClientConfig(access_file=str(secret))) as fs:
        fs.mkdirs("/data", permission=0o777, umask=0)
        fs.mkdirs("/other", permission=0o777, umask=0)
        yield fs


@pytest.fixture(scope="module")
def gateway(
    cluster: LocalCluster, fs: Client, secret: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A gateway that knows it."""
    proof = {"PAXOSBLOCK_CLIENT_ACCESS_FILE": str(secret)}
    with gateway_of(cluster, tmp_path_factory.mktemp("gateway"), *S3, **proof) as gateway:
        yield gateway
        log = gateway.log
    assert "Traceback" not in log, log
    assert SECRET.hex() not in log


@pytest.fixture
def environment(
    monkeypatch: pytest.MonkeyPatch, cluster: LocalCluster, secret: Path
) -> pytest.MonkeyPatch:
    """That of a person who runs commands, and has the secret."""
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
    monkeypatch.setenv("PAXOSBLOCK_ACCESS_FILE", str(secret))
    return monkeypatch


Made = dict[str, str]


def made(capfd: pytest.CaptureFixture[str], *options: str) -> Made:
    """Make a key by the command."""
    capfd.readouterr()
    assert run(["admin", "s3-key", "--json", *options]) == 0
    found: Made = json.loads(capfd.readouterr().out)
    return found


def client(gateway: RunningGateway, key: Made) -> Any:
    return s3_client(gateway.s3_url, key["AWS_ACCESS_KEY_ID"], key["AWS_SECRET_ACCESS_KEY"])


@pytest.mark.usefixtures("environment")
def test_a_key_is_its_user(
    gateway: RunningGateway, fs: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    joe = client(gateway, made(capfd, "--user", "joe"))
    joe.put_object(Bucket="data", Key="joe", Body=b"x")
    assert fs.stat("/data/joe").owner == "joe"
    fs.set_permission("/data/joe", 0o600)
    assert joe.get_object(Bucket="data", Key="joe")["Body"].read() == b"x"
    ann = client(gateway, made(capfd, "--user", "ann"))
    assert refused(ann.get_object, Bucket="data", Key="joe") == "AccessDenied"
    me = client(gateway, made(capfd))
    me.put_object(Bucket="data", Key="me", Body=b"x")
    assert fs.stat("/data/me").owner == current_user()


@pytest.mark.usefixtures("environment")
def test_a_key_may_do_less_than_its_user(
    gateway: RunningGateway, fs: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("data", "other"):
        with fs.create(f"/{name}/f", overwrite=True) as file:
            file.write(b"x")
    one = client(gateway, made(capfd, "--bucket", "data"))
    assert [each["Name"] for each in one.list_buckets()["Buckets"]] == ["data"]
    one.put_object(Bucket="data", Key="g", Body=b"x")
    source = {"Bucket": "other", "Key": "f"}
    for call, arguments in (
        (one.get_object, {"Bucket": "other", "Key": "f"}),
        (one.put_object, {"Bucket": "other", "Key": "g", "Body": b""}),
        (one.list_objects_v2, {"Bucket": "other"}),
        (one.copy_object, {"Bucket": "data", "Key": "h", "CopySource": source}),
    ):
        assert refused(call, **arguments) == "AccessDenied"
    reader = client(gateway, made(capfd, "--read-only"))
    assert reader.get_object(Bucket="other", Key="f")["Body"].read() == b"x"
    f = {"Bucket": "data", "Key": "f"}
    for call, arguments in (
        (reader.put_object, {**f, "Body": b""}),
        (reader.delete_object, f),
        (reader.delete_objects, {"Bucket": "data", "Delete": {"Objects": [{"Key": "f"}]}}),
        (reader.copy_object, {"Bucket": "data", "Key": "h", "CopySource": f}),
        (reader.create_bucket, {"Bucket": "made"}),
        (reader.delete_bucket, {"Bucket": "data"}),
    ):
        assert refused(call, **arguments) == "AccessDenied"
    assert {each.name for each in fs.ls("/data")} >= {"f", "g"}
    assert not fs.exists("/made")


@pytest.mark.usefixtures("environment")
def test_a_key_ends_and_is_revoked(
    gateway: RunningGateway, fs: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    over = KeyMaker((SECRET,)).make("joe", int(time.time()) - 1, read_only=False)
    key = {"AWS_ACCESS_KEY_ID": over.id, "AWS_SECRET_ACCESS_KEY": over.secrets[0]}
    assert refused(client(gateway, key).list_buckets) == "ExpiredToken"
    key = made(capfd, "--user", "joe", "--for", "1h")
    joe = client(gateway, key)
    joe.list_buckets()
    assert run(["admin", "s3-key", "--revoke", key["AWS_ACCESS_KEY_ID"]]) == 0
    wait_until(
        lambda: refused(joe.list_buckets) == "InvalidAccessKeyId",
        timeout_s=REVOKED_S + 60,
        what="the end of a key that was revoked",
    )
    (noted,) = fs.ls("/.s3/revoked")
    assert 0 < noted.expires_s - time.time() <= 3600
    assert run(["admin", "s3-key", "--revoke", "PXBAAAA"]) == 1


def test_without_a_key_of_the_cluster_there_is_nothing(
    gateway: RunningGateway, capfd: pytest.CaptureFixture[str], environment: pytest.MonkeyPatch
) -> None:
    assert error_code(send(gateway.s3_url, "GET", "/")) == "AccessDenied"
    assert refused(s3_client(gateway.s3_url).list_buckets) == "InvalidAccessKeyId"
    other = KeyMaker((b"another",)).make("joe", int(time.time()) + 100, read_only=False)
    strange = s3_client(gateway.s3_url, other.id, other.secrets[0])
    assert refused(strange.list_buckets) == "SignatureDoesNotMatch"
    environment.delenv("PAXOSBLOCK_ACCESS_FILE")
    assert made(capfd, "--user", "joe")["AWS_SECRET_ACCESS_KEY"] == "paxosblock"
    assert run(["admin", "s3-key", "--read-only"]) == 1
    assert run(["admin", "s3-key", "--bucket", "X"]) == 1


def test_a_command_prints_what_a_shell_reads(
    capfd: pytest.CaptureFixture[str], environment: pytest.MonkeyPatch
) -> None:
    environment.delenv("PAXOSBLOCK_ACCESS_FILE")
    assert run(["admin", "s3-key", "--user", "a b", "--endpoint", "http://gw:9878"]) == 0
    assert capfd.readouterr().out.splitlines() == [
        "export AWS_ACCESS_KEY_ID='a b'",
        "export AWS_SECRET_ACCESS_KEY=paxosblock",
        "export AWS_ENDPOINT_URL=http://gw:9878",
    ]


def test_a_gateway_with_another_proof_says_what_it_lacks(
    cluster: LocalCluster, fs: Client, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(fs.issue_token(3600, TokenRight.READ).token)
    token.chmod(0o600)
    folder = tmp_path / "gateway"
    folder.mkdir()
    proof = {"PAXOSBLOCK_CLIENT_TOKEN_FILE": str(token)}
    with (
        pytest.raises(AssertionError, match="S3 needs the access secret"),
        gateway_of(cluster, folder, *S3, **proof),
    ):
        pass


@pytest.mark.usefixtures("environment")
def test_a_gateway_tells_no_key_no_token_and_no_signature(
    cluster: LocalCluster,
    fs: Client,
    secret: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its log of everything, its page, its metrics, its refusals, and the logs of all nodes."""
    proof = {"PAXOSBLOCK_CLIENT_ACCESS_FILE": str(secret)}
    key = made(capfd, "--user", "joe")
    token = fs.issue_token(3600, TokenRight.READ | TokenRight.WRITE).token
    object_ = {"Bucket": "data", "Key": "told"}
    with gateway_of(cluster, tmp_path, *S3, "--log-level", "debug", **proof) as gateway:
        words = key["AWS_ACCESS_KEY_ID"], key["AWS_SECRET_ACCESS_KEY"]
        joe = s3_client(gateway.s3_url, *words, signature_version="s3v4")
        joe.put_object(**object_, Body=b"x")
        link = urlsplit(joe.generate_presigned_url("get_object", Params=object_))
        replies = [
            send(gateway.s3_url, "GET", f"{link.path}?{link.query}"),
            send(gateway.s3_url, "GET", f"/data/no{link.path}?{link.query}"),
            gateway.ask("GET", "/data", "LISTSTATUS", delegation=token),
            gateway.ask("GET", "/none", "LISTSTATUS", delegation=token),
            gateway.ask("GET", "/data", "LISTSTATUS", delegation=token[:-2]),
            gateway.send("GET", "/metrics"),
            gateway.send("GET", "/"),
        ]
        assert [each.status for each in replies] == [200, 403, 200, 404, 403, 200, 200]
        wrong = s3_client(gateway.s3_url, key["AWS_ACCESS_KEY_ID"], "x" + token[-30:])
        assert refused(wrong.list_buckets) == "SignatureDoesNotMatch"
        told = [(f"reply {n}", each.body) for n, each in enumerate(replies)]
        told += [("log of the gateway", gateway.log.encode())]
    told += [(f"log of {node.name}", node.log.read_bytes()) for node in cluster.nodes]
    signature = dict(parse_qsl(link.query))["X-Amz-Signature"]
    secrets = [key["AWS_SECRET_ACCESS_KEY"].encode(), token.encode(), signature.encode(), SECRET]
    assert found_in(told, [*secrets, token.partition(".")[2].encode()]) == []
