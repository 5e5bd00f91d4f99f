"""A change whose answer did not arrive is asked for again: it hears what was lost, once."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from paxosblock import Client, LocalCluster
from tests.gateway.gateways import Reply, RunningGateway, content, put
from tests.waiting import wait_until

Gateways = tuple[RunningGateway, RunningGateway]


def lose(cluster: LocalCluster, gateway: RunningGateway, method: str, target: str) -> None:
    """Send a request, and break the connection before it can be answered."""
    cluster.namenode.pause()
    try:
        with gateway.connect() as connection:
            head = f"{method} {target} HTTP/1.1\r\nHost: {gateway.address}\r\n\r\n"
            connection.sendall(head.encode())
            assert gateway.send("GET", "/healthz").status == 200, "the first has begun by now"
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b"", "the gateway has closed it, and answers no more"
    finally:
        cluster.namenode.resume()


def tickets(fs: Client) -> list[str]:
    """The lost answers that are kept."""
    if not fs.exists("/.staging"):
        return []
    return [each.name for each in fs.ls("/.staging") if each.name.startswith("lost-")]


CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "rename": ("PUT", "RENAME", {"destination": "{home}/g"}),
    "rename2": ("PUT", "RENAME", {"destination": "{home}/g", "renameoptions": "NONE"}),
    "delete": ("DELETE", "DELETE", {}),
    "concat": ("POST", "CONCAT", {"sources": "{home}/h"}),
    "setxattr": ("PUT", "SETXATTR", {"xattr.name": "user.a", "flag": "CREATE"}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_whose_answer_was_lost_is_told_at_any_gateway_once(
    cluster: LocalCluster, gateways: Gateways, fs: Client, home: str, case: str
) -> None:
    method, op, parameters = CASES[case]
    parameters = {name: value.format(home=home) for name, value in parameters.items()}
    one, other = gateways
    put(fs, f"{home}/f", b"first")
    put(fs, f"{home}/h", b"more")
    before = (fs.ls(home), fs.get_attributes(f"{home}/f"))
    lose(cluster, one, method, one.url(f"{home}/f", op, **parameters))
    wait_until(lambda: tickets(fs), what="the answer to be known as lost")
    assert (fs.ls(home), fs.exists(f"{home}/f") and fs.get_attributes(f"{home}/f")) != before

    again = other.ask(method, f"{home}/f", op, **parameters)
    assert again.status == 200, again
    assert again.body in (b"", b'{"boolean":true}')
    assert tickets(fs) == []
    third = other.ask(method, f"{home}/f", op, **parameters)
    assert third.status != 200 or third.json == {"boolean": False}


RACES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "rename": ("PUT", "RENAME", {"destination": "{home}.taken"}),
    "delete": ("DELETE", "DELETE", {}),
    "setxattr": ("PUT", "SETXATTR", {"xattr.name": "user.lock", "flag": "CREATE"}),
}


@pytest.mark.parametrize("race", RACES)
def test_of_all_who_ask_for_one_change_at_once_one_hears_that_it_did(
    gateways: Gateways, fs: Client, home: str, race: str
) -> None:
    """Locks are made so; what a repeat hears must not let two programs have one."""
    method, op, parameters = RACES[race]
    for number in range(10):
        path = f"{home}/f{number}"
        more = {name: value.format(home=path) for name, value in parameters.items()}
        put(fs, path, b"")

        def ask(gateway: RunningGateway, path: str, more: dict[str, Any]) -> Reply:
            return gateway.ask(method, path, op, **more)

        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(ask, each, path, more) for each in (*gateways, *gateways)]
            replies = [each.result() for each in asked]
        won = [each for each in replies if each.body in (b"", b'{"boolean":true}')]
        assert len(won) == 1, replies
    assert tickets(fs) == []


def test_a_repeat_waits_for_what_becomes_of_the_first(
    cluster: LocalCluster, gateways: Gateways, fs: Client, home: str
) -> None:
    """A program that gave up while no NameNode answered asks again at once, at the same gateway."""
    gateway, _ = gateways
    put(fs, f"{home}/f", b"kept")
    target = gateway.url(f"{home}/f", "RENAME", destination=f"{home}/g")
    lose(cluster, gateway, "PUT", target)
    assert gateway.send("PUT", target).json == {"boolean": True}
    assert content(fs, f"{home}/g") == b"kept"
    assert not fs.exists(f"{home}/f")
