"""Output of the command without a cluster: help, wrong usage, no node there, bugs."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from paxosblock import Client, LocalCluster
from paxosblock.base.version import __version__
from paxosblock.cli import main as command_line
from paxosblock.cli.group import LazyGroup
from paxosblock.cli.invocation import IN_VAIN_S, Invocation
from paxosblock.errors import NotFoundError, UnavailableError
from tests.children import killed_at_the_end
from tests.cli.conftest import CtrlC, Paxosblock


def groups(group: LazyGroup, *words: str) -> Iterator[tuple[tuple[str, ...], LazyGroup]]:
    yield words, group
    for name, command in commands(group):
        if isinstance(command, LazyGroup):
            yield from groups(command, *words, name)


def commands(group: LazyGroup) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command


ALL_GROUPS = dict(groups(command_line.root))
ALL_VERBS = [
    (*words, name)
    for words, group in ALL_GROUPS.items()
    for name, command in commands(group)
    if not isinstance(command, LazyGroup) and name != "bench"
]


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address where no process listens, and no other one can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("words", ALL_GROUPS, ids=" ".join)
def test_help_of_a_group_lists_its_commands(paxosblock: Paxosblock, words: tuple[str, ...]) -> None:
    result = paxosblock(*words, "--help")
    assert (result.code, result.err) == (0, "")
    assert all(f"  {name} " in result.out for name in ALL_GROUPS[words].entries)


@pytest.mark.parametrize("verb", ALL_VERBS, ids=" ".join)
def test_help_of_a_verb_shows_an_example(paxosblock: Paxosblock, verb: tuple[str, ...]) -> None:
    result = paxosblock(*verb, "--help")
    assert (result.code, result.err) == (0, "")
    assert f"$ paxosblock {' '.join(verb)}" in result.out


def test_help_does_not_import_what_the_verbs_need() -> None:
    script = (
        "import sys; from paxosblock.cli.main import run; code = run(['fs', '--help']);"
        "print(code, [name for name in ('aiohttp', 'asyncio', 'rich') if name in sys.modules])"
    )
    command = [sys.executable, "-c", script]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert out.splitlines()[-1] == "0 []"


@pytest.mark.parametrize("module", ["click", "paxosblock.cli.text"])
def test_ctrl_c_before_a_verb_begins_its_work_ends_the_command_and_prints_nothing(
    module: str,
) -> None:
    program = f"""
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
def interrupt(event, arguments):
    if event == "import" and arguments[0] == {module!r}:
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(interrupt)
sys.argv[1:] = ["fs", "ls", "/"]
runpy.run_module("paxosblock", run_name="__main__")
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_the_version_is_told(paxosblock: Paxosblock) -> None:
    assert paxosblock("--version").out == f"paxosblock {__version__}\n"


def test_no_command_shows_the_help_as_wrong_usage(paxosblock: Paxosblock) -> None:
    result = paxosblock()
    assert result.code == 2
    assert "Usage: paxosblock" in result.err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("nonsense",), "paxosblock: No such command 'nonsense'. Try 'paxosblock --help'.\n"),
        (("foo",), "paxosblock: No such command 'foo'. Try 'paxosblock --help'.\n"),
        (("fs", "tset"), "fs: No such command 'tset'; did you mean 'test'? Try 'paxosblock fs --h"),
        (("fs", "lss"), "fs: No such command 'lss'; did you mean 'ls'? Try 'paxosblock fs --h"),
        (("fs", "-lss"), "fs: No such command 'lss'; did you mean 'ls'?"),
        (("fs", "-lsr", "/"), "fs: No such command 'lsr'; did you mean 'ls -R'?"),
        (
            ("fs", "-copyFromLocl", "a", "/b"),
            "fs: No such command 'copyFromLocl'; did you mean 'co",
        ),
        (("fs", "-tesst", "/"), "fs: No such command 'tesst'; did you mean 'test'?"),
        (("cluster", "ups"), "cluster: No such command 'ups'; did you mean 'up'?"),
        (("fs", "ls", "--wrong"), "ls: No such option '--wrong'. Try"),
        (("fs", "ls", "--jsn"), "ls: No such option '--jsn'; did you mean '--json'? Try"),
        (("fs", "rm"), "rm: Missing argument 'PATHS...'. Try 'paxosblock fs rm --help'.\n"),
        (
            ("fs", "recover-lease", "/x", "--yes"),
            "recover-lease: --yes goes with --force. Try 'paxosblock fs recover-lease --help'.\n",
        ),
        (("--timeout", "5"), "paxosblock: Invalid value for '--timeout': duration '5' has no unit"),
        (("fs", "stat", "%b"), "stat: Missing argument 'PATH...'."),
        (("fs", "put", "only-one"), "put: Missing argument 'LOCAL...'."),
        (("cluster", "up", "--datanodes", "0"), "up: Invalid value for '--datanodes':"),
        (("cluster", "up", "--namenodes", "2"), "up: Invalid value for '--namenodes': '2' is not"),
        (
            ("datanode", "--path", "/x", "--namenodes", "nn:1", "--rack", "dc1/r7"),
            "datanode: Invalid value for '--rack': 'dc1/r7' is not a rack: write a path such as /d",
        ),
        (("demo", "--size", "12"), "demo: Invalid value for '--size': size '12' has no unit"),
        (("demo", "--size", "1MiB"), "demo: Invalid value for '--size': the demo needs at least"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    paxosblock: Paxosblock, words: tuple[str, ...], line: str
) -> None:
    result = paxosblock(*words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(line)
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["ls", "-ls", "stat", "cat", "rm"])
def test_a_cluster_that_is_not_there_is_one_line(
    paxosblock: Paxosblock, closed_port: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_RETRY_FOR", "0s")
    result = paxosblock("--namenodes", closed_port, "fs", verb, "/x")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"{verb.removeprefix('-')}: '/x': ")
    assert closed_port in result.err
    assert result.err.count("\n") == 1


