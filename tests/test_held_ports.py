"""A port that is held is there for the node that it is held for, and for no other process."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from paxosblock.local import cluster
from paxosblock.local.cluster import HeldPorts

ANY = "127.0.0.1:0"


@pytest.fixture
def ports() -> Iterator[HeldPorts]:
    ports = HeldPorts()
    yield ports
    ports.release()


def place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def test_a_held_port_refuses_connections_until_somebody_listens(ports: HeldPorts) -> None:
    held = place(ports.hold(ANY))
    for _ in range(2):  # a node, and the same node after it was killed
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(held)
        with socket.create_server(held), socket.create_connection(held) as connection:
            assert connection.getpeername() == held


def test_a_held_port_is_in_use_for_everybody_else(ports: HeldPorts) -> None:
    address = ports.hold(ANY)
    with socket.socket() as other, pytest.raises(OSError, match="already in use"):
        other.bind(place(address))


def test_what_is_held_is_not_chosen_again(
    ports: HeldPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first = place(ports.hold(ANY))
    monkeypatch.setattr(cluster, "_FREE", (first, first + 200))
    others = HeldPorts()
    chosen = [others.hold(ANY) for _ in range(50)]
    others.release()
    assert len({first, *(place(address)[1] for address in chosen)}) == 51


def test_a_port_that_is_known_is_held_too(ports: HeldPorts) -> None:
    address = ports.hold(ANY)
    ports.release()
    assert ports.hold(address) == address
    with socket.socket() as other, pytest.raises(OSError, match="already in use"):
        other.bind(place(address))


def test_a_port_at_which_somebody_listens_is_left_to_the_node_to_complain_about(
    ports: HeldPorts,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
        assert ports.hold(address) == address


def test_a_port_that_was_released_is_free(ports: HeldPorts) -> None:
    address = ports.hold(ANY)
    ports.release()
    with socket.socket() as other:
        other.bind(place(address))
        assert other.getsockname() == place(address)
