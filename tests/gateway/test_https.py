"""A gateway with a certificate: programs come in by `swebhdfs` and `https` only."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from paxosblock import Client, LocalCluster
from paxosblock.errors import ConfigError
from paxosblock.net.port.https import HttpsCertificate
from paxosblock.net.port.tls import Tls
from tests.certificates import DAY_S, Certificates
from tests.gateway.gateways import S3, RunningGateway, all_of, content, gateway_of
from tests.gateway.s3_clients import s3_client

DATA = bytes(range(256)) * 4_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority."""
    return Certificates(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def gateway(
    cluster: LocalCluster, made: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """One that shows a certificate at both of its ports."""
    folder = tmp_path_factory.mktemp("gateway")
    shown = {"PAXOSBLOCK_GATEWAY_HTTPS_CERT": made.gateway()}
    with gateway_of(cluster, folder, *S3, **shown) as gateway:
        gateway.tls = ssl.create_default_context(cafile=made.ca)
        yield gateway
    assert "Traceback" not in gateway.log, gateway.log


def test_a_file_comes_and_goes_encrypted(gateway: RunningGateway, fs: Client, home: str) -> None:
    """The address of the second step is one of https."""
    assert gateway.write(f"{home}/f", DATA).status == 201
    assert content(fs, f"{home}/f") == DATA
    assert gateway.read(f"{home}/f") == DATA
    moved = gateway.ask("PUT", f"{home}/f", "RENAME", destination=f"{home}/g")
    assert moved.json == {"boolean": True}
    ends = "paxosblock_gateway_tls_certificate_ends_seconds 1."
    assert ends in gateway.send("GET", "/metrics").body.decode()


def test_programs_of_s3_come_by_https(
    gateway: RunningGateway, made: Certificates, home: str
) -> None:
    s3: Any = s3_client(gateway.s3_url, verify=made.ca)
    s3.put_object(Bucket=home[1:], Key="f", Body=DATA)
    assert s3.get_object(Bucket=home[1:], Key="f")["Body"].read() == DATA


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java here")
def test_hadoop_comes_by_swebhdfs_as_the_page_says(
    gateway: RunningGateway, made: Certificates, fs: Client, home: str, tmp_path: Path
) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration/>")
    (tmp_path / "local").write_bytes(DATA)
    trusted, word = tmp_path / "trusted", "changeit"
    keytool = ["keytool", "-importcert", "-noprompt", "-file", made.ca, "-keystore", str(trusted)]
    subprocess.run([*keytool, "-storepass", word], check=True, capture_output=True)
    believed = f"-Djavax.net.ssl.trustStore={trusted}", f"-Djavax.net.ssl.trustStorePassword={word}"
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    url = f"swebhdfs://{gateway.address}{home}/f"
    for verb in (["-put", str(tmp_path / "local"), url], ["-get", url, str(tmp_path / "got")]):
        shell = ["java", *believed, "-cp", f"{tmp_path}:{jars}", "org.apache.hadoop.fs.FsShell"]
        done = subprocess.run([*shell, *verb], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert content(fs, f"{home}/f") == (tmp_path / "got").read_bytes() == DATA


def test_who_speaks_no_tls_is_told_so_in_the_words_of_the_door(gateway: RunningGateway) -> None:
    asked = b"GET /webhdfs/v1/?op=LISTSTATUS HTTP/1.1\r\n\r\n"
    for connect, words in (
        (gateway.connect, b'"exception":"IllegalArgumentException"'),
        (gateway.connect_s3, b"<Code>InvalidRequest</Code>"),
    ):
        came = all_of(connect(), asked)
        head, _, body = came.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert f"Content-Length: {len(body)}".encode() in head
        assert words in body
        assert b"this port speaks TLS: ask it by https" in body


def test_a_certificate_that_was_replaced_is_shown_from_then_on(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    shown = HttpsCertificate(made.gateway(), refusal=b"")
    before = shown.ends_s
    made.gateway(for_s=2 * DAY_S)
    assert shown.ends_s > before + DAY_S / 2


WRONG: dict[str, tuple[Callable[[Certificates], str], str]] = {
    "ended": (lambda made: made.gateway(now_s=1e9), "it has ended: `paxosblock setup tls DIR"),
    "no key": (lambda made: made.ca, "it must hold a certificate and its key, both in PEM"),
    "no file": (lambda made: made.ca + "x", "No such file or directory"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, case: str) -> None:
    make, words = WRONG[case]
    file = make(Certificates(tmp_path))
    if Path(file).exists():
        Path(file).chmod(0o600)
    with pytest.raises(ConfigError, match="https_cert") as caught:
        HttpsCertificate(file, refusal=b"")
    assert words in str(caught.value)
    assert file in str(caught.value)


def test_the_certificate_of_a_gateway_opens_no_node(made: Certificates) -> None:
    """It names nobody, and is good for servers alone."""
    with pytest.raises(ConfigError, match="it is not for a node"):
        Tls(made.gateway(), made.ca)
