"""One gateway in several processes, at one port for each door."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paxosblock import Client, LocalCluster
from paxosblock.host.process import identify
from tests.fork_server import ended
from tests.gateway.gateways import S3, RunningGateway, content, gateway_of
from tests.gateway.s3_clients import s3_client
from tests.waiting import wait_until

DATA = os.urandom(300_000)
TWO = "--processes", "2"


def workers_of(pid: int) -> set[int]:
    """The processes that a gateway has forked and that run."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(each) for each in listed if identify(int(each)) is not None}


@pytest.fixture(scope="module")
def gateway(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """One of two processes, with both doors."""
    with gateway_of(cluster, tmp_path_factory.mktemp("gateway"), *S3, *TWO) as gateway:
        yield gateway
    assert "Traceback" not in gateway.log, gateway.log


def test_both_doors_answer_at_one_port_for_two_processes(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    assert len(workers_of(gateway.pid)) == 2
    threads = os.listdir(f"/proc/{gateway.pid}/task")
    assert len(threads) == 1, "a fork copies no other"
    for number in range(10):
        assert gateway.write(f"{home}/{number}", DATA).status == 201
        assert gateway.read(f"{home}/{number}") == DATA
    s3: Any = s3_client(gateway.s3_url)
    s3.put_object(Bucket=home[1:], Key="s3", Body=DATA)
    assert content(fs, f"{home}/s3") == DATA


def test_metrics_are_those_of_all_workers_and_a_page_says_whose_it_is(
    gateway: RunningGateway, home: str
) -> None:
    """Whichever is asked: numbers that jumped from one to the other would be of no use."""

    def made() -> list[float]:
        return [
            sample.value
            for family in text_string_to_metric_families(
                gateway.send("GET", "/metrics").body.decode()
            )
            for sample in family.samples
            if sample.name == "paxosblock_gateway_requests_total"
            and sample.labels["door"] == "webhdfs"
            and sample.labels["status"] == "200"
        ]

    def pids() -> int:
        page = gateway.send("GET", "/metrics").body.decode()
        assert page.count("# TYPE process_open_fds gauge") == 1
        return len(re.findall(r'^process_open_fds{worker="[12]"} \d', page, re.M))

    wait_until(lambda: pids() == 2, what="both workers")
    before = sum(made())
    for _ in range(20):
        assert gateway.ask("GET", home, "GETFILESTATUS").status == 200
    wait_until(lambda: sum(made()) == before + 20, what="all requests to be counted")
    status = gateway.send("GET", "/page.json").json["status"]
    assert (status["processes"], status["worker"] in (1, 2)) == (2, True)
    assert b"of 2 answers" in gateway.send("GET", "/").body


def test_a_worker_that_is_killed_is_started_again_and_requests_go_on(
    gateway: RunningGateway, home: str
) -> None:
    before = workers_of(gateway.pid)
    lost = min(before)
    os.kill(lost, signal.SIGKILL)
    wait_until(lambda: identify(lost) is None, what="its end")
    for number in range(20):
        assert gateway.write(f"{home}/{number}", DATA[:1000]).status == 201
    wait_until(lambda: len(workers_of(gateway.pid)) == 2, what="another worker")
    assert workers_of(gateway.pid) - before
    assert f"a worker was ended by SIGKILL, and is started again worker=1 pid={lost}" in gateway.log


def test_they_end_together_when_it_is_asked_to_and_die_with_it(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with gateway_of(cluster, tmp_path, *S3, *TWO) as gateway:
        workers = workers_of(gateway.pid)
        assert gateway.stop() == 0
        assert not any(map(identify, workers))
        assert not (tmp_path / "address").exists()
        assert not (tmp_path / "s3-address").exists()
        closed = [line for line in gateway.log.splitlines() if line.endswith("Gateway closes")]
        assert len(closed) == 2, gateway.log
    with gateway_of(cluster, tmp_path, *TWO) as gateway:
        workers = workers_of(gateway.pid)
        gateway.kill()
        wait_until(lambda: not any(map(identify, workers)), what="their end")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--processes", "0"), "gateway: --processes = 0: expected a whole number from 1 on"),
        (("--processes", "many"), "gateway: --processes = 'many': expected a whole number"),
        (("--processes", "257"), "gateway: processes = 257 is more than 256"),
        ((*TWO, "--listen", "127.0.0.1:x"), "gateway: '127.0.0.1:x' is not an address"),
    ],
)
def test_a_wrong_number_is_one_line(options: tuple[str, ...], line: str) -> None:
    command = [sys.executable, "-m", "paxosblock", "gateway", "--namenodes", "127.0.0.1:1"]
    refused = ended([*command, *options])
    assert refused.returncode == 1
    (told,) = refused.stderr.splitlines()
    assert told.startswith(line)


def test_what_no_worker_can_use_is_said_once(tmp_path: Path) -> None:
    """Only the first is started, and it says why it ended."""
    command = [sys.executable, "-m", "paxosblock", "gateway", "--namenodes", "127.0.0.1:1"]
    settings = tmp_path / "settings.toml"
    settings.write_text('[gateway]\nhttps_cert = "/nowhere.pem"\n')
    options = ["--listen", "127.0.0.1:0", "--config", str(settings), "--processes", "3"]
    refused = ended([*command, *options])
    assert refused.returncode == 1
    (told,) = refused.stderr.splitlines()
    assert "/nowhere.pem" in told
