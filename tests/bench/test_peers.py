"""Peers of the benchmarks: how they are fetched, what is said when they cannot be, and one run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import catalog, suite
from benchmarks.peers import bookkeeper, fetch, gopeers, hdfs, kafka, s3_servers
from benchmarks.peers.processes import Load, Server, free_ports
from benchmarks.record import Record
from paxosblock.errors import UnavailableError
from paxosblock.host import loop
from tests.waiting import wait_until

catalog.load()
BESIDE = [name for name in suite.CASES if "beside" in name]

Fetched = fetch.Jars | fetch.GoPrograms
EVERY = pytest.mark.parametrize(
    "peer",
    [
        hdfs.JARS,
        bookkeeper.JARS,
        kafka.JARS,
        gopeers.PROGRAMS,
        s3_servers.VERSITYGW,
        s3_servers.LOAD,
    ],
    ids=lambda peer: peer.name,
)


def program(folder: Path, name: str, script: str) -> Path:
    """Make a program of this name in a folder that PATH can lead to."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No tool, an empty cache; returns the one folder of PATH."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", os.fspath(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    monkeypatch.setattr(fetch, "GO_AT", "")
    return tools


@EVERY
def test_a_peer_is_skipped_with_the_tool_that_is_missing(
    peer: Fetched, nothing_installed: Path
) -> None:
    tool = "go" if isinstance(peer, fetch.GoPrograms) else "mvn"
    with pytest.raises(suite.SkipError) as skipped:
        peer.fetched()
    assert str(skipped.value) == f"{peer.name} needs `{tool}`, which is not installed"


@EVERY
def test_a_registry_that_does_not_answer_is_one_line_and_leaves_nothing(
    peer: Fetched, nothing_installed: Path
) -> None:
    for tool in ("mvn", "go", "javac"):
        program(nothing_installed, tool, "echo '[ERROR] no route to host'; echo more; exit 1")
    with pytest.raises(suite.SkipError, match=r"failed: .*no route to host$") as skipped:
        peer.fetched()
    assert "\n" not in str(skipped.value)
    assert list(fetch.cache_folder().iterdir()) == []


def test_jars_are_fetched_once_and_the_load_is_compiled_beside_them(
    nothing_installed: Path, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    mkdir, touch = "/bin/mkdir", "/bin/cp /dev/null"
    program(
        nothing_installed,
        "mvn",
        f'echo "mvn $*" >> {calls}; {mkdir} -p target/dependency; {touch} target/dependency/a.jar',
    )
    program(nothing_installed, "javac", f'echo "javac" >> {calls}; {mkdir} classes')
    folder = hdfs.JARS.fetched()
    assert hdfs.JARS.fetched() == folder
    assert calls.read_text().split("\n") == ["mvn -B -q dependency:copy-dependencies", "javac", ""]
    assert folder.parent == tmp_path / "cache" / "paxosblock" / "peers"
    assert (folder / "lib" / "a.jar").exists()
    pom = (folder / "pom.xml").read_text()
    for name in ("hadoop-hdfs", "hadoop-common"):
        assert f"<artifactId>{name}</artifactId><version>{hdfs.VERSION}</version>" in pom


def test_go_builds_the_servers_and_the_load(nothing_installed: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    program(nothing_installed, "go", f'echo "$1 $2" >> {calls}; [ -f main.go ]')
    folder = gopeers.PROGRAMS.fetched()
    assert folder.name == "bin"
    told = calls.read_text().split("\n")
    assert told[:2] == ["mod init", f"get go.etcd.io/etcd/server/v3@v{gopeers.ETCD_VERSION}"]
    assert told[2:] == ["build -o"] * 3 + [""]


@pytest.mark.parametrize("name", BESIDE)
def test_a_case_without_its_peers_is_skipped_and_is_no_failure(
    name: str, nothing_installed: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program(nothing_installed, "git", "echo 1")  # tells the revision of a checkout
    records: list[Record] = []
    options = suite.Options(small=True, folder=tmp_path)
    cases = [suite.CASES[name]]
    assert loop.run(suite.run_cases(cases, options, records.append)) == []
    assert records == []
    told = capfd.readouterr().err.splitlines()
    assert told[-1].startswith(f"  {name}: skipped: ")
    assert any("which is not installed" in line for line in told)


# -- processes ------------------------------------------------------------------------------------


def test_a_server_that_ends_at_once_is_told_with_its_last_line(tmp_path: Path) -> None:
    script = program(tmp_path, "server", "echo 'the port is taken'; printf '\\tat Main\\n'; exit 1")
    server = Server("bookie-1", tmp_path / "bookie-1", [os.fspath(script)])
    server.start()
    with pytest.raises(UnavailableError, match="bookie-1 did not start: the port is taken"):
        server.wait_listening(free_ports(1)[0])
    server.kill()


def test_a_server_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """Also when that is killed, and could not end it."""
    text = (
        "import signal, sys; from pathlib import Path;"
        "from benchmarks.peers.processes import Server;"
        f"server = Server('one', Path({os.fspath(tmp_path)!r}) / 'one', ['/bin/sleep', '600']);"
        "server.start(); print(server.pid, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        wait_until(lambda: b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes())
        starter.send_signal(signal.SIGKILL)
    wait_until(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_load_that_fails_or_ends_is_an_error_that_names_the_command(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        "load",
        """echo '{"ready": 1}'; read line; echo "{\\"error\\": \\"no $line\\"}"; read line""",
    )
    load = Load("etcd", tmp_path / "load-of-etcd", [os.fspath(script)])
    load.wait_ready()
    with pytest.raises(UnavailableError, match="etcd: 'put clients=2': no put clients=2"):
        load.ask("put", clients=2)
    with pytest.raises(UnavailableError, match="the load on etcd ended at 'get'"):
        load.ask("get")
    load.close()


# -- a real peer ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif("PAXOSBLOCK_PEERS" not in os.environ, reason="fetches what others publish")
@pytest.mark.parametrize("name", BESIDE)
def test_a_case_runs_beside_its_peers(name: str, tmp_path: Path) -> None:
    """Run with `PAXOSBLOCK_PEERS=1`: it fetches hundreds of megabytes at first."""
    records: list[Record] = []
    options = suite.Options(small=True, folder=tmp_path)
    assert loop.run(suite.run_cases([suite.CASES[name]], options, records.append)) == []
    figures: dict[str, set[str]] = {}
    for record in records:
        figures.setdefault(f"{record.what} {record.unit}", set()).add(record.side)
    assert figures
    assert all(len(sides) > 1 for sides in figures.values()) or name == "failures-beside-peers"
