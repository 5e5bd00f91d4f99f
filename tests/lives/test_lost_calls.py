"""A call on the simulated network to a process that ends is lost with its connection."""

from __future__ import annotations

import asyncio

import pytest

from paxosblock.errors import OutcomeUnknownError
from paxosblock.net.calls.call_server import RpcRouter
from tests.lives.network import Listener
from tests.lives.world import World, new_world

ADDRESS = "dn0:9864"


def test_a_call_to_a_process_that_ends_while_it_is_cut_off_is_lost() -> None:
    """Else whoever copies to it waits for ten minutes, longer than a life."""

    async def ask(world: World) -> None:
        host, network = world.new_host(), world.network
        network.listen(ADDRESS, Listener(host, RpcRouter()))
        network.cut(host)
        asking = asyncio.ensure_future(network.ask(ADDRESS, "acceptor", b""))
        await world.loop.pass_time(1.0)
        host.pause()
        network.unplug(host)
        async with asyncio.timeout(10.0):
            await asking

    with new_world(1) as world, pytest.raises(OutcomeUnknownError, match="connection lost"):
        world.loop.run_until_complete(ask(world))
