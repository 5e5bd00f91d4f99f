"""Which addresses are taken for this machine's own."""

from __future__ import annotations

import socket

import pytest

from paxosblock.client.block_reader import is_here


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.3", "localhost", socket.gethostname()])
def test_own_addresses_are_here(host: str) -> None:
    assert is_here(f"{host}:9864")


@pytest.mark.parametrize("host", ["192.0.2.1", "[2001:db8::1]", "elsewhere.invalid", ""])
def test_all_others_are_not(host: str) -> None:
    assert not is_here(f"{host}:9864")
