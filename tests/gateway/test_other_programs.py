"""Programs and libraries that speak WebHDFS, unmodified."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import fsspec
import pandas as pd
import pytest

from paxosblock import Client, LocalCluster
from paxosblock.host.user import current_user
from tests.gateway.gateways import Reply, RunningGateway, content, gateway_of, put

DATA = os.urandom(2_000_000)


def test_fsspec_reads_writes_and_names_files(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    host, port = gateway.address.split(":")
    there = fsspec.filesystem("webhdfs", host=host, port=int(port), user=current_user())
    with there.open(f"{home}/f", "wb", block_size=300_000) as file:  # CREATE, and seven APPENDs
        file.write(DATA)
    assert content(fs, f"{home}/f") == DATA
    assert len(fs.locations(f"{home}/f")) == 1
    with there.open(f"{home}/f", "rb") as file:
        file.seek(1_000_000)
        assert file.read(10) == DATA[1_000_000:1_000_010]
    there.mkdir(f"{home}/d")
    there.mv(f"{home}/f", f"{home}/d/g")
    assert there.ls(home, detail=False) == [f"{home}/d"]
    assert there.info(f"{home}/d/g")["size"] == len(DATA)
    assert there.cat(f"{home}/d/g") == DATA
    assert there.du(home) == len(DATA)
    assert there.home_directory() == f"/user/{current_user()}"
    assert there.ukey(f"{home}/d/g")["bytes"] == fs.checksum(f"{home}/d/g").text
    there.rm(f"{home}/d", recursive=True)
    assert not there.exists(f"{home}/d")
    with pytest.raises(FileNotFoundError):
        there.info(f"{home}/d")


def test_pandas_reads_and_writes_by_url(gateway: RunningGateway, home: str) -> None:
    frame = pd.DataFrame({"a": range(1_000), "b": [str(n) for n in range(1_000)]})
    url, options = f"webhdfs://{gateway.address}{home}/f.csv", {"user": current_user()}
    frame.to_csv(url, index=False, storage_options=options)
    found = pd.read_csv(url, dtype={"b": str}, storage_options=options)
    pd.testing.assert_frame_equal(found, frame)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_curl_puts_and_gets_as_the_page_says(
    gateway: RunningGateway, fs: Client, home: str, tmp_path: Path
) -> None:
    local, got = tmp_path / "local", tmp_path / "got"
    local.write_bytes(DATA)
    url = f"http://{gateway.address}/webhdfs/v1{home}/f?user.name={current_user()}&op="
    quiet = ["curl", "-sS", "--fail", "--max-time", "120"]
    subprocess.run([*quiet, "-L", "-T", local, f"{url}CREATE"], check=True, timeout=150)
    assert content(fs, f"{home}/f") == DATA
    subprocess.run([*quiet, "-o", got, f"{url}OPEN"], check=True, timeout=150)
    assert got.read_bytes() == DATA


def test_memory_is_bounded_however_many_read_and_write(
    cluster: LocalCluster, fs: Client, home: str, tmp_path: Path
) -> None:
    """Requests wait for room, and all of them are served, or asked to try again."""
    big = DATA * 10
    put(fs, f"{home}/big", big)
    small = {"PAXOSBLOCK_GATEWAY_REQUEST_MEMORY": "8MiB"}
    with gateway_of(cluster, tmp_path, **small) as gateway:
        replies: list[Reply] = []

        def use(number: int) -> None:
            if number % 2:
                reply = gateway.ask("GET", f"{home}/big", "OPEN")
                assert reply.status != 200 or reply.body == big
            else:
                reply = gateway.write(f"{home}/f{number}", DATA)
                assert reply.status != 201 or content(fs, f"{home}/f{number}") == DATA
            replies.append(reply)

        threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        served = [reply for reply in replies if reply.status in (200, 201)]
        refused = [reply for reply in replies if reply.status not in (200, 201)]
        assert len(served) + len(refused) == 16
        assert served
        assert {reply.exception for reply in refused} <= {"StandbyException"}
        held = gateway.send("GET", "/metrics").body.decode()
        assert "\npaxosblock_gateway_bytes_under_way 0.0\n" in held