@pytest.fixture
def silent_port() -> Iterator[str]:
    """An address where connections are taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield "{}:{}".format(*server.getsockname())


@pytest.mark.parametrize("verb", ["ls", "cat"])
@pytest.mark.parametrize("port", ["closed_port", "silent_port"])
def test_every_verb_has_the_same_patience(
    paxosblock: Paxosblock, request: pytest.FixtureRequest, port: str, verb: str
) -> None:
    """One of them asks through the client, and one without it."""
    address = request.getfixturevalue(port)
    begun = time.monotonic()
    result = paxosblock("--timeout", "3s", "--namenodes", address, "fs", verb, "/x")
    assert 2.0 < time.monotonic() - begun < 9.0
    assert (result.code, result.out) == (1, "")
    waiting, failed = result.err.splitlines()
    assert waiting == f"{verb}: waiting for the cluster at {address} (--timeout 3s)"
    assert failed.startswith(f"{verb}: '/x': ")
    assert address in failed


def test_a_command_waits_once_in_vain_and_not_at_each_path(
    paxosblock: Paxosblock, silent_port: str
) -> None:
    begun = time.monotonic()
    paths = [f"/{number}" for number in range(5)]
    result = paxosblock("--timeout", "3s", "--namenodes", silent_port, "fs", "ls", *paths)
    assert time.monotonic() - begun < 12.0
    waiting, *failed = result.err.splitlines()
    assert waiting.startswith("ls: waiting for the cluster")
    assert [line.split(": ")[1] for line in failed] == [f"'{path}'" for path in paths]


def test_patience_is_whole_again_once_something_went_on(closed_port: str) -> None:
    invocation = Invocation(closed_port, timeout=5.0)
    seen = []

    def wait(error: Exception | None) -> None:
        seen.append(invocation.client.config.retry_for_s)
        if error is not None:
            raise error

    late = UnavailableError("nobody answers")
    with contextlib.closing(invocation):
        invocation.for_each([late, late, None, NotFoundError("it is gone"), None], wait)
    assert seen == [5.0, IN_VAIN_S, IN_VAIN_S, 5.0, 5.0]


def test_without_patience_nothing_is_asked_twice(paxosblock: Paxosblock, closed_port: str) -> None:
    result = paxosblock("fs", "ls", "/x", "--namenodes", closed_port, "--timeout", "0s", "--json")
    assert result.code == 1
    assert [json.loads(line)["error"] for line in result.err.splitlines()] == ["UnavailableError"]


@pytest.mark.parametrize(
    ("namenodes", "reason"),
    [("host:port", "'port' is no port"), ("http://host:1", "starts with paxosblock://")],
)
def test_an_address_that_is_none_is_one_line(
    paxosblock: Paxosblock, namenodes: str, reason: str
) -> None:
    result = paxosblock("fs", "ls", "--namenodes", namenodes, "/")
    assert result.code == 1
    assert result.err.startswith("ls: ")
    assert reason in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("verb", [("fs", "ls"), ("fs", "put", "-"), ("admin", "report")])
def test_a_variable_that_is_misspelt_is_one_line_and_nobody_is_asked(
    paxosblock: Paxosblock, verb: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_NAMENODE", "elsewhere:9870")
    result = paxosblock(*verb, *(["/x"] if verb[0] == "fs" else []))
    line = "unknown variable PAXOSBLOCK_NAMENODE; did you mean 'PAXOSBLOCK_NAMENODES'?"
    assert (result.code, result.out, result.err) == (1, "", f"{verb[1]}: {line}\n")


@pytest.mark.plain("what answers speaks no TLS: test_tls.py")
def test_something_that_does_not_speak_our_protocol_is_one_line(paxosblock: Paxosblock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "{}:{}".format(*server.getsockname())
        answer = f"import socket; c, _ = socket.socket(fileno={server.fileno()}).accept();"
        answer += "c.recv(4096); c.sendall(b'SSH-2.0-OpenSSH\\r\\n'); c.close()"
        command = [sys.executable, "-c", answer]
        with subprocess.Popen(command, pass_fds=[server.fileno()]):
            result = paxosblock("fs", "ls", "--namenodes", address, "/")
    assert result.code == 1
    words = f"ls: '/': {address} is no paxosblock node: it answered b'SSH-2.0"
    assert result.err.startswith(words)
    assert result.err.count("\n") == 1


def test_an_empty_path_is_refused(paxosblock: Paxosblock) -> None:
    result = paxosblock("fs", "ls", "")
    assert result.code == 1
    assert result.err == "ls: an empty path\n"


def test_with_json_a_failure_is_one_object(paxosblock: Paxosblock) -> None:
    result = paxosblock("fs", "ls", "--json", "")
    assert result.code == 1
    assert json.loads(result.err) == {
        "verb": "ls",
        "path": "",
        "reason": "an empty path",
        "error": "UserError",
        "outcome": "never",
        "retriable": False,
    }


@pytest.mark.parametrize("debug", [False, True])
def test_a_bug_is_one_line_and_a_traceback_with_debug(
    paxosblock: Paxosblock, monkeypatch: pytest.MonkeyPatch, debug: bool
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("nobody\nthought of this")

    monkeypatch.setattr("paxosblock.cli.invocation.Invocation.call", fail)
    result = paxosblock(*(["--debug"] if debug else []), "fs", "ls", "/")
    assert result.code == 1
    *traceback, line = result.err.splitlines()
    assert line.startswith("ls: this is a bug in paxosblock: RuntimeError: nobody thought of this")
    assert bool(traceback) == debug


def test_a_signal_of_the_keyboard_ends_it_with_130(ctrl_c: CtrlC) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "{}:{}".format(*server.getsockname())
        command = [sys.executable, "-m", "paxosblock", "fs", "ls", "--namenodes", address, "/"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        with killed_at_the_end(process), server.accept()[0] as connection:
            connection.recv(1)  # it waits for our answer now
            ctrl_c(process)
            _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.strip() == ""


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--version"], "paxosblock"),
        (["setup", "completion", "bash", "--print"], "completion"),
        (["--help"], "paxosblock"),
    ],
)
def test_without_standard_output_a_command_says_so_in_one_line(words: list[str], line: str) -> None:
    ended = closed(words, ">&-")
    assert ended.returncode == 1
    assert ended.stderr == f"{line}: standard input or output is closed\n"


def test_what_prints_nothing_needs_neither_input_nor_output(
    cluster: LocalCluster, client: Client, folder: str
) -> None:
    words = ["fs", "mkdir", f"{folder}/made", "--namenodes", cluster.addresses[0]]
    assert closed(words, "<&- >&- 2>&-").returncode == 0
    assert client.exists(f"{folder}/made")
    words = ["fs", "put", "-", f"{folder}/a", "--namenodes", cluster.addresses[0]]
    assert closed(words, "<&-").stderr == "put: '-': standard input or output is closed\n"


def closed(words: list[str], redirection: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell does that closes some of what it has open."""
    script = f'exec "$@" {redirection}'
    command = ["bash", "-c", script, "bash", sys.executable, "-m", "paxosblock", *words]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=60)


def test_options_may_stand_before_a_verb_and_after_its_group(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    client.mkdirs(f"{folder}/below")
    for words in (("--json", "ls"), ("--timeout", "3s", "--json", "-ls"), ("ls", "--json")):
        shown = fs(*words, folder)
        assert (shown.code, shown.err) == (0, "")
        assert json.loads(shown.out)["path"] == f"{folder}/below"


def test_a_page_that_does_not_exist_is_one_line(paxosblock: Paxosblock) -> None:
    refused = paxosblock("help", "operation")
    line = "help: 'operation': no such page; did you mean 'operations'?\n"
    assert (refused.code, refused.err) == (1, line)


def test_every_page_that_an_error_names_is_there(repository: Path) -> None:
    sources = [path.read_text() for path in (repository / "paxosblock").rglob("*.py")]
    named = {name for text in sources for name in re.findall(r"paxosblock help (\w+)", text)}
    assert "operations" in named
    assert [name for name in named if not (repository / "docs" / f"{name}.md").exists()] == []
